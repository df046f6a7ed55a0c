-- The writes of a batch. Reads return one JSON value: Python releases its global lock at every row it steps over, and a
-- busy event loop may keep the lock for milliseconds each time.

-- name: fast_create
-- Insert a new instance, unless its id is taken.
INSERT OR IGNORE INTO romancy_instances (
    id, workflow, version, status, generation, round, epoch, owner, wake_at, inbox_version, inbox_version_seen, deadline_at,
    fingerprint, created_at, started_at, updated_at, code, python, digest, created_at_event_seq)
VALUES (?, ?, ?, ?, 1, 0, ?, ?, ?, 0, 0, ?, '', ?, ?, ?, ?, ?, ?,
    coalesce((SELECT max(seq) FROM romancy_events), 0))

-- name: add_steps
-- Append the history of runs that continue under the same epoch and status, with no timer, and for which nothing has
-- arrived: their hot rows stay as they are. For a run that fails this check the selected id is NULL, which the table
-- refuses, as it refuses an entry that is there already: then no row is written. The row of VALUES is repeated for each
-- entry.
WITH new (
    id, generation, under, owner, inbox_version, status, seq, kind, op, outcome, at, name, role, digest, input, value,
    attempt, site, scheduled_at, started_at, ended_at, worker, epoch) AS (VALUES
    (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))
INSERT INTO romancy_history (
    instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at,
    started_at, ended_at, worker, epoch)
SELECT (
    SELECT i.id FROM romancy_instances AS i
    WHERE i.id = new.id AND i.generation = new.generation AND i.epoch = new.under AND i.owner = new.owner
        AND i.inbox_version = new.inbox_version AND i.inbox_version_seen = new.inbox_version AND i.status = new.status
        AND i.wake_at IS NULL AND i.retrying_since IS NULL),
    new.generation, new.seq, new.kind, new.op, new.outcome, new.at, new.name, new.role, new.digest, new.input, new.value,
    new.attempt, new.site, new.scheduled_at, new.started_at, new.ended_at, new.worker, new.epoch
FROM new

-- name: fast_end
-- End an instance for which nothing had ever arrived.
UPDATE romancy_instances AS i SET
    status = ?, updated_at = ?, ended_at = ?, fingerprint = ?, owner = NULL, wake_at = NULL, retrying_since = NULL
WHERE i.id = ? AND i.generation = ? AND i.epoch = ? AND i.owner = ? AND i.inbox_version = ?
    AND i.inbox_version_seen = i.inbox_version
    AND NOT EXISTS (
        SELECT 1 FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation AND h.seq > ?)

-- name: load_states
-- The hot rows of a batch's instances, read before anything is decided.
SELECT json_group_array(json_array(
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at))
FROM json_each(?) AS given CROSS JOIN romancy_instances AS i ON i.id = given.value

-- name: existing
-- An instance whose id is to be used again.
SELECT workflow, version, digest FROM romancy_instances WHERE id = ?

-- name: first_input
-- The input of an instance's first generation, unless that is deleted.
SELECT input FROM romancy_payloads WHERE instance_id = ? AND generation = 1

-- name: add_instances
-- Insert new instances.
INSERT INTO romancy_instances (
    id, workflow, version, status, generation, round, epoch, owner, wake_at, inbox_version, inbox_version_seen, deadline_at,
    fingerprint, created_at, started_at, updated_at, code, python, digest, created_at_event_seq)
VALUES (?, ?, ?, ?, 1, 0, ?, ?, ?, 0, 0, ?, '', ?, ?, ?, ?, ?, ?,
    coalesce((SELECT max(seq) FROM romancy_events), 0))

-- name: add_payloads
-- Insert the inputs of new instances.
INSERT INTO romancy_payloads (instance_id, generation, input) VALUES (?, 1, ?)

-- name: step
-- Update an instance that keeps its owner and its status: no index changes.
UPDATE romancy_instances SET
    epoch = ?, inbox_version_seen = ?, updated_at = ?, wake_at = ?, retrying_since = ?
WHERE id = ?

-- name: update_instances
-- Update an instance that changed its status or its owner.
UPDATE romancy_instances SET
    status = ?, generation = ?, round = ?, epoch = ?, owner = ?, wake_at = ?, inbox_version = ?, inbox_version_seen = ?,
    cancel_requested_at = ?, deadline_at = ?, retrying_since = ?, blocked_by = ?, fingerprint = ?, started_at = ?,
    updated_at = ?, ended_at = ?
WHERE id = ?

-- name: set_results
-- Save what instances ended with; NULL for both when they start again.
UPDATE romancy_payloads SET output = ?, error = ? WHERE instance_id = ? AND generation = ?

-- name: add_history
-- Append entries to histories.
INSERT INTO romancy_history (
    instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at,
    started_at, ended_at, worker, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_attempts
-- Save attempts that failed, or have been running for a notable time.
INSERT OR REPLACE INTO romancy_attempts (
    instance_id, generation, op, attempt, name, open, worker, epoch, site, scheduled_at, started_at, ended_at, next_at,
    error, details, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_waits
-- Save the waits of instances.
INSERT OR REPLACE INTO romancy_waits (instance_id, op, kind, since, due, key, subject, "match", site)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_inbox_items
-- Insert inbox items.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: add_notes
-- Append entries to journals.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch) VALUES (?, ?, ?, ?, ?, ?)

-- name: close_attempts
-- Delete the open attempts of operations that have resolved: the history has their results.
DELETE FROM romancy_attempts WHERE open = 1 AND (instance_id, generation, op) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?))

-- name: withdraw_waits
-- Delete waits that were matched or withdrawn.
DELETE FROM romancy_waits WHERE (instance_id, op) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))

-- name: consume_inbox_items
-- Delete inbox items that a run has consumed; only its own.
DELETE FROM romancy_inbox WHERE (id, instance_id) IN (
    SELECT json_extract(value, '$[1]'), json_extract(value, '$[0]') FROM json_each(?))

-- name: clear_waits
-- Delete the waits of instances that ended.
DELETE FROM romancy_waits WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: clear_inbox
-- Delete the inbox items of instances that ended.
DELETE FROM romancy_inbox WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: clear_open_attempts
-- Delete the open attempts of instances that ended.
DELETE FROM romancy_attempts WHERE open = 1 AND instance_id IN (SELECT value FROM json_each(?))

-- name: count_inbox_items
-- The number of requests of a kind in the inbox.
SELECT count(*) FROM romancy_inbox WHERE instance_id = ? AND kind = ?

-- name: withdraw_inbox_items
-- Delete a request that no run has seen.
DELETE FROM romancy_inbox WHERE instance_id = ? AND kind = ?

-- name: outline
-- The history of a generation without its payloads.
SELECT seq, kind, op, outcome, at, name, role FROM romancy_history
WHERE instance_id = ? AND generation = ? ORDER BY seq

-- name: set_role
-- Change the role of an entry: a retry of the whole instance sets it aside.
UPDATE romancy_history SET role = ? WHERE instance_id = ? AND generation = ? AND seq = ?

-- name: forget_attempts
-- Delete all attempts of a generation: a retry of the whole instance counts them from one again.
DELETE FROM romancy_attempts WHERE instance_id = ? AND generation = ?
