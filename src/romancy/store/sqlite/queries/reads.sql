-- Queries of the engine and of operators. On a connection that cannot write.

-- name: get_row
-- One instance with its payloads.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by, p.input, p.output, p.error, p.begun_at,
    coalesce(l.progress, 0), coalesce(l.losses, 0)
FROM romancy_instances AS i
LEFT JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
LEFT JOIN romancy_losses AS l ON l.instance_id = i.id AND l.generation = i.generation
WHERE i.id = ?

-- name: generation
-- An archived generation: its input, when it began, and when the next one did.
SELECT p.input, p.begun_at, next.begun_at
FROM romancy_payloads AS p
JOIN romancy_payloads AS next ON next.instance_id = p.instance_id AND next.generation = p.generation + 1
WHERE p.instance_id = :id AND p.generation = :generation

-- name: list_rows
-- Instances, newest first.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by, p.input, p.output, p.error
FROM romancy_instances AS i
LEFT JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
WHERE (i.created_at, i.id) < (:created, :id) AND i.created_at >= :after
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: list_of_status
-- Instances of one status that has an index, newest first.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by, p.input, p.output, p.error
FROM romancy_instances AS i
LEFT JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
WHERE i.status = :status AND i.status NOT IN ('running', 'completed')
    AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :after
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: list_running
-- Running instances, newest first: a part of the owned ones.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by, p.input, p.output, p.error
FROM romancy_instances AS i INDEXED BY romancy_instances_owned
LEFT JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
WHERE i.owner IS NOT NULL AND i.status = 'running' AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :after
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: list_completed
-- Completed instances, newest first: they are most of all.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by, p.input, p.output, p.error
FROM romancy_instances AS i
LEFT JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
WHERE i.status = 'completed' AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :after
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: waits_of
-- The waits of the given instances, oldest first.
SELECT instance_id, op, kind, since, due, key, subject, "match", site FROM romancy_waits
WHERE instance_id IN (SELECT value FROM json_each(?)) ORDER BY instance_id, since, op

-- name: history_of
-- Entries of one generation above a seq, in order.
SELECT seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at, started_at, ended_at,
    worker, epoch
FROM romancy_history WHERE instance_id = ? AND generation = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: attempts_of
-- Attempts of one generation.
SELECT op, attempt, name, open, worker, epoch, site, scheduled_at, started_at, ended_at, next_at, error, details,
    heartbeat_at
FROM romancy_attempts WHERE instance_id = ? AND generation = ? ORDER BY op, attempt

-- name: inbox_of
-- The inbox items of an instance, oldest first.
SELECT id, kind, op, body, at FROM romancy_inbox WHERE instance_id = ? ORDER BY id

-- name: matched_waits
-- The matched waits of an instance.
SELECT json_group_array(op) FROM (
    SELECT op FROM romancy_waits WHERE instance_id = ? AND matched_seq IS NOT NULL ORDER BY since, op)

-- name: undeliverable
-- Addressed events that were not consumed and whose instance does not exist, has ended, or was created later.
SELECT e.seq, e.accepted_at, e.body FROM romancy_events AS e
LEFT JOIN romancy_instances AS i ON i.id = e.target
WHERE e.target IS NOT NULL AND e.consumed = 0 AND e.seq > :after AND (
    i.id IS NULL OR i.ended_at IS NOT NULL OR e.seq <= i.created_at_event_seq)
ORDER BY e.seq LIMIT :limit

-- name: inbox_version_of
-- The inbox version of an instance: it counts what has arrived.
SELECT inbox_version FROM romancy_instances WHERE id = ?

-- name: with_unread_inbox
-- A worker's instances for which something has arrived that their runs have not seen.
SELECT json_group_array(id) FROM romancy_instances WHERE owner = ? AND inbox_version <> inbox_version_seen

-- name: upcoming
-- Unowned instances of each given kind and when they are due, soonest first.
SELECT i.id, i.wake_at
FROM json_each(:kinds) AS kind CROSS JOIN romancy_instances AS i ON i.id IN (
    SELECT id FROM romancy_instances
    WHERE workflow = json_extract(kind.value, '$[0]') AND version = json_extract(kind.value, '$[1]')
        AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :until
    ORDER BY wake_at LIMIT :limit)
ORDER BY i.wake_at, i.id LIMIT :limit

-- name: kinds_waiting
-- Each workflow and version of unowned instances with a wake time: read from one to the next in the index, however many
-- instances there are. (Of two columns that are compared together SQLite only looks up the first.)
WITH RECURSIVE kinds (workflow, version) AS (
    SELECT * FROM (
        SELECT workflow, version FROM romancy_instances WHERE owner IS NULL AND wake_at IS NOT NULL
        ORDER BY workflow, version LIMIT 1)
    UNION ALL
    SELECT i.workflow, i.version FROM kinds CROSS JOIN romancy_instances AS i ON i.id = coalesce(
        (SELECT id FROM romancy_instances
        WHERE owner IS NULL AND wake_at IS NOT NULL AND workflow = kinds.workflow AND version > kinds.version
        ORDER BY version LIMIT 1),
        (SELECT id FROM romancy_instances
        WHERE owner IS NULL AND wake_at IS NOT NULL AND workflow > kinds.workflow
        ORDER BY workflow, version LIMIT 1)))
SELECT json_group_array(json_array(workflow, version)) FROM kinds

-- name: all_workers
-- All registered workers.
SELECT id, label, service, hostname, pid, python, workflows, started_at, heartbeat_at FROM romancy_workers
ORDER BY started_at, id

-- name: statuses_of
-- The status of each of the given instances.
SELECT json_group_array(json_array(i.id, i.status))
FROM json_each(?) AS given CROSS JOIN romancy_instances AS i ON i.id = given.value

-- name: endings_of
-- The status of each of the given instances, and its result or error if it has ended.
SELECT i.id, i.status, p.output, p.error FROM json_each(?) AS given CROSS JOIN romancy_instances AS i ON i.id = given.value
LEFT JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation AND i.ended_at IS NOT NULL

-- name: progress_of
-- The generation and progress of each of the given instances.
SELECT i.id, i.generation, coalesce((
    SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.status, i.updated_at
FROM json_each(?) AS given CROSS JOIN romancy_instances AS i ON i.id = given.value

-- name: journal_of
-- An instance's journal, oldest first.
SELECT at, kind, detail, worker, epoch FROM romancy_journal WHERE instance_id = ? ORDER BY id

-- name: source_of
-- The source of a workflow by its fingerprint.
SELECT source FROM romancy_sources WHERE code = ?
