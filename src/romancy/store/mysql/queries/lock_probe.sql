-- Whether the server locks as it is relied upon.

-- name: probe_server
-- Which one it is.
SELECT concat(@@hostname, ', port ', @@port, ', server_id ', @@server_id)

-- name: probe_skip
-- The turn, unless somebody has it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE SKIP LOCKED

-- name: probe_nowait
-- The turn, or an error if somebody has it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE NOWAIT

-- name: probe_seen
-- What was committed.
SELECT 1 FROM romancy_commits WHERE token = ? AND committed = 1

-- name: probe_number
-- The next number of those that the server gives. It is taken back.
INSERT INTO romancy_staged (kind, head, body, at) VALUES ('probe', '', '', 0)

-- name: sequences_behind
-- The table whose next number would be one that was given, its column, how far its numbers would be and are. Other tables' numbers
-- go on behind the largest that is there; events that were thrown away are remembered by the instances born after them.
SELECT n.name, n.col, n.given, n.reached FROM (
    SELECT 'romancy_events' AS name, 'seq' AS col, greatest(
        (SELECT coalesce(max(seq), 0) FROM romancy_events), (SELECT coalesce(max(seq), 0) FROM romancy_consumed_events), (
            SELECT coalesce(max(young.created_at_event_seq), 0) FROM (
                SELECT created_at_event_seq FROM romancy_instances ORDER BY created_at DESC LIMIT 100) AS young)) AS reached, (
        SELECT coalesce(t.auto_increment, 1) - 1 FROM information_schema.tables AS t
        WHERE t.table_schema = database() AND t.table_name = 'romancy_events') AS given) AS n
WHERE n.reached > n.given

-- name: advance_sequence
-- The numbers go on behind one that is put in and taken out again.
INSERT INTO romancy_events (seq, source, id, type, accepted_at, body) VALUES (?1, 'romancy', 'behind', '', 0, '');
DELETE FROM romancy_events WHERE seq = ?1
