-- Events, channels and groups. Always in a transaction that holds the write lock: an instance that finds nothing and
-- registers a wait, and a sender that stores something and wakes the waiting instances, cannot miss each other.

-- name: accept_event
-- Append an event to the log, unless its source and id are known. Its time is never before that of the event before it.
INSERT OR IGNORE INTO romancy_events (source, id, type, subject, target, accepted_at, body)
VALUES (:source, :id, :type, :subject, :target, max(:now, coalesce((
    SELECT accepted_at FROM romancy_events WHERE seq = (SELECT max(seq) FROM romancy_events)), 0)), :body)

-- name: handler_of
-- The version of the workflow that an event of this type starts.
SELECT version FROM romancy_handlers WHERE workflow = ?

-- name: save_handler
-- Record that a workflow handles events of its name.
INSERT OR REPLACE INTO romancy_handlers (workflow, version, saved_at) VALUES (?, ?, ?)

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
UPDATE romancy_waits SET matched_seq = coalesce(matched_seq, :seq) WHERE (instance_id, op) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:waits))

-- name: wake
-- Wake instances for which something has arrived. Paused and blocked ones find it when they resume.
UPDATE romancy_instances SET
    inbox_version = inbox_version + 1,
    wake_at = CASE WHEN owner IS NULL AND status NOT IN ('paused', 'blocked') THEN :now ELSE wake_at END
WHERE id IN (SELECT value FROM json_each(:ids)) AND ended_at IS NULL

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
SELECT max(created_at_event_seq, coalesce((
    SELECT max(seq) FROM romancy_consumed_events WHERE instance_id = :id AND selector = :selector), 0))
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
WHERE target = :id AND target IS NOT NULL AND type = :type AND seq > :after AND (:subject IS NULL OR subject = :subject)
    AND (:before IS NULL OR accepted_at < :before)
    AND NOT EXISTS (SELECT 1 FROM romancy_consumed_events AS t WHERE t.instance_id = :id AND t.seq = e.seq)
ORDER BY seq LIMIT :limit

-- name: consume_event
-- Record that an instance has consumed an event.
INSERT INTO romancy_consumed_events (instance_id, seq, selector) VALUES (?, ?, ?)

-- name: mark_event_consumed
-- Mark an event that was addressed to the instance as consumed.
UPDATE romancy_events SET consumed = 1 WHERE seq = ? AND target = ?

-- name: put_wait
-- Register a wait, or replace it.
INSERT OR REPLACE INTO romancy_waits (instance_id, op, kind, since, due, key, subject, "match", site, matched_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_wait
-- Delete a wait.
DELETE FROM romancy_waits WHERE instance_id = ? AND op = ?

-- name: withdrawn_calls
-- The channels whose messages have matched these waits, which are withdrawn.
SELECT json_group_array(DISTINCT key) FROM romancy_waits
WHERE instance_id = ? AND op IN (SELECT value FROM json_each(?)) AND matched_seq IS NOT NULL AND kind = 'message'

-- name: matched_channels
-- The channels whose pooled messages have woken these instances and have not been read by them.
SELECT json_group_array(DISTINCT w.key) FROM romancy_waits AS w
JOIN romancy_subscriptions AS s ON s.channel = w.key AND s.instance_id = w.instance_id AND s.mode = 'competing'
WHERE w.instance_id IN (SELECT value FROM json_each(:ids)) AND w.matched_seq IS NOT NULL AND w.kind = 'message'

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
SELECT json_group_array(seq) FROM romancy_deliveries WHERE instance_id = ? AND channel = ?

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
SELECT json_group_array(json_array(w.instance_id, w.op)) FROM romancy_deliveries AS d
JOIN romancy_waits AS w ON w.instance_id = d.instance_id AND w.key = d.channel AND w.kind = 'message'
WHERE d.seq = :seq AND (w.due IS NULL OR w.due > :now)

-- name: next_waiter
-- The wait for a pooled message of a channel that was registered first and is not matched: the index has them in that
-- order.
SELECT w.instance_id, w.op FROM romancy_waits AS w INDEXED BY romancy_waits_queue
CROSS JOIN romancy_subscriptions AS s ON s.channel = w.key AND s.instance_id = w.instance_id AND s.mode = 'competing'
CROSS JOIN romancy_instances AS i ON i.id = w.instance_id AND i.status NOT IN ('paused', 'blocked')
WHERE w.kind = 'message' AND w.matched_seq IS NULL AND w.key = :channel AND (w.due IS NULL OR w.due > :now)
    AND w.instance_id NOT IN (SELECT value FROM json_each(:without))
ORDER BY w.since, w.instance_id, w.op LIMIT 1

-- name: first_of_pool
-- The oldest pooled message of a channel.
SELECT seq FROM romancy_messages INDEXED BY romancy_messages_pool WHERE channel = ? AND pooled = 1 ORDER BY seq LIMIT 1

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
DELETE FROM romancy_messages WHERE seq IN (SELECT value FROM json_each(?)) AND NOT EXISTS (
    SELECT 1 FROM romancy_deliveries AS d WHERE d.seq = romancy_messages.seq)

-- name: status_of
-- The status of an instance, and whether it has ended: then it cannot receive anything.
SELECT status, ended_at IS NOT NULL FROM romancy_instances WHERE id = ?

-- name: join_group
-- Add an instance to a group.
INSERT OR IGNORE INTO romancy_group_members (name, instance_id, since) VALUES (?, ?, ?)

-- name: leave_group
-- Remove an instance from a group.
DELETE FROM romancy_group_members WHERE name = ? AND instance_id = ?

-- name: members_of
-- The members of a group, in the order in which they joined.
SELECT json_group_array(instance_id) FROM (
    SELECT instance_id FROM romancy_group_members WHERE name = ? ORDER BY since, instance_id)

-- name: unread_of
-- The messages that the given instances have not read.
SELECT json_group_array(DISTINCT seq) FROM romancy_deliveries WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: save_memberships
-- Save the channels and groups of an instance that fails, in case it is retried.
UPDATE romancy_payloads SET memberships = json_object(
    'channels', (SELECT json_group_array(json_array(channel, mode)) FROM romancy_subscriptions WHERE instance_id = :id),
    'groups', (SELECT json_group_array(name) FROM romancy_group_members WHERE instance_id = :id))
WHERE instance_id = :id AND generation = :generation

-- name: memberships
-- The channels and groups that an instance had when it failed.
SELECT memberships FROM romancy_payloads WHERE instance_id = ? AND generation = ?

-- name: clear_deliveries
-- Delete the unread messages of instances that ended.
DELETE FROM romancy_deliveries WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: clear_subscriptions
-- Delete the subscriptions of instances that ended.
DELETE FROM romancy_subscriptions WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: clear_members
-- Delete the group memberships of instances that ended.
DELETE FROM romancy_group_members WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: prune_consumed_by_instance
-- Delete what deleted instances have consumed. (Before, an instance may be retried, and must not consume an event again.)
DELETE FROM romancy_consumed_events WHERE instance_id IN (SELECT value FROM json_each(?))

-- name: old_events
-- Events that were accepted before a time, oldest first.
SELECT json_group_array(seq) FROM (
    SELECT seq FROM romancy_events WHERE accepted_at < ? ORDER BY accepted_at LIMIT ?)

-- name: prune_events
-- Delete old events.
DELETE FROM romancy_events WHERE seq IN (SELECT value FROM json_each(?))

-- name: prune_consumed_by_event
-- Delete the records of which instances have consumed old events.
DELETE FROM romancy_consumed_events WHERE seq IN (SELECT value FROM json_each(?))

-- name: old_messages
-- Pooled messages that were sent before a time and that no instance has read, oldest first.
SELECT json_group_array(seq) FROM (
    SELECT seq FROM romancy_messages WHERE pooled = 1 AND created_at < ? ORDER BY created_at LIMIT ?)

-- name: prune_messages
-- Delete old messages.
DELETE FROM romancy_messages WHERE seq IN (SELECT value FROM json_each(?))

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
