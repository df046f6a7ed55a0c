-- Events, channels and groups. Always in a transaction that holds the messaging lock: an instance that finds nothing and
-- registers a wait, and a sender that stores something and wakes the waiting instances, cannot miss each other.
--
-- Where the first of many rows is wanted, the planner tends to walk another index until it meets one: through all events
-- since an instance was created. `(type, seq) > (x, n) AND type <= x ORDER BY type, seq` means `type = x AND seq > n ORDER
-- BY seq`, and only the index that begins with the type gives that order. `seq >= n AND seq <= n` after an equation chooses
-- the index that begins with the other column, and not that of `seq`: very many instances may have consumed one event.

-- name: accept_event
-- Append an event to the log, unless its source and id are known. Its time is never before that of the event before it.
INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)
VALUES (:source, :id, :type, :subject, :target, greatest(:now::bigint, (
    SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1)), :body)
ON CONFLICT (source, id) DO NOTHING RETURNING seq

-- name: accept_events
-- Append those of many events to the log whose source and id are not known. Returns each of them, and then the waits for
-- it. Instances whose waits have no `match` are woken at once. Writes with an event that starts a workflow are left out and
-- returned.
WITH given AS MATERIALIZED (
    SELECT e.*
    FROM unnest(
        :source::text[], :id::text[], :type::text[], :subject::text[], :target::text[], :body::bytea[], :write::bigint[])
        WITH ORDINALITY AS e (source, id, type, subject, target, body, write, ordinal)),
handled AS MATERIALIZED (
    SELECT DISTINCT g.write FROM given AS g
    WHERE EXISTS (SELECT 1 FROM romancy_handlers AS h WHERE h.workflow = g.type OFFSET 0)),
new AS (
    INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)
    SELECT e.source, e.id, e.type, e.subject, e.target, greatest(:now::bigint, (
        SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1)), e.body
    FROM given AS e WHERE e.write <> ALL (ARRAY(SELECT write FROM handled))
    ORDER BY e.ordinal
    ON CONFLICT (source, id) DO NOTHING RETURNING seq, source, id, type, subject, target, accepted_at),
waiting AS MATERIALIZED (
    SELECT e.seq, w.instance_id, w.op, w."match", bool_and(w."match" IS NULL) OVER (PARTITION BY w.instance_id) AS plain,
        w.matched_seq IS NOT NULL AS is_matched
    FROM new AS e CROSS JOIN LATERAL (
        SELECT instance_id, op, "match", matched_seq FROM romancy_waits
        WHERE e.target IS NULL AND kind = 'event' AND key = e.type AND key <> '' AND subject IS NULL
            AND (due IS NULL OR due > e.accepted_at)
        UNION ALL
        SELECT instance_id, op, "match", matched_seq FROM romancy_waits
        WHERE e.target IS NULL AND kind = 'event' AND key = e.type AND key <> '' AND subject = e.subject
            AND (due IS NULL OR due > e.accepted_at)
        UNION ALL
        SELECT instance_id, op, "match", matched_seq FROM romancy_waits
        WHERE instance_id = e.target AND kind = 'event' AND key = e.type AND (subject IS NULL OR subject = e.subject)
            AND (due IS NULL OR due > e.accepted_at)) AS w),
first AS MATERIALIZED (SELECT instance_id, op, min(seq) AS seq FROM waiting WHERE plain GROUP BY instance_id, op),
matched AS (
    UPDATE romancy_waits AS w SET matched_seq = coalesce(w.matched_seq, first.seq) FROM first
    WHERE w.instance_id = ANY (ARRAY(SELECT instance_id FROM first)) AND w.instance_id = first.instance_id
        AND w.op = first.op),
woken AS (
    UPDATE romancy_instances SET
        inbox_version = inbox_version + 1,
        wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now::bigint ELSE wake_at END
    WHERE id = ANY (ARRAY(SELECT instance_id FROM first)) AND ended_at IS NULL)
SELECT seq, source, id, NULL::text, NULL::text, NULL::bytea, FALSE, FALSE FROM new
UNION ALL
SELECT seq, NULL, NULL, instance_id, op, "match", plain, is_matched FROM waiting
UNION ALL
SELECT NULL, NULL, write::text, NULL, NULL, NULL, FALSE, FALSE FROM handled
ORDER BY 1

-- name: fast_accept
-- The fast path of events that start no workflow and for which no wait has a `match`.
SELECT * FROM romancy_accept_events(
    :source::text[], :id::text[], :type::text[], :subject::text[], :target::text[], :body::bytea[], :now::bigint)

-- name: fast_accept_done
-- What fast_accept returned, if the events are in the log now. Events that are older than the call were there before it.
WITH given AS MATERIALIZED (SELECT DISTINCT source, id FROM unnest(:source::text[], :id::text[]) AS g (source, id)),
known AS MATERIALIZED (
    SELECT e.* FROM given AS g CROSS JOIN LATERAL (
        SELECT seq, source, id, type, subject, target, accepted_at FROM romancy_events
        WHERE source = g.source AND id = g.id OFFSET 0) AS e),
done AS MATERIALIZED (SELECT 0::bigint AS seq WHERE (SELECT count(*) FROM known) = (SELECT count(*) FROM given)),
new AS MATERIALIZED (SELECT known.* FROM done, known WHERE accepted_at >= :now::bigint)
SELECT seq, NULL, NULL, NULL FROM done
UNION ALL
SELECT seq, source, id, NULL FROM new
UNION ALL
SELECT new.seq, NULL, CASE WHEN w.matched_seq < new.seq THEN '' END, w.instance_id
FROM new CROSS JOIN LATERAL (
    SELECT instance_id, matched_seq FROM romancy_waits
    WHERE kind = 'event' AND key = new.type AND key <> '' AND "match" IS NULL AND (due IS NULL OR due > new.accepted_at)
        AND (subject IS NULL OR subject = new.subject) AND (new.target IS NULL OR instance_id = new.target)
    OFFSET 0) AS w
ORDER BY 1

-- name: match_and_wake
-- Mark waits as matched, each with its own event, and wake their instances.
WITH matched AS (
    UPDATE romancy_waits AS w SET matched_seq = coalesce(w.matched_seq, (wait ->> 2)::bigint)
    FROM jsonb_array_elements(:waits::jsonb) AS wait
    WHERE w.instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb)))
        AND w.instance_id = wait ->> 0 AND w.op = wait ->> 1)
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now::bigint ELSE wake_at END
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND ended_at IS NULL

-- name: find_events
-- For each wait (index, instance, operation, type, subject, deadline, selector): whether something else has arrived for its
-- instance, and the oldest event that matches. OFFSET 0 and LIMIT 1 make the planner search an index once for each,
-- whatever it estimates of the tables' sizes.
SELECT (wait ->> 0)::bigint, start.has_other, e.seq, e.accepted_at, e.body, e.target IS NOT NULL
FROM jsonb_array_elements(?::jsonb) AS wait
CROSS JOIN LATERAL (
    SELECT
        EXISTS (SELECT 1 FROM romancy_inbox WHERE instance_id = wait ->> 1 OFFSET 0) OR EXISTS (
            SELECT 1 FROM romancy_waits
            WHERE instance_id = wait ->> 1 AND matched_seq IS NOT NULL AND op <> wait ->> 2 OFFSET 0) AS has_other,
        coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = wait ->> 1 AND op = wait ->> 2),
            (SELECT max(seq) FROM romancy_consumed_events
                WHERE instance_id = wait ->> 1 AND md5(selector) = md5(wait ->> 6) AND selector = wait ->> 6
                    AND seq > i.created_at_event_seq),
            i.created_at_event_seq) AS after
    FROM romancy_instances AS i WHERE i.id = wait ->> 1 LIMIT 1) AS start
LEFT JOIN LATERAL (
    SELECT * FROM (
        (SELECT seq, accepted_at, body, target FROM romancy_events AS e
        WHERE wait ->> 4 IS NULL AND target IS NULL AND (type, seq) > (wait ->> 3, start.after) AND type <= wait ->> 3
            AND (wait ->> 5 IS NULL OR accepted_at < (wait ->> 5)::bigint)
            AND NOT EXISTS (
                SELECT 1 FROM romancy_consumed_events AS t
                WHERE t.instance_id = wait ->> 1 AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
        ORDER BY type, seq LIMIT 1)
        UNION ALL
        (SELECT seq, accepted_at, body, target FROM romancy_events AS e
        WHERE target IS NULL AND type = wait ->> 3 AND subject = wait ->> 4 AND subject IS NOT NULL AND seq > start.after
            AND (wait ->> 5 IS NULL OR accepted_at < (wait ->> 5)::bigint)
            AND NOT EXISTS (
                SELECT 1 FROM romancy_consumed_events AS t
                WHERE t.instance_id = wait ->> 1 AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
        ORDER BY seq LIMIT 1)
        UNION ALL
        (SELECT seq, accepted_at, body, target FROM romancy_events AS e
        WHERE target = wait ->> 1 AND target IS NOT NULL AND type = wait ->> 3 AND seq > start.after
            AND (wait ->> 4 IS NULL OR subject = wait ->> 4)
            AND (wait ->> 5 IS NULL OR accepted_at < (wait ->> 5)::bigint)
            AND NOT EXISTS (
                SELECT 1 FROM romancy_consumed_events AS t
                WHERE t.instance_id = wait ->> 1 AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
        ORDER BY seq LIMIT 1)) AS candidates
    ORDER BY seq LIMIT 1) AS e ON true

-- name: handler_of
-- The version of the workflow that an event of this type starts.
SELECT version FROM romancy_handlers WHERE workflow = ?

-- name: save_handler
-- Record that a workflow handles events of its name.
INSERT INTO romancy_handlers (workflow, version, saved_at) VALUES (?, ?, ?)
ON CONFLICT (workflow) DO UPDATE SET version = excluded.version, saved_at = excluded.saved_at

-- name: drop_handler
-- Record that this version of a workflow does not handle events any more.
DELETE FROM romancy_handlers WHERE workflow = ? AND version = ?

-- name: accepted_at
-- When an event was accepted.
SELECT accepted_at FROM romancy_events WHERE seq = ?

-- name: waits_for_event
-- Waits for such an event, with any subject or with this one, whose deadline had not passed when it came; and whether an
-- event has matched each before.
SELECT instance_id, op, "match", matched_seq IS NOT NULL FROM romancy_waits
WHERE kind = 'event' AND key = :type AND key <> '' AND subject IS NULL AND (due IS NULL OR due > :at)
UNION ALL
SELECT instance_id, op, "match", matched_seq IS NOT NULL FROM romancy_waits
WHERE kind = 'event' AND key = :type AND key <> '' AND subject = :subject AND (due IS NULL OR due > :at)

-- name: waits_of_target
-- Like waits_for_event, for the one instance that the event is addressed to.
SELECT instance_id, op, "match", matched_seq IS NOT NULL FROM romancy_waits
WHERE instance_id = :target AND kind = 'event' AND key = :type AND (subject IS NULL OR subject = :subject)
    AND (due IS NULL OR due > :at)

-- name: match_waits
-- Mark waits as matched.
UPDATE romancy_waits AS w SET matched_seq = coalesce(w.matched_seq, :seq::bigint)
FROM jsonb_array_elements(:waits::jsonb) AS wait
WHERE w.instance_id = ANY (ARRAY(SELECT one ->> 0 FROM jsonb_array_elements(:waits::jsonb) AS one))
    AND w.instance_id = wait ->> 0 AND w.op = wait ->> 1

-- name: wake
-- Wake instances for which something has arrived. Paused and blocked ones find it when they resume.
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now::bigint ELSE wake_at END
WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND ended_at IS NULL

-- name: bump_inbox_version
-- Count an arrival for an instance that does not wait for it: it is not woken, but its end has to clear the arrival.
UPDATE romancy_instances SET inbox_version = inbox_version + 1 WHERE id = ? AND ended_at IS NULL

-- name: own_waits
-- An instance's own waits for messages of a channel.
SELECT instance_id, op FROM romancy_waits WHERE instance_id = ? AND kind = 'message' AND key = ?

-- name: matched_seq_of
-- From which event on a matched wait searches.
SELECT matched_seq FROM romancy_waits WHERE instance_id = ? AND op = ?

-- name: has_unread
-- Whether an instance has inbox items, or a matched wait.
SELECT EXISTS (SELECT 1 FROM romancy_inbox WHERE instance_id = :id)
    OR EXISTS (SELECT 1 FROM romancy_waits WHERE instance_id = :id AND matched_seq IS NOT NULL)

-- name: search_start
-- The seq after which a selector searches: of the last event it consumed, or of the last event when the instance was
-- created.
SELECT greatest(created_at_event_seq, (
    SELECT max(seq) FROM romancy_consumed_events
    WHERE instance_id = :id AND md5(selector) = md5(:selector) AND selector = :selector))
FROM romancy_instances WHERE id = :id

-- name: events_for_all
-- Events of a type that an instance has not consumed, oldest first.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target IS NULL AND (type, seq) > (:type, :after) AND type <= :type
    AND (:before::bigint IS NULL OR accepted_at < :before::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
ORDER BY type, seq LIMIT :limit

-- name: events_of_subject
-- Like events_for_all, for one subject.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target IS NULL AND type = :type AND subject = :subject AND subject IS NOT NULL AND seq > :after
    AND (:before::bigint IS NULL OR accepted_at < :before::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
ORDER BY seq LIMIT :limit

-- name: events_for_one
-- Like events_for_all, for events addressed to the instance.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target = :id AND target IS NOT NULL AND type = :type AND seq > :after
    AND (:subject::text IS NULL OR subject = :subject::text)
    AND (:before::bigint IS NULL OR accepted_at < :before::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq >= e.seq AND t.seq <= e.seq OFFSET 0)
ORDER BY seq LIMIT :limit

-- name: consume_event
-- Record that an instance has consumed an event.
INSERT INTO romancy_consumed_events (instance_id, seq, selector) VALUES (?, ?, ?)

-- name: mark_event_consumed
-- Mark an event that was addressed to the instance as consumed.
UPDATE romancy_events SET consumed = 1 WHERE seq = ? AND target = ?

-- name: put_wait
-- Register a wait, or replace it.
INSERT INTO romancy_waits (instance_id, op, kind, since, due, key, subject, "match", site, matched_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (instance_id, op) DO UPDATE SET
    kind = excluded.kind, since = excluded.since, due = excluded.due, key = excluded.key, subject = excluded.subject,
    "match" = excluded."match", site = excluded.site, matched_seq = excluded.matched_seq

-- name: drop_wait
-- Delete a wait.
DELETE FROM romancy_waits WHERE instance_id = ? AND op = ?

-- name: withdrawn_calls
-- The channels whose messages have matched these waits, which are withdrawn.
SELECT DISTINCT key FROM romancy_waits
WHERE instance_id = ? AND op = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND matched_seq IS NOT NULL
    AND kind = 'message'

-- name: matched_channels
-- The channels whose pooled messages have woken these instances and have not been read by them.
SELECT DISTINCT w.key FROM romancy_waits AS w
JOIN romancy_subscriptions AS s ON s.channel = w.key AND s.instance_id = w.instance_id AND s.mode = 'competing'
WHERE w.instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND w.matched_seq IS NOT NULL
    AND w.kind = 'message'

-- name: mode_of
-- The mode of a channel that has subscribers. Direct subscriptions do not count. The inequalities and the ORDER BY make the
-- planner use an index: for one row of many it would read the table, and all of it if the channel has no subscribers.
SELECT mode FROM romancy_subscriptions
WHERE channel >= :channel AND channel <= :channel AND mode <> 'direct' ORDER BY channel LIMIT 1

-- name: subscription
-- The mode of an instance's own subscription.
SELECT mode FROM romancy_subscriptions WHERE channel = ? AND instance_id = ?

-- name: subscribe
-- Subscribe an instance to a channel.
INSERT INTO romancy_subscriptions (channel, instance_id, mode, since) VALUES (?, ?, ?, ?)

-- name: unsubscribe
-- Delete an instance's subscription to a channel.
DELETE FROM romancy_subscriptions WHERE channel = ? AND instance_id = ?

-- name: unsubscribed_messages
-- The messages that an instance has not read when it unsubscribes.
SELECT seq FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

-- name: drop_deliveries_of
-- Delete an instance's unread messages of one channel.
DELETE FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

-- name: add_message
-- Insert a message.
INSERT INTO romancy_messages (channel, pooled, created_at, body) VALUES (?, ?, ?, ?) RETURNING seq

-- name: deliver_to_subscribers
-- Deliver a message to every subscriber of a broadcast channel.
INSERT INTO romancy_deliveries (instance_id, channel, seq)
SELECT instance_id, channel, :seq::bigint FROM romancy_subscriptions WHERE channel = :channel AND mode = 'broadcast'

-- name: deliver_to_members
-- Deliver a message to every member of a group.
INSERT INTO romancy_deliveries (instance_id, channel, seq)
SELECT instance_id, :channel::text, :seq::bigint FROM romancy_group_members WHERE name = :group

-- name: deliver
-- Deliver a message to one instance.
INSERT INTO romancy_deliveries (instance_id, channel, seq) VALUES (?, ?, ?)

-- name: waits_for_message
-- The waits of a message's recipients whose deadline has not passed.
SELECT w.instance_id, w.op FROM romancy_deliveries AS d
JOIN romancy_waits AS w ON w.instance_id = d.instance_id AND w.key = d.channel AND w.kind = 'message'
WHERE d.seq = :seq AND (w.due IS NULL OR w.due > :now)

-- name: next_waiter
-- The wait for a pooled message of a channel that was registered first and is not matched: the index has them in that
-- order.
SELECT w.instance_id, w.op FROM romancy_waits AS w
WHERE w.kind = 'message' AND w.matched_seq IS NULL AND w.key >= :channel AND w.key <= :channel
    AND (w.due IS NULL OR w.due > :now)
    AND w.instance_id <> ALL (ARRAY(SELECT jsonb_array_elements_text(:without::jsonb)))
    AND EXISTS (
        SELECT 1 FROM romancy_subscriptions AS s
        WHERE s.channel = :channel AND s.instance_id = w.instance_id AND s.mode = 'competing' OFFSET 0)
    AND EXISTS (
        SELECT 1 FROM romancy_instances AS i
        WHERE i.id = w.instance_id AND i.status NOT IN ('paused', 'blocked') OFFSET 0)
ORDER BY w.key, w.since, w.instance_id, w.op LIMIT 1

-- name: first_of_pool
-- The oldest pooled message of a channel.
SELECT seq FROM romancy_messages WHERE channel = ? AND pooled = 1 ORDER BY channel, seq LIMIT 1

-- name: first_delivery
-- The oldest message that an instance has not read.
SELECT min(seq) FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

-- name: message
-- One message.
SELECT created_at, body FROM romancy_messages WHERE seq = ?

-- name: drop_delivery
-- Delete the delivery of a message that an instance has read.
DELETE FROM romancy_deliveries WHERE instance_id = ? AND channel = ? AND seq = ?

-- name: drop_messages
-- Delete those of the given messages that no instance has left to read.
DELETE FROM romancy_messages AS m
WHERE m.seq = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)::bigint)) AND NOT EXISTS (
    SELECT 1 FROM romancy_deliveries AS d WHERE d.seq = m.seq)

-- name: status_of
-- The status of an instance, and whether it has ended: then it cannot receive anything.
SELECT status, ended_at IS NOT NULL FROM romancy_instances WHERE id = ?

-- name: join_group
-- Add an instance to a group.
INSERT INTO romancy_group_members (name, instance_id, since) VALUES (?, ?, ?) ON CONFLICT (name, instance_id) DO NOTHING

-- name: leave_group
-- Remove an instance from a group.
DELETE FROM romancy_group_members WHERE name = ? AND instance_id = ?

-- name: members_of
-- The members of a group, in the order in which they joined.
SELECT instance_id FROM romancy_group_members WHERE name = ? ORDER BY since, instance_id

-- name: unread_of
-- The messages that the given instances have not read.
SELECT DISTINCT seq FROM romancy_deliveries WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: save_memberships
-- Save the channels and groups of an instance that fails, in case it is retried.
UPDATE romancy_payloads SET memberships = json_build_object(
    'channels', (
        SELECT coalesce(json_agg(json_build_array(channel, mode)), '[]') FROM romancy_subscriptions
        WHERE instance_id = :id),
    'groups', (SELECT coalesce(json_agg(name), '[]') FROM romancy_group_members WHERE instance_id = :id))::text
WHERE instance_id = :id AND generation = :generation

-- name: memberships
-- The channels and groups that an instance had when it failed.
SELECT memberships FROM romancy_payloads WHERE instance_id = ? AND generation = ?

-- name: clear_deliveries
-- Delete the unread messages of instances that ended.
DELETE FROM romancy_deliveries WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: clear_subscriptions
-- Delete the subscriptions of instances that ended.
DELETE FROM romancy_subscriptions WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: clear_members
-- Delete the group memberships of instances that ended.
DELETE FROM romancy_group_members WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: prune_consumed_by_instance
-- Delete what deleted instances have consumed. (Before, an instance may be retried, and must not consume an event again.)
DELETE FROM romancy_consumed_events WHERE instance_id = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)))

-- name: old_events
-- Events that were accepted before a time, oldest first.
SELECT seq FROM romancy_events WHERE accepted_at < ? ORDER BY accepted_at LIMIT ?

-- name: prune_events
-- Delete old events.
DELETE FROM romancy_events WHERE seq = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)::bigint))

-- name: prune_consumed_by_event
-- Delete the records of which instances have consumed old events.
DELETE FROM romancy_consumed_events WHERE seq = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)::bigint))

-- name: old_messages
-- Pooled messages that were sent before a time and that no instance has read, oldest first.
SELECT seq FROM romancy_messages WHERE pooled = 1 AND created_at < ? ORDER BY created_at LIMIT ?

-- name: prune_messages
-- Delete old messages.
DELETE FROM romancy_messages WHERE seq = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb)::bigint))

-- name: begin_generation
-- Insert the input of a new generation.
INSERT INTO romancy_payloads (instance_id, generation, input, begun_at) VALUES (?, ?, ?, ?)

-- name: forget_payload
-- Delete the payloads of a generation that is not retained.
DELETE FROM romancy_payloads WHERE instance_id = ? AND generation = ?

-- name: forget_history
-- Delete the history of a generation that is not retained.
DELETE FROM romancy_history WHERE instance_id = ? AND generation = ?

-- name: forget_waits
-- Delete the waits of a generation that ends.
DELETE FROM romancy_waits WHERE instance_id = ?
