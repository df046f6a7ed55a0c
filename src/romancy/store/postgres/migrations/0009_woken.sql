-- migrate:up

-- As before, and in the place of an event's id stands an empty text for those whom an earlier event has woken for that wait:
-- they are called, and not named again. Where there is no row of turns to lock, the function does nothing either.
CREATE OR REPLACE FUNCTION romancy_accept(
    sources TEXT[], ids TEXT[], types TEXT[], subjects TEXT[], targets TEXT[], bodies BYTEA[], moment BIGINT)
RETURNS TABLE (number BIGINT, event_source TEXT, event_id TEXT, instance TEXT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM romancy_turn WHERE romancy_turn.id = 1 FOR UPDATE;
    IF NOT FOUND
        OR current_setting('transaction_isolation') <> 'read committed'
        OR EXISTS (SELECT FROM romancy_staged)
        OR EXISTS (SELECT FROM romancy_handlers WHERE workflow = ANY (types))
        OR EXISTS (SELECT FROM romancy_waits WHERE kind = 'event' AND key = ANY (types) AND "match" IS NOT NULL)
    THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH new AS (
        INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)
        SELECT e.source, e.id, e.type, e.subject, e.target, greatest(moment, (
            SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1)), e.body
        FROM unnest(sources, ids, types, subjects, targets, bodies)
            WITH ORDINALITY AS e (source, id, type, subject, target, body, place)
        ORDER BY e.place
        ON CONFLICT (source, id) DO NOTHING RETURNING seq, source, id, type, subject, target, accepted_at),
    waiting AS MATERIALIZED (
        SELECT e.seq, w.instance_id, w.op,
            w.met IS NOT NULL OR e.seq > min(e.seq) OVER (PARTITION BY w.instance_id, w.op) AS again
        FROM new AS e CROSS JOIN LATERAL (
            SELECT instance_id, op, met FROM romancy_waits
            WHERE e.target IS NULL AND kind = 'event' AND key = e.type AND key <> '' AND subject IS NULL
                AND (due IS NULL OR due > e.accepted_at)
            UNION ALL
            SELECT instance_id, op, met FROM romancy_waits
            WHERE e.target IS NULL AND kind = 'event' AND key = e.type AND key <> '' AND subject = e.subject
                AND (due IS NULL OR due > e.accepted_at)
            UNION ALL
            SELECT instance_id, op, met FROM romancy_waits
            WHERE instance_id = e.target AND kind = 'event' AND key = e.type AND (subject IS NULL OR subject = e.subject)
                AND (due IS NULL OR due > e.accepted_at)) AS w),
    first AS MATERIALIZED (SELECT instance_id, op, min(seq) AS seq FROM waiting GROUP BY instance_id, op),
    met AS (
        UPDATE romancy_waits AS w SET met = coalesce(w.met, first.seq) FROM first
        WHERE w.instance_id = ANY (ARRAY(SELECT instance_id FROM first)) AND w.instance_id = first.instance_id
            AND w.op = first.op),
    called AS (
        UPDATE romancy_instances SET
            signal = signal + 1,
            wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN moment ELSE wake_at END
        WHERE id = ANY (ARRAY(SELECT instance_id FROM first)) AND ended_at IS NULL)
    SELECT 0::BIGINT, NULL, NULL, NULL
    UNION ALL
    SELECT seq, source, id, NULL FROM new
    UNION ALL
    SELECT seq, NULL, CASE WHEN again THEN '' END, instance_id FROM waiting
    ORDER BY 1;
END
$$;
