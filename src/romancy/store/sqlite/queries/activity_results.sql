-- Results and effects of activities that commit in transactions of their own.

-- name: lock_messaging
-- Nothing to lock: the transaction holds the write lock of the file, which serves as the messaging lock.
SELECT 1

-- name: fence
-- A row if the run still owns its instance.
SELECT 1 FROM romancy_instances WHERE id = ? AND generation = ? AND epoch = ? AND owner = ?

-- name: store_result
-- Store a result that is not in the history yet in the instance's inbox.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: lock_instance
-- Wait for a transaction that writes to the instance.
SELECT 1 FROM romancy_instances WHERE id = ?

-- name: stored_results
-- Inbox items with results of an operation.
SELECT id, body FROM romancy_inbox WHERE instance_id = ? AND kind = ? AND op = ? ORDER BY id
