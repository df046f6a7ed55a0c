-- What activities leave with transactions of their own.

-- name: lock_messaging
-- What is said in it may concern several instances.
SELECT 1 FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE

-- name: restore_messaging_lock
-- The row is not there: it has to be.
INSERT INTO romancy_messaging_lock (id) VALUES (1) ON DUPLICATE KEY UPDATE id = 1

-- name: fence
-- The run still has its instance, and keeps it until this is committed.
SELECT 1 FROM romancy_instances WHERE id = ? AND generation = ? AND epoch = ? AND owner = ? FOR UPDATE

-- name: store_result
-- A result that is not in the history yet.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: lock_instance
-- Whoever is writing about an instance is waited for.
SELECT 1 FROM romancy_instances WHERE id = ? FOR UPDATE

-- name: stored_results
-- The mails in which results of an operation lie.
SELECT id, body FROM romancy_inbox WHERE instance_id = ? AND kind = ? AND op = ? ORDER BY id
