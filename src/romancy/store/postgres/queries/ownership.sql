-- Who owns what: claims, releases, dead workers, and what is thrown away. Claims do not wait for each other.

-- name: due
-- Unowned instances of each given kind that are due by a time, soonest first, so many of each kind.
SELECT d.id, d.workflow, d.version, d.wake_at, coalesce((
    SELECT l.isolated FROM romancy_losses AS l WHERE l.instance_id = d.id), 0)
FROM jsonb_array_elements(:kinds::jsonb) AS kind CROSS JOIN LATERAL (
    SELECT id, workflow, version, wake_at FROM romancy_instances
    WHERE workflow = kind ->> 0 AND version = kind ->> 1 AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now
    ORDER BY wake_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED) AS d

-- name: due_of
-- Those of the given instances that are unowned and due.
SELECT id, workflow, version, wake_at, coalesce((
    SELECT l.isolated FROM romancy_losses AS l WHERE l.instance_id = id), 0) FROM romancy_instances
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND owner IS NULL AND wake_at <= ?
FOR NO KEY UPDATE SKIP LOCKED

-- name: blocked
-- Unowned instances of each given kind that other code than ours could not run, or any before a time, so many of each.
SELECT b.id, b.workflow, b.version, b.updated_at
FROM jsonb_array_elements(:kinds::jsonb) AS kind CROSS JOIN LATERAL (
    SELECT id, workflow, version, updated_at FROM romancy_instances
    WHERE workflow = kind ->> 0 AND version = kind ->> 1 AND status = 'blocked' AND owner IS NULL
        AND (updated_at < :before::bigint
            OR strpos(',' || coalesce(blocked_by, '') || ',', ',' || (kind ->> 2) || ',') = 0)
    LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED) AS b

-- name: claim_instances
-- Instances get a new owner and a new epoch.
UPDATE romancy_instances SET
    owner = :worker::text, epoch = epoch + 1, updated_at = :now::bigint, started_at = coalesce(started_at, :now::bigint),
    status = CASE WHEN status IN ('pending', 'blocked') THEN 'running' ELSE status END
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: mark_unrunnable
-- Nobody can run these instances: they are set aside until somebody can.
UPDATE romancy_instances SET status = 'blocked', wake_at = NULL, blocked_by = '', updated_at = :now
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: note_each
-- One line in the journal of each given instance, with its owner and epoch.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch)
SELECT id, :now::bigint, :kind::text, :detail::text, coalesce(owner, ''), epoch FROM romancy_instances
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: instance_rows
-- The hot rows of the given instances, in the given order.
SELECT
    i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM jsonb_array_elements_text(:ids::jsonb) WITH ORDINALITY AS given (id, ordinal)
JOIN romancy_instances AS i ON i.id = given.id
WHERE i.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) ORDER BY given.ordinal

-- name: free
-- Instances lose their owner and are claimable at once; their old owner's writes are refused from now on.
UPDATE romancy_instances SET
    owner = NULL, epoch = epoch + 1, wake_at = :now::bigint, updated_at = :now::bigint,
    status = CASE WHEN status = 'running' THEN 'pending' ELSE status END
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: losses
-- Where the given instances stand: owner, epoch, generation, progress, losses since it, and the attempts that are open.
SELECT
    i.id, coalesce(i.owner, ''), i.epoch, i.generation, i.progress, coalesce(l.losses, 0), coalesce(l.isolated, 0), coalesce((
    SELECT string_agg(a.op, ', ') FROM romancy_attempts AS a
    WHERE a.instance_id = i.id AND a.generation = i.generation AND a.open = 1 AND a.epoch = i.epoch), '')
FROM (
    SELECT i.id, i.owner, i.epoch, i.generation, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0) + (
        SELECT count(*) FROM romancy_attempts AS a
        WHERE a.instance_id = i.id AND a.generation = i.generation AND a.next_at IS NOT NULL) AS progress
    FROM romancy_instances AS i WHERE i.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))) AS i
LEFT JOIN romancy_losses AS l
    ON l.instance_id = i.id AND l.generation = i.generation AND l.progress = i.progress

-- name: owned_isolated
-- Those of a worker's instances that stand where their next loss would be one too many, and since when each does.
SELECT i.id, i.updated_at
FROM (
    SELECT i.id, i.updated_at, i.generation, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0) + (
        SELECT count(*) FROM romancy_attempts AS a
        WHERE a.instance_id = i.id AND a.generation = i.generation AND a.next_at IS NOT NULL) AS progress
    FROM romancy_instances AS i WHERE i.owner = ?) AS i
JOIN romancy_losses AS l
    ON l.instance_id = i.id AND l.generation = i.generation AND l.progress = i.progress
WHERE l.isolated = 1

-- name: note_losses
-- How often instances have lost their worker, and where they stood then.
INSERT INTO romancy_losses (instance_id, generation, progress, losses, isolated) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (instance_id) DO UPDATE SET
    generation = excluded.generation, progress = excluded.progress, losses = excluded.losses, isolated = excluded.isolated

-- name: forget_losses
-- An operator has taken an instance up again: it begins with a clean sheet.
DELETE FROM romancy_losses WHERE instance_id = ?

-- name: put_off
-- Instances that are due have to wait until another one has gone on.
UPDATE romancy_instances SET wake_at = :at::bigint WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND owner IS NULL

-- name: set_aside
-- Instances lose their owner and wait for an operator.
UPDATE romancy_instances SET
    owner = NULL, epoch = epoch + 1, wake_at = NULL, updated_at = :now::bigint, status = 'paused'
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))

-- name: owned
-- So many of the instances a worker owns.
SELECT id FROM romancy_instances WHERE owner = ? LIMIT ?

-- name: orphans
-- So many of the instances whose owner is no worker any more.
SELECT id FROM romancy_instances AS i
WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM romancy_workers AS w WHERE w.id = i.owner) LIMIT ?

-- name: register_worker
-- A worker begins.
INSERT INTO romancy_workers (id, label, service, hostname, pid, python, workflows, started_at, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    label = excluded.label, service = excluded.service, hostname = excluded.hostname, pid = excluded.pid,
    python = excluded.python, workflows = excluded.workflows, started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at

-- name: heartbeat_of
-- When a worker last gave a sign of life.
SELECT heartbeat_at FROM romancy_workers WHERE id = ? FOR UPDATE

-- name: record_heartbeat
-- A worker gives a sign of life.
UPDATE romancy_workers SET heartbeat_at = ? WHERE id = ?

-- name: deregister_worker
-- A worker is gone.
DELETE FROM romancy_workers WHERE id = ?

-- name: save_source
-- A workflow's source, once for each fingerprint.
INSERT INTO romancy_sources (code, workflow, version, source, saved_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (code) DO NOTHING

-- name: replace_source
-- What an app says of a workflow of its own: the last word counts.
INSERT INTO romancy_sources (code, workflow, version, source, saved_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (code) DO UPDATE SET source = excluded.source, saved_at = excluded.saved_at

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

-- name: prune_losses
-- how often they lost their worker
DELETE FROM romancy_losses WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

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
