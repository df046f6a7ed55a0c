-- migrate:up

-- Events on their way to brokers: one row for each event and broker, from the commit that sends it until it is delivered.
-- A row is due when next_at has come; a claim moves that to the end of its lease. A dead row has no next_at.
CREATE TABLE romancy_outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    broker     TEXT    NOT NULL,
    body       BLOB    NOT NULL,             -- the whole event, in the JSON format of CloudEvents
    created_at INTEGER NOT NULL,
    since      INTEGER NOT NULL,             -- when it was put in, or requeued
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER,
    claimed_by TEXT,
    last_error TEXT,
    dead_at    INTEGER
);
CREATE INDEX romancy_outbox_due ON romancy_outbox (broker, next_at, seq) WHERE next_at IS NOT NULL;
-- Both are empty while nothing is dead.
CREATE INDEX romancy_outbox_dead ON romancy_outbox (seq) WHERE dead_at IS NOT NULL;
CREATE INDEX romancy_outbox_buried ON romancy_outbox (broker, dead_at) WHERE dead_at IS NOT NULL;
