"""Fills tables as they are after years: very many ended instances, many waiting ones, and the rows that belong to them.

All instances belong to one workflow and wait for one type of event: statistics that make every index look useless. A
fiftieth of the rows belongs to each type of event, channel and group. No instance is owned.
"""

from __future__ import annotations

from typing import Any

WORKFLOW, TYPE, CHANNEL, GROUP, BROKER, WORKER = "watch", "wakeup", "jobs-1", "crew-1", "http", "worker"
WEEK = 7 * 24 * 3600 * 1_000_000

_GIVEN = "WITH given (ended, waiting, now) AS (VALUES ($1::bigint, $2::bigint, $3::bigint)) "
# Of the waiting instances, a third each waits for a timer, an event and a message.
_FILL = (
    """INSERT INTO romancy_instances (
        id, workflow, version, status, generation, round, epoch, inbox_version, inbox_version_seen, fingerprint, created_at,
        started_at, updated_at, ended_at, code, python, digest, created_at_event_seq)
    SELECT 'ended-' || n, 'watch', '', CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'completed' END, 1, 0, 1, 0, 0, '',
        now - n * 1000, now - n * 1000, now - n * 1000 + 500, now - n * 1000 + 500, 'code', '3.13', '\\x00', 0
    FROM given, generate_series(1, ended) AS n""",
    """INSERT INTO romancy_instances (
        id, workflow, version, status, generation, round, epoch, wake_at, inbox_version, inbox_version_seen, fingerprint,
        created_at, started_at, updated_at, code, python, digest, created_at_event_seq)
    SELECT 'waiting-' || n, 'watch', '', (ARRAY['waiting_for_timer', 'waiting_for_event', 'waiting_for_message'])[1 + n % 3],
        1, 0, 1, CASE WHEN n % 3 = 0 THEN now + 604800000000 + n END, 0, 0, '', now - n, now - n, now - n, 'code', '3.13',
        '\\x00', 0
    FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_payloads (instance_id, generation, input, output)
    SELECT id, generation, '{"args": ["something that is not very long"]}',
        CASE WHEN ended_at IS NOT NULL THEN 'true'::bytea END
    FROM romancy_instances""",
    """INSERT INTO romancy_history (
        instance_id, generation, seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, scheduled_at,
        started_at, ended_at, worker, epoch)
    SELECT id, generation, 1, 'activity', 'add:1', 'ok', updated_at, 'add', 0, '\\x00', '[1]', '2', 1, 'flow.py:1',
        updated_at, updated_at, updated_at, 'worker', 1
    FROM romancy_instances""",
    """INSERT INTO romancy_waits (instance_id, op, kind, since, due, key, subject, site)
    SELECT 'waiting-' || n, (ARRAY['timer:1', 'event:1', 'message:1'])[1 + n % 3],
        (ARRAY['timer', 'event', 'message'])[1 + n % 3], now - n, CASE WHEN n % 3 = 0 THEN now + 604800000000 + n END,
        (ARRAY['', 'wakeup', 'jobs-' || n % 50])[1 + n % 3], CASE WHEN n % 3 = 1 THEN 'filled-' || n END, 'flow.py:1'
    FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_events (source, id, type, subject, target, consumed, accepted_at, body)
    SELECT '/bench', 'filled-' || n, CASE WHEN n % 50 = 1 THEN 'wakeup' ELSE 'other-' || n % 50 END, 'old-' || n,
        CASE WHEN n % 10 = 0 THEN 'ended-' || n END, 0, now - waiting + n, '{}'
    FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_consumed_events (instance_id, seq, selector)
    SELECT 'ended-' || n / 10, n, '["wakeup", "' || n % 5 || '", null]' FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_subscriptions (channel, instance_id, mode, since)
    SELECT 'jobs-' || n % 50, 'waiting-' || n, 'competing', n FROM given, generate_series(1, waiting) AS n
    WHERE n % 3 = 2""",
    """INSERT INTO romancy_messages (channel, pooled, created_at, body)
    SELECT 'jobs-' || n % 50, n % 2, now - waiting + n, '{}' FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_deliveries (instance_id, channel, seq)
    SELECT 'waiting-' || n, 'jobs-' || n % 50, n FROM given, generate_series(1, waiting) AS n WHERE n % 2 = 0""",
    """INSERT INTO romancy_group_members (name, instance_id, since)
    SELECT 'crew-' || n % 50, 'waiting-' || n, n FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_journal (instance_id, at, kind, detail, worker, epoch)
    SELECT 'ended-' || n, now - n, 'claimed', '', 'worker', 1 FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_inbox (instance_id, kind, op, body, at)
    SELECT 'waiting-' || n, 'result', 'add:1', '{}', now FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_attempts (
        instance_id, generation, op, attempt, name, open, worker, epoch, site, scheduled_at, started_at)
    SELECT 'waiting-' || n, 1, 'add:1', 1, 'add', n % 2, 'worker', 1, 'flow.py:1', now, now
    FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_losses (instance_id, generation, progress, losses, isolated)
    SELECT 'waiting-' || n, 1, 1, 1, 0 FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_outbox (broker, body, created_at, since, next_at, claimed_by, dead_at)
    SELECT (ARRAY['http', 'nats', 'kafka'])[1 + n % 3], '{}', now - n, now - n, CASE WHEN n % 10 > 0 THEN now + n END,
        CASE WHEN n % 100 = 1 THEN 'relay' END, CASE WHEN n % 10 = 0 THEN now - n END
    FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_audit (at, actor, action, instance_id, detail)
        SELECT now - n, 'ann', 'cancel', 'waiting-' || n, '' FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_bulk_actions (id, action, filter, actor, status, created_at, done, failed, scanned, failures,
            claimed_until)
        SELECT 'batch-' || n, 'cancel', '', 'ann', CASE WHEN n <= 3 THEN 'running' ELSE 'done' END, now - n, 0, 0, 0, '[]',
            now + 604800000000 -- claimed by another worker
        FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_rollup (minute, workflow, outcome, ended, buckets)
        SELECT n * 60000000::bigint, 'bench', 'completed', 1, '{}' FROM given, generate_series(1, waiting) AS n""",
    """INSERT INTO romancy_commits (token, at) SELECT 'token-' || n, now - n FROM given, generate_series(1, waiting) AS n""",
)
SMALL = frozenset({
    "romancy_messaging_lock",  # one row
    "romancy_watermarks",  # another
    "romancy_workers",  # as many as there are processes
    "romancy_sources",  # as many as there are versions of workflows
    "romancy_handlers",
    "romancy_staged",  # effects of users' transactions that are not applied yet
})  # fmt: skip
"""Tables that stay small, however long the engine runs."""


async def fill(connection: Any, *, ended: int, waiting: int, now: int) -> None:
    """Insert `ended` and `waiting` instances, and the rows that belong to them, into the tables of a store."""
    for statement in _FILL:
        await connection.execute(_GIVEN + statement, ended, waiting, now)
