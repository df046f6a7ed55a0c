-- Whether the server locks as it is relied upon.

-- name: probe_server
-- Which one it is: one that was started anew, or has taken over, is another one.
SELECT 'port ' || current_setting('port') || ', started ' || pg_postmaster_start_time()::text

-- name: probe_skip
-- The turn, unless somebody has it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE SKIP LOCKED

-- name: probe_nowait
-- The turn, or an error if somebody has it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE NOWAIT

-- name: probe_seen
-- What was committed.
SELECT 1 FROM romancy_commits WHERE token = ?

-- name: probe_number
-- The next number of those that the server gives. It is taken back.
INSERT INTO romancy_staged (kind, head, body, at) VALUES ('probe', '', '', 0) RETURNING seq

-- name: sequences_behind
-- Sequences that would give numbers that were given: the table, its column, how far the sequence is and the numbers are. Events
-- that were thrown away are remembered by the instances that were born after them.
SELECT n.name, n.col, coalesce(n.given, 0), n.reached FROM (
    SELECT t.name, t.col, t.reached, CASE
        WHEN has_sequence_privilege(pg_get_serial_sequence(t.name, t.col), 'SELECT, USAGE')
        THEN coalesce(pg_sequence_last_value(pg_get_serial_sequence(t.name, t.col)::regclass), 0) END AS given
    FROM (
        SELECT 'romancy_events' AS name, 'seq' AS col, greatest(
            (SELECT max(seq) FROM romancy_events), (SELECT max(seq) FROM romancy_consumed_events), (
                SELECT max(young.created_at_event_seq) FROM (
                    SELECT created_at_event_seq FROM romancy_instances ORDER BY created_at DESC LIMIT 100) AS young)) AS reached
        UNION ALL
        SELECT 'romancy_messages', 'seq', greatest(
            (SELECT max(seq) FROM romancy_messages), (SELECT max(seq) FROM romancy_deliveries))
        UNION ALL SELECT 'romancy_inbox', 'id', max(id) FROM romancy_inbox
        UNION ALL SELECT 'romancy_journal', 'id', max(id) FROM romancy_journal
        UNION ALL SELECT 'romancy_staged', 'seq', max(seq) FROM romancy_staged
        UNION ALL SELECT 'romancy_outbox', 'seq', max(seq) FROM romancy_outbox
        UNION ALL SELECT 'romancy_audit', 'number', max(number) FROM romancy_audit) AS t) AS n
WHERE n.reached > n.given

-- name: advance_sequence
-- A sequence goes on behind the numbers that were given.
SELECT setval(s.name, greatest(nextval(s.name), ?::bigint))
FROM (SELECT pg_get_serial_sequence(?, ?)::regclass AS name) AS s
