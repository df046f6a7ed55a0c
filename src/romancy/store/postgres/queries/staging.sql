-- Starts and effects in users' own transactions.

-- name: notify_on_commit
-- Notify other processes when this transaction has committed.
SELECT pg_notify('romancy', '')

-- name: stage
-- Stage an effect, to be applied when this transaction has committed.
INSERT INTO romancy_staged (kind, head, body, at) VALUES (?, ?, ?, ?)

-- name: staged
-- Staged effects, in order.
SELECT seq, kind, head, body FROM romancy_staged ORDER BY seq LIMIT ?

-- name: unstage
-- Delete staged effects that were applied.
DELETE FROM romancy_staged WHERE seq = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)::bigint))

-- name: anything_staged
-- Whether effects are staged.
SELECT EXISTS (SELECT 1 FROM romancy_staged)
