-- Results and effects of activities that commit in transactions of their own.

-- name: lock_messaging
-- Take the messaging lock: the effects of this transaction may concern several instances.
SELECT 1 FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE

-- name: restore_messaging_lock
-- Insert the row of the messaging lock, if it is missing.
INSERT INTO romancy_messaging_lock (id) VALUES (1) ON CONFLICT DO NOTHING

-- name: fence
-- A row if the run still owns its instance; locked, so that it stays owned until this transaction commits.
SELECT 1 FROM romancy_instances WHERE id = ? AND generation = ? AND epoch = ? AND owner = ? FOR NO KEY UPDATE

-- name: store_result
-- Store a result that is not in the history yet in the instance's inbox.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?) RETURNING id

-- name: lock_instance
-- Wait for a transaction that writes to the instance.
SELECT 1 FROM romancy_instances WHERE id = ? FOR NO KEY UPDATE

-- name: stored_results
-- Inbox items with results of an operation.
SELECT id, body FROM romancy_inbox WHERE instance_id = ? AND kind = ? AND op = ? ORDER BY id
