-- migrate:up

-- What operators ask about and leave behind.

-- Empty while nothing fails.
CREATE INDEX romancy_instances_retrying ON romancy_instances (created_at, id) WHERE retrying_since IS NOT NULL;

-- How far upkeep has come with what it does bit by bit.
CREATE TABLE romancy_marks (
    name TEXT    NOT NULL PRIMARY KEY,
    upto INTEGER NOT NULL
) WITHOUT ROWID;

-- How many instances ended in a minute, and how long they took: counted afterwards, not by whoever ends one.
CREATE TABLE romancy_rollup (
    minute   INTEGER NOT NULL,               -- when it began
    workflow TEXT    NOT NULL,
    outcome  TEXT    NOT NULL,
    ended    INTEGER NOT NULL,
    buckets  TEXT    NOT NULL,               -- a histogram of durations, as JSON
    PRIMARY KEY (minute, workflow, outcome)
) WITHOUT ROWID;

-- Who did what.
CREATE TABLE romancy_audit (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    effect        TEXT    NOT NULL,
    instance_id TEXT,
    detail      TEXT    NOT NULL
);
CREATE INDEX romancy_audit_instance ON romancy_audit (instance_id, number) WHERE instance_id IS NOT NULL;

-- Deeds for all instances that fit a filter, and how far they have come: whoever holds the claim goes on.
CREATE TABLE romancy_batches (
    id            TEXT    NOT NULL PRIMARY KEY,
    effect          TEXT    NOT NULL,
    filter        TEXT    NOT NULL,
    reason        TEXT,
    actor         TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    done          INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    looked_at     INTEGER NOT NULL,
    failures      TEXT    NOT NULL,          -- the first of them, as JSON
    place         TEXT,                      -- where the search goes on
    claimed_by    TEXT,
    claimed_until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX romancy_batches_created ON romancy_batches (created_at, id);
CREATE INDEX romancy_batches_running ON romancy_batches (created_at) WHERE status = 'running';
