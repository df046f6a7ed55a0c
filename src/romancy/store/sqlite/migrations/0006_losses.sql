-- migrate:up

-- How often an instance has lost its worker since it last recorded anything. A row counts while the instance stands where it
-- stood then: neither its generation nor its progress has moved on.
CREATE TABLE romancy_losses (
    instance_id TEXT    NOT NULL PRIMARY KEY,
    generation  INTEGER NOT NULL,
    progress    INTEGER NOT NULL,            -- entries of its history, and failed attempts
    losses      INTEGER NOT NULL,
    alone       INTEGER NOT NULL             -- 1: its next loss would be one too many, so a worker runs one such at a time
) WITHOUT ROWID;
