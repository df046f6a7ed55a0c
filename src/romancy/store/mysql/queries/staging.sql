-- What is started and said in transactions of others.

-- name: notify_on_commit
-- Others have something to look at when this transaction has committed.
INSERT INTO romancy_pending_notifications () VALUES ()

-- name: delete_pending_notifications
-- Somebody looks.
DELETE FROM romancy_pending_notifications WHERE id IN (<<ids>>)

-- name: stage
-- Something is to be said when this transaction has committed.
INSERT INTO romancy_staged (kind, head, body, at) VALUES (?, ?, ?, ?)

-- name: staged
-- What is to be said now, in order.
SELECT seq, kind, head, body FROM romancy_staged ORDER BY seq LIMIT ?

-- name: unstage
-- It has been said.
DELETE FROM romancy_staged WHERE seq IN (<<?>>)

-- name: anything_staged
-- Whether something is to be said.
SELECT EXISTS (SELECT 1 FROM romancy_staged)
