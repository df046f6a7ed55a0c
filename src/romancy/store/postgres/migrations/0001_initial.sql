-- migrate:up

-- Times are microseconds since 1970, UTC. Payloads are bytes as `romancy.serde` wrote them.
-- No foreign keys: every writer is this library, and the checks would cost a lookup for each row of the hot path.

-- Whoever decides something that concerns several instances (an event and those who wait for it) holds this row until it has
-- committed: speaker and listener cannot miss each other, and the log of events is numbered in the order of commits.
CREATE TABLE romancy_turn (
    id INTEGER NOT NULL PRIMARY KEY
);
INSERT INTO romancy_turn (id) VALUES (1);

-- Transactions that were committed lately.
CREATE TABLE romancy_commits (
    token TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at    BIGINT NOT NULL
);
CREATE INDEX romancy_commits_at ON romancy_commits (at);

-- The hot row of an instance: it changes with the status, the owner or what is due, and not with a plain step. How long the
-- history is, the history says. Payloads lie beside it.
-- claimable  <=>  owner IS NULL AND wake_at <= now. Paused, blocked and ended instances have no wake_at.
CREATE TABLE romancy_instances (
    id                  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workflow            TEXT COLLATE "C" NOT NULL,
    version             TEXT COLLATE "C" NOT NULL,  -- '' = none
    status              TEXT COLLATE "C" NOT NULL,
    generation          BIGINT NOT NULL,
    round               BIGINT NOT NULL,
    epoch               BIGINT NOT NULL,            -- the fencing token
    owner               TEXT COLLATE "C",
    wake_at             BIGINT,
    signal              BIGINT NOT NULL,            -- counts what arrived
    signal_seen         BIGINT NOT NULL,            -- ... and how much of it the run knew when it last wrote
    cancel_requested_at BIGINT,
    deadline_at         BIGINT,
    retrying_since      BIGINT,
    blocked_by          TEXT,
    fingerprint         TEXT   NOT NULL,            -- of the error it failed with
    created_at          BIGINT NOT NULL,
    started_at          BIGINT,
    updated_at          BIGINT NOT NULL,
    ended_at            BIGINT,
    code                TEXT   NOT NULL,
    python              TEXT   NOT NULL,
    digest              BYTEA  NOT NULL,            -- of the arguments it was started with
    born                BIGINT NOT NULL             -- how far the log of events had come: it can wait for what came later
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- None of these changes while a run goes from step to step: only a change of status, owner or wake time of an unowned
-- instance touches one.
CREATE INDEX romancy_instances_claimable ON romancy_instances (workflow, version, wake_at)
    WHERE owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX romancy_instances_owned ON romancy_instances (owner) WHERE owner IS NOT NULL;
CREATE INDEX romancy_instances_blocked ON romancy_instances (workflow, version) WHERE status = 'blocked';
CREATE INDEX romancy_instances_created ON romancy_instances (created_at, id);
-- Most instances go from running to completed and are looked for in neither: running ones are the owned ones, and
-- completed ones are found among all. Both stay out, or every start and every end would write this index too.
CREATE INDEX romancy_instances_status ON romancy_instances (status, created_at, id)
    WHERE status NOT IN ('running', 'completed');
CREATE INDEX romancy_instances_ended ON romancy_instances (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE romancy_payloads (
    instance_id TEXT COLLATE "C" NOT NULL,
    generation  BIGINT NOT NULL,
    input       BYTEA  NOT NULL,
    output      BYTEA,
    error       BYTEA,
    begun_at    BIGINT,                             -- when a generation began; NULL: with the instance
    bonds       TEXT,                               -- what an instance that failed belonged to, as JSON
    PRIMARY KEY (instance_id, generation)
) WITH (fillfactor = 80);

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
    beat_at      BIGINT,
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
    met         BIGINT,                             -- what has come for it: an event's or a message's seq
    PRIMARY KEY (instance_id, op)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Timers have no key and need not be found by one.
CREATE INDEX romancy_waits_key ON romancy_waits (kind, key, subject) WHERE key <> '';
CREATE INDEX romancy_waits_met ON romancy_waits (instance_id) WHERE met IS NOT NULL;
-- Who waits for the messages of a channel, in the order they are called.
CREATE INDEX romancy_waits_line ON romancy_waits (key, since, instance_id, op) WHERE kind = 'message' AND met IS NULL;

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
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    label      TEXT   NOT NULL,
    service    TEXT   NOT NULL,
    host       TEXT   NOT NULL,
    pid        BIGINT NOT NULL,
    python     TEXT   NOT NULL,
    kinds      TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    beat_at    BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE romancy_sources (
    code     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workflow TEXT   NOT NULL,
    version  TEXT   NOT NULL,
    source   TEXT   NOT NULL,
    saved_at BIGINT NOT NULL
);

-- Every event accepted within the retention, whoever may want it. `accepted_at` never falls while `seq` rises.
CREATE TABLE romancy_events (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C",
    target      TEXT COLLATE "C",                   -- the instance it is addressed to
    used        SMALLINT NOT NULL DEFAULT 0,        -- an addressed event was consumed
    accepted_at BIGINT NOT NULL,
    body        BYTEA  NOT NULL                     -- the whole event, in the JSON format of CloudEvents
);
CREATE UNIQUE INDEX romancy_events_id ON romancy_events (source, id);
CREATE INDEX romancy_events_type ON romancy_events (type, seq) WHERE target IS NULL;
CREATE INDEX romancy_events_subject ON romancy_events (type, subject, seq) WHERE target IS NULL AND subject IS NOT NULL;
CREATE INDEX romancy_events_target ON romancy_events (target, type, seq) WHERE target IS NOT NULL;
CREATE INDEX romancy_events_unused ON romancy_events (seq) WHERE target IS NOT NULL AND used = 0;
CREATE INDEX romancy_events_accepted ON romancy_events (accepted_at);

-- Which events an instance has consumed, and for which wish: everything that fits the same wish lies behind the last of them.
CREATE TABLE romancy_taken (
    instance_id TEXT COLLATE "C" NOT NULL,
    seq         BIGINT NOT NULL,
    wanted      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (instance_id, seq)
);
CREATE INDEX romancy_taken_wanted ON romancy_taken (instance_id, md5(wanted), seq);
CREATE INDEX romancy_taken_seq ON romancy_taken (seq);

-- The workflows that handle events of their name: whoever accepts one starts them, with or without their code.
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

-- Messages that somebody has still to read. A pooled one is for whoever takes it first; the others have deliveries.
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

CREATE TABLE romancy_members (
    name        TEXT COLLATE "C" NOT NULL,
    instance_id TEXT COLLATE "C" NOT NULL,
    since       BIGINT NOT NULL,
    PRIMARY KEY (name, instance_id)
);
CREATE INDEX romancy_members_instance ON romancy_members (instance_id);
