-- migrate:up

-- What operators ask about and leave behind.

-- In place of a partial index: there is something in it only while something fails.
ALTER TABLE romancy_instances ADD COLUMN retried_since BIGINT AS (IF(retrying_since IS NULL, NULL, created_at)) VIRTUAL;
CREATE INDEX romancy_instances_retrying ON romancy_instances (retried_since, id);

-- How far upkeep has come with what it does bit by bit.
CREATE TABLE IF NOT EXISTS romancy_marks (
    name VARBINARY(64) NOT NULL PRIMARY KEY,
    upto BIGINT        NOT NULL
) ENGINE = InnoDB;

-- How many instances ended in a minute, and how long they took: counted afterwards, not by whoever ends one.
CREATE TABLE IF NOT EXISTS romancy_rollup (
    minute   BIGINT          NOT NULL,              -- when it began
    workflow VARBINARY(1020) NOT NULL,
    outcome  VARBINARY(32)   NOT NULL,
    ended    BIGINT          NOT NULL,
    buckets  LONGTEXT        NOT NULL,              -- a histogram of durations, as JSON
    PRIMARY KEY (minute, workflow, outcome)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who did what.
CREATE TABLE IF NOT EXISTS romancy_audit (
    number      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at          BIGINT          NOT NULL,
    actor       LONGTEXT        NOT NULL,
    effect        VARBINARY(64)   NOT NULL,
    instance_id VARBINARY(1020),
    detail      LONGTEXT        NOT NULL,
    KEY romancy_audit_instance (instance_id, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Deeds for all instances that fit a filter, and how far they have come: whoever holds the claim goes on.
CREATE TABLE IF NOT EXISTS romancy_batches (
    id            VARBINARY(1020) NOT NULL PRIMARY KEY,
    effect          VARBINARY(64)   NOT NULL,
    filter        LONGTEXT        NOT NULL,
    reason        LONGTEXT,
    actor         LONGTEXT        NOT NULL,
    status        VARBINARY(32)   NOT NULL,
    created_at    BIGINT          NOT NULL,
    ended_at      BIGINT,
    done          BIGINT          NOT NULL,
    failed        BIGINT          NOT NULL,
    looked_at     BIGINT          NOT NULL,
    failures      LONGTEXT        NOT NULL,         -- the first of them, as JSON
    place         LONGTEXT,                         -- where the search goes on
    claimed_by    VARBINARY(1020),
    claimed_until BIGINT          NOT NULL,
    KEY romancy_batches_created (created_at, id),
    KEY romancy_batches_running (status, created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
