-- migrate:up

-- How often an instance has lost its worker since it last recorded anything. A row counts while the instance stands where it
-- stood then: neither its generation nor its progress has moved on.
CREATE TABLE IF NOT EXISTS romancy_losses (
    instance_id VARBINARY(1020) NOT NULL PRIMARY KEY,
    generation  BIGINT          NOT NULL,
    progress    BIGINT          NOT NULL,           -- entries of its history, and failed attempts
    losses      BIGINT          NOT NULL,
    alone       BIGINT          NOT NULL            -- 1: its next loss would be one too many, so a worker runs one such at a time
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
