-- Probes whether the server's locks work as the store needs them.

-- name: probe_server
-- The identity of the server.
SELECT concat(@@hostname, ', port ', @@port, ', server_id ', @@server_id)

-- name: probe_skip
-- The messaging lock, unless another transaction holds it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE SKIP LOCKED

-- name: probe_nowait
-- The messaging lock, or an error if another transaction holds it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE NOWAIT

-- name: probe_seen
-- Whether a token was committed.
SELECT 1 FROM romancy_commits WHERE token = ? AND committed = 1

-- name: probe_number
-- The next number that the server generates. The insert is rolled back.
INSERT INTO romancy_staged (kind, head, body, at) VALUES ('probe', '', '', 0)

-- name: sequences_behind
-- The table that would generate used numbers again, its column, its last number, the largest used number. Other tables
-- generate numbers above the largest that they hold; the numbers of deleted events are known from the instances that were
-- created after them.
SELECT n.name, n.col, n.given, n.reached FROM (
    SELECT 'romancy_events' AS name, 'seq' AS col, greatest(
        (SELECT coalesce(max(seq), 0) FROM romancy_events), (SELECT coalesce(max(seq), 0) FROM romancy_consumed_events), (
            SELECT coalesce(max(newest.created_at_event_seq), 0) FROM (
                SELECT created_at_event_seq FROM romancy_instances ORDER BY created_at DESC LIMIT 100) AS newest)
        ) AS reached, (
        SELECT coalesce(t.auto_increment, 1) - 1 FROM information_schema.tables AS t
        WHERE t.table_schema = database() AND t.table_name = 'romancy_events') AS given) AS n
WHERE n.reached > n.given

-- name: advance_sequence
-- Advance the generated numbers beyond a used one, by a row that is inserted and deleted again.
INSERT INTO romancy_events (seq, source, id, type, accepted_at, body) VALUES (?1, 'romancy', 'behind', '', 0, '');
DELETE FROM romancy_events WHERE seq = ?1
