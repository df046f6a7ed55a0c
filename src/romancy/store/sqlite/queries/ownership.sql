-- Ownership of instances: claims, releases, workers, and what retention deletes.

-- name: due
-- Unowned instances of each given kind that are due by a time, soonest first, up to a limit for each kind.
SELECT json_group_array(json_array(i.id, i.workflow, i.version, i.wake_at, coalesce((
    SELECT l.isolated FROM romancy_losses AS l WHERE l.instance_id = i.id), 0)))
FROM json_each(:kinds) AS kind CROSS JOIN romancy_instances AS i ON i.id IN (
    SELECT id FROM romancy_instances
    WHERE workflow = json_extract(kind.value, '$[0]') AND version = json_extract(kind.value, '$[1]')
        AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now
    ORDER BY wake_at LIMIT :limit)

-- name: due_of
-- Those of the given instances that are unowned and due.
SELECT json_group_array(json_array(i.id, i.workflow, i.version, i.wake_at, coalesce((
    SELECT l.isolated FROM romancy_losses AS l WHERE l.instance_id = i.id), 0)))
FROM json_each(?) AS given CROSS JOIN romancy_instances AS i ON i.id = given.value
WHERE i.owner IS NULL AND i.wake_at <= ?

-- name: blocked
-- Unowned instances of each given kind that were blocked by other code than the given one, or before a time, up to a limit
-- for each kind.
SELECT json_group_array(json_array(i.id, i.workflow, i.version, i.updated_at))
FROM json_each(:kinds) AS kind CROSS JOIN romancy_instances AS i ON i.id IN (
    SELECT id FROM romancy_instances
    WHERE workflow = json_extract(kind.value, '$[0]') AND version = json_extract(kind.value, '$[1]')
        AND status = 'blocked' AND owner IS NULL
        AND (updated_at < :before
            OR NOT instr(',' || coalesce(blocked_by, '') || ',', ',' || json_extract(kind.value, '$[2]') || ','))
    LIMIT :limit)

-- name: claim_instances
-- Give instances a new owner and a new epoch.
UPDATE romancy_instances SET
    owner = :worker, epoch = epoch + 1, updated_at = :now, started_at = coalesce(started_at, :now),
    status = CASE WHEN status IN ('pending', 'blocked') THEN 'running' ELSE status END
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: mark_unrunnable
-- Block instances that no live worker can run, until a worker can.
UPDATE romancy_instances SET status = 'blocked', wake_at = NULL, blocked_by = '', updated_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: note_each
-- Append an entry to the journal of each given instance, with its owner and epoch.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch)
SELECT id, :now, :kind, :detail, coalesce(owner, ''), epoch FROM romancy_instances
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: instance_rows
-- The hot rows of the given instances, in the given order.
SELECT json_group_array(json_array(
    i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by))
FROM json_each(?) AS given CROSS JOIN romancy_instances AS i ON i.id = given.value

-- name: free
-- Take instances from their owner and make them claimable at once; from now on the old owner's writes are refused.
UPDATE romancy_instances SET
    owner = NULL, epoch = epoch + 1, wake_at = :now, updated_at = :now,
    status = CASE WHEN status = 'running' THEN 'pending' ELSE status END
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: losses
-- The owner, epoch, generation and progress of the given instances, their losses at that progress, and their open attempts.
SELECT json_group_array(json_array(
    i.id, coalesce(i.owner, ''), i.epoch, i.generation, i.progress, coalesce(l.losses, 0), coalesce(l.isolated, 0),
    coalesce((
    SELECT group_concat(a.op, ', ') FROM romancy_attempts AS a
    WHERE a.instance_id = i.id AND a.generation = i.generation AND a.open = 1 AND a.epoch = i.epoch), '')))
FROM (
    SELECT i.id, i.owner, i.epoch, i.generation, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0) + (
        SELECT count(*) FROM romancy_attempts AS a
        WHERE a.instance_id = i.id AND a.generation = i.generation AND a.next_at IS NOT NULL) AS progress
    FROM romancy_instances AS i WHERE i.id IN (SELECT value FROM json_each(:ids))) AS i
LEFT JOIN romancy_losses AS l
    ON l.instance_id = i.id AND l.generation = i.generation AND l.progress = i.progress

-- name: owned_isolated
-- Those of a worker's instances whose next loss would be one too many, and when each was last updated.
SELECT json_group_array(json_array(i.id, i.updated_at))
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
-- Save how often instances have lost their worker, and their progress at that time.
INSERT OR REPLACE INTO romancy_losses (instance_id, generation, progress, losses, isolated) VALUES (?, ?, ?, ?, ?)

-- name: forget_losses
-- Reset the losses of an instance that an operator has resumed.
DELETE FROM romancy_losses WHERE instance_id = ?

-- name: put_off
-- Postpone due instances while another one runs isolated.
UPDATE romancy_instances SET wake_at = :at WHERE id IN (SELECT value FROM json_each(:ids)) AND owner IS NULL

-- name: set_aside
-- Take instances from their owner and pause them for an operator.
UPDATE romancy_instances SET
    owner = NULL, epoch = epoch + 1, wake_at = NULL, updated_at = :now, status = 'paused'
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: owned
-- Instances that a worker owns, up to a limit (-1: all).
SELECT json_group_array(id) FROM (SELECT id FROM romancy_instances WHERE owner = ? LIMIT ?)

-- name: orphans
-- Instances whose owner is not a registered worker, up to a limit.
SELECT json_group_array(id) FROM (
    SELECT id FROM romancy_instances
    WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM romancy_workers) LIMIT ?)

-- name: register_worker
-- Register a worker.
INSERT OR REPLACE INTO romancy_workers (id, label, service, hostname, pid, python, workflows, started_at, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: heartbeat_of
-- The last heartbeat of a worker.
SELECT heartbeat_at FROM romancy_workers WHERE id = ?

-- name: record_heartbeat
-- Record a heartbeat of a worker.
UPDATE romancy_workers SET heartbeat_at = ? WHERE id = ?

-- name: deregister_worker
-- Deregister a worker.
DELETE FROM romancy_workers WHERE id = ?

-- name: save_source
-- Save a workflow's source, once for each fingerprint.
INSERT OR IGNORE INTO romancy_sources (code, workflow, version, source, saved_at) VALUES (?, ?, ?, ?, ?)

-- name: replace_source
-- Save the source of a workflow that an app registers itself, replacing an earlier one.
INSERT INTO romancy_sources (code, workflow, version, source, saved_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (code) DO UPDATE SET source = excluded.source, saved_at = excluded.saved_at

-- name: prunable
-- Instances that ended before a time, oldest first, up to a limit.
SELECT json_group_array(id) FROM (
    SELECT id FROM romancy_instances WHERE ended_at IS NOT NULL AND ended_at < ? ORDER BY ended_at LIMIT ?)

-- name: prune_instances
-- Delete ended instances.
DELETE FROM romancy_instances WHERE id IN (SELECT value FROM json_each(?))

-- name: prune_payloads
-- Delete the payloads of deleted instances.
DELETE FROM romancy_payloads WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: prune_history
-- Delete the history of deleted instances.
DELETE FROM romancy_history WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: prune_attempts
-- Delete the attempts of deleted instances.
DELETE FROM romancy_attempts WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: prune_losses
-- Delete the losses of deleted instances.
DELETE FROM romancy_losses WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: prune_journal
-- Delete the journal of deleted instances. (Their waits and inboxes were cleared when they ended.)
DELETE FROM romancy_journal WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: old_generations
-- Archived generations that ended before a time, up to a limit: the next generation had begun by then.
SELECT next.instance_id, next.generation - 1 FROM romancy_payloads AS next
WHERE next.begun_at IS NOT NULL AND next.begun_at < ? AND EXISTS (
    SELECT 1 FROM romancy_payloads AS old
    WHERE old.instance_id = next.instance_id AND old.generation = next.generation - 1)
ORDER BY next.begun_at LIMIT ?
