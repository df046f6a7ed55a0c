-- Events, channels and groups. Always in a transaction that holds the messaging lock: an instance that finds nothing and
-- registers a wait, and a sender that stores something and wakes the waiting instances, cannot miss each other.

-- name: accept_event
-- Append an event to the log, unless its source and id are known. Its time is never before that of the event before it.
INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)
SELECT :source, :id, :type, :subject, :target, greatest(:now, coalesce((
    SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1), 0)), :body FROM dual
WHERE NOT EXISTS (SELECT 1 FROM romancy_events AS e WHERE e.source = :source AND e.id = :id)

-- name: accept_events
-- Append those of many events (source, id, type, subject, target, body) to the log whose source and id are not known.
-- Returns each of them, and then the waits for it.
SET @at = greatest(:now, coalesce((SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1), 0)),
    @last = coalesce((SELECT max(seq) FROM romancy_events), 0);
INSERT INTO romancy_events (source, id, type, subject, target, body, accepted_at)
VALUES <<events ,: (?1, ?2, ?3, ?4, ?5, ?6, @at)>>
ON DUPLICATE KEY UPDATE consumed = consumed;
SELECT seq, source, id, NULL, NULL, NULL, 0, 0 FROM romancy_events WHERE seq > @last
UNION ALL
SELECT e.seq, NULL, NULL, w.instance_id, w.op, w.`match`, 0, w.matched_seq IS NOT NULL
FROM romancy_events AS e STRAIGHT_JOIN romancy_waits AS w ON w.kind = 'event' AND w.`key` = e.type
WHERE e.seq > @last AND e.target IS NULL AND w.`key` <> '' AND w.subject IS NULL AND (w.due IS NULL OR w.due > @at)
UNION ALL
SELECT e.seq, NULL, NULL, w.instance_id, w.op, w.`match`, 0, w.matched_seq IS NOT NULL
FROM romancy_events AS e STRAIGHT_JOIN romancy_waits AS w ON w.kind = 'event' AND w.`key` = e.type AND w.subject = e.subject
WHERE e.seq > @last AND e.target IS NULL AND w.`key` <> '' AND (w.due IS NULL OR w.due > @at)
UNION ALL
SELECT e.seq, NULL, NULL, w.instance_id, w.op, w.`match`, 0, w.matched_seq IS NOT NULL
FROM romancy_events AS e STRAIGHT_JOIN romancy_waits AS w ON w.instance_id = e.target AND w.kind = 'event'
WHERE e.seq > @last AND w.`key` = e.type AND (w.subject IS NULL OR w.subject = e.subject) AND (w.due IS NULL OR w.due > @at)

-- name: handled_types
-- Those of the given types that start workflows.
SELECT workflow FROM romancy_handlers WHERE workflow IN (<<?>>)

-- name: match_and_wake
-- Mark waits as matched, each with its own event, and wake their instances.
<<waits ;: UPDATE romancy_waits SET matched_seq = coalesce(matched_seq, ?3) WHERE instance_id = ?1 AND op = ?2>>;
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now ELSE wake_at END
WHERE id IN (<<ids>>) AND ended_at IS NULL

-- name: find_events
-- For each wait (index, instance, operation, type, subject, deadline, selector): whether something else has arrived for its
-- instance, and the oldest event that matches.
<<? UNION ALL: (SELECT
    ?1,
    EXISTS (SELECT 1 FROM romancy_inbox WHERE instance_id = ?2) OR EXISTS (
        SELECT 1 FROM romancy_waits WHERE instance_id = ?2 AND matched_seq IS NOT NULL AND op <> ?3),
    e.seq, e.accepted_at, e.body, e.target IS NOT NULL
FROM romancy_instances AS i LEFT JOIN romancy_events AS e ON e.seq = (SELECT min(candidates.seq) FROM (
    (SELECT o.seq FROM romancy_events AS o
    WHERE ?5 IS NULL AND o.target IS NULL AND o.type = ?4 AND (?6 IS NULL OR o.accepted_at < ?6)
        AND o.seq > coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = ?2 AND op = ?3), (
            SELECT greatest(max(b.created_at_event_seq), coalesce(max(t.seq), 0))
            FROM romancy_instances AS b LEFT JOIN romancy_consumed_events AS t
                ON t.instance_id = b.id AND t.selector = unhex(sha2(?7, 256)) WHERE b.id = ?2))
        AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = ?2 AND t.seq = o.seq)
    ORDER BY o.seq LIMIT 1)
    UNION ALL
    (SELECT o.seq FROM romancy_events AS o
    WHERE o.target IS NULL AND o.type = ?4 AND o.subject = ?5 AND (?6 IS NULL OR o.accepted_at < ?6)
        AND o.seq > coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = ?2 AND op = ?3), (
            SELECT greatest(max(b.created_at_event_seq), coalesce(max(t.seq), 0))
            FROM romancy_instances AS b LEFT JOIN romancy_consumed_events AS t
                ON t.instance_id = b.id AND t.selector = unhex(sha2(?7, 256)) WHERE b.id = ?2))
        AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = ?2 AND t.seq = o.seq)
    ORDER BY o.seq LIMIT 1)
    UNION ALL
    (SELECT o.seq FROM romancy_events AS o
    WHERE o.target = ?2 AND o.type = ?4 AND (?5 IS NULL OR o.subject = ?5) AND (?6 IS NULL OR o.accepted_at < ?6)
        AND o.seq > coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = ?2 AND op = ?3), (
            SELECT greatest(max(b.created_at_event_seq), coalesce(max(t.seq), 0))
            FROM romancy_instances AS b LEFT JOIN romancy_consumed_events AS t
                ON t.instance_id = b.id AND t.selector = unhex(sha2(?7, 256)) WHERE b.id = ?2))
        AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = ?2 AND t.seq = o.seq)
    ORDER BY o.seq LIMIT 1)) AS candidates)
WHERE i.id = ?2)>>

-- name: handler_of
-- The version of the workflow that an event of this type starts.
SELECT version FROM romancy_handlers WHERE workflow = ?

-- name: save_handler
-- Record that a workflow handles events of its name.
REPLACE INTO romancy_handlers (workflow, version, saved_at) VALUES (?, ?, ?)

-- name: drop_handler
-- Record that this version of a workflow does not handle events any more.
DELETE FROM romancy_handlers WHERE workflow = ? AND version = ?

-- name: accepted_at
-- When an event was accepted.
SELECT accepted_at FROM romancy_events WHERE seq = ?

-- name: waits_for_event
-- Waits for such an event, with any subject or with this one, whose deadline had not passed when it came; and whether an
-- event has matched each before.
SELECT instance_id, op, `match`, matched_seq IS NOT NULL FROM romancy_waits
WHERE kind = 'event' AND `key` = :type AND `key` <> '' AND subject IS NULL AND (due IS NULL OR due > :at)
UNION ALL
SELECT instance_id, op, `match`, matched_seq IS NOT NULL FROM romancy_waits
WHERE kind = 'event' AND `key` = :type AND `key` <> '' AND subject = :subject AND (due IS NULL OR due > :at)

-- name: waits_of_target
-- Like waits_for_event, for the one instance that the event is addressed to.
SELECT instance_id, op, `match`, matched_seq IS NOT NULL FROM romancy_waits
WHERE instance_id = :target AND kind = 'event' AND `key` = :type AND (subject IS NULL OR subject = :subject)
    AND (due IS NULL OR due > :at)

-- name: match_waits
-- Mark waits as matched.
UPDATE romancy_waits SET matched_seq = coalesce(matched_seq, :seq) WHERE <<waits: instance_id = ?1 AND op = ?2>>

-- name: wake
-- Wake instances for which something has arrived. Paused and blocked ones find it when they resume.
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now ELSE wake_at END
WHERE id IN (<<ids>>) AND ended_at IS NULL

-- name: bump_inbox_version
-- Count an arrival for an instance that does not wait for it: it is not woken, but its end has to clear the arrival.
UPDATE romancy_instances SET inbox_version = inbox_version + 1 WHERE id = ? AND ended_at IS NULL

-- name: own_waits
-- An instance's own waits for messages of a channel.
SELECT instance_id, op FROM romancy_waits WHERE instance_id = ? AND kind = 'message' AND `key` = ?

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
SELECT greatest(created_at_event_seq, coalesce((
    SELECT max(seq) FROM romancy_consumed_events WHERE instance_id = :id AND selector = unhex(sha2(:selector, 256))), 0))
FROM romancy_instances WHERE id = :id

-- name: events_for_all
-- Events of a type that an instance has not consumed, oldest first.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target IS NULL AND type = :type AND seq > :after AND (:before IS NULL OR accepted_at < :before)
    AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq = e.seq)
ORDER BY seq LIMIT :limit

-- name: events_of_subject
-- Like events_for_all, for one subject.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target IS NULL AND type = :type AND subject = :subject AND subject IS NOT NULL AND seq > :after
    AND (:before IS NULL OR accepted_at < :before)
    AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq = e.seq)
ORDER BY seq LIMIT :limit

-- name: events_for_one
-- Like events_for_all, for events addressed to the instance.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target = :id AND target IS NOT NULL AND type = :type AND seq > :after
    AND (:subject IS NULL OR subject = :subject)
    AND (:before IS NULL OR accepted_at < :before)
    AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq = e.seq)
ORDER BY seq LIMIT :limit

-- name: consume_event
-- Record that an instance has consumed an event.
INSERT INTO romancy_consumed_events (instance_id, seq, selector) VALUES (?, ?, unhex(sha2(?, 256)))

-- name: mark_event_consumed
-- Mark an event that was addressed to the instance as consumed.
UPDATE romancy_events SET consumed = 1 WHERE seq = ? AND target = ?

-- name: put_wait
-- Register a wait, or replace it.
REPLACE INTO romancy_waits (instance_id, op, kind, since, due, `key`, subject, `match`, site, matched_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_wait
-- Delete a wait.
DELETE FROM romancy_waits WHERE instance_id = ? AND op = ?

-- name: withdrawn_calls
-- The channels whose messages have matched these waits, which are withdrawn.
SELECT DISTINCT `key` FROM romancy_waits
WHERE instance_id = ? AND op IN (<<?>>) AND matched_seq IS NOT NULL
    AND kind = 'message'

-- name: matched_channels
-- The channels whose pooled messages have woken these instances and have not been read by them.
SELECT DISTINCT w.`key` FROM romancy_waits AS w
JOIN romancy_subscriptions AS s ON s.channel = w.`key` AND s.instance_id = w.instance_id AND s.mode = 'competing'
WHERE w.instance_id IN (<<ids>>) AND w.matched_seq IS NOT NULL
    AND w.kind = 'message'

-- name: mode_of
-- The mode of a channel that has subscribers. Direct subscriptions do not count.
SELECT mode FROM romancy_subscriptions WHERE channel = ? AND mode <> 'direct' LIMIT 1

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
INSERT INTO romancy_messages (channel, pooled, created_at, body) VALUES (?, ?, ?, ?)

-- name: deliver_to_subscribers
-- Deliver a message to every subscriber of a broadcast channel.
INSERT INTO romancy_deliveries (instance_id, channel, seq)
SELECT instance_id, channel, :seq FROM romancy_subscriptions WHERE channel = :channel AND mode = 'broadcast'

-- name: deliver_to_members
-- Deliver a message to every member of a group.
INSERT INTO romancy_deliveries (instance_id, channel, seq)
SELECT instance_id, :channel, :seq FROM romancy_group_members WHERE name = :group

-- name: deliver
-- Deliver a message to one instance.
INSERT INTO romancy_deliveries (instance_id, channel, seq) VALUES (?, ?, ?)

-- name: waits_for_message
-- The waits of a message's recipients whose deadline has not passed.
SELECT w.instance_id, w.op FROM romancy_deliveries AS d
JOIN romancy_waits AS w ON w.instance_id = d.instance_id AND w.`key` = d.channel AND w.kind = 'message'
WHERE d.seq = :seq AND (w.due IS NULL OR w.due > :now)

-- name: next_waiter
-- The wait for a pooled message of a channel that was registered first and is not matched: the index has them in that
-- order.
SELECT w.instance_id, w.op FROM romancy_waits AS w
JOIN romancy_subscriptions AS s ON s.channel = w.`key` AND s.instance_id = w.instance_id AND s.mode = 'competing'
JOIN romancy_instances AS i ON i.id = w.instance_id AND i.status NOT IN ('paused', 'blocked')
WHERE w.queue_channel = :channel AND (w.due IS NULL OR w.due > :now) AND coalesce(w.instance_id IN (<<without>>), 0) = 0
ORDER BY w.queue_channel, w.since, w.instance_id, w.op LIMIT 1

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
DELETE FROM romancy_messages WHERE seq IN (<<?>>) AND NOT EXISTS (
    SELECT 1 FROM romancy_deliveries AS d WHERE d.seq = romancy_messages.seq)

-- name: status_of
-- The status of an instance, and whether it has ended: then it cannot receive anything.
SELECT status, ended_at IS NOT NULL FROM romancy_instances WHERE id = ?

-- name: join_group
-- Add an instance to a group.
INSERT INTO romancy_group_members (name, instance_id, since) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE since = since

-- name: leave_group
-- Remove an instance from a group.
DELETE FROM romancy_group_members WHERE name = ? AND instance_id = ?

-- name: members_of
-- The members of a group, in the order in which they joined.
SELECT instance_id FROM romancy_group_members WHERE name = ? ORDER BY since, instance_id

-- name: unread_of
-- The messages that the given instances have not read.
SELECT DISTINCT seq FROM romancy_deliveries WHERE instance_id IN (<<?>>)

-- name: save_memberships
-- Save the channels and groups of an instance that fails, in case it is retried.
UPDATE romancy_payloads SET memberships = concat(
    '{"channels":[', coalesce((
        SELECT group_concat(
            '[', json_quote(convert(channel USING utf8mb4)), ',', json_quote(convert(mode USING utf8mb4)), ']')
        FROM romancy_subscriptions WHERE instance_id = :id), ''),
    '],"groups":[', coalesce((
        SELECT group_concat(json_quote(convert(name USING utf8mb4)))
        FROM romancy_group_members WHERE instance_id = :id), ''),
    ']}')
WHERE instance_id = :id AND generation = :generation

-- name: memberships
-- The channels and groups that an instance had when it failed.
SELECT memberships FROM romancy_payloads WHERE instance_id = ? AND generation = ?

-- name: clear_deliveries
-- Delete the unread messages of instances that ended.
DELETE FROM romancy_deliveries WHERE instance_id IN (<<?>>)

-- name: clear_subscriptions
-- Delete the subscriptions of instances that ended.
DELETE FROM romancy_subscriptions WHERE instance_id IN (<<?>>)

-- name: clear_members
-- Delete the group memberships of instances that ended.
DELETE FROM romancy_group_members WHERE instance_id IN (<<?>>)

-- name: prune_consumed_by_instance
-- Delete what deleted instances have consumed. (Before, an instance may be retried, and must not consume an event again.)
DELETE FROM romancy_consumed_events WHERE instance_id IN (<<?>>)

-- name: old_events
-- Events that were accepted before a time, oldest first.
SELECT seq FROM romancy_events WHERE accepted_at < ? ORDER BY accepted_at LIMIT ?

-- name: prune_events
-- Delete old events.
DELETE FROM romancy_events WHERE seq IN (<<?>>)

-- name: prune_consumed_by_event
-- Delete the records of which instances have consumed old events.
DELETE FROM romancy_consumed_events WHERE seq IN (<<?>>)

-- name: old_messages
-- Pooled messages that were sent before a time and that no instance has read, oldest first.
SELECT seq FROM romancy_messages WHERE pooled = 1 AND created_at < ? ORDER BY created_at LIMIT ?

-- name: prune_messages
-- Delete old messages.
DELETE FROM romancy_messages WHERE seq IN (<<?>>)

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
