"""Queries of operators: lists without payloads, counts up to a bound, channels and groups, recent events.

A list is merged from streams. Each stream is one statement that reads along an index, from a key downwards:

    all          every instance
    completed    completed instances, read along the index of all instances, most of which have completed
    running      owned instances in status `running`; `owned`: owned instances in any status
    a status     instances in any other status, which are few beside the completed ones
    retrying     instances with an activity that is being retried

Where conditions may leave out most rows of a stream, only a bounded number of rows is read, and the caller continues from
there with another call.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from romancy.model.admin import (
    ChannelState,
    Content,
    InstanceCounts,
    InstanceKey,
    InstanceListRow,
    InstanceQuery,
    InstanceScan,
    RecentEvent,
    SubscriberState,
    WorkflowCounts,
)
from romancy.model.status import ENDED, Status
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json
from romancy.store.sql.queries import kinds_waiting, waits_of
from romancy.store.sql.rows import row_of

_NO_UPPER_BOUND = (2**63 - 1, "")
_LOWEST: InstanceKey = (-1, "")
_SHORT_STREAMS = frozenset({"scan_running", "scan_owned", "scan_retrying"})
"""Streams that are short enough to be read completely."""
_CREATED_AT = 12
_LIVE_STATUSES = tuple(status for status in Status if status not in ENDED)
_STATUS_COUNT = len(Status) - 1
"""The number of statuses without that of archived generations."""


def scan_instances(cursor: Cursor, query: InstanceQuery) -> InstanceScan:
    """List instances, newest first; the result says how far the scan went."""
    before = query.before if query.before is not None else _NO_UPPER_BOUND
    streams = _choose_streams(query)
    ends = [_window_end(cursor, name, status, query, before) for name, status in streams]
    floor = max([end for end in ends if end is not None], default=None)
    found = [_read_stream(cursor, name, status, query, before, floor) for name, status in streams]
    rows = list(heapq.merge(*found, key=_key_of, reverse=True))[: query.limit]
    # If the page is full, everything that was cut off or not read lies below its last row: the next page starts there.
    end = _key_of(rows[-1]) if len(rows) == query.limit and rows else floor
    return InstanceScan(_with_waits(cursor, rows), end)


def _choose_streams(query: InstanceQuery) -> list[tuple[str, Status | None]]:
    """Return the statements to read, each with its status parameter."""
    if query.owned:
        return [("scan_owned", None)]
    if query.retrying:
        return [("scan_retrying", None)]
    if query.statuses is None or len(query.statuses) >= _STATUS_COUNT:
        return [("scan_all", None)]
    names = {Status.RUNNING: "scan_running", Status.COMPLETED: "scan_completed"}
    return [(names.get(status, "scan_of_status"), status) for status in sorted(query.statuses)]


def _window_end(
    cursor: Cursor, name: str, status: Status | None, query: InstanceQuery, before: InstanceKey
) -> InstanceKey | None:
    """Return the key at which reading a stream must end, if conditions could leave out most of its rows."""
    narrowed = query.workflow is not None or query.instance is not None or name == "scan_completed"
    if name in _SHORT_STREAMS or not narrowed:
        return None
    values = {"created": before[0], "id": before[1], "after": query.created_after, "window": query.window}
    if name == "scan_of_status":
        found = cursor.first("window_of_status", {**values, "status": status})
    else:
        found = cursor.first("window_of_all", values)
    return None if found is None else (found[0], found[1])


def _read_stream(
    cursor: Cursor, name: str, status: Status | None, query: InstanceQuery, before: InstanceKey, floor: InstanceKey | None
) -> Sequence[Sequence[Any]]:
    lowest = max(floor if floor is not None else _LOWEST, (query.created_after, ""))
    values = {
        "created": before[0],
        "id": before[1],
        "floor": lowest[0],
        "floor_id": lowest[1],
        "workflow": query.workflow,
        "instance": query.instance,
        "limit": query.limit,
    }
    return cursor.rows(name, {**values, "status": status} if name == "scan_of_status" else values)


def _key_of(row: Sequence[Any]) -> InstanceKey:
    return row[_CREATED_AT], row[0]


def _with_waits(cursor: Cursor, rows: Iterable[Sequence[Any]]) -> list[InstanceListRow]:
    instances = [row_of(row) for row in rows]
    live = [instance.instance_id for instance in instances if not instance.status.ended]
    waits = waits_of(cursor, live) if live else {}
    return [InstanceListRow(instance, tuple(waits.get(instance.instance_id, ()))) for instance in instances]


def rows_by_id(cursor: Cursor, ids: Sequence[str]) -> list[InstanceListRow]:
    """List the given instances, newest first."""
    return _with_waits(cursor, cursor.rows("scan_by_id", (as_json(ids),))) if ids else []


def ids_by_prefix(cursor: Cursor, prefix: str, *, limit: int) -> list[str]:
    """List ids that begin with `prefix`."""
    after = _next_prefix(prefix)
    if after is None:
        return []
    return [row[0] for row in cursor.rows("ids_by_prefix", {"low": prefix, "high": after, "limit": limit})]


def _next_prefix(prefix: str) -> str | None:
    """Return the smallest text above all texts with this prefix, in code point order, which is the byte order of UTF-8."""
    for at in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[at]) + 1
        if following <= 0x10FFFF:
            return prefix[:at] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
    return None


def ids_by_wait(cursor: Cursor, key: str, *, limit: int) -> list[str]:
    """List instances that wait for an event of this type or a message of this channel."""
    return [row[0] for row in cursor.rows("ids_by_wait", {"key": key, "limit": limit})]


def ids_by_due(cursor: Cursor, *, before: int, limit: int) -> list[str]:
    """List instances that have been due since before `before` and that no worker has claimed."""
    found: list[str] = []
    for workflow, version in kinds_waiting(cursor):
        values = {"workflow": workflow, "version": version, "before": before, "limit": limit - len(found)}
        found += [row[0] for row in cursor.rows("ids_by_due", values)]
        if len(found) >= limit:
            break
    return found


def contents(cursor: Cursor, ids: Sequence[str]) -> dict[str, Content]:
    """Return the arguments and errors of the given instances."""
    found = cursor.rows("contents_of", (as_json(ids),)) if ids else []
    return {instance_id: Content(given, error) for instance_id, given, error in found}


def errors(cursor: Cursor, ids: Sequence[str]) -> dict[str, bytes]:
    """Return the errors that the given instances failed with."""
    return dict(cursor.rows("errors_of", (as_json(ids),))) if ids else {}


# --- counts


def count_instances(cursor: Cursor, *, failed_since: int, due_before: int, most: int) -> InstanceCounts:
    """Count instances by status, retrying and overdue ones, and dead outbox rows; each count up to `most`."""
    counts = {status: _count(cursor, "count_status", status=status, since=0, most=most) for status in _LIVE_STATUSES}
    counts[Status.RUNNING] = _count(cursor, "count_running", most=most)
    counts[Status.FAILED] = _count(cursor, "count_status", status=Status.FAILED, since=failed_since, most=most)
    retrying, dead = (_count(cursor, name, most=most) for name in ("count_retrying", "count_dead"))
    overdue = 0
    for workflow, version in kinds_waiting(cursor):
        kind = {"workflow": workflow, "version": version}
        overdue += _count(cursor, "count_due", **kind, before=due_before, most=most - overdue)
        if overdue >= most:
            break
    return InstanceCounts(counts, retrying, overdue, dead)


def _count(cursor: Cursor, statement: str, **values: Any) -> int:
    return int(cursor.only(statement, values)[0])


def count_owned(cursor: Cursor, workers: Sequence[str], *, most: int) -> dict[str, int]:
    """Count the instances that each of the workers owns, up to `most`."""
    return {worker: _count(cursor, "count_owned", owner=worker, most=most) for worker in workers}


def workflow_counts(cursor: Cursor, *, most: int) -> WorkflowCounts:
    """Count the instances in flight of each workflow, reading up to `most` rows of each status."""
    found: dict[str, int] = {}
    complete = True
    for status in _LIVE_STATUSES:
        if status is Status.RUNNING:
            counted = cursor.rows("count_running_by_workflow", {"most": most})
        else:
            counted = cursor.rows("count_status_by_workflow", {"status": status, "most": most})
        complete = complete and sum(int(count) for _, count in counted) < most
        for workflow, count in counted:
            found[workflow] = found.get(workflow, 0) + int(count)
    return WorkflowCounts(found, complete)


def outbox_lag(cursor: Cursor) -> int | None:
    """Return the enqueue time of the oldest undelivered outbox row."""
    found = cursor.only("outbox_lag")[0]
    return None if found is None else int(found)


# --- channels and groups


def channels(cursor: Cursor, *, after: str, limit: int, most: int) -> list[ChannelState]:
    """List channels that have subscribers or pooled messages, by name."""
    found: list[ChannelState] = []
    while len(found) < limit:
        names = [row[0] for name in ("next_subscribed", "next_pooled") if (row := cursor.first(name, (after,)))]
        after = min([name for name in names if name is not None], default="")
        if not after:
            break
        found.append(channel(cursor, after, most=most))
    return found


def channel(cursor: Cursor, name: str, *, most: int) -> ChannelState:
    """Return the state of one channel."""
    mode, subscribers, pooled, delivered, *oldest = cursor.only("channel_state", {"channel": name, "most": most})
    backlog = min(most, int(pooled) + int(delivered))
    return ChannelState(name, mode, int(subscribers), backlog, min([at for at in oldest if at is not None], default=None))


def subscribers(cursor: Cursor, name: str, *, after: str, limit: int, most: int) -> list[SubscriberState]:
    """List the subscribers of a channel, ordered by id."""
    values = {"channel": name, "after": after, "limit": limit, "most": most}
    return [
        SubscriberState(instance_id, mode, since, int(unread), bool(waits))
        for instance_id, mode, since, unread, waits in cursor.rows("subscribers_of", values)
    ]


def is_subscribed(cursor: Cursor, name: str, instance_id: str) -> bool:
    """Return whether an instance has subscribed to a channel."""
    return bool(cursor.only("is_subscribed", (name, instance_id))[0])


def groups(cursor: Cursor, *, after: str, limit: int, most: int) -> list[tuple[str, int]]:
    """List groups by name, and the number of their members."""
    found: list[tuple[str, int]] = []
    while len(found) < limit and (row := cursor.first("next_group", (after,))) and row[0] is not None:
        after = row[0]
        found.append((after, _count(cursor, "count_members", name=after, most=most)))
    return found


def page_of_members(cursor: Cursor, name: str, *, after: str, limit: int) -> list[str]:
    """List members of a group, ordered by id."""
    return [row[0] for row in cursor.rows("page_of_members", (name, after, limit))]


def last_events(cursor: Cursor, kind: str, instance_id: str, *, limit: int) -> list[RecentEvent]:
    """List the last events of a type that were broadcast or addressed to this instance, newest first."""
    values = {"type": kind, "instance_id": instance_id, "limit": limit}
    return [
        RecentEvent(at, target, body, bool(taken), bool(before))
        for at, target, body, taken, before in cursor.rows("last_events", values)
    ]
