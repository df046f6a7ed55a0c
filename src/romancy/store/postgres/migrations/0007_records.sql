-- migrate:up

-- What the short way writes, a line for each instance. As records they cost half of what they do as columns, at both ends.
CREATE TYPE romancy_new AS (
    id TEXT, workflow TEXT, version TEXT, owner TEXT, deadline_at BIGINT, now BIGINT, code TEXT, python TEXT, digest BYTEA,
    input BYTEA);
CREATE TYPE romancy_held AS (
    id TEXT, generation BIGINT, epoch BIGINT, seen BIGINT, length BIGINT, status TEXT, bound BOOLEAN, now BIGINT,
    fingerprint TEXT, output BYTEA, error BYTEA, op TEXT, name TEXT, at BIGINT, digest BYTEA, input BYTEA, value BYTEA,
    site TEXT, scheduled_at BIGINT, started_at BIGINT, ended_at BIGINT);
