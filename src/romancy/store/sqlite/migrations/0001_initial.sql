-- migrate:up

-- Times are microseconds since 1970, UTC. Payloads are bytes as `romancy.serde` wrote them.
-- No foreign keys: every writer is this library, and the checks would cost a lookup for each row of the hot path.

-- The hot row of an instance: it changes with the status, the owner or what is due, and not with a plain step. How long the
-- history is, the history says. Payloads lie beside it.
-- claimable  <=>  owner IS NULL AND wake_at <= now. Paused, blocked and ended instances have no wake_at.
CREATE TABLE romancy_instances (
    id                  TEXT    NOT NULL PRIMARY KEY,
    workflow            TEXT    NOT NULL,
    version             TEXT    NOT NULL,            -- '' = none
    status              TEXT    NOT NULL,
    generation          INTEGER NOT NULL,
    round               INTEGER NOT NULL,
    epoch               INTEGER NOT NULL,            -- the fencing token
    owner               TEXT,
    wake_at             INTEGER,
    signal              INTEGER NOT NULL,            -- counts what arrived
    signal_seen         INTEGER NOT NULL,            -- ... and how much of it the run knew when it last wrote
    cancel_requested_at INTEGER,
    deadline_at         INTEGER,
    retrying_since      INTEGER,
    blocked_by          TEXT,
    fingerprint         TEXT    NOT NULL,            -- of the error it failed with
    created_at          INTEGER NOT NULL,
    started_at          INTEGER,
    updated_at          INTEGER NOT NULL,
    ended_at            INTEGER,
    code                TEXT    NOT NULL,
    python              TEXT    NOT NULL,
    digest              BLOB    NOT NULL             -- of the arguments it was started with
) WITHOUT ROWID;

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
    instance_id TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    input       BLOB    NOT NULL,
    output      BLOB,
    error       BLOB,
    PRIMARY KEY (instance_id, generation)
) WITHOUT ROWID;

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
    beat_at      INTEGER,
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
    PRIMARY KEY (instance_id, op)
) WITHOUT ROWID;

-- Timers have no key and need not be found by one.
CREATE INDEX romancy_waits_key ON romancy_waits (kind, key, subject) WHERE key <> '';

-- AUTOINCREMENT: the id of a mail that was consumed must never come back, a late transition may still name it.
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
    id         TEXT    NOT NULL PRIMARY KEY,
    label      TEXT    NOT NULL,
    service    TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    python     TEXT    NOT NULL,
    kinds      TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE romancy_sources (
    code     TEXT    NOT NULL PRIMARY KEY,
    workflow TEXT    NOT NULL,
    version  TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;
