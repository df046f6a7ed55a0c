-- migrate:up

-- Times are microseconds since 1970, UTC. Payloads are bytes as `romancy.serde` wrote them.
-- Names that are looked up are VARBINARY(1020), the bytes of 255 characters at least: of the text collations MySQL and
-- MariaDB have in common, all take 'a' and 'a ' for equal. Three of them are as long as a key may be. Operations are named
-- after a name, with something before and behind it. What is only read is LONGTEXT. Every statement can be run again: a crash in the middle of them leaves some behind.

-- Whoever decides something that concerns several instances (an event and those who wait for it) holds this row until it has
-- committed: speaker and listener cannot miss each other, and the log of events is numbered in the order of commits.
CREATE TABLE IF NOT EXISTS romancy_turn (
    id INTEGER NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
INSERT INTO romancy_turn (id) VALUES (1) ON DUPLICATE KEY UPDATE id = 1;

-- How often somebody has said that there is something to look at.
CREATE TABLE IF NOT EXISTS romancy_bell (
    id   INTEGER NOT NULL PRIMARY KEY,
    rung BIGINT  NOT NULL
) ENGINE = InnoDB;
INSERT INTO romancy_bell (id, rung) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = 1;

-- Transactions of lately; their tokens sort by time. Who asks about one that has not committed notes that it must not.
CREATE TABLE IF NOT EXISTS romancy_commits (
    token VARBINARY(64) NOT NULL PRIMARY KEY,
    made  TINYINT       NOT NULL
) ENGINE = InnoDB;

-- The hot row of an instance: it changes with the status, the owner or what is due, and not with a plain step. How long the
-- history is, the history says. Payloads lie beside it.
-- claimable  <=>  owner IS NULL AND wake_at <= now. Paused, blocked and ended instances have no wake_at.
CREATE TABLE IF NOT EXISTS romancy_instances (
    id                  VARBINARY(1020) NOT NULL PRIMARY KEY,
    workflow            VARBINARY(1020) NOT NULL,
    version             VARBINARY(1020) NOT NULL,   -- '' = none
    status              VARBINARY(32)   NOT NULL,
    generation          BIGINT          NOT NULL,
    round               BIGINT          NOT NULL,
    epoch               BIGINT          NOT NULL,   -- the fencing token
    owner               VARBINARY(1020),
    wake_at             BIGINT,
    `signal`            BIGINT          NOT NULL,   -- counts what arrived
    signal_seen         BIGINT          NOT NULL,   -- ... and how much of it the run knew when it last wrote
    cancel_requested_at BIGINT,
    deadline_at         BIGINT,
    retrying_since      BIGINT,
    blocked_by          LONGTEXT,
    fingerprint         LONGTEXT        NOT NULL,   -- of the error it failed with
    created_at          BIGINT          NOT NULL,
    started_at          BIGINT,
    updated_at          BIGINT          NOT NULL,
    ended_at            BIGINT,
    code                LONGTEXT        NOT NULL,
    python              LONGTEXT        NOT NULL,
    digest              LONGBLOB        NOT NULL,   -- of the arguments it was started with
    born                BIGINT          NOT NULL,   -- how far the log of events had come: it can wait for what came later
    -- In place of partial indexes. None of them changes when a run goes from step to step, or from its start to its end.
    due_at              BIGINT          AS (IF(owner IS NULL, wake_at, NULL)) STORED,
    stuck               VARBINARY(1020) AS (IF(status = 'blocked', workflow, NULL)) STORED,
    listed              VARBINARY(32)   AS (IF(status IN ('running', 'completed'), NULL, status)) STORED,
    KEY romancy_instances_claimable (workflow, version, due_at),
    KEY romancy_instances_owned (owner),
    KEY romancy_instances_blocked (stuck, version),
    KEY romancy_instances_created (created_at, id),
    KEY romancy_instances_listed (listed, created_at, id),
    KEY romancy_instances_ended (ended_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_payloads (
    instance_id VARBINARY(1020) NOT NULL,
    generation  BIGINT          NOT NULL,
    input       LONGBLOB        NOT NULL,
    output      LONGBLOB,
    error       LONGBLOB,
    begun_at    BIGINT,                             -- when a generation began; NULL: with the instance
    bonds       LONGTEXT,                           -- what an instance that failed belonged to, as JSON
    PRIMARY KEY (instance_id, generation)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_history (
    instance_id  VARBINARY(1020) NOT NULL,
    generation   BIGINT          NOT NULL,
    seq          BIGINT          NOT NULL,
    kind         VARBINARY(32)   NOT NULL,
    op           VARBINARY(1100) NOT NULL,
    outcome      VARBINARY(32)   NOT NULL,
    at           BIGINT          NOT NULL,
    name         LONGTEXT        NOT NULL,
    role         SMALLINT        NOT NULL,
    digest       LONGBLOB        NOT NULL,
    input        LONGBLOB,
    value        LONGBLOB,
    attempt      BIGINT          NOT NULL,
    site         LONGTEXT        NOT NULL,
    scheduled_at BIGINT,
    started_at   BIGINT,
    ended_at     BIGINT,
    worker       VARBINARY(1020) NOT NULL,
    epoch        BIGINT          NOT NULL,
    PRIMARY KEY (instance_id, generation, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_attempts (
    instance_id  VARBINARY(1020) NOT NULL,
    generation   BIGINT          NOT NULL,
    op           VARBINARY(1100) NOT NULL,
    attempt      BIGINT          NOT NULL,
    name         LONGTEXT        NOT NULL,
    open         SMALLINT        NOT NULL,
    worker       VARBINARY(1020) NOT NULL,
    epoch        BIGINT          NOT NULL,
    site         LONGTEXT        NOT NULL,
    scheduled_at BIGINT          NOT NULL,
    started_at   BIGINT          NOT NULL,
    ended_at     BIGINT,
    next_at      BIGINT,
    error        LONGBLOB,
    details      LONGBLOB,
    beat_at      BIGINT,
    PRIMARY KEY (instance_id, generation, op, attempt)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_waits (
    instance_id VARBINARY(1020) NOT NULL,
    op          VARBINARY(1100) NOT NULL,
    kind        VARBINARY(32)   NOT NULL,
    since       BIGINT          NOT NULL,
    due         BIGINT,
    `key`       VARBINARY(1020) NOT NULL,
    subject     VARBINARY(1020),
    `match`     LONGBLOB,
    site        LONGTEXT        NOT NULL,
    met         BIGINT,                             -- what has come for it: an event's or a message's seq
    line        VARBINARY(1020) AS (IF(kind = 'message' AND met IS NULL, `key`, NULL)) STORED,
    PRIMARY KEY (instance_id, op),
    KEY romancy_waits_key (`key`, kind, subject),
    -- Who waits for the messages of a channel, in the order they are called: the primary key is a part of every other.
    KEY romancy_waits_line (line, since)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_inbox (
    id          BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    instance_id VARBINARY(1020) NOT NULL,
    kind        VARBINARY(32)   NOT NULL,
    op          VARBINARY(1100) NOT NULL,
    body        LONGBLOB,
    at          BIGINT          NOT NULL,
    KEY romancy_inbox_instance (instance_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_journal (
    id          BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    instance_id VARBINARY(1020) NOT NULL,
    at          BIGINT          NOT NULL,
    kind        VARBINARY(32)   NOT NULL,
    detail      LONGTEXT        NOT NULL,
    worker      VARBINARY(1020) NOT NULL,
    epoch       BIGINT          NOT NULL,
    KEY romancy_journal_instance (instance_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_workers (
    id         VARBINARY(1020) NOT NULL PRIMARY KEY,
    label      LONGTEXT        NOT NULL,
    service    LONGTEXT        NOT NULL,
    host       LONGTEXT        NOT NULL,
    pid        BIGINT          NOT NULL,
    python     LONGTEXT        NOT NULL,
    kinds      LONGTEXT        NOT NULL,
    started_at BIGINT          NOT NULL,
    beat_at    BIGINT          NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_sources (
    code     VARBINARY(1020) NOT NULL PRIMARY KEY,
    workflow LONGTEXT        NOT NULL,
    version  LONGTEXT        NOT NULL,
    source   LONGTEXT        NOT NULL,
    saved_at BIGINT          NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every event accepted within the retention, whoever may want it. `accepted_at` never falls while `seq` rises.
CREATE TABLE IF NOT EXISTS romancy_events (
    seq         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    source      VARBINARY(1020) NOT NULL,
    id          VARBINARY(1020) NOT NULL,
    type        VARBINARY(1020) NOT NULL,
    subject     VARBINARY(1020),
    target      VARBINARY(1020),                    -- the instance it is addressed to
    used        SMALLINT        NOT NULL DEFAULT 0, -- an addressed event was consumed
    accepted_at BIGINT          NOT NULL,
    body        LONGBLOB        NOT NULL,           -- the whole event, in the JSON format of CloudEvents
    unused      SMALLINT        AS (IF(target IS NOT NULL AND used = 0, 1, NULL)) STORED,
    UNIQUE KEY romancy_events_id (source, id),
    KEY romancy_events_type (target, type, seq),
    KEY romancy_events_subject (target, type, subject, seq),
    KEY romancy_events_unused (unused, seq),
    KEY romancy_events_accepted (accepted_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which events an instance has consumed, and for which wish: everything that fits the same wish lies behind the last of them.
CREATE TABLE IF NOT EXISTS romancy_taken (
    instance_id VARBINARY(1020) NOT NULL,
    seq         BIGINT          NOT NULL,
    wanted      BINARY(32)      NOT NULL,           -- the wish is longer than a key may be: this is its SHA-256
    PRIMARY KEY (instance_id, seq),
    KEY romancy_taken_wanted (instance_id, wanted, seq),
    KEY romancy_taken_seq (seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The workflows that handle events of their name: whoever accepts one starts them, with or without their code.
CREATE TABLE IF NOT EXISTS romancy_handlers (
    workflow VARBINARY(1020) NOT NULL PRIMARY KEY,
    version  VARBINARY(1020) NOT NULL,
    saved_at BIGINT          NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_subscriptions (
    channel     VARBINARY(1020) NOT NULL,
    instance_id VARBINARY(1020) NOT NULL,
    mode        VARBINARY(32)   NOT NULL,
    since       BIGINT          NOT NULL,
    PRIMARY KEY (channel, instance_id),
    KEY romancy_subscriptions_instance (instance_id),
    KEY romancy_subscriptions_mode (channel, mode)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that somebody has still to read. A pooled one is for whoever takes it first; the others have deliveries.
CREATE TABLE IF NOT EXISTS romancy_messages (
    seq        BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    channel    VARBINARY(1020) NOT NULL,
    pooled     SMALLINT        NOT NULL,
    created_at BIGINT          NOT NULL,
    body       LONGBLOB        NOT NULL,
    KEY romancy_messages_pool (channel, pooled, seq),
    KEY romancy_messages_age (pooled, created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_deliveries (
    instance_id VARBINARY(1020) NOT NULL,
    channel     VARBINARY(1020) NOT NULL,
    seq         BIGINT          NOT NULL,
    PRIMARY KEY (instance_id, channel, seq),
    KEY romancy_deliveries_seq (seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_members (
    name        VARBINARY(1020) NOT NULL,
    instance_id VARBINARY(1020) NOT NULL,
    since       BIGINT          NOT NULL,
    PRIMARY KEY (name, instance_id),
    KEY romancy_members_instance (instance_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
