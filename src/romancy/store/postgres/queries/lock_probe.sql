-- Probes whether the server's locks work as the store needs them.

-- name: probe_server
-- The identity of the server: a restarted server, or one that took over, has another.
SELECT 'port ' || current_setting('port') || ', started ' || pg_postmaster_start_time()::text

-- name: probe_skip
-- The messaging lock, unless another transaction holds it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE SKIP LOCKED

-- name: probe_nowait
-- The messaging lock, or an error if another transaction holds it.
SELECT id FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE NOWAIT

-- name: probe_seen
-- Whether a token was committed.
SELECT 1 FROM romancy_commits WHERE token = ?

-- name: probe_number
-- The next number that the server generates. The insert is rolled back.
INSERT INTO romancy_staged (kind, head, body, at) VALUES ('probe', '', '', 0) RETURNING seq

-- name: sequences_behind
-- Sequences that would generate used numbers again: the table, its column, the sequence's last number, the largest used
-- number. The numbers of deleted events are known from the instances that were created after them.
SELECT n.name, n.col, coalesce(n.given, 0), n.reached FROM (
    SELECT t.name, t.col, t.reached, CASE
        WHEN has_sequence_privilege(pg_get_serial_sequence(t.name, t.col), 'SELECT, USAGE')
        THEN coalesce(pg_sequence_last_value(pg_get_serial_sequence(t.name, t.col)::regclass), 0) END AS given
    FROM (
        SELECT 'romancy_events' AS name, 'seq' AS col, greatest(
            (SELECT max(seq) FROM romancy_events), (SELECT max(seq) FROM romancy_consumed_events), (
                SELECT max(newest.created_at_event_seq) FROM (
                    SELECT created_at_event_seq FROM romancy_instances ORDER BY created_at DESC LIMIT 100) AS newest)
            ) AS reached
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
-- Advance a sequence beyond the used numbers.
SELECT setval(s.name, greatest(nextval(s.name), ?::bigint))
FROM (SELECT pg_get_serial_sequence(?, ?)::regclass AS name) AS s
