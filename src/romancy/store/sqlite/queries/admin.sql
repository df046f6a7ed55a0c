-- Queries and records of operators. No statement here counts or sorts a whole table: where there may be many rows, a limit
-- bounds how many are read.

-- name: scan_all
-- Instances between two keys, newest first, without their payloads.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i INDEXED BY romancy_instances_created
WHERE (i.created_at, i.id) < (:created, :id) AND i.created_at >= :floor AND (i.created_at, i.id) >= (:floor, :floor_id)
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: scan_completed
-- Like scan_all, for completed instances, which are most of all.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i INDEXED BY romancy_instances_created
WHERE i.status = 'completed' AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :floor
    AND (i.created_at, i.id) >= (:floor, :floor_id)
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: scan_of_status
-- Like scan_all, for one status that has an index.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i INDEXED BY romancy_instances_status
WHERE i.status = :status AND i.status NOT IN ('running', 'completed')
    AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :floor AND (i.created_at, i.id) >= (:floor, :floor_id)
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: scan_running
-- Like scan_all, for running instances: a part of the owned ones.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i INDEXED BY romancy_instances_owned
WHERE i.owner IS NOT NULL AND i.status = 'running' AND (i.created_at, i.id) < (:created, :id)
    AND i.created_at >= :floor AND (i.created_at, i.id) >= (:floor, :floor_id)
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: scan_owned
-- Like scan_all, for instances that a worker owns.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i INDEXED BY romancy_instances_owned
WHERE i.owner IS NOT NULL AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :floor
    AND (i.created_at, i.id) >= (:floor, :floor_id)
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: scan_retrying
-- Like scan_all, for instances that are retrying something.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i INDEXED BY romancy_instances_retrying
WHERE i.retrying_since IS NOT NULL
    AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :floor AND (i.created_at, i.id) >= (:floor, :floor_id)
    AND (:workflow IS NULL OR instr(i.workflow, :workflow)) AND (:instance IS NULL OR instr(i.id, :instance))
ORDER BY i.created_at DESC, i.id DESC LIMIT :limit

-- name: window_of_all
-- The key of the instance that is `window` instances below a key.
SELECT i.created_at, i.id FROM romancy_instances AS i INDEXED BY romancy_instances_created
WHERE (i.created_at, i.id) < (:created, :id) AND i.created_at >= :after
ORDER BY i.created_at DESC, i.id DESC LIMIT 1 OFFSET :window

-- name: window_of_status
-- Like window_of_all, for one status.
SELECT i.created_at, i.id FROM romancy_instances AS i INDEXED BY romancy_instances_status
WHERE i.status = :status AND i.status NOT IN ('running', 'completed')
    AND (i.created_at, i.id) < (:created, :id) AND i.created_at >= :after
ORDER BY i.created_at DESC, i.id DESC LIMIT 1 OFFSET :window

-- name: scan_by_id
-- The given instances, newest first, without their payloads.
SELECT i.id, i.workflow, i.version, i.status, i.generation, i.round, i.epoch, i.owner, i.wake_at, i.inbox_version, 0,
    i.deadline_at, i.created_at, i.started_at, i.updated_at, i.ended_at, i.retrying_since, i.code, i.python,
    i.blocked_by
FROM romancy_instances AS i WHERE i.id IN (SELECT value FROM json_each(?)) ORDER BY i.created_at DESC, i.id DESC

-- name: ids_by_prefix
-- Ids in a range, in order.
SELECT id FROM romancy_instances WHERE id >= :low AND id < :high ORDER BY id LIMIT :limit

-- name: ids_by_wait
-- Instances that wait for an event or a channel of this name; an instance with two such waits appears twice.
SELECT instance_id FROM romancy_waits INDEXED BY romancy_waits_key
WHERE kind IN ('event', 'message') AND key = :key AND key <> '' LIMIT :limit

-- name: ids_by_due
-- Instances of one kind that have been due since before a time, the longest first.
SELECT id FROM romancy_instances INDEXED BY romancy_instances_claimable
WHERE workflow = :workflow AND version = :version AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :before
ORDER BY wake_at LIMIT :limit

-- name: contents_of
-- The inputs and errors of the given instances, without those that are too large to search.
SELECT i.id, CASE WHEN length(p.input) <= 262144 THEN p.input END, CASE WHEN length(p.error) <= 262144 THEN p.error END
FROM romancy_instances AS i
JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
WHERE i.id IN (SELECT value FROM json_each(?))

-- name: errors_of
-- The errors that the given instances failed with.
SELECT i.id, p.error FROM romancy_instances AS i
JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
WHERE i.id IN (SELECT value FROM json_each(?)) AND p.error IS NOT NULL

-- name: count_status
-- The number of instances with a status that has an index, created since a time; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_instances INDEXED BY romancy_instances_status WHERE status = :status
    AND status NOT IN ('running', 'completed') AND created_at >= :since LIMIT :most)

-- name: count_running
-- The number of running instances; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_instances INDEXED BY romancy_instances_owned WHERE owner IS NOT NULL
    AND status = 'running' LIMIT :most)

-- name: count_owned
-- The number of instances that a worker owns; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_instances INDEXED BY romancy_instances_owned WHERE owner = :owner LIMIT :most)

-- name: count_retrying
-- The number of instances that are retrying something; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_instances INDEXED BY romancy_instances_retrying WHERE retrying_since IS NOT NULL
    AND created_at >= 0 LIMIT :most)

-- name: count_due
-- The number of instances of one kind that have been due since before a time; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_instances INDEXED BY romancy_instances_claimable WHERE workflow = :workflow
    AND version = :version AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :before LIMIT :most)

-- name: count_dead
-- The number of dead rows in the outbox; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_outbox WHERE dead_at IS NOT NULL AND seq > 0 LIMIT :most)

-- name: outbox_lag
-- Since when the oldest pending row of the outbox has been waiting.
SELECT min(since) FROM (
    SELECT since FROM romancy_outbox WHERE dead_at IS NULL AND seq > 0 ORDER BY seq LIMIT 100)

-- name: count_status_by_workflow
-- The number of instances of each workflow, in a sample of the instances with one status.
SELECT workflow, count(*) FROM (
    SELECT workflow FROM romancy_instances INDEXED BY romancy_instances_status WHERE status = :status
    AND status NOT IN ('running', 'completed') AND created_at >= 0 LIMIT :most)
GROUP BY workflow

-- name: count_running_by_workflow
-- The number of instances of each workflow, in a sample of the running ones.
SELECT workflow, count(*) FROM (
    SELECT workflow FROM romancy_instances INDEXED BY romancy_instances_owned WHERE owner IS NOT NULL
    AND status = 'running' LIMIT :most)
GROUP BY workflow

-- name: next_subscribed
-- The next channel with subscribers.
SELECT min(channel) FROM romancy_subscriptions WHERE channel > ?

-- name: next_pooled
-- The next channel with pooled messages.
SELECT channel FROM romancy_messages INDEXED BY romancy_messages_pool
WHERE channel > ? AND pooled = 1 ORDER BY channel, seq LIMIT 1

-- name: channel_state
-- A channel: its mode, subscribers, unread messages, and since when the oldest is unread; all counted up to a limit.
SELECT
    (SELECT mode FROM romancy_subscriptions WHERE channel = :channel AND mode <> 'direct' ORDER BY channel LIMIT 1),
    (SELECT count(*) FROM (SELECT 1 FROM romancy_subscriptions WHERE channel = :channel LIMIT :most)),
    (SELECT count(*) FROM (SELECT 1 FROM romancy_messages INDEXED BY romancy_messages_pool
    WHERE channel = :channel AND pooled = 1 LIMIT :most)),
    (SELECT count(*) FROM (SELECT 1 FROM (SELECT instance_id FROM romancy_subscriptions
    WHERE channel = :channel ORDER BY instance_id LIMIT 100) AS given
        CROSS JOIN romancy_deliveries AS d ON d.instance_id = given.instance_id AND d.channel = :channel LIMIT :most)),
    (SELECT created_at FROM romancy_messages INDEXED BY romancy_messages_pool WHERE channel = :channel
    AND pooled = 1 ORDER BY seq LIMIT 1),
    (SELECT created_at FROM romancy_messages
    WHERE seq = (SELECT min(d.seq) FROM (SELECT instance_id FROM romancy_subscriptions
    WHERE channel = :channel ORDER BY instance_id LIMIT 100) AS given
        CROSS JOIN romancy_deliveries AS d ON d.instance_id = given.instance_id AND d.channel = :channel))

-- name: subscribers_of
-- The subscribers of a channel by id: how many messages each has to read, and whether it waits for one.
SELECT s.instance_id, s.mode, s.since,
    (SELECT count(*) FROM (SELECT 1 FROM romancy_deliveries AS d
        WHERE d.instance_id = s.instance_id AND d.channel = s.channel LIMIT :most)),
    EXISTS (SELECT 1 FROM romancy_waits AS w WHERE w.instance_id = s.instance_id AND w.kind = 'message'
    AND w.key = s.channel)
FROM romancy_subscriptions AS s WHERE s.channel = :channel AND s.instance_id > :after ORDER BY s.instance_id LIMIT :limit

-- name: is_subscribed
-- Whether an instance has subscribed to a channel.
SELECT count(*) FROM romancy_subscriptions WHERE channel = ? AND instance_id = ?

-- name: next_group
-- The next group.
SELECT min(name) FROM romancy_group_members WHERE name > ?

-- name: count_members
-- The number of members of a group; counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM romancy_group_members WHERE name = :name LIMIT :most)

-- name: page_of_members
-- A page of the members of a group, by id.
SELECT instance_id FROM romancy_group_members WHERE name = ? AND instance_id > ? ORDER BY instance_id LIMIT ?

-- name: last_events
-- The last events of a type that were addressed to one instance or to none, newest first: whether the instance has consumed
-- each, and whether it was accepted before the instance was created.
SELECT given.accepted_at, given.target, given.body, EXISTS (SELECT 1 FROM romancy_consumed_events AS t
    WHERE t.instance_id = :instance_id
    AND t.seq = given.seq), given.seq <= (SELECT created_at_event_seq FROM romancy_instances WHERE id = :instance_id)
FROM (SELECT * FROM (
        SELECT seq, accepted_at, target, CASE WHEN length(body) <= 262144 THEN body END AS body
        FROM romancy_events WHERE type = :type AND target IS NULL ORDER BY seq DESC LIMIT :limit) AS shared
    UNION ALL SELECT * FROM (
        SELECT seq, accepted_at, target, CASE WHEN length(body) <= 262144 THEN body END AS body
        FROM romancy_events WHERE type = :type
        AND target = :instance_id ORDER BY seq DESC LIMIT :limit) AS own) AS given
ORDER BY given.seq DESC LIMIT :limit

-- name: add_audit
-- Append an entry to the audit log.
INSERT INTO romancy_audit (at, actor, action, instance_id, detail) VALUES (?, ?, ?, ?, ?)

-- name: prune_audit
-- Delete entries before a time from the audit log, among the oldest by number.
DELETE FROM romancy_audit WHERE number IN (
    SELECT number
    FROM (SELECT number, at FROM romancy_audit WHERE number > 0 ORDER BY number LIMIT :limit) AS given
    WHERE at < :before)

-- name: list_audit
-- Entries of the audit log before a number, newest first.
SELECT number, at, actor, action, instance_id, detail FROM romancy_audit WHERE number < ? ORDER BY number DESC LIMIT ?

-- name: list_audit_of
-- Like list_audit, for one instance.
SELECT number, at, actor, action, instance_id, detail FROM romancy_audit
WHERE instance_id = ? AND number < ? ORDER BY number DESC LIMIT ?

-- name: add_bulk_action
-- Add an action on all instances that match a filter.
INSERT INTO romancy_bulk_actions (id, action, filter, reason, actor, status, created_at, ended_at, done, failed, scanned,
    failures, cursor, claimed_by, claimed_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, 0)

-- name: bulk_action_of
-- One bulk action.
SELECT id, action, filter, reason, actor, status, created_at, ended_at, done, failed, scanned, failures, cursor
    FROM romancy_bulk_actions WHERE id = ?

-- name: last_bulk_actions
-- The last bulk actions, newest first.
SELECT id, action, filter, reason, actor, status, created_at, ended_at, done, failed, scanned, failures, cursor
    FROM romancy_bulk_actions WHERE created_at >= 0
ORDER BY created_at DESC, id DESC LIMIT ?

-- name: open_bulk_action
-- The oldest running bulk action that is not claimed.
SELECT id, action, filter, reason, actor, status, created_at, ended_at, done, failed, scanned, failures, cursor
    FROM romancy_bulk_actions INDEXED BY romancy_bulk_actions_running
WHERE status = 'running' AND created_at >= 0 AND claimed_until <= ? ORDER BY created_at LIMIT 1

-- name: claim_bulk_action
-- Claim a bulk action until a time; a claimant that has the claim already may renew it.
UPDATE romancy_bulk_actions SET claimed_by = :claimant, claimed_until = :until
WHERE id = :id AND status = 'running' AND (claimed_until <= :now OR claimed_by = :claimant)

-- name: save_bulk_action
-- Save the progress of a bulk action, if the claimant still has the claim.
UPDATE romancy_bulk_actions SET status = :status, ended_at = :ended, done = :done, failed = :failed, scanned = :scanned,
    failures = :failures, cursor = :cursor, claimed_until = :until
WHERE id = :id AND status = 'running' AND claimed_by = :claimant

-- name: abort_bulk_action
-- Abort a running bulk action.
UPDATE romancy_bulk_actions SET status = 'aborted', ended_at = ? WHERE id = ? AND status = 'running'

-- name: watermark_of
-- How far a maintenance task has come.
SELECT upto FROM romancy_watermarks WHERE name = ?

-- name: add_watermark
-- Record where a maintenance task begins, unless that is recorded.
INSERT INTO romancy_watermarks (name, upto) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: advance_watermark
-- Advance a watermark, unless another worker has done so since it was read.
UPDATE romancy_watermarks SET upto = :new WHERE name = :name AND upto = :old

-- name: window_of_ended
-- The end time of the instance that ended `OFFSET` instances after a time.
SELECT ended_at FROM romancy_instances INDEXED BY romancy_instances_ended
WHERE ended_at IS NOT NULL AND ended_at > ? AND ended_at <= ? ORDER BY ended_at LIMIT 1 OFFSET ?

-- name: ended_between
-- Instances that ended between two times, and how long they took.
SELECT workflow, status, ended_at, ended_at - coalesce(started_at, created_at)
    FROM romancy_instances INDEXED BY romancy_instances_ended
WHERE ended_at IS NOT NULL AND ended_at > ? AND ended_at <= ?

-- name: rolled_up
-- The counts of all minutes from one on.
SELECT minute, workflow, outcome, ended, buckets FROM romancy_rollup WHERE minute >= ? ORDER BY minute

-- name: rolled_up_at
-- The counts of one minute.
SELECT workflow, outcome, ended, buckets FROM romancy_rollup WHERE minute = ?

-- name: roll_up
-- Save the counts of one minute.
INSERT INTO romancy_rollup (minute, workflow, outcome, ended, buckets) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (minute, workflow, outcome) DO UPDATE SET ended = excluded.ended, buckets = excluded.buckets

-- name: oldest_minute
-- The oldest minute with counts.
SELECT min(minute) FROM romancy_rollup WHERE minute >= 0

-- name: forget_minute
-- Delete the counts of one minute.
DELETE FROM romancy_rollup WHERE minute = ?
