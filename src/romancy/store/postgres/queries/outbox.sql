-- Events on their way to brokers. Relays wait neither for each other nor for the messaging lock.

-- name: enqueue_outbox
-- Enqueue an event for a broker; it is due at once.
INSERT INTO romancy_outbox (broker, body, created_at, since, next_at) VALUES (?, ?, ?, ?, ?)

-- name: due_outbox
-- Rows of a broker that are due, the longest due first.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE broker = :broker AND next_at IS NOT NULL AND next_at <= :now ORDER BY next_at, seq LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED

-- name: claim_outbox
-- Claim rows for a relay: until its lease ends, no other relay delivers them.
UPDATE romancy_outbox SET claimed_by = :claim::text, next_at = :until::bigint, attempts = attempts + 1
WHERE seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:seqs::jsonb)::bigint))

-- name: deliver_outbox
-- Delete rows that the broker has accepted.
DELETE FROM romancy_outbox
WHERE claimed_by = :claim AND seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:seqs::jsonb)::bigint))

-- name: delay_outbox
-- Release a row that the broker did not accept, to be tried again later.
UPDATE romancy_outbox SET claimed_by = NULL, next_at = ?, last_error = ? WHERE seq = ? AND claimed_by = ?

-- name: dead_letter_outbox
-- Mark a row as dead.
UPDATE romancy_outbox SET claimed_by = NULL, next_at = NULL, dead_at = ?, last_error = ? WHERE seq = ? AND claimed_by = ?

-- name: return_outbox
-- Release rows that were not tried after all: they are due again, before those enqueued after them.
UPDATE romancy_outbox SET claimed_by = NULL, next_at = created_at, attempts = attempts - 1
WHERE claimed_by = :claim AND seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:seqs::jsonb)::bigint))

-- name: next_outbox
-- When the next row of a broker is due.
SELECT min(next_at) FROM romancy_outbox WHERE broker = ? AND next_at IS NOT NULL

-- name: list_outbox
-- Rows after a seq, in order.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE seq > ? ORDER BY seq LIMIT ?

-- name: list_outbox_pending
-- Like list_outbox, for rows that are not dead.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE dead_at IS NULL AND seq > ? ORDER BY seq LIMIT ?

-- name: list_outbox_dead
-- Like list_outbox, for dead rows.
SELECT seq, broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox
WHERE dead_at IS NOT NULL AND seq > ? ORDER BY seq LIMIT ?

-- name: requeue_outbox
-- Make dead rows due again, as if they had just been enqueued.
UPDATE romancy_outbox SET dead_at = NULL, attempts = 0, since = :now::bigint, next_at = :now::bigint, last_error = NULL
WHERE dead_at IS NOT NULL AND seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:seqs::jsonb)::bigint))

-- name: old_outbox
-- Rows of a broker that died before a time, oldest first.
SELECT seq FROM romancy_outbox WHERE broker = ? AND dead_at IS NOT NULL AND dead_at < ? ORDER BY dead_at LIMIT ?

-- name: prune_outbox
-- Delete dead rows.
DELETE FROM romancy_outbox
WHERE dead_at IS NOT NULL AND seq = ANY (ARRAY(SELECT jsonb_array_elements_text(:seqs::jsonb)::bigint))

-- name: count_outbox
-- The number of pending and of dead rows of a broker; counted up to a limit.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM romancy_outbox WHERE broker = :broker AND next_at IS NOT NULL
        ORDER BY next_at, seq LIMIT :most) AS waiting),
    (SELECT count(*) FROM (
        SELECT 1 FROM romancy_outbox WHERE broker = :broker AND dead_at IS NOT NULL
        ORDER BY dead_at LIMIT :most) AS dead)

-- name: oldest_outbox
-- When the oldest of the rows of a broker that are due first was enqueued.
SELECT min(created_at) FROM (
    SELECT created_at FROM romancy_outbox WHERE broker = :broker AND next_at IS NOT NULL
    ORDER BY next_at, seq LIMIT :most) AS waiting
