-- migrate:up

-- Times are microseconds since 1970, UTC. Payloads are bytes as `romancy.serde` wrote them.
-- No foreign keys: every writer is this library, and the checks would cost a lookup for each row of the hot path.

-- The messaging lock: a transaction that concerns several instances (it sends an event for which some wait) holds this row
-- until it has committed. So no wait misses a message, and the log of events is numbered in the order of commits.
CREATE TABLE romancy_messaging_lock (
    id INTEGER NOT NULL PRIMARY KEY
);
INSERT INTO romancy_messaging_lock (id) VALUES (1);

-- The tokens of recently committed transactions.
CREATE TABLE romancy_commits (
    token TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at    BIGINT NOT NULL
);
CREATE INDEX romancy_commits_at ON romancy_commits (at);

-- The hot row of an instance: it changes with the status, the owner or the wake time, and not with a plain step. The length
-- of the history is not stored: it is the highest seq there. Payloads have a table of their own.
-- claimable  <=>  owner IS NULL AND wake_at <= now. Paused, blocked and ended instances have no wake_at.
CREATE TABLE romancy_instances (
    id                   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workflow             TEXT COLLATE "C" NOT NULL,
    version              TEXT COLLATE "C" NOT NULL,  -- '' = none
    status               TEXT COLLATE "C" NOT NULL,
    generation           BIGINT NOT NULL,
    round                BIGINT NOT NULL,
    epoch                BIGINT NOT NULL,            -- the fencing token
    owner                TEXT COLLATE "C",
    wake_at              BIGINT,
    inbox_version        BIGINT NOT NULL,            -- counts what has arrived for it
    inbox_version_seen   BIGINT NOT NULL,            -- ... up to where the run knew it when it last wrote
    cancel_requested_at  BIGINT,
    deadline_at          BIGINT,
    retrying_since       BIGINT,
    blocked_by           TEXT,
    fingerprint          TEXT   NOT NULL,            -- of the error it failed with
    created_at           BIGINT NOT NULL,
    started_at           BIGINT,
    updated_at           BIGINT NOT NULL,
    ended_at             BIGINT,
    code                 TEXT   NOT NULL,
    python               TEXT   NOT NULL,
    digest               BYTEA  NOT NULL,            -- of the arguments it was started with
    created_at_event_seq BIGINT NOT NULL             -- the last event of the log then: only later ones can match its waits
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- None of these changes while a run goes from step to step: only a change of status, owner or wake time of an unowned
-- instance touches one.
CREATE INDEX romancy_instances_claimable ON romancy_instances (workflow, version, wake_at)
    WHERE owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX romancy_instances_owned ON romancy_instances (owner) WHERE owner IS NOT NULL;
CREATE INDEX romancy_instances_blocked ON romancy_instances (workflow, version) WHERE status = 'blocked';
CREATE INDEX romancy_instances_created ON romancy_instances (created_at, id);
-- Most instances go from running to completed. Neither is searched by this index: running ones are found among the owned,
-- and completed ones among all. Both stay out of it, or every start and every end would write this index too.
CREATE INDEX romancy_instances_status ON romancy_instances (status, created_at, id)
    WHERE status NOT IN ('running', 'completed');
CREATE INDEX romancy_instances_ended ON romancy_instances (ended_at) WHERE ended_at IS NOT NULL;
-- Empty while nothing fails.
CREATE INDEX romancy_instances_retrying ON romancy_instances (created_at, id) WHERE retrying_since IS NOT NULL;

CREATE TABLE romancy_payloads (
    instance_id TEXT COLLATE "C" NOT NULL,
    generation  BIGINT NOT NULL,
    input       BYTEA  NOT NULL,
    output      BYTEA,
    error       BYTEA,
    begun_at    BIGINT,  -- when a generation began; NULL: with the instance
    memberships TEXT,    -- the channels and groups of an instance that failed, as JSON: a retry restores them
    PRIMARY KEY (instance_id, generation)
) WITH (fillfactor = 80);
-- To find the archived generations that are old enough to be deleted.
CREATE INDEX romancy_payloads_begun ON romancy_payloads (begun_at) WHERE begun_at IS NOT NULL;

CREATE TABLE romancy_history (
    instance_id  TEXT COLLATE "C" NOT NULL,
    generation   BIGINT   NOT NULL,
    seq          BIGINT   NOT NULL,
    kind         TEXT     NOT NULL,
    op           TEXT     NOT NULL,
    outcome      TEXT     NOT NULL,
    at           BIGINT   NOT NULL,
    name         TEXT     NOT NULL,
    role         SMALLINT NOT NULL,
    digest       BYTEA    NOT NULL,
    input        BYTEA,
    value        BYTEA,
    attempt      BIGINT   NOT NULL,
    site         TEXT     NOT NULL,
    scheduled_at BIGINT,
    started_at   BIGINT,
    ended_at     BIGINT,
    worker       TEXT     NOT NULL,
    epoch        BIGINT   NOT NULL,
    PRIMARY KEY (instance_id, generation, seq)
);

CREATE TABLE romancy_attempts (
    instance_id  TEXT COLLATE "C" NOT NULL,
    generation   BIGINT   NOT NULL,
    op           TEXT COLLATE "C" NOT NULL,
    attempt      BIGINT   NOT NULL,
    name         TEXT     NOT NULL,
    open         SMALLINT NOT NULL,
    worker       TEXT     NOT NULL,
    epoch        BIGINT   NOT NULL,
    site         TEXT     NOT NULL,
    scheduled_at BIGINT   NOT NULL,
    started_at   BIGINT   NOT NULL,
    ended_at     BIGINT,
    next_at      BIGINT,
    error        BYTEA,
    details      BYTEA,
    heartbeat_at BIGINT,
    PRIMARY KEY (instance_id, generation, op, attempt)
);

CREATE TABLE romancy_waits (
    instance_id TEXT COLLATE "C" NOT NULL,
    op          TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    since       BIGINT NOT NULL,
    due         BIGINT,
    key         TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C",
    "match"     BYTEA,
    site        TEXT   NOT NULL,
    matched_seq BIGINT,  -- the seq of the event or message that has matched it
    PRIMARY KEY (instance_id, op)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Timers have no key, and no query searches for one.
CREATE INDEX romancy_waits_key ON romancy_waits (kind, key, subject) WHERE key <> '';
CREATE INDEX romancy_waits_matched ON romancy_waits (instance_id) WHERE matched_seq IS NOT NULL;
-- The instances that wait for the messages of a channel, in the order in which they are woken.
CREATE INDEX romancy_waits_queue ON romancy_waits (key, since, instance_id, op) WHERE kind = 'message' AND matched_seq IS NULL;
-- Waits with a `match`: Python, not SQL, decides whether an event fits one.
CREATE INDEX romancy_waits_match ON romancy_waits (key) WHERE kind = 'event' AND "match" IS NOT NULL;

CREATE TABLE romancy_inbox (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id TEXT COLLATE "C" NOT NULL,
    kind        TEXT   NOT NULL,
    op          TEXT   NOT NULL,
    body        BYTEA,
    at          BIGINT NOT NULL
);
CREATE INDEX romancy_inbox_instance ON romancy_inbox (instance_id);

CREATE TABLE romancy_journal (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    kind        TEXT   NOT NULL,
    detail      TEXT   NOT NULL,
    worker      TEXT   NOT NULL,
    epoch       BIGINT NOT NULL
);
CREATE INDEX romancy_journal_instance ON romancy_journal (instance_id);

CREATE TABLE romancy_workers (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    label        TEXT   NOT NULL,
    service      TEXT   NOT NULL,
    hostname     TEXT   NOT NULL,
    pid          BIGINT NOT NULL,
    python       TEXT   NOT NULL,
    workflows    TEXT   NOT NULL,
    started_at   BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE romancy_sources (
    code     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workflow TEXT   NOT NULL,
    version  TEXT   NOT NULL,
    source   TEXT   NOT NULL,
    saved_at BIGINT NOT NULL
);

-- Every event accepted within the retention, whether or not an instance waits for it. `accepted_at` never falls while `seq`
-- rises.
CREATE TABLE romancy_events (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C",
    target      TEXT COLLATE "C",             -- the instance it is addressed to
    consumed    SMALLINT NOT NULL DEFAULT 0,  -- an addressed event was consumed
    accepted_at BIGINT NOT NULL,
    body        BYTEA  NOT NULL               -- the whole event, in the JSON format of CloudEvents
);
CREATE UNIQUE INDEX romancy_events_id ON romancy_events (source, id);
CREATE INDEX romancy_events_type ON romancy_events (type, seq) WHERE target IS NULL;
CREATE INDEX romancy_events_subject ON romancy_events (type, subject, seq) WHERE target IS NULL AND subject IS NOT NULL;
CREATE INDEX romancy_events_target ON romancy_events (target, type, seq) WHERE target IS NOT NULL;
CREATE INDEX romancy_events_unconsumed ON romancy_events (seq) WHERE target IS NOT NULL AND consumed = 0;
CREATE INDEX romancy_events_accepted ON romancy_events (accepted_at);

-- Which events an instance has consumed, and with which selector: a later wait with the same selector searches after the
-- last of them.
CREATE TABLE romancy_consumed_events (
    instance_id TEXT COLLATE "C" NOT NULL,
    seq         BIGINT NOT NULL,
    selector    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (instance_id, seq)
);
CREATE INDEX romancy_consumed_events_selector ON romancy_consumed_events (instance_id, md5(selector), seq);
CREATE INDEX romancy_consumed_events_seq ON romancy_consumed_events (seq);

-- The workflows that handle events of their name: every process that accepts such an event starts them, with or without
-- their code.
CREATE TABLE romancy_handlers (
    workflow TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version  TEXT   NOT NULL,
    saved_at BIGINT NOT NULL
);

CREATE TABLE romancy_subscriptions (
    channel     TEXT COLLATE "C" NOT NULL,
    instance_id TEXT COLLATE "C" NOT NULL,
    mode        TEXT   NOT NULL,
    since       BIGINT NOT NULL,
    PRIMARY KEY (channel, instance_id)
);
CREATE INDEX romancy_subscriptions_instance ON romancy_subscriptions (instance_id);
CREATE INDEX romancy_subscriptions_mode ON romancy_subscriptions (channel) WHERE mode <> 'direct';

-- Messages that are still to be read. A pooled one goes to the first instance that receives it; the others have deliveries.
CREATE TABLE romancy_messages (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel    TEXT COLLATE "C" NOT NULL,
    pooled     SMALLINT NOT NULL,
    created_at BIGINT NOT NULL,
    body       BYTEA  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX romancy_messages_pool ON romancy_messages (channel, seq) WHERE pooled = 1;
CREATE INDEX romancy_messages_age ON romancy_messages (created_at) WHERE pooled = 1;

CREATE TABLE romancy_deliveries (
    instance_id TEXT COLLATE "C" NOT NULL,
    channel     TEXT COLLATE "C" NOT NULL,
    seq         BIGINT NOT NULL,
    PRIMARY KEY (instance_id, channel, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX romancy_deliveries_seq ON romancy_deliveries (seq);

CREATE TABLE romancy_group_members (
    name        TEXT COLLATE "C" NOT NULL,
    instance_id TEXT COLLATE "C" NOT NULL,
    since       BIGINT NOT NULL,
    PRIMARY KEY (name, instance_id)
);
CREATE INDEX romancy_group_members_instance ON romancy_group_members (instance_id);

-- Events on their way to brokers: one row for each event and broker, from the commit that sends it until it is delivered.
-- A row is due when next_at has come; a claim moves that to the end of its lease. A dead row has no next_at.
CREATE TABLE romancy_outbox (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    broker     TEXT COLLATE "C" NOT NULL,
    body       BYTEA  NOT NULL,  -- the whole event, in the JSON format of CloudEvents
    created_at BIGINT NOT NULL,
    since      BIGINT NOT NULL,  -- when it was enqueued, or requeued
    attempts   BIGINT NOT NULL DEFAULT 0,
    next_at    BIGINT,
    claimed_by TEXT COLLATE "C",
    last_error TEXT,
    dead_at    BIGINT
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX romancy_outbox_due ON romancy_outbox (broker, next_at, seq) WHERE next_at IS NOT NULL;
-- Both are empty while nothing is dead.
CREATE INDEX romancy_outbox_dead ON romancy_outbox (seq) WHERE dead_at IS NOT NULL;
CREATE INDEX romancy_outbox_dead_at ON romancy_outbox (broker, dead_at) WHERE dead_at IS NOT NULL;

-- Effects emitted in users' transactions: they are applied once those have committed.
CREATE TABLE romancy_staged (
    seq  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind TEXT   NOT NULL,
    head TEXT   NOT NULL,
    body BYTEA  NOT NULL,
    at   BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- How far maintenance has come with its gradual tasks.
CREATE TABLE romancy_watermarks (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    upto BIGINT NOT NULL
);

-- How many instances ended in a minute, and how long they took: counted afterwards by maintenance, not by the transaction
-- that ends one.
CREATE TABLE romancy_rollup (
    minute   BIGINT NOT NULL,  -- when it began
    workflow TEXT COLLATE "C" NOT NULL,
    outcome  TEXT COLLATE "C" NOT NULL,
    ended    BIGINT NOT NULL,
    buckets  TEXT   NOT NULL,  -- a histogram of durations, as JSON
    PRIMARY KEY (minute, workflow, outcome)
);

-- The audit log: the actions of operators.
CREATE TABLE romancy_audit (
    number      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          BIGINT NOT NULL,
    actor       TEXT   NOT NULL,
    action      TEXT   NOT NULL,
    instance_id TEXT COLLATE "C",
    detail      TEXT   NOT NULL
);
CREATE INDEX romancy_audit_instance ON romancy_audit (instance_id, number) WHERE instance_id IS NOT NULL;

-- Actions on all instances that match a filter, and how far they have come: the worker that has the claim continues.
CREATE TABLE romancy_bulk_actions (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    action        TEXT   NOT NULL,
    filter        TEXT   NOT NULL,
    reason        TEXT,
    actor         TEXT   NOT NULL,
    status        TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    ended_at      BIGINT,
    done          BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    scanned       BIGINT NOT NULL,
    failures      TEXT   NOT NULL,  -- the first of them, as JSON
    cursor        TEXT,             -- where the search continues
    claimed_by    TEXT COLLATE "C",
    claimed_until BIGINT NOT NULL
);
CREATE INDEX romancy_bulk_actions_created ON romancy_bulk_actions (created_at, id);
CREATE INDEX romancy_bulk_actions_running ON romancy_bulk_actions (created_at) WHERE status = 'running';

-- How often an instance has lost its worker since it last recorded anything. A row counts while neither the
-- instance's generation nor its progress has changed since.
CREATE TABLE romancy_losses (
    instance_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    generation  BIGINT NOT NULL,
    progress    BIGINT NOT NULL,  -- entries of its history, and failed attempts
    losses      BIGINT NOT NULL,
    isolated    BIGINT NOT NULL   -- 1: its next loss would be one too many, so a worker runs one such at a time
);

-- What the fast path writes, a record for each instance. Arrays of records cost half as much as arrays of columns, for the
-- client and for the server.
CREATE TYPE romancy_new_instance AS (
    id TEXT, workflow TEXT, version TEXT, owner TEXT, deadline_at BIGINT, now BIGINT, code TEXT, python TEXT, digest BYTEA,
    input BYTEA);
CREATE TYPE romancy_owned_row AS (
    id TEXT, generation BIGINT, epoch BIGINT, inbox_seen BIGINT, length BIGINT, status TEXT, bound BOOLEAN, now BIGINT,
    fingerprint TEXT, output BYTEA, error BYTEA, op TEXT, name TEXT, at BIGINT, digest BYTEA, input BYTEA, value BYTEA,
    site TEXT, scheduled_at BIGINT, started_at BIGINT, ended_at BIGINT);

-- Appends those events to the log whose source and id are not known, and wakes the instances that wait for them: a
-- transaction of one statement. Under READ COMMITTED each statement of a function sees what was committed before it, so the
-- holder of the messaging lock sees every wait. Returns a row numbered 0, then the new events, then for each event the
-- instances it woke. For an instance whose wait an earlier event has matched, the event id is an empty text: it is woken,
-- but the sender is not told of it again. Returns nothing, and does nothing, if the row of the messaging lock is missing or
-- more has to be decided: staged effects come first, an event starts a workflow, or a wait has a `match`.
CREATE FUNCTION romancy_accept_events(
    sources TEXT[], ids TEXT[], types TEXT[], subjects TEXT[], targets TEXT[], bodies BYTEA[], moment BIGINT)
RETURNS TABLE (number BIGINT, event_source TEXT, event_id TEXT, instance TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM romancy_messaging_lock WHERE romancy_messaging_lock.id = 1 FOR UPDATE;
    IF NOT FOUND
        OR current_setting('transaction_isolation') <> 'read committed'
        OR EXISTS (SELECT FROM romancy_staged)
        OR EXISTS (SELECT FROM romancy_handlers WHERE workflow = ANY (types))
        OR EXISTS (SELECT FROM romancy_waits WHERE kind = 'event' AND key = ANY (types) AND "match" IS NOT NULL)
    THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH new AS (
        INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)
        SELECT e.source, e.id, e.type, e.subject, e.target, greatest(moment, (
            SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1)), e.body
        FROM unnest(sources, ids, types, subjects, targets, bodies)
            WITH ORDINALITY AS e (source, id, type, subject, target, body, ordinal)
        ORDER BY e.ordinal
        ON CONFLICT (source, id) DO NOTHING RETURNING seq, source, id, type, subject, target, accepted_at),
    waiting AS MATERIALIZED (
        SELECT e.seq, w.instance_id, w.op,
            w.matched_seq IS NOT NULL OR e.seq > min(e.seq) OVER (PARTITION BY w.instance_id, w.op) AS again
        FROM new AS e CROSS JOIN LATERAL (
            SELECT instance_id, op, matched_seq FROM romancy_waits
            WHERE e.target IS NULL AND kind = 'event' AND key = e.type AND key <> '' AND subject IS NULL
                AND (due IS NULL OR due > e.accepted_at)
            UNION ALL
            SELECT instance_id, op, matched_seq FROM romancy_waits
            WHERE e.target IS NULL AND kind = 'event' AND key = e.type AND key <> '' AND subject = e.subject
                AND (due IS NULL OR due > e.accepted_at)
            UNION ALL
            SELECT instance_id, op, matched_seq FROM romancy_waits
            WHERE instance_id = e.target AND kind = 'event' AND key = e.type AND (subject IS NULL OR subject = e.subject)
                AND (due IS NULL OR due > e.accepted_at)) AS w),
    first AS MATERIALIZED (SELECT instance_id, op, min(seq) AS seq FROM waiting GROUP BY instance_id, op),
    matched AS (
        UPDATE romancy_waits AS w SET matched_seq = coalesce(w.matched_seq, first.seq) FROM first
        WHERE w.instance_id = ANY (ARRAY(SELECT instance_id FROM first)) AND w.instance_id = first.instance_id
            AND w.op = first.op),
    woken AS (
        UPDATE romancy_instances SET
            inbox_version = inbox_version + 1,
            wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN moment ELSE wake_at END
        WHERE id = ANY (ARRAY(SELECT instance_id FROM first)) AND ended_at IS NULL)
    SELECT 0::BIGINT, NULL, NULL, NULL
    UNION ALL
    SELECT seq, source, id, NULL FROM new
    UNION ALL
    SELECT seq, NULL, CASE WHEN again THEN '' END, instance_id FROM waiting
    ORDER BY 1;
END
$$;
