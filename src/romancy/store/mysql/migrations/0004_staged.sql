-- migrate:up

-- What was said in transactions of others: it is said to those concerned when they have committed.
CREATE TABLE IF NOT EXISTS romancy_staged (
    seq  BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind VARBINARY(32) NOT NULL,
    head LONGTEXT      NOT NULL,
    body LONGBLOB      NOT NULL,
    at   BIGINT        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Transactions of others that others have to look at. They must not touch the bell, which they could keep for long: whoever
-- sees a row here first takes it away and rings.
CREATE TABLE IF NOT EXISTS romancy_hints (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB;
