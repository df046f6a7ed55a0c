-- Who owns what: claims, releases, dead workers, and what is thrown away. Claims do not wait for each other.

-- name: due
-- Unowned instances of each given kind that are due by a time, soonest first, so many of each kind.
SELECT d.id, d.workflow, d.version, d.wake_at
FROM jsonb_array_elements(:kinds::jsonb) AS kind CROSS JOIN LATERAL (
    SELECT id, workflow, version, wake_at FROM romancy_instances
    WHERE workflow = kind ->> 0 AND version = kind ->> 1 AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now
    ORDER BY wake_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED) AS d

-- name: due_of
-- Those of the given instances that are unowned and due.
SELECT id, workflow, version, wake_at FROM romancy_instances
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND owner IS NULL AND wake_at <= ?
FOR NO KEY UPDATE SKIP LOCKED

-- name: blocked
-- Unowned instances of each given kind that other code than ours could not run, so many of each kind.
SELECT b.id, b.workflow, b.version, b.updated_at
FROM jsonb_array_elements(:kinds::jsonb) AS kind CROSS JOIN LATERAL (
    SELECT id, workflow, version, updated_at FROM romancy_instances
    WHERE workflow = kind ->> 0 AND version = kind ->> 1 AND status = 'blocked' AND owner IS NULL
        AND strpos(',' || coalesce(blocked_by, '') || ',', ',' || (kind ->> 2) || ',') = 0
    LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED) AS b

-- name: take
-- Instances get a new owner and a new epoch.
UPDATE romancy_instances SET
    owner = :worker::text, epoch = epoch + 1, updated_at = :now::bigint, started_at = coalesce(started_at, :now::bigint),
    status = CASE WHEN status IN ('pending', 'blocked') THEN 'running' ELSE status END
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: strand
-- Nobody can run these instances: they are set aside until somebody can.
UPDATE romancy_instances SET status = 'blocked', wake_at = NULL, blocked_by = '', updated_at = :now
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: note_each
-- One line in the journal of each given instance, with its owner and epoch.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch)
SELECT id, :now::bigint, :kind::text, :detail::text, coalesce(owner, ''), epoch FROM romancy_instances
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: rows
-- The hot rows of the given instances, in the given order.
SELECT
    i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.signal, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM jsonb_array_elements_text(:ids::jsonb) WITH ORDINALITY AS wanted (id, place)
JOIN romancy_instances AS i ON i.id = wanted.id
WHERE i.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) ORDER BY wanted.place

-- name: free
-- Instances lose their owner and are claimable at once; their old owner's writes are refused from now on.
UPDATE romancy_instances SET
    owner = NULL, epoch = epoch + 1, wake_at = :now::bigint, updated_at = :now::bigint,
    status = CASE WHEN status = 'running' THEN 'pending' ELSE status END
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: owned
-- So many of the instances a worker owns.
SELECT id FROM romancy_instances WHERE owner = ? LIMIT ?

-- name: orphans
-- So many of the instances whose owner is no worker any more.
SELECT id FROM romancy_instances AS i
WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM romancy_workers AS w WHERE w.id = i.owner) LIMIT ?

-- name: enlist
-- A worker begins.
INSERT INTO romancy_workers (id, label, service, host, pid, python, kinds, started_at, beat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    label = excluded.label, service = excluded.service, host = excluded.host, pid = excluded.pid,
    python = excluded.python, kinds = excluded.kinds, started_at = excluded.started_at, beat_at = excluded.beat_at

-- name: heartbeat
-- When a worker last gave a sign of life.
SELECT beat_at FROM romancy_workers WHERE id = ? FOR UPDATE

-- name: beat
-- A worker gives a sign of life.
UPDATE romancy_workers SET beat_at = ? WHERE id = ?

-- name: strike
-- A worker is gone.
DELETE FROM romancy_workers WHERE id = ?

-- name: save_source
-- A workflow's source, once for each fingerprint.
INSERT INTO romancy_sources (code, workflow, version, source, saved_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (code) DO NOTHING

-- name: prunable
-- So many instances that ended before a time, the oldest first.
SELECT id FROM romancy_instances WHERE ended_at IS NOT NULL AND ended_at < ? ORDER BY ended_at LIMIT ?
FOR UPDATE SKIP LOCKED

-- name: prune_instances
-- Ended instances go ...
DELETE FROM romancy_instances WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: prune_payloads
-- ... with their payloads,
DELETE FROM romancy_payloads WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: prune_history
-- their history,
DELETE FROM romancy_history WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: prune_attempts
-- their attempts
DELETE FROM romancy_attempts WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: prune_journal
-- and their journal. (Waits and inbox went when they ended.)
DELETE FROM romancy_journal WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: old_generations
-- So many archived generations that were over before a time: the next one had begun by then.
SELECT next.instance_id, next.generation - 1 FROM romancy_payloads AS next
WHERE next.begun_at IS NOT NULL AND next.begun_at < ? AND EXISTS (
    SELECT 1 FROM romancy_payloads AS old
    WHERE old.instance_id = next.instance_id AND old.generation = next.generation - 1)
ORDER BY next.begun_at LIMIT ?
