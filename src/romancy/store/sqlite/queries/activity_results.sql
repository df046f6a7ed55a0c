-- What activities leave with transactions of their own.

-- name: lock_messaging
-- What is said in it may concern several instances.
SELECT 1

-- name: fence
-- The run still has its instance.
SELECT 1 FROM romancy_instances WHERE id = ? AND generation = ? AND epoch = ? AND owner = ?

-- name: store_result
-- A result that is not in the history yet.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: lock_instance
-- Whoever is writing about an instance is waited for.
SELECT 1 FROM romancy_instances WHERE id = ?

-- name: stored_results
-- The mails in which results of an operation lie.
SELECT id, body FROM romancy_inbox WHERE instance_id = ? AND kind = ? AND op = ? ORDER BY id
