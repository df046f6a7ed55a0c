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
    dead       TINYINT         AS (IF(dead_at IS NULL, 0, 1)) STORED,
    KEY romancy_outbox_due (broker, next_at, seq),
    KEY romancy_outbox_dead (dead, seq),
    KEY romancy_outbox_buried (broker, dead_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
