-- migrate:up

-- Times are microseconds since 1970, UTC. Payloads are bytes as `romancy.serde` wrote them.
-- No foreign keys: every writer is this library, and the checks would cost a lookup for each row of the hot path.

-- The hot row of an instance: it changes with the status, the owner or the wake time, and not with a plain step. The length
-- of the history is not stored: it is the highest seq there. Payloads have a table of their own.
-- claimable  <=>  owner IS NULL AND wake_at <= now. Paused, blocked and ended instances have no wake_at.
CREATE TABLE romancy_instances (
    id                   TEXT    NOT NULL PRIMARY KEY,
    workflow             TEXT    NOT NULL,
    version              TEXT    NOT NULL,           -- '' = none
    status               TEXT    NOT NULL,
    generation           INTEGER NOT NULL,
    round                INTEGER NOT NULL,
    epoch                INTEGER NOT NULL,           -- the fencing token
    owner                TEXT,
    wake_at              INTEGER,
    inbox_version        INTEGER NOT NULL,           -- counts what has arrived for it
    inbox_version_seen   INTEGER NOT NULL,           -- ... up to where the run knew it when it last wrote
    cancel_requested_at  INTEGER,
    deadline_at          INTEGER,
    retrying_since       INTEGER,
    blocked_by           TEXT,
    fingerprint          TEXT    NOT NULL,           -- of the error it failed with
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    updated_at           INTEGER NOT NULL,
    ended_at             INTEGER,
    code                 TEXT    NOT NULL,
    python               TEXT    NOT NULL,
    digest               BLOB    NOT NULL,           -- of the arguments it was started with
    created_at_event_seq INTEGER NOT NULL DEFAULT 0  -- the last event of the log then: only later ones can match its waits
) WITHOUT ROWID;

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
    instance_id TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    input       BLOB    NOT NULL,
    output      BLOB,
    error       BLOB,
    begun_at    INTEGER,  -- when a generation began; NULL: with the instance
    memberships TEXT,     -- the channels and groups of an instance that failed, as JSON: a retry restores them
    PRIMARY KEY (instance_id, generation)
) WITHOUT ROWID;
-- To find the archived generations that are old enough to be deleted.
CREATE INDEX romancy_payloads_begun ON romancy_payloads (begun_at) WHERE begun_at IS NOT NULL;

CREATE TABLE romancy_history (
    instance_id  TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    op           TEXT    NOT NULL,
    outcome      TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    role         INTEGER NOT NULL,
    digest       BLOB    NOT NULL,
    input        BLOB,
    value        BLOB,
    attempt      INTEGER NOT NULL,
    site         TEXT    NOT NULL,
    scheduled_at INTEGER,
    started_at   INTEGER,
    ended_at     INTEGER,
    worker       TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    PRIMARY KEY (instance_id, generation, seq)
) WITHOUT ROWID;

CREATE TABLE romancy_attempts (
    instance_id  TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    op           TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    open         INTEGER NOT NULL,
    worker       TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    site         TEXT    NOT NULL,
    scheduled_at INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    next_at      INTEGER,
    error        BLOB,
    details      BLOB,
    heartbeat_at INTEGER,
    PRIMARY KEY (instance_id, generation, op, attempt)
) WITHOUT ROWID;

CREATE TABLE romancy_waits (
    instance_id TEXT    NOT NULL,
    op          TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    due         INTEGER,
    key         TEXT    NOT NULL,
    subject     TEXT,
    "match"     BLOB,
    site        TEXT    NOT NULL,
    matched_seq INTEGER,  -- the seq of the event or message that has matched it
    PRIMARY KEY (instance_id, op)
) WITHOUT ROWID;

-- Timers have no key, and no query searches for one.
CREATE INDEX romancy_waits_key ON romancy_waits (kind, key, subject) WHERE key <> '';
CREATE INDEX romancy_waits_matched ON romancy_waits (instance_id) WHERE matched_seq IS NOT NULL;
-- The instances that wait for the messages of a channel, in the order in which they are woken.
CREATE INDEX romancy_waits_queue ON romancy_waits (key, since, instance_id, op) WHERE kind = 'message' AND matched_seq IS NULL;

-- AUTOINCREMENT: the id of a consumed inbox item must never be used again, a late transition may still name it.
CREATE TABLE romancy_inbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    op          TEXT    NOT NULL,
    body        BLOB,
    at          INTEGER NOT NULL
);
CREATE INDEX romancy_inbox_instance ON romancy_inbox (instance_id);

CREATE TABLE romancy_journal (
    id          INTEGER PRIMARY KEY,
    instance_id TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    detail      TEXT    NOT NULL,
    worker      TEXT    NOT NULL,
    epoch       INTEGER NOT NULL
);
CREATE INDEX romancy_journal_instance ON romancy_journal (instance_id);

CREATE TABLE romancy_workers (
    id           TEXT    NOT NULL PRIMARY KEY,
    label        TEXT    NOT NULL,
    service      TEXT    NOT NULL,
    hostname     TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    python       TEXT    NOT NULL,
    workflows    TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE romancy_sources (
    code     TEXT    NOT NULL PRIMARY KEY,
    workflow TEXT    NOT NULL,
    version  TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Every event accepted within the retention, whether or not an instance waits for it. `accepted_at` never falls while `seq`
-- rises.
CREATE TABLE romancy_events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    source      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    subject     TEXT,
    target      TEXT,                        -- the instance it is addressed to
    consumed    INTEGER NOT NULL DEFAULT 0,  -- an addressed event was consumed
    accepted_at INTEGER NOT NULL,
    body        BLOB    NOT NULL             -- the whole event, in the JSON format of CloudEvents
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
    instance_id TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    selector    TEXT    NOT NULL,
    PRIMARY KEY (instance_id, seq)
) WITHOUT ROWID;
CREATE INDEX romancy_consumed_events_selector ON romancy_consumed_events (instance_id, selector, seq);
CREATE INDEX romancy_consumed_events_seq ON romancy_consumed_events (seq);

-- The workflows that handle events of their name: every process that accepts such an event starts them, with or without
-- their code.
CREATE TABLE romancy_handlers (
    workflow TEXT    NOT NULL PRIMARY KEY,
    version  TEXT    NOT NULL,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE romancy_subscriptions (
    channel     TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    mode        TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (channel, instance_id)
) WITHOUT ROWID;
CREATE INDEX romancy_subscriptions_instance ON romancy_subscriptions (instance_id);
CREATE INDEX romancy_subscriptions_mode ON romancy_subscriptions (channel) WHERE mode <> 'direct';

-- Messages that are still to be read. A pooled one goes to the first instance that receives it; the others have deliveries.
CREATE TABLE romancy_messages (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    channel    TEXT    NOT NULL,
    pooled     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    body       BLOB    NOT NULL
);
CREATE INDEX romancy_messages_pool ON romancy_messages (channel, seq) WHERE pooled = 1;
CREATE INDEX romancy_messages_age ON romancy_messages (created_at) WHERE pooled = 1;

CREATE TABLE romancy_deliveries (
    instance_id TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    PRIMARY KEY (instance_id, channel, seq)
) WITHOUT ROWID;
CREATE INDEX romancy_deliveries_seq ON romancy_deliveries (seq);

CREATE TABLE romancy_group_members (
    name        TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (name, instance_id)
) WITHOUT ROWID;
CREATE INDEX romancy_group_members_instance ON romancy_group_members (instance_id);

-- Events on their way to brokers: one row for each event and broker, from the commit that sends it until it is delivered.
-- A row is due when next_at has come; a claim moves that to the end of its lease. A dead row has no next_at.
CREATE TABLE romancy_outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    broker     TEXT    NOT NULL,
    body       BLOB    NOT NULL,  -- the whole event, in the JSON format of CloudEvents
    created_at INTEGER NOT NULL,
    since      INTEGER NOT NULL,  -- when it was enqueued, or requeued
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER,
    claimed_by TEXT,
    last_error TEXT,
    dead_at    INTEGER
);
CREATE INDEX romancy_outbox_due ON romancy_outbox (broker, next_at, seq) WHERE next_at IS NOT NULL;
-- Both are empty while nothing is dead.
CREATE INDEX romancy_outbox_dead ON romancy_outbox (seq) WHERE dead_at IS NOT NULL;
CREATE INDEX romancy_outbox_dead_at ON romancy_outbox (broker, dead_at) WHERE dead_at IS NOT NULL;

-- How far maintenance has come with its gradual tasks.
CREATE TABLE romancy_watermarks (
    name TEXT    NOT NULL PRIMARY KEY,
    upto INTEGER NOT NULL
) WITHOUT ROWID;

-- How many instances ended in a minute, and how long they took: counted afterwards by maintenance, not by the transaction
-- that ends one.
CREATE TABLE romancy_rollup (
    minute   INTEGER NOT NULL,  -- when it began
    workflow TEXT    NOT NULL,
    outcome  TEXT    NOT NULL,
    ended    INTEGER NOT NULL,
    buckets  TEXT    NOT NULL,  -- a histogram of durations, as JSON
    PRIMARY KEY (minute, workflow, outcome)
) WITHOUT ROWID;

-- The audit log: the actions of operators.
CREATE TABLE romancy_audit (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    instance_id TEXT,
    detail      TEXT    NOT NULL
);
CREATE INDEX romancy_audit_instance ON romancy_audit (instance_id, number) WHERE instance_id IS NOT NULL;

-- Actions on all instances that match a filter, and how far they have come: the worker that has the claim continues.
CREATE TABLE romancy_bulk_actions (
    id            TEXT    NOT NULL PRIMARY KEY,
    action        TEXT    NOT NULL,
    filter        TEXT    NOT NULL,
    reason        TEXT,
    actor         TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    done          INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    scanned       INTEGER NOT NULL,
    failures      TEXT    NOT NULL,  -- the first of them, as JSON
    cursor        TEXT,              -- where the search continues
    claimed_by    TEXT,
    claimed_until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX romancy_bulk_actions_created ON romancy_bulk_actions (created_at, id);
CREATE INDEX romancy_bulk_actions_running ON romancy_bulk_actions (created_at) WHERE status = 'running';

-- How often an instance has lost its worker since it last recorded anything. A row counts while neither the
-- instance's generation nor its progress has changed since.
CREATE TABLE romancy_losses (
    instance_id TEXT    NOT NULL PRIMARY KEY,
    generation  INTEGER NOT NULL,
    progress    INTEGER NOT NULL,  -- entries of its history, and failed attempts
    losses      INTEGER NOT NULL,
    isolated    INTEGER NOT NULL   -- 1: its next loss would be one too many, so a worker runs one such at a time
) WITHOUT ROWID;
