-- What is started and said in transactions of others.

-- name: notify_on_commit
-- Others have something to look at when this transaction has committed.
SELECT 1
