-- What instances say and hear. Always inside a transaction whose turn it is: whoever looks and then waits, and whoever
-- speaks and then calls those who wait, cannot miss each other.

-- name: accept_event
-- An event joins the log, unless its source and id are known. Its time is never before its predecessor's.
INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)
SELECT :source, :id, :type, :subject, :target, greatest(:now, coalesce((
    SELECT accepted_at FROM romancy_events ORDER BY seq DESC LIMIT 1), 0)), :body FROM dual
WHERE NOT EXISTS (SELECT 1 FROM romancy_events AS e WHERE e.source = :source AND e.id = :id)

-- name: accept_events
-- Many events (source, id, type, subject, target, body) join the log, those whose source and id are not known: each of them,
-- and then who waits for it.
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
-- Something has come for these waits, to each its own, and their instances learn of it.
<<waits ;: UPDATE romancy_waits SET matched_seq = coalesce(matched_seq, ?3) WHERE instance_id = ?1 AND op = ?2>>;
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now ELSE wake_at END
WHERE id IN (<<ids>>) AND ended_at IS NULL

-- name: find_events
-- For each who asks (place, instance, operation, type, subject, deadline, wish): whether something else has come for it, and
-- the oldest event that it may have.
<<? UNION ALL: (SELECT
    ?1,
    EXISTS (SELECT 1 FROM romancy_inbox WHERE instance_id = ?2) OR EXISTS (
        SELECT 1 FROM romancy_waits WHERE instance_id = ?2 AND matched_seq IS NOT NULL AND op <> ?3),
    e.seq, e.accepted_at, e.body, e.target IS NOT NULL
FROM romancy_instances AS i LEFT JOIN romancy_events AS e ON e.seq = (SELECT min(three.seq) FROM (
    (SELECT o.seq FROM romancy_events AS o
    WHERE ?5 IS NULL AND o.target IS NULL AND o.type = ?4 AND (?6 IS NULL OR o.accepted_at < ?6)
        AND o.seq > coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = ?2 AND op = ?3), (
            SELECT greatest(max(b.created_at_event_seq), coalesce(max(t.seq), 0)) FROM romancy_instances AS b LEFT JOIN romancy_consumed_events AS t
                ON t.instance_id = b.id AND t.selector = unhex(sha2(?7, 256)) WHERE b.id = ?2))
        AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = ?2 AND t.seq = o.seq)
    ORDER BY o.seq LIMIT 1)
    UNION ALL
    (SELECT o.seq FROM romancy_events AS o
    WHERE o.target IS NULL AND o.type = ?4 AND o.subject = ?5 AND (?6 IS NULL OR o.accepted_at < ?6)
        AND o.seq > coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = ?2 AND op = ?3), (
            SELECT greatest(max(b.created_at_event_seq), coalesce(max(t.seq), 0)) FROM romancy_instances AS b LEFT JOIN romancy_consumed_events AS t
                ON t.instance_id = b.id AND t.selector = unhex(sha2(?7, 256)) WHERE b.id = ?2))
        AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = ?2 AND t.seq = o.seq)
    ORDER BY o.seq LIMIT 1)
    UNION ALL
    (SELECT o.seq FROM romancy_events AS o
    WHERE o.target = ?2 AND o.type = ?4 AND (?5 IS NULL OR o.subject = ?5) AND (?6 IS NULL OR o.accepted_at < ?6)
        AND o.seq > coalesce(
            (SELECT matched_seq - 1 FROM romancy_waits WHERE instance_id = ?2 AND op = ?3), (
            SELECT greatest(max(b.created_at_event_seq), coalesce(max(t.seq), 0)) FROM romancy_instances AS b LEFT JOIN romancy_consumed_events AS t
                ON t.instance_id = b.id AND t.selector = unhex(sha2(?7, 256)) WHERE b.id = ?2))
        AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = ?2 AND t.seq = o.seq)
    ORDER BY o.seq LIMIT 1)) AS three)
WHERE i.id = ?2)>>

-- name: handler_of
-- The workflow that an event of this type starts.
SELECT version FROM romancy_handlers WHERE workflow = ?

-- name: save_handler
-- A workflow handles events of its name from now on.
REPLACE INTO romancy_handlers (workflow, version, saved_at) VALUES (?, ?, ?)

-- name: drop_handler
-- This version of a workflow does not handle events any more.
DELETE FROM romancy_handlers WHERE workflow = ? AND version = ?

-- name: accepted_at
-- When an event was accepted.
SELECT accepted_at FROM romancy_events WHERE seq = ?

-- name: waits_for_event
-- Who waits for such an event, whatever its subject, or for this subject; not those whose time was over when it came.
-- And whether something has come for that wait before.
SELECT instance_id, op, `match`, matched_seq IS NOT NULL FROM romancy_waits
WHERE kind = 'event' AND `key` = :type AND `key` <> '' AND subject IS NULL AND (due IS NULL OR due > :at)
UNION ALL
SELECT instance_id, op, `match`, matched_seq IS NOT NULL FROM romancy_waits
WHERE kind = 'event' AND `key` = :type AND `key` <> '' AND subject = :subject AND (due IS NULL OR due > :at)

-- name: waits_of_target
-- The same of the one instance it is addressed to.
SELECT instance_id, op, `match`, matched_seq IS NOT NULL FROM romancy_waits
WHERE instance_id = :target AND kind = 'event' AND `key` = :type AND (subject IS NULL OR subject = :subject)
    AND (due IS NULL OR due > :at)

-- name: match_waits
-- Something has come for these waits.
UPDATE romancy_waits SET matched_seq = coalesce(matched_seq, :seq) WHERE <<waits: instance_id = ?1 AND op = ?2>>

-- name: wake
-- Something has arrived for these instances. Paused and blocked ones learn of it when they go on.
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now ELSE wake_at END
WHERE id IN (<<ids>>) AND ended_at IS NULL

-- name: bump_inbox_version
-- Something lies there for an instance that does not wait for it: nothing to wake it for, but its end has to clear it.
UPDATE romancy_instances SET inbox_version = inbox_version + 1 WHERE id = ? AND ended_at IS NULL

-- name: own_waits
-- An instance's own waits for messages of a channel.
SELECT instance_id, op FROM romancy_waits WHERE instance_id = ? AND kind = 'message' AND `key` = ?

-- name: matched_seq_of
-- Where a wait that was met goes on looking.
SELECT matched_seq FROM romancy_waits WHERE instance_id = ? AND op = ?

-- name: has_unread
-- Something lies there for an instance that it has not looked at.
SELECT EXISTS (SELECT 1 FROM romancy_inbox WHERE instance_id = :id)
    OR EXISTS (SELECT 1 FROM romancy_waits WHERE instance_id = :id AND matched_seq IS NOT NULL)

-- name: search_start
-- Before this nothing is left for a wish: how far the log had come when the instance was created, or what it took last.
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
-- The same of one subject.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target IS NULL AND type = :type AND subject = :subject AND subject IS NOT NULL AND seq > :after
    AND (:before IS NULL OR accepted_at < :before)
    AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq = e.seq)
ORDER BY seq LIMIT :limit

-- name: events_for_one
-- The same of those addressed to the instance.
SELECT seq, accepted_at, body FROM romancy_events AS e
WHERE target = :id AND target IS NOT NULL AND type = :type AND seq > :after
    AND (:subject IS NULL OR subject = :subject)
    AND (:before IS NULL OR accepted_at < :before)
    AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq = e.seq)
ORDER BY seq LIMIT :limit

-- name: consume_event
-- An instance consumes an event.
INSERT INTO romancy_consumed_events (instance_id, seq, selector) VALUES (?, ?, unhex(sha2(?, 256)))

-- name: mark_event_consumed
-- An event that was addressed to the instance has been delivered.
UPDATE romancy_events SET consumed = 1 WHERE seq = ? AND target = ?

-- name: put_wait
-- A wait begins, or goes on.
REPLACE INTO romancy_waits (instance_id, op, kind, since, due, `key`, subject, `match`, site, matched_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_wait
-- A wait is over.
DELETE FROM romancy_waits WHERE instance_id = ? AND op = ?

-- name: withdrawn_calls
-- The channels for which waits that are given up were called.
SELECT DISTINCT `key` FROM romancy_waits
WHERE instance_id = ? AND op IN (<<?>>) AND matched_seq IS NOT NULL
    AND kind = 'message'

-- name: matched_channels
-- The channels for whose pools these instances have been called, and have not looked.
SELECT DISTINCT w.`key` FROM romancy_waits AS w
JOIN romancy_subscriptions AS s ON s.channel = w.`key` AND s.instance_id = w.instance_id AND s.mode = 'competing'
WHERE w.instance_id IN (<<ids>>) AND w.matched_seq IS NOT NULL
    AND w.kind = 'message'

-- name: mode_of
-- How a channel hands out its messages, as long as it has subscribers. Direct ones do not matter for that.
SELECT mode FROM romancy_subscriptions WHERE channel = ? AND mode <> 'direct' LIMIT 1

-- name: subscription
-- An instance's own subscription.
SELECT mode FROM romancy_subscriptions WHERE channel = ? AND instance_id = ?

-- name: subscribe
-- An instance subscribes.
INSERT INTO romancy_subscriptions (channel, instance_id, mode, since) VALUES (?, ?, ?, ?)

-- name: unsubscribe
-- An instance does not want any more from a channel ...
DELETE FROM romancy_subscriptions WHERE channel = ? AND instance_id = ?

-- name: unsubscribed_messages
-- ... and what it has not read is not for it any more.
SELECT seq FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

-- name: drop_deliveries_of
-- Unread messages of one channel.
DELETE FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

-- name: add_message
-- A message.
INSERT INTO romancy_messages (channel, pooled, created_at, body) VALUES (?, ?, ?, ?)

-- name: deliver_to_subscribers
-- A message for everybody who has subscribed.
INSERT INTO romancy_deliveries (instance_id, channel, seq)
SELECT instance_id, channel, :seq FROM romancy_subscriptions WHERE channel = :channel AND mode = 'broadcast'

-- name: deliver_to_members
-- A message for every member of a group.
INSERT INTO romancy_deliveries (instance_id, channel, seq)
SELECT instance_id, :channel, :seq FROM romancy_group_members WHERE name = :group

-- name: deliver
-- A message for one instance.
INSERT INTO romancy_deliveries (instance_id, channel, seq) VALUES (?, ?, ?)

-- name: waits_for_message
-- Which of a message's recipients wait for it; not those whose time is over.
SELECT w.instance_id, w.op FROM romancy_deliveries AS d
JOIN romancy_waits AS w ON w.instance_id = d.instance_id AND w.`key` = d.channel AND w.kind = 'message'
WHERE d.seq = :seq AND (w.due IS NULL OR w.due > :now)

-- name: next_waiter
-- Who has waited longest for a message of a channel's pool and has not been called: the index has them in that order.
SELECT w.instance_id, w.op FROM romancy_waits AS w
JOIN romancy_subscriptions AS s ON s.channel = w.`key` AND s.instance_id = w.instance_id AND s.mode = 'competing'
JOIN romancy_instances AS i ON i.id = w.instance_id AND i.status NOT IN ('paused', 'blocked')
WHERE w.queue_channel = :channel AND (w.due IS NULL OR w.due > :now) AND coalesce(w.instance_id IN (<<without>>), 0) = 0
ORDER BY w.queue_channel, w.since, w.instance_id, w.op LIMIT 1

-- name: first_of_pool
-- The oldest message that is for whoever takes it.
SELECT seq FROM romancy_messages WHERE channel = ? AND pooled = 1 ORDER BY channel, seq LIMIT 1

-- name: first_delivery
-- The oldest message an instance has not read.
SELECT min(seq) FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

-- name: message
-- One message.
SELECT created_at, body FROM romancy_messages WHERE seq = ?

-- name: drop_delivery
-- An instance has read a message.
DELETE FROM romancy_deliveries WHERE instance_id = ? AND channel = ? AND seq = ?

-- name: drop_messages
-- Messages that nobody has to read any more.
DELETE FROM romancy_messages WHERE seq IN (<<?>>) AND NOT EXISTS (
    SELECT 1 FROM romancy_deliveries AS d WHERE d.seq = romancy_messages.seq)

-- name: status_of
-- Whether an instance can still get something.
SELECT status, ended_at IS NOT NULL FROM romancy_instances WHERE id = ?

-- name: join_group
-- An instance joins a group.
INSERT INTO romancy_group_members (name, instance_id, since) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE since = since

-- name: leave_group
-- An instance leaves a group.
DELETE FROM romancy_group_members WHERE name = ? AND instance_id = ?

-- name: members_of
-- Who is in a group, in the order they joined.
SELECT instance_id FROM romancy_group_members WHERE name = ? ORDER BY since, instance_id

-- name: unread_of
-- Messages that instances have not read.
SELECT DISTINCT seq FROM romancy_deliveries WHERE instance_id IN (<<?>>)

-- name: save_memberships
-- An instance fails: what it belongs to is noted, in case it is retried.
UPDATE romancy_payloads SET memberships = concat(
    '{"channels":[', coalesce((
        SELECT group_concat(
            '[', json_quote(convert(channel USING utf8mb4)), ',', json_quote(convert(mode USING utf8mb4)), ']')
        FROM romancy_subscriptions WHERE instance_id = :id), ''),
    '],"groups":[', coalesce((
        SELECT group_concat(json_quote(convert(name USING utf8mb4))) FROM romancy_group_members WHERE instance_id = :id), ''),
    ']}')
WHERE instance_id = :id AND generation = :generation

-- name: memberships
-- What an instance belonged to when it failed.
SELECT memberships FROM romancy_payloads WHERE instance_id = ? AND generation = ?

-- name: clear_deliveries
-- Instances that ended read nothing,
DELETE FROM romancy_deliveries WHERE instance_id IN (<<?>>)

-- name: clear_subscriptions
-- have subscribed to nothing,
DELETE FROM romancy_subscriptions WHERE instance_id IN (<<?>>)

-- name: clear_members
-- and are in no group.
DELETE FROM romancy_group_members WHERE instance_id IN (<<?>>)

-- name: prune_consumed_by_instance
-- What deleted instances had consumed. (While one is there it may be retried, and must not consume it again.)
DELETE FROM romancy_consumed_events WHERE instance_id IN (<<?>>)

-- name: old_events
-- So many events that were accepted before a time, the oldest first.
SELECT seq FROM romancy_events WHERE accepted_at < ? ORDER BY accepted_at LIMIT ?

-- name: prune_events
-- Old events go ...
DELETE FROM romancy_events WHERE seq IN (<<?>>)

-- name: prune_consumed_by_event
-- ... and what is noted of them.
DELETE FROM romancy_consumed_events WHERE seq IN (<<?>>)

-- name: old_messages
-- So many messages that nobody has taken since a time, the oldest first.
SELECT seq FROM romancy_messages WHERE pooled = 1 AND created_at < ? ORDER BY created_at LIMIT ?

-- name: prune_messages
-- Messages that nobody took go.
DELETE FROM romancy_messages WHERE seq IN (<<?>>)

-- name: begin_generation
-- An instance goes on with new input.
INSERT INTO romancy_payloads (instance_id, generation, input, begun_at) VALUES (?, ?, ?, ?)

-- name: forget_payload
-- A generation that is not kept: its input,
DELETE FROM romancy_payloads WHERE instance_id = ? AND generation = ?

-- name: forget_history
-- its history
DELETE FROM romancy_history WHERE instance_id = ? AND generation = ?

-- name: forget_waits
-- A generation ends: what it waited for, nobody waits for.
DELETE FROM romancy_waits WHERE instance_id = ?
