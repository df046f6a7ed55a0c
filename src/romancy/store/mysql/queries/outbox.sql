-- Events on their way to brokers. Relays do not wait for each other, nor for whoever talks.

-- name: enqueue_outbox
-- An event for a broker; due at once.
INSERT INTO romancy_outbox (broker, body, created_at, since, next_at) VALUES (?, ?, ?, ?, ?)

-- name: due_outbox
-- So many rows of a broker that are due, the longest due first.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE broker = :broker AND next_at IS NOT NULL AND next_at <= :now ORDER BY next_at, seq LIMIT :limit
FOR UPDATE SKIP LOCKED

-- name: claim_outbox
-- A relay is about to deliver these: until the end of its lease nobody else does.
UPDATE romancy_outbox SET claimed_by = :claim, next_at = :until, attempts = attempts + 1
WHERE seq IN (<<seqs>>)

-- name: deliver_outbox
-- The broker has these.
DELETE FROM romancy_outbox
WHERE claimed_by = :claim AND seq IN (<<seqs>>)

-- name: delay_outbox
-- One that the broker did not take: it is tried again later.
UPDATE romancy_outbox SET claimed_by = NULL, next_at = ?, last_error = ? WHERE seq = ? AND claimed_by = ?

-- name: dead_letter_outbox
-- One that is given up.
UPDATE romancy_outbox SET claimed_by = NULL, next_at = NULL, dead_at = ?, last_error = ? WHERE seq = ? AND claimed_by = ?

-- name: return_outbox
-- These were not tried after all: they are due again, before what was put in after them.
UPDATE romancy_outbox SET claimed_by = NULL, next_at = created_at, attempts = attempts - 1
WHERE claimed_by = :claim AND seq IN (<<seqs>>)

-- name: next_outbox
-- When the next row of a broker is due.
SELECT min(next_at) FROM romancy_outbox WHERE broker = ? AND next_at IS NOT NULL

-- name: list_outbox
-- Rows behind a place, in order.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE seq > ? ORDER BY seq LIMIT ?

-- name: list_outbox_pending
-- The same of those that are not dead.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE dead = 0 AND seq > ? ORDER BY seq LIMIT ?

-- name: list_outbox_dead
-- The same of those that are.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE dead = 1 AND seq > ? ORDER BY seq LIMIT ?

-- name: requeue_outbox
-- Dead rows are due again, as if they had just been put in.
UPDATE romancy_outbox SET dead_at = NULL, attempts = 0, since = :now, next_at = :now, last_error = NULL
WHERE dead_at IS NOT NULL AND seq IN (<<seqs>>)

-- name: old_outbox
-- So many rows of a broker that died before a time, the oldest first.
SELECT seq FROM romancy_outbox WHERE broker = ? AND dead_at IS NOT NULL AND dead_at < ? ORDER BY dead_at LIMIT ?

-- name: prune_outbox
-- Dead rows go.
DELETE FROM romancy_outbox
WHERE dead_at IS NOT NULL AND seq IN (<<seqs>>)

-- name: count_outbox
-- How many rows of a broker wait and how many are dead; not counted further than to a number.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM romancy_outbox WHERE broker = :broker AND next_at IS NOT NULL LIMIT :most) AS waiting),
    (SELECT count(*) FROM (
        SELECT 1 FROM romancy_outbox WHERE broker = :broker AND dead_at IS NOT NULL LIMIT :most) AS dead)

-- name: oldest_outbox
-- When the oldest of those rows of a broker was put in that are due first.
SELECT min(created_at) FROM (
    SELECT created_at FROM romancy_outbox WHERE broker = :broker AND next_at IS NOT NULL
    ORDER BY next_at, seq LIMIT :most) AS waiting
