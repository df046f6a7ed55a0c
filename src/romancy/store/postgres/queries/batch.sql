-- The writes of a batch.

-- name: begin_serialized
-- Take the messaging lock: until this transaction ends, no other decides what concerns several instances. The inserted
-- token tells whether the COMMIT was made, should its response be lost. Returns whether effects are staged, which have to
-- be applied first; no row if the row of the lock is missing.
WITH marked AS (INSERT INTO romancy_commits (token, at) VALUES (?, ?))
SELECT EXISTS (SELECT 1 FROM romancy_staged) FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE

-- name: add_commit_token
-- Insert the token of a transaction: it tells whether the COMMIT was made, should its response be lost.
INSERT INTO romancy_commits (token, at) VALUES (?, ?)

-- name: check_commit_token
-- Whether a transaction was committed: then its token is there, and no row is returned. Waits for a transaction that is
-- still open.
INSERT INTO romancy_commits (token, at) VALUES (?, ?) ON CONFLICT (token) DO NOTHING RETURNING 1

-- name: prune_commit_tokens
-- Delete tokens that are too old to be queried.
DELETE FROM romancy_commits WHERE at < ?

-- name: clock
-- The database's time in microseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: terminate_lost
-- Terminate a lost connection of ours and wait for its end: its statement has been executed by then, or never will be.
SELECT pg_terminate_backend(a.pid, 10000) FROM pg_stat_activity AS a
WHERE a.pid = ?::int AND a.datname = current_database() AND a.usename = current_user

-- name: fast_path
-- The fast path: new instances, runs that continue with one more result, runs that end with nothing left to clear. A write
-- with a conflict (the id is taken, the epoch is old, something arrived, another transaction has locked the row) is left
-- out here and takes the slow path. No lock is waited for. A step does not change the hot row; its lock is the fence.
-- `= ANY` beside each join makes the planner use the indexes whatever it estimates of the tables' sizes, and `coalesce`
-- keeps it from the index of owned instances: when the statistics were taken, there may have been none.
WITH new AS (
    INSERT INTO romancy_instances (
        id, workflow, version, status, generation, round, epoch, owner, wake_at, inbox_version, inbox_version_seen,
        deadline_at, fingerprint, created_at, started_at, updated_at, code, python, digest, created_at_event_seq)
    SELECT c.id, c.workflow, c.version, CASE WHEN c.owner IS NULL THEN 'pending' ELSE 'running' END, 1, 0,
        CASE WHEN c.owner IS NULL THEN 0 ELSE 1 END, c.owner, CASE WHEN c.owner IS NULL THEN c.now END, 0, 0,
        c.deadline_at, '', c.now, CASE WHEN c.owner IS NOT NULL THEN c.now END, c.now, c.code, c.python, c.digest,
        (SELECT coalesce(max(seq), 0) FROM romancy_events)
    FROM unnest(:new::romancy_new_instance[]) AS c
    ON CONFLICT (id) DO NOTHING
    RETURNING id),
inputs AS (
    INSERT INTO romancy_payloads (instance_id, generation, input)
    SELECT new.id, 1, c.input FROM unnest(:new::romancy_new_instance[]) AS c JOIN new ON new.id = c.id),
owned AS MATERIALIZED (
    SELECT f.*
    FROM unnest(:owned::romancy_owned_row[]) AS f
    JOIN romancy_instances AS i ON i.id = f.id
    WHERE i.id = ANY (:ids::text[]) AND i.generation = f.generation AND i.epoch = f.epoch
        AND coalesce(i.owner, '') = :worker::text AND i.inbox_version = f.inbox_seen AND i.inbox_version_seen = f.inbox_seen
        AND (f.status IS NOT NULL OR (i.status = 'running' AND i.wake_at IS NULL AND i.retrying_since IS NULL))
        AND NOT (f.bound AND (
            EXISTS (SELECT 1 FROM romancy_waits AS w WHERE w.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_inbox AS m WHERE m.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_deliveries AS d WHERE d.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_subscriptions AS s WHERE s.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_group_members AS g WHERE g.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_attempts AS a WHERE a.instance_id = f.id AND a.open = 1 OFFSET 0)))
        AND coalesce((
            SELECT max(h.seq) FROM romancy_history AS h
            WHERE h.instance_id = f.id AND h.generation = f.generation), 0) = f.length
    FOR NO KEY UPDATE OF i SKIP LOCKED),
ended AS (
    UPDATE romancy_instances AS i SET
        status = owned.status, updated_at = owned.now, ended_at = owned.now, fingerprint = owned.fingerprint, owner = NULL,
        wake_at = NULL, retrying_since = NULL
    FROM owned WHERE i.id = ANY (:ids::text[]) AND i.id = owned.id AND owned.status IS NOT NULL),
results AS (
    UPDATE romancy_payloads AS p SET output = owned.output, error = owned.error
    FROM owned
    WHERE p.instance_id = ANY (:ids::text[]) AND p.instance_id = owned.id AND p.generation = owned.generation
        AND owned.status IS NOT NULL),
grown AS (
    INSERT INTO romancy_history (
        instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site,
        scheduled_at, started_at, ended_at, worker, epoch)
    SELECT owned.id, owned.generation, owned.length + 1, 'activity', owned.op, 'ok', owned.at, owned.name, 0, owned.digest,
        owned.input, owned.value, 1, owned.site, owned.scheduled_at, owned.started_at, owned.ended_at, :worker::text,
        owned.epoch
    FROM owned WHERE owned.op IS NOT NULL)
SELECT id FROM new UNION ALL SELECT id FROM owned

-- name: fast_steps
-- Like fast_path, for a batch that has only steps.
WITH owned AS MATERIALIZED (
    SELECT f.*
    FROM unnest(:owned::romancy_owned_row[]) AS f
    JOIN romancy_instances AS i ON i.id = f.id
    WHERE i.id = ANY (:ids::text[]) AND i.generation = f.generation AND i.epoch = f.epoch
        AND coalesce(i.owner, '') = :worker::text AND i.inbox_version = f.inbox_seen AND i.inbox_version_seen = f.inbox_seen
        AND i.status = 'running' AND i.wake_at IS NULL AND i.retrying_since IS NULL
        AND coalesce((
            SELECT max(h.seq) FROM romancy_history AS h
            WHERE h.instance_id = f.id AND h.generation = f.generation), 0) = f.length
    FOR NO KEY UPDATE OF i SKIP LOCKED)
INSERT INTO romancy_history (
    instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at,
    started_at, ended_at, worker, epoch)
SELECT owned.id, owned.generation, owned.length + 1, 'activity', owned.op, 'ok', owned.at, owned.name, 0, owned.digest,
    owned.input, owned.value, 1, owned.site, owned.scheduled_at, owned.started_at, owned.ended_at, :worker::text, owned.epoch
FROM owned
RETURNING instance_id

-- name: fast_step
-- Like fast_path, for a single step and without arrays of records: the usual statement when few workflows run at a time.
INSERT INTO romancy_history (
    instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at,
    started_at, ended_at, worker, epoch)
SELECT i.id, i.generation, :length::bigint + 1, 'activity', :op::text, 'ok', :at::bigint, :name::text, 0, :digest::bytea,
    :input::bytea, :value::bytea, 1, :site::text, :scheduled_at::bigint, :started_at::bigint, :ended_at::bigint,
    :worker::text, i.epoch
FROM (
    SELECT id, generation, epoch FROM romancy_instances
    WHERE id = :id::text AND generation = :generation::bigint AND epoch = :epoch::bigint
        AND coalesce(owner, '') = :worker::text AND inbox_version = :inbox_seen::bigint
        AND inbox_version_seen = :inbox_seen::bigint AND status = 'running' AND wake_at IS NULL AND retrying_since IS NULL
        AND coalesce((
            SELECT max(h.seq) FROM romancy_history AS h
            WHERE h.instance_id = :id::text AND h.generation = :generation::bigint), 0) = :length::bigint
    FOR NO KEY UPDATE SKIP LOCKED) AS i
RETURNING instance_id

-- name: fast_others
-- Like fast_path, for runs that continue or end with several results, or with results of other operations than activities.
WITH owned AS MATERIALIZED (
    SELECT f.*
    FROM unnest(
        :id::text[], :generation::bigint[], :epoch::bigint[], :inbox_seen::bigint[], :length::bigint[], :status::text[],
        :bound::boolean[], :now::bigint[], :fingerprint::text[], :output::bytea[], :error::bytea[],
        :ends::boolean[]) AS f (
        id, generation, epoch, inbox_seen, length, status, bound, now, fingerprint, output, error, ends)
    JOIN romancy_instances AS i ON i.id = f.id
    WHERE i.id = ANY (:id::text[]) AND i.generation = f.generation AND i.epoch = f.epoch
        AND coalesce(i.owner, '') = :worker::text AND i.inbox_version = f.inbox_seen AND i.inbox_version_seen = f.inbox_seen
        AND (f.ends OR (i.status = f.status AND i.wake_at IS NULL AND i.retrying_since IS NULL))
        AND NOT (f.bound AND (
            EXISTS (SELECT 1 FROM romancy_waits AS w WHERE w.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_inbox AS m WHERE m.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_deliveries AS d WHERE d.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_subscriptions AS s WHERE s.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_group_members AS g WHERE g.instance_id = f.id OFFSET 0)
            OR EXISTS (SELECT 1 FROM romancy_attempts AS a WHERE a.instance_id = f.id AND a.open = 1 OFFSET 0)))
        AND coalesce((
            SELECT max(h.seq) FROM romancy_history AS h
            WHERE h.instance_id = f.id AND h.generation = f.generation), 0) = f.length
    FOR NO KEY UPDATE OF i SKIP LOCKED),
ended AS (
    UPDATE romancy_instances AS i SET
        status = owned.status, updated_at = owned.now, ended_at = owned.now, fingerprint = owned.fingerprint, owner = NULL,
        wake_at = NULL, retrying_since = NULL
    FROM owned WHERE i.id = ANY (:id::text[]) AND i.id = owned.id AND owned.ends),
results AS (
    UPDATE romancy_payloads AS p SET output = owned.output, error = owned.error
    FROM owned
    WHERE p.instance_id = ANY (:id::text[]) AND p.instance_id = owned.id AND p.generation = owned.generation
        AND owned.ends),
grown AS (
    INSERT INTO romancy_history (
        instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site,
        scheduled_at, started_at, ended_at, worker, epoch)
    SELECT h.id, owned.generation, h.seq, h.kind, h.op, h.outcome, h.at, h.name, h.role, h.digest, h.input, h.value,
        h.attempt, h.site, h.scheduled_at, h.started_at, h.ended_at, h.worker, h.epoch
    FROM unnest(
        :h_id::text[], :h_seq::bigint[], :h_kind::text[], :h_op::text[], :h_outcome::text[], :h_at::bigint[],
        :h_name::text[], :h_role::smallint[], :h_digest::bytea[], :h_input::bytea[], :h_value::bytea[],
        :h_attempt::bigint[], :h_site::text[], :h_scheduled_at::bigint[], :h_started_at::bigint[], :h_ended_at::bigint[],
        :h_worker::text[], :h_epoch::bigint[]) AS h (
        id, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at, started_at,
        ended_at, worker, epoch)
    JOIN owned ON owned.id = h.id)
SELECT id FROM owned

-- name: fast_path_done
-- Which writes of the fast path were committed, after the response to their statement was lost.
SELECT f.id
FROM unnest(
    :id::text[], :generation::bigint[], :epoch::bigint[], :worker::text[], :last::bigint[], :now::bigint[]) AS f (
    id, generation, epoch, worker, last, now)
JOIN romancy_instances AS i ON i.id = f.id
WHERE i.id = ANY (:id::text[]) AND CASE
    WHEN f.last IS NULL THEN i.created_at = f.now AND i.generation = 1 AND i.epoch = f.epoch
        AND i.owner IS NOT DISTINCT FROM f.worker
    WHEN f.last < 0 THEN i.ended_at = f.now AND i.generation = f.generation AND i.epoch = f.epoch
    ELSE EXISTS (
        SELECT 1 FROM romancy_history AS h
        WHERE h.instance_id = f.id AND h.generation = f.generation AND h.seq = f.last AND h.epoch = f.epoch
            AND h.worker = f.worker)
    END

-- name: fast_awaited
-- The fast path of instances that were woken for an event they wait for: the event is there, so the wait need not be
-- registered, and a sender that commits meanwhile does not matter. An instance that finds no event, or has another inbox
-- item, takes the slow path. The inbox version must be that of the statement's own snapshot: what came after it has not
-- been read.
WITH awaited AS MATERIALIZED (
    SELECT
        f.id, f.generation, f.worker, f.new_epoch, f.length, f.status, f.wake_at, f.retrying_since, f.now, f.op, f.type,
        f.subject, f.due, f.selector, i.inbox_version,
        coalesce(
            (SELECT w.matched_seq - 1 FROM romancy_waits AS w WHERE w.instance_id = f.id AND w.op = f.op),
            (SELECT max(t.seq) FROM romancy_consumed_events AS t
                WHERE t.instance_id = f.id AND md5(t.selector) = md5(f.selector) AND t.selector = f.selector
                    AND t.seq > i.created_at_event_seq),
            i.created_at_event_seq) AS after
    FROM unnest(
        :id::text[], :generation::bigint[], :epoch::bigint[], :worker::text[], :new_epoch::bigint[], :length::bigint[],
        :status::text[], :wake_at::bigint[], :retrying_since::bigint[], :now::bigint[], :op::text[], :type::text[],
        :subject::text[], :due::bigint[], :selector::text[]) AS f (
        id, generation, epoch, worker, new_epoch, length, status, wake_at, retrying_since, now, op, type, subject, due,
        selector)
    JOIN romancy_instances AS i ON i.id = f.id
    WHERE i.id = ANY (:id::text[]) AND i.generation = f.generation AND i.epoch = f.epoch AND i.owner IS NULL
        AND i.ended_at IS NULL AND i.status NOT IN ('paused', 'blocked')
        AND i.inbox_version = (SELECT s.inbox_version FROM romancy_instances AS s WHERE s.id = f.id)
        AND NOT EXISTS (SELECT 1 FROM romancy_inbox AS m WHERE m.instance_id = f.id OFFSET 0)
        AND NOT EXISTS (
            SELECT 1 FROM romancy_waits AS w WHERE w.instance_id = f.id AND w.matched_seq IS NOT NULL AND w.op <> f.op
            OFFSET 0)
        AND coalesce((
            SELECT max(h.seq) FROM romancy_history AS h
            WHERE h.instance_id = f.id AND h.generation = f.generation), 0) = f.length
    FOR NO KEY UPDATE OF i SKIP LOCKED),
found AS MATERIALIZED (
    SELECT a.*, e.seq, e.body, e.target
    FROM awaited AS a CROSS JOIN LATERAL (
        SELECT * FROM (
            (SELECT e.seq, e.body, e.target FROM romancy_events AS e
            WHERE a.subject IS NULL AND e.target IS NULL AND (e.type, e.seq) > (a.type, a.after) AND e.type <= a.type
                AND (a.due IS NULL OR e.accepted_at < a.due)
                AND NOT EXISTS (
                    SELECT 1 FROM romancy_consumed_events AS t
                    WHERE t.instance_id = a.id AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
            ORDER BY e.type, e.seq LIMIT 1)
            UNION ALL
            (SELECT e.seq, e.body, e.target FROM romancy_events AS e
            WHERE e.target IS NULL AND e.type = a.type AND e.subject = a.subject AND e.subject IS NOT NULL
                AND e.seq > a.after AND (a.due IS NULL OR e.accepted_at < a.due)
                AND NOT EXISTS (
                    SELECT 1 FROM romancy_consumed_events AS t
                    WHERE t.instance_id = a.id AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
            ORDER BY e.seq LIMIT 1)
            UNION ALL
            (SELECT e.seq, e.body, e.target FROM romancy_events AS e
            WHERE e.target = a.id AND e.target IS NOT NULL AND e.type = a.type AND e.seq > a.after
                AND (a.subject IS NULL OR e.subject = a.subject) AND (a.due IS NULL OR e.accepted_at < a.due)
                AND NOT EXISTS (
                    SELECT 1 FROM romancy_consumed_events AS t
                    WHERE t.instance_id = a.id AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
            ORDER BY e.seq LIMIT 1)) AS candidates
        ORDER BY candidates.seq LIMIT 1) AS e),
gone AS (
    DELETE FROM romancy_waits AS w USING found
    WHERE w.instance_id = ANY (:id::text[]) AND w.instance_id = found.id AND w.op = found.op),
moved AS (
    UPDATE romancy_instances AS i SET
        status = found.status, epoch = found.new_epoch, owner = found.worker, wake_at = found.wake_at,
        inbox_version_seen = i.inbox_version, retrying_since = found.retrying_since, blocked_by = NULL,
        started_at = coalesce(i.started_at, found.now), updated_at = found.now
    FROM found WHERE i.id = ANY (:id::text[]) AND i.id = found.id),
recorded AS (INSERT INTO romancy_consumed_events (instance_id, seq, selector) SELECT id, seq, selector FROM found),
addressed AS (
    UPDATE romancy_events AS e SET consumed = 1 FROM found
    WHERE found.target IS NOT NULL AND e.seq = found.seq AND e.target = found.id),
grown AS (
    INSERT INTO romancy_history (
        instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site,
        scheduled_at, started_at, ended_at, worker, epoch)
    SELECT h.id, found.generation, h.seq, h.kind, h.op, h.outcome, h.at, h.name, h.role, h.digest, h.input, found.body,
        h.attempt, h.site, h.scheduled_at, h.started_at, h.ended_at, h.worker, h.epoch
    FROM unnest(
        :h_id::text[], :h_seq::bigint[], :h_kind::text[], :h_op::text[], :h_outcome::text[], :h_at::bigint[],
        :h_name::text[], :h_role::smallint[], :h_digest::bytea[], :h_input::bytea[], :h_attempt::bigint[],
        :h_site::text[], :h_scheduled_at::bigint[], :h_started_at::bigint[], :h_ended_at::bigint[], :h_worker::text[],
        :h_epoch::bigint[]) AS h (
        id, seq, kind, op, outcome, at, name, role, digest, input, attempt, site, scheduled_at, started_at, ended_at,
        worker, epoch)
    JOIN found ON found.id = h.id)
SELECT id, inbox_version, body FROM found

-- name: fast_awaited_done
-- Which writes of fast_awaited were committed, after the response to the statement was lost.
SELECT f.id, i.inbox_version_seen, h.value
FROM unnest(:id::text[], :generation::bigint[], :length::bigint[], :new_epoch::bigint[], :worker::text[]) AS f (
    id, generation, length, new_epoch, worker)
JOIN romancy_instances AS i ON i.id = f.id
JOIN romancy_history AS h ON h.instance_id = f.id AND h.generation = f.generation AND h.seq = f.length + 1
WHERE i.id = ANY (:id::text[]) AND h.epoch = f.new_epoch AND h.worker = f.worker

-- name: load_states
-- The hot rows of a batch's instances, read before anything is decided. They stay locked until the batch is written.
SELECT
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at
FROM romancy_instances AS i WHERE i.id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))
ORDER BY i.id FOR NO KEY UPDATE

-- name: load_states_row_locked
-- Like load_states, without the rows that another transaction has locked.
SELECT
    i.id, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen, coalesce((
        SELECT max(h.seq) FROM romancy_history AS h WHERE h.instance_id = i.id AND h.generation = i.generation), 0),
    i.cancel_requested_at, i.deadline_at, i.retrying_since, i.blocked_by, i.fingerprint, i.started_at, i.updated_at,
    i.ended_at
FROM romancy_instances AS i WHERE i.id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))
FOR NO KEY UPDATE SKIP LOCKED

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
INSERT INTO romancy_attempts (
    instance_id, generation, op, attempt, name, open, worker, epoch, site, scheduled_at, started_at, ended_at, next_at,
    error, details, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (instance_id, generation, op, attempt) DO UPDATE SET
    name = excluded.name, open = excluded.open, worker = excluded.worker, epoch = excluded.epoch, site = excluded.site,
    scheduled_at = excluded.scheduled_at, started_at = excluded.started_at, ended_at = excluded.ended_at,
    next_at = excluded.next_at, error = excluded.error, details = excluded.details, heartbeat_at = excluded.heartbeat_at

-- name: put_waits
-- Save the waits of instances.
INSERT INTO romancy_waits (instance_id, op, kind, since, due, key, subject, "match", site)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (instance_id, op) DO UPDATE SET
    kind = excluded.kind, since = excluded.since, due = excluded.due, key = excluded.key, subject = excluded.subject,
    "match" = excluded."match", site = excluded.site, matched_seq = NULL

-- name: add_inbox_items
-- Insert inbox items.
INSERT INTO romancy_inbox (instance_id, kind, op, body, at) VALUES (?, ?, ?, ?, ?)

-- name: add_notes
-- Append entries to journals.
INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch) VALUES (?, ?, ?, ?, ?, ?)

-- name: close_attempts
-- Delete the open attempts of operations that have resolved: the history has their results.
DELETE FROM romancy_attempts AS a USING jsonb_array_elements(:gone::jsonb) AS gone
WHERE a.instance_id = ANY (ARRAY(SELECT one ->> 0 FROM jsonb_array_elements(:gone::jsonb) AS one)) AND a.open = 1
    AND a.instance_id = gone ->> 0 AND a.generation = (gone ->> 1)::bigint AND a.op = gone ->> 2

-- name: withdraw_waits
-- Delete waits that were matched or withdrawn.
DELETE FROM romancy_waits AS w USING jsonb_array_elements(:gone::jsonb) AS gone
WHERE w.instance_id = ANY (ARRAY(SELECT one ->> 0 FROM jsonb_array_elements(:gone::jsonb) AS one))
    AND w.instance_id = gone ->> 0 AND w.op = gone ->> 1

-- name: consume_inbox_items
-- Delete inbox items that a run has consumed; only its own.
DELETE FROM romancy_inbox AS m USING jsonb_array_elements(:gone::jsonb) AS gone
WHERE m.id = ANY (ARRAY(SELECT (one ->> 1)::bigint FROM jsonb_array_elements(:gone::jsonb) AS one))
    AND m.id = (gone ->> 1)::bigint AND m.instance_id = gone ->> 0

-- name: clear_waits
-- Delete the waits of instances that ended.
DELETE FROM romancy_waits WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: clear_inbox
-- Delete the inbox items of instances that ended.
DELETE FROM romancy_inbox WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: clear_open_attempts
-- Delete the open attempts of instances that ended.
DELETE FROM romancy_attempts
WHERE open = 1 AND instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

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
