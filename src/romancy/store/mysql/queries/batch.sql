-- What a batch of writes says.

-- name: begin_serialized
-- From here to the end of the transaction nobody else decides what concerns several instances. The answer: whether something
-- is staged, which is to be said first; none if there is no row to lock.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE;
SELECT EXISTS (SELECT 1 FROM romancy_staged) FROM romancy_messaging_lock WHERE id = 1

-- name: add_commit_token
-- A transaction leaves this behind: should its COMMIT not be answered, it tells whether it was made.
INSERT INTO romancy_commits (token, committed) VALUES (?, 1)

-- name: check_commit_token
-- Whether a transaction was committed. Whoever asks waits for one that is under way, and forestalls one that comes late.
INSERT INTO romancy_commits (token, committed) VALUES (?1, 0) ON DUPLICATE KEY UPDATE committed = committed;
SELECT committed FROM romancy_commits WHERE token = ?1

-- name: prune_commit_tokens
-- Nobody asks about these any more.
DELETE FROM romancy_commits WHERE token < ? LIMIT 1000

-- name: notify
-- There is something to look at for others.
UPDATE romancy_notifications SET version = version + 1 WHERE id = 1

-- name: read_notifications
-- Whether somebody has rung, and what nobody has rung for yet.
SELECT b.version, h.id FROM romancy_notifications AS b LEFT JOIN romancy_pending_notifications AS h ON TRUE WHERE b.id = 1 LIMIT 100

-- name: clock
-- The database's time in microseconds.
SELECT CAST(unix_timestamp(sysdate(6)) * 1000000 AS SIGNED)

-- name: fast_path
-- The short way, for plain steps and ends: the instances that nobody else holds, as far as it matters for them.
SELECT
    i.id, i.generation, i.epoch, i.owner, i.inbox_version, i.inbox_version_seen, i.status, i.wake_at, i.retrying_since, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0)
FROM romancy_instances AS i WHERE i.id IN (<<ids>>) FOR UPDATE SKIP LOCKED

-- name: fast_end
-- An instance ends with nothing left to clear.
UPDATE romancy_instances SET
    status = ?, updated_at = ?, ended_at = ?, fingerprint = ?, owner = NULL, wake_at = NULL, retrying_since = NULL
WHERE id = ?

-- name: load_states
-- The hot rows of a batch's instances, before anything is decided. Nobody else changes them until it is written. First they
-- are locked, then read: what a statement reads beside what it locks is as old as the statement, whoever it waited for.
SELECT i.id FROM romancy_instances AS i WHERE i.id IN (<<?1>>) ORDER BY i.id FOR UPDATE;
SELECT
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at
FROM romancy_instances AS i WHERE i.id IN (<<?1>>)

-- name: lock_states_row_locked
-- Those of a batch's instances that nobody else holds: they are locked now.
SELECT i.id FROM romancy_instances AS i WHERE i.id IN (<<?>>) FOR UPDATE SKIP LOCKED

-- name: load_states_row_locked
-- The same without those that somebody else holds: `lock_apart` has said which.
SELECT
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at
FROM romancy_instances AS i WHERE i.id IN (<<?1>>)

-- name: existing
-- What is known of an instance whose id somebody wants to use again.
SELECT workflow, version, digest FROM romancy_instances WHERE id = ?

-- name: first_input
-- What an instance was started with, unless its first generation is gone.
SELECT input FROM romancy_payloads WHERE instance_id = ? AND generation = 1

-- name: add_instances
-- New instances.
INSERT INTO romancy_instances (
    id, workflow, version, status, generation, round, epoch, owner, wake_at, inbox_version, inbox_version_seen, deadline_at,
    fingerprint, created_at, started_at, updated_at, code, python, digest, created_at_event_seq)
VALUES (?, ?, ?, ?, 1, 0, ?, ?, ?, 0, 0, ?, '', ?, ?, ?, ?, ?, ?,
    (SELECT coalesce(max(seq), 0) FROM romancy_events))

-- name: add_payloads
-- The arguments of new instances.
INSERT INTO romancy_payloads (instance_id, generation, input) VALUES (?, 1, ?)

-- name: step
-- An instance went on under the same owner and in the same status: no index changes.
UPDATE romancy_instances SET
    epoch = ?, inbox_version_seen = ?, updated_at = ?, wake_at = ?, retrying_since = ?
WHERE id = ?

-- name: update_instances
-- An instance changed its status or its owner.
UPDATE romancy_instances SET
    status = ?, generation = ?, round = ?, epoch = ?, owner = ?, wake_at = ?, inbox_version = ?, inbox_version_seen = ?,
    cancel_requested_at = ?, deadline_at = ?, retrying_since = ?, blocked_by = ?, fingerprint = ?, started_at = ?,
    updated_at = ?, ended_at = ?
WHERE id = ?

-- name: set_results
-- What instances ended with; NULL for both when they start again.
UPDATE romancy_payloads SET output = ?, error = ? WHERE instance_id = ? AND generation = ?

-- name: add_history
-- What resolved.
INSERT INTO romancy_history (
    instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at,
    started_at, ended_at, worker, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_attempts
-- Attempts that failed, or are open for a notable time.
REPLACE INTO romancy_attempts (
    instance_id, generation, op, attempt, name, open, worker, epoch, site, scheduled_at, started_at, ended_at, next_at,
    error, details, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_waits
-- What instances wait for.
REPLACE INTO romancy_waits (instance_id, op, kind, since, due, `key`, subject, `match`, site)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_inbox_items
-- What arrived for instances.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: add_notes
-- Lines of journals.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch) VALUES (?, ?, ?, ?, ?, ?)

-- name: close_attempts
-- Operations are over: their open attempts are history now.
DELETE FROM romancy_attempts WHERE open = 1 AND <<?: instance_id = ?1 AND generation = ?2 AND op = ?3>>

-- name: withdraw_waits
-- Waits that were met or given up.
DELETE FROM romancy_waits WHERE <<?: instance_id = ?1 AND op = ?2>>

-- name: consume_inbox_items
-- Mails that a run has used; only its own.
DELETE FROM romancy_inbox WHERE <<?: id = ?2 AND instance_id = ?1>>

-- name: clear_waits
-- Instances that ended wait for nothing.
DELETE FROM romancy_waits WHERE instance_id IN (<<?>>)

-- name: clear_inbox
-- Instances that ended get nothing.
DELETE FROM romancy_inbox WHERE instance_id IN (<<?>>)

-- name: clear_open_attempts
-- Instances that ended run nothing.
DELETE FROM romancy_attempts
WHERE open = 1 AND instance_id IN (<<?>>)

-- name: count_inbox_items
-- Whether a request of a kind lies in the inbox already.
SELECT count(*) FROM romancy_inbox WHERE instance_id = ? AND kind = ?

-- name: withdraw_inbox_items
-- A request that no run has seen is taken back.
DELETE FROM romancy_inbox WHERE instance_id = ? AND kind = ?

-- name: outline
-- The history of a generation without its payloads.
SELECT seq, kind, op, outcome, at, name, role FROM romancy_history
WHERE instance_id = ? AND generation = ? ORDER BY seq

-- name: set_role
-- A retry of the whole instance sets an entry aside.
UPDATE romancy_history SET role = ? WHERE instance_id = ? AND generation = ? AND seq = ?

-- name: forget_attempts
-- A retry of the whole instance counts attempts from one again.
DELETE FROM romancy_attempts WHERE instance_id = ? AND generation = ?
