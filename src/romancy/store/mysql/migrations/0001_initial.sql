-- migrate:up

-- Times are microseconds since 1970, UTC. Payloads are bytes as `romancy.serde` wrote them.
-- Names that queries search for are VARBINARY(1020), the bytes of 255 characters at least: of the text collations MySQL and
-- MariaDB have in common, all take 'a' and 'a ' for equal. Three of them are as long as a key may be. Names of operations
-- are longer: a name with a prefix and a suffix. Columns that no query searches are LONGTEXT. Every statement can be run
-- again: MySQL has no transactions for them, and a crash leaves those that were run before it.

-- The messaging lock: a transaction that concerns several instances (it sends an event for which some wait) holds this row
-- until it has committed. So no wait misses a message, and the log of events is numbered in the order of commits.
CREATE TABLE IF NOT EXISTS romancy_messaging_lock (
    id INTEGER NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
INSERT INTO romancy_messaging_lock (id) VALUES (1) ON DUPLICATE KEY UPDATE id = 1;

-- A number that every process increments after it has committed something that concerns other processes.
CREATE TABLE IF NOT EXISTS romancy_notifications (
    id      INTEGER NOT NULL PRIMARY KEY,
    version BIGINT  NOT NULL
) ENGINE = InnoDB;
INSERT INTO romancy_notifications (id, version) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = 1;

-- The tokens of recent transactions, which sort by time. A process that queries a token that was not committed inserts it
-- (committed = 0), so that its transaction cannot commit any more.
CREATE TABLE IF NOT EXISTS romancy_commits (
    token     VARBINARY(64) NOT NULL PRIMARY KEY,
    committed TINYINT       NOT NULL
) ENGINE = InnoDB;

-- The hot row of an instance: it changes with the status, the owner or the wake time, and not with a plain step. The length
-- of the history is not stored: it is the highest seq there. Payloads have a table of their own.
-- claimable  <=>  owner IS NULL AND wake_at <= now. Paused, blocked and ended instances have no wake_at.
CREATE TABLE IF NOT EXISTS romancy_instances (
    id                   VARBINARY(1020) NOT NULL PRIMARY KEY,
    workflow             VARBINARY(1020) NOT NULL,
    version              VARBINARY(1020) NOT NULL,  -- '' = none
    status               VARBINARY(32)   NOT NULL,
    generation           BIGINT          NOT NULL,
    round                BIGINT          NOT NULL,
    epoch                BIGINT          NOT NULL,  -- the fencing token
    owner                VARBINARY(1020),
    wake_at              BIGINT,
    inbox_version        BIGINT          NOT NULL,  -- counts what has arrived for it
    inbox_version_seen   BIGINT          NOT NULL,  -- ... up to where the run knew it when it last wrote
    cancel_requested_at  BIGINT,
    deadline_at          BIGINT,
    retrying_since       BIGINT,
    blocked_by           LONGTEXT,
    fingerprint          LONGTEXT        NOT NULL,  -- of the error it failed with
    created_at           BIGINT          NOT NULL,
    started_at           BIGINT,
    updated_at           BIGINT          NOT NULL,
    ended_at             BIGINT,
    code                 LONGTEXT        NOT NULL,
    python               LONGTEXT        NOT NULL,
    digest               LONGBLOB        NOT NULL,  -- of the arguments it was started with
    created_at_event_seq BIGINT          NOT NULL,  -- the last event of the log then: only later ones can match its waits
    -- Generated columns in place of partial indexes. None of them changes when a run goes from step to step, or from its
    -- start to its end.
    due_at              BIGINT          AS (IF(owner IS NULL, wake_at, NULL)) STORED,
    blocked_workflow    VARBINARY(1020) AS (IF(status = 'blocked', workflow, NULL)) STORED,
    listed_status       VARBINARY(32)   AS (IF(status IN ('running', 'completed'), NULL, status)) STORED,
    retrying_created_at BIGINT          AS (IF(retrying_since IS NULL, NULL, created_at)) VIRTUAL,
    KEY romancy_instances_claimable (workflow, version, due_at),
    KEY romancy_instances_owned (owner),
    KEY romancy_instances_blocked (blocked_workflow, version),
    KEY romancy_instances_created (created_at, id),
    KEY romancy_instances_status (listed_status, created_at, id),
    KEY romancy_instances_ended (ended_at),
    KEY romancy_instances_retrying (retrying_created_at, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_payloads (
    instance_id VARBINARY(1020) NOT NULL,
    generation  BIGINT          NOT NULL,
    input       LONGBLOB        NOT NULL,
    output      LONGBLOB,
    error       LONGBLOB,
    begun_at    BIGINT,    -- when a generation began; NULL: with the instance
    memberships LONGTEXT,  -- the channels and groups of an instance that failed, as JSON: a retry restores them
    PRIMARY KEY (instance_id, generation),
    -- To find the archived generations that are old enough to be deleted.
    KEY romancy_payloads_begun (begun_at)
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
    heartbeat_at BIGINT,
    PRIMARY KEY (instance_id, generation, op, attempt)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_waits (
    instance_id   VARBINARY(1020) NOT NULL,
    op            VARBINARY(1100) NOT NULL,
    kind          VARBINARY(32)   NOT NULL,
    since         BIGINT          NOT NULL,
    due           BIGINT,
    `key`         VARBINARY(1020) NOT NULL,
    subject       VARBINARY(1020),
    `match`       LONGBLOB,
    site          LONGTEXT        NOT NULL,
    matched_seq   BIGINT,  -- the seq of the event or message that has matched it
    queue_channel VARBINARY(1020) AS (IF(kind = 'message' AND matched_seq IS NULL, `key`, NULL)) STORED,
    PRIMARY KEY (instance_id, op),
    KEY romancy_waits_key (`key`, kind, subject),
    -- The instances that wait for the messages of a channel, in the order in which they are woken. (Every key ends with the
    -- primary key.)
    KEY romancy_waits_queue (queue_channel, since)
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
    id           VARBINARY(1020) NOT NULL PRIMARY KEY,
    label        LONGTEXT        NOT NULL,
    service      LONGTEXT        NOT NULL,
    hostname     LONGTEXT        NOT NULL,
    pid          BIGINT          NOT NULL,
    python       LONGTEXT        NOT NULL,
    workflows    LONGTEXT        NOT NULL,
    started_at   BIGINT          NOT NULL,
    heartbeat_at BIGINT          NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS romancy_sources (
    code     VARBINARY(1020) NOT NULL PRIMARY KEY,
    workflow LONGTEXT        NOT NULL,
    version  LONGTEXT        NOT NULL,
    source   LONGTEXT        NOT NULL,
    saved_at BIGINT          NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every event accepted within the retention, whether or not an instance waits for it. `accepted_at` never falls while `seq`
-- rises.
CREATE TABLE IF NOT EXISTS romancy_events (
    seq         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    source      VARBINARY(1020) NOT NULL,
    id          VARBINARY(1020) NOT NULL,
    type        VARBINARY(1020) NOT NULL,
    subject     VARBINARY(1020),
    target      VARBINARY(1020),                     -- the instance it is addressed to
    consumed    SMALLINT        NOT NULL DEFAULT 0,  -- an addressed event was consumed
    accepted_at BIGINT          NOT NULL,
    body        LONGBLOB        NOT NULL,            -- the whole event, in the JSON format of CloudEvents
    unconsumed  SMALLINT        AS (IF(target IS NOT NULL AND consumed = 0, 1, NULL)) STORED,
    UNIQUE KEY romancy_events_id (source, id),
    KEY romancy_events_type (target, type, seq),
    KEY romancy_events_subject (target, type, subject, seq),
    KEY romancy_events_unconsumed (unconsumed, seq),
    KEY romancy_events_accepted (accepted_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which events an instance has consumed, and with which selector: a later wait with the same selector searches after the
-- last of them.
CREATE TABLE IF NOT EXISTS romancy_consumed_events (
    instance_id VARBINARY(1020) NOT NULL,
    seq         BIGINT          NOT NULL,
    selector    BINARY(32)      NOT NULL,  -- a selector is longer than a key may be: this is its SHA-256
    PRIMARY KEY (instance_id, seq),
    KEY romancy_consumed_events_selector (instance_id, selector, seq),
    KEY romancy_consumed_events_seq (seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The workflows that handle events of their name: every process that accepts such an event starts them, with or without
-- their code.
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

-- Messages that are still to be read. A pooled one goes to the first instance that receives it; the others have deliveries.
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

CREATE TABLE IF NOT EXISTS romancy_group_members (
    name        VARBINARY(1020) NOT NULL,
    instance_id VARBINARY(1020) NOT NULL,
    since       BIGINT          NOT NULL,
    PRIMARY KEY (name, instance_id),
    KEY romancy_group_members_instance (instance_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Events on their way to brokers: one row for each event and broker, from the commit that sends it until it is delivered.
-- A row is due when next_at has come; a claim moves that to the end of its lease. A dead row has no next_at.
CREATE TABLE IF NOT EXISTS romancy_outbox (
    seq        BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    broker     VARBINARY(1020) NOT NULL,
    body       LONGBLOB        NOT NULL,  -- the whole event, in the JSON format of CloudEvents
    created_at BIGINT          NOT NULL,
    since      BIGINT          NOT NULL,  -- when it was enqueued, or requeued
    attempts   BIGINT          NOT NULL DEFAULT 0,
    next_at    BIGINT,
    claimed_by VARBINARY(1020),
    last_error LONGTEXT,
    dead_at    BIGINT,
    dead       TINYINT         AS (IF(dead_at IS NULL, 0, 1)) STORED,
    KEY romancy_outbox_due (broker, next_at, seq),
    KEY romancy_outbox_dead (dead, seq),
    KEY romancy_outbox_dead_at (broker, dead_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Effects emitted in users' transactions: they are applied once those have committed.
CREATE TABLE IF NOT EXISTS romancy_staged (
    seq  BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind VARBINARY(32) NOT NULL,
    head LONGTEXT      NOT NULL,
    body LONGBLOB      NOT NULL,
    at   BIGINT        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Notifications of users' transactions that concern other processes. Such a transaction must not touch
-- romancy_notifications, which it could lock for long: the first process that reads a row here deletes it and notifies.
CREATE TABLE IF NOT EXISTS romancy_pending_notifications (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB;

-- How far maintenance has come with its gradual tasks.
CREATE TABLE IF NOT EXISTS romancy_watermarks (
    name VARBINARY(64) NOT NULL PRIMARY KEY,
    upto BIGINT        NOT NULL
) ENGINE = InnoDB;

-- How many instances ended in a minute, and how long they took: counted afterwards by maintenance, not by the transaction
-- that ends one.
CREATE TABLE IF NOT EXISTS romancy_rollup (
    minute   BIGINT          NOT NULL,  -- when it began
    workflow VARBINARY(1020) NOT NULL,
    outcome  VARBINARY(32)   NOT NULL,
    ended    BIGINT          NOT NULL,
    buckets  LONGTEXT        NOT NULL,  -- a histogram of durations, as JSON
    PRIMARY KEY (minute, workflow, outcome)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The audit log: the actions of operators.
CREATE TABLE IF NOT EXISTS romancy_audit (
    number      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at          BIGINT          NOT NULL,
    actor       LONGTEXT        NOT NULL,
    action      VARBINARY(64)   NOT NULL,
    instance_id VARBINARY(1020),
    detail      LONGTEXT        NOT NULL,
    KEY romancy_audit_instance (instance_id, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Actions on all instances that match a filter, and how far they have come: the worker that has the claim continues.
CREATE TABLE IF NOT EXISTS romancy_bulk_actions (
    id            VARBINARY(1020) NOT NULL PRIMARY KEY,
    action        VARBINARY(64)   NOT NULL,
    filter        LONGTEXT        NOT NULL,
    reason        LONGTEXT,
    actor         LONGTEXT        NOT NULL,
    status        VARBINARY(32)   NOT NULL,
    created_at    BIGINT          NOT NULL,
    ended_at      BIGINT,
    done          BIGINT          NOT NULL,
    failed        BIGINT          NOT NULL,
    scanned       BIGINT          NOT NULL,
    failures      LONGTEXT        NOT NULL,  -- the first of them, as JSON
    `cursor`      LONGTEXT,                  -- where the search continues
    claimed_by    VARBINARY(1020),
    claimed_until BIGINT          NOT NULL,
    KEY romancy_bulk_actions_created (created_at, id),
    KEY romancy_bulk_actions_running (status, created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How often an instance has lost its worker since it last recorded anything. A row counts while neither the
-- instance's generation nor its progress has changed since.
CREATE TABLE IF NOT EXISTS romancy_losses (
    instance_id VARBINARY(1020) NOT NULL PRIMARY KEY,
    generation  BIGINT          NOT NULL,
    progress    BIGINT          NOT NULL,  -- entries of its history, and failed attempts
    losses      BIGINT          NOT NULL,
    isolated    BIGINT          NOT NULL   -- 1: its next loss would be one too many, so a worker runs one such at a time
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
