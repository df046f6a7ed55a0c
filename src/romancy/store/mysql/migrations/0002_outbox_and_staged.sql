-- migrate:up

-- Events on their way to brokers: one row for each event and broker, from the commit that sends it until it is delivered.
-- A row is due when next_at has come; a claim moves that to the end of its lease. A dead row has no next_at.
CREATE TABLE IF NOT EXISTS romancy_outbox (
    seq        BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    broker     VARBINARY(1020) NOT NULL,
    body       LONGBLOB        NOT NULL,            -- the whole event, in the JSON format of CloudEvents
    created_at BIGINT          NOT NULL,
    since      BIGINT          NOT NULL,            -- when it was put in, or requeued
    attempts   BIGINT          NOT NULL DEFAULT 0,
    next_at    BIGINT,
    claimed_by VARBINARY(1020),
    last_error LONGTEXT,
    dead_at    BIGINT,
    KEY romancy_outbox_due (broker, next_at, seq),
    KEY romancy_outbox_buried (broker, dead_at),
    KEY romancy_outbox_dead (dead_at, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What was said in transactions of others: it is said to those concerned when they have committed.
CREATE TABLE IF NOT EXISTS romancy_staged (
    seq  BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind VARBINARY(32) NOT NULL,
    head LONGTEXT      NOT NULL,
    body LONGBLOB      NOT NULL,
    at   BIGINT        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which archived generations are old enough to be thrown away.
CREATE INDEX romancy_payloads_begun ON romancy_payloads (begun_at);
