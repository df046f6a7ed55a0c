-- migrate:up

-- What operators ask about and leave behind.

-- Empty while nothing fails.
CREATE INDEX romancy_instances_retrying ON romancy_instances (created_at, id) WHERE retrying_since IS NOT NULL;

-- How far upkeep has come with what it does bit by bit.
CREATE TABLE romancy_marks (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    upto BIGINT NOT NULL
);

-- How many instances ended in a minute, and how long they took: counted afterwards, not by whoever ends one.
CREATE TABLE romancy_rollup (
    minute   BIGINT NOT NULL,                       -- when it began
    workflow TEXT COLLATE "C" NOT NULL,
    outcome  TEXT COLLATE "C" NOT NULL,
    ended    BIGINT NOT NULL,
    buckets  TEXT   NOT NULL,                       -- a histogram of durations, as JSON
    PRIMARY KEY (minute, workflow, outcome)
);

-- Who did what.
CREATE TABLE romancy_audit (
    number      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          BIGINT NOT NULL,
    actor       TEXT   NOT NULL,
    effect        TEXT   NOT NULL,
    instance_id TEXT COLLATE "C",
    detail      TEXT   NOT NULL
);
CREATE INDEX romancy_audit_instance ON romancy_audit (instance_id, number) WHERE instance_id IS NOT NULL;

-- Deeds for all instances that fit a filter, and how far they have come: whoever holds the claim goes on.
CREATE TABLE romancy_batches (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    effect          TEXT   NOT NULL,
    filter        TEXT   NOT NULL,
    reason        TEXT,
    actor         TEXT   NOT NULL,
    status        TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    ended_at      BIGINT,
    done          BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    looked_at     BIGINT NOT NULL,
    failures      TEXT   NOT NULL,                  -- the first of them, as JSON
    place         TEXT,                             -- where the search goes on
    claimed_by    TEXT COLLATE "C",
    claimed_until BIGINT NOT NULL
);
CREATE INDEX romancy_batches_created ON romancy_batches (created_at, id);
CREATE INDEX romancy_batches_running ON romancy_batches (created_at) WHERE status = 'running';
