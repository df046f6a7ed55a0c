-- The writes of a batch.

-- name: begin_serialized
-- Take the messaging lock: until this transaction ends, no other decides what concerns several instances. Returns whether
-- effects are staged, which have to be applied first; no row if the row of the lock is missing.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE;
SELECT EXISTS (SELECT 1 FROM romancy_staged) FROM romancy_messaging_lock WHERE id = 1

-- name: add_commit_token
-- Insert the token of a transaction: it tells whether the COMMIT was made, should its response be lost.
INSERT INTO romancy_commits (token, committed) VALUES (?, 1)

-- name: check_commit_token
-- Whether a transaction was committed. Waits for a transaction that is still open, and keeps one that comes late from
-- committing.
INSERT INTO romancy_commits (token, committed) VALUES (?1, 0) ON DUPLICATE KEY UPDATE committed = committed;
SELECT committed FROM romancy_commits WHERE token = ?1

-- name: prune_commit_tokens
-- Delete tokens that are too old to be queried.
DELETE FROM romancy_commits WHERE token < ? LIMIT 1000

-- name: notify
-- Notify other processes.
UPDATE romancy_notifications SET version = version + 1 WHERE id = 1

-- name: read_notifications
-- The number that tells whether another process has notified, and the pending notifications of users' transactions.
SELECT n.version, p.id FROM romancy_notifications AS n LEFT JOIN romancy_pending_notifications AS p ON TRUE
WHERE n.id = 1 LIMIT 100

-- name: clock
-- The database's time in microseconds.
SELECT CAST(unix_timestamp(sysdate(6)) * 1000000 AS SIGNED)

-- name: fast_path
-- The fast path for plain steps and ends: the columns to check of those instances that no other transaction has locked.
SELECT
    i.id, i.generation, i.epoch, i.owner, i.inbox_version, i.inbox_version_seen, i.status, i.wake_at, i.retrying_since,
    coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0)
FROM romancy_instances AS i WHERE i.id IN (<<ids>>) FOR UPDATE SKIP LOCKED

-- name: fast_end
-- End an instance that has nothing left to clear.
UPDATE romancy_instances SET
    status = ?, updated_at = ?, ended_at = ?, fingerprint = ?, owner = NULL, wake_at = NULL, retrying_since = NULL
WHERE id = ?

-- name: load_states
-- The hot rows of a batch's instances, read before anything is decided. They stay locked until the batch is written. They
-- are locked first and read by a second statement: what a statement reads beside the rows it locks is as old as the
-- statement, however long it waited for the locks.
SELECT i.id FROM romancy_instances AS i WHERE i.id IN (<<?1>>) ORDER BY i.id FOR UPDATE;
SELECT
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at
FROM romancy_instances AS i WHERE i.id IN (<<?1>>)

-- name: lock_states_row_locked
-- Lock those rows of a batch's instances that no other transaction has locked.
SELECT i.id FROM romancy_instances AS i WHERE i.id IN (<<?>>) FOR UPDATE SKIP LOCKED

-- name: load_states_row_locked
-- Like load_states, for the rows that lock_states_row_locked has locked.
SELECT
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at
FROM romancy_instances AS i WHERE i.id IN (<<?1>>)

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
    (SELECT coalesce(max(seq), 0) FROM romancy_events))

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
REPLACE INTO romancy_attempts (
    instance_id, generation, op, attempt, name, open, worker, epoch, site, scheduled_at, started_at, ended_at, next_at,
    error, details, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_waits
-- Save the waits of instances.
REPLACE INTO romancy_waits (instance_id, op, kind, since, due, `key`, subject, `match`, site)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_inbox_items
-- Insert inbox items.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: add_notes
-- Append entries to journals.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch) VALUES (?, ?, ?, ?, ?, ?)

-- name: close_attempts
-- Delete the open attempts of operations that have resolved: the history has their results.
DELETE FROM romancy_attempts WHERE open = 1 AND <<?: instance_id = ?1 AND generation = ?2 AND op = ?3>>

-- name: withdraw_waits
-- Delete waits that were matched or withdrawn.
DELETE FROM romancy_waits WHERE <<?: instance_id = ?1 AND op = ?2>>

-- name: consume_inbox_items
-- Delete inbox items that a run has consumed; only its own.
DELETE FROM romancy_inbox WHERE <<?: id = ?2 AND instance_id = ?1>>

-- name: clear_waits
-- Delete the waits of instances that ended.
DELETE FROM romancy_waits WHERE instance_id IN (<<?>>)

-- name: clear_inbox
-- Delete the inbox items of instances that ended.
DELETE FROM romancy_inbox WHERE instance_id IN (<<?>>)

-- name: clear_open_attempts
-- Delete the open attempts of instances that ended.
DELETE FROM romancy_attempts
WHERE open = 1 AND instance_id IN (<<?>>)

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
