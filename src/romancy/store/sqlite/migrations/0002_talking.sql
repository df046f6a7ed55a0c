-- migrate:up

-- Events, messages, groups, generations.

-- How far the log of events had come when an instance was created: it can wait for what came later.
ALTER TABLE romancy_instances ADD COLUMN born INTEGER NOT NULL DEFAULT 0;
-- When a generation began; NULL: with the instance.
ALTER TABLE romancy_payloads ADD COLUMN begun_at INTEGER;
-- What an instance that failed belonged to, as JSON: a retry puts it back.
ALTER TABLE romancy_payloads ADD COLUMN bonds TEXT;
-- What has come for a wait: an event's or a message's seq. Its instance has been woken, and looks from there.
ALTER TABLE romancy_waits ADD COLUMN met INTEGER;
CREATE INDEX romancy_waits_met ON romancy_waits (instance_id) WHERE met IS NOT NULL;
-- Who waits for the messages of a channel, in the order they are called.
CREATE INDEX romancy_waits_line ON romancy_waits (key, since, instance_id, op) WHERE kind = 'message' AND met IS NULL;

-- Every event accepted within the retention, whoever may want it. `accepted_at` never falls while `seq` rises.
CREATE TABLE romancy_events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    source      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    subject     TEXT,
    target      TEXT,                        -- the instance it is addressed to
    used        INTEGER NOT NULL DEFAULT 0,  -- an addressed event was consumed
    accepted_at INTEGER NOT NULL,
    body        BLOB    NOT NULL             -- the whole event, in the JSON format of CloudEvents
);
CREATE UNIQUE INDEX romancy_events_id ON romancy_events (source, id);
CREATE INDEX romancy_events_type ON romancy_events (type, seq) WHERE target IS NULL;
CREATE INDEX romancy_events_subject ON romancy_events (type, subject, seq) WHERE target IS NULL AND subject IS NOT NULL;
CREATE INDEX romancy_events_target ON romancy_events (target, type, seq) WHERE target IS NOT NULL;
CREATE INDEX romancy_events_unused ON romancy_events (seq) WHERE target IS NOT NULL AND used = 0;
CREATE INDEX romancy_events_accepted ON romancy_events (accepted_at);

-- Which events an instance has consumed, and for which wish: everything that fits the same wish lies behind the last of them.
CREATE TABLE romancy_taken (
    instance_id TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    wanted      TEXT    NOT NULL,
    PRIMARY KEY (instance_id, seq)
) WITHOUT ROWID;
CREATE INDEX romancy_taken_wanted ON romancy_taken (instance_id, wanted, seq);
CREATE INDEX romancy_taken_seq ON romancy_taken (seq);

-- The workflows that handle events of their name: whoever accepts one starts them, with or without their code.
CREATE TABLE romancy_handlers (
    workflow TEXT    NOT NULL PRIMARY KEY,
    version  TEXT    NOT NULL,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE romancy_subscriptions (
    channel     TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    mode        TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (channel, instance_id)
) WITHOUT ROWID;
CREATE INDEX romancy_subscriptions_instance ON romancy_subscriptions (instance_id);
CREATE INDEX romancy_subscriptions_mode ON romancy_subscriptions (channel) WHERE mode <> 'direct';

-- Messages that somebody has still to read. A pooled one is for whoever takes it first; the others have deliveries.
CREATE TABLE romancy_messages (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    channel    TEXT    NOT NULL,
    pooled     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    body       BLOB    NOT NULL
);
CREATE INDEX romancy_messages_pool ON romancy_messages (channel, seq) WHERE pooled = 1;
CREATE INDEX romancy_messages_age ON romancy_messages (created_at) WHERE pooled = 1;

CREATE TABLE romancy_deliveries (
    instance_id TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    PRIMARY KEY (instance_id, channel, seq)
) WITHOUT ROWID;
CREATE INDEX romancy_deliveries_seq ON romancy_deliveries (seq);

CREATE TABLE romancy_members (
    name        TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (name, instance_id)
) WITHOUT ROWID;
CREATE INDEX romancy_members_instance ON romancy_members (instance_id);
