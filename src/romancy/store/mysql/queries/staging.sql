-- Starts and effects in users' own transactions.

-- name: notify_on_commit
-- Notify other processes when this transaction has committed: the first that reads the row deletes it and notifies.
INSERT INTO romancy_pending_notifications () VALUES ()

-- name: delete_pending_notifications
-- Delete pending notifications, which this process passes on.
DELETE FROM romancy_pending_notifications WHERE id IN (<<ids>>)

-- name: stage
-- Stage an effect, to be applied when this transaction has committed.
INSERT INTO romancy_staged (kind, head, body, at) VALUES (?, ?, ?, ?)

-- name: staged
-- Staged effects, in order.
SELECT seq, kind, head, body FROM romancy_staged ORDER BY seq LIMIT ?

-- name: unstage
-- Delete staged effects that were applied.
DELETE FROM romancy_staged WHERE seq IN (<<?>>)

-- name: anything_staged
-- Whether effects are staged.
SELECT EXISTS (SELECT 1 FROM romancy_staged)
