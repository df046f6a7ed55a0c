-- Starts and effects in users' own transactions.

-- name: notify_on_commit
-- Nothing to do: other processes see that the file has changed.
SELECT 1
