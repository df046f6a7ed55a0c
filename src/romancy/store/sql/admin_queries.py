"""What operators look at: lists without payloads, counts up to a bound, channels and groups, what came near a wait.

A list is put together from streams, each along an index from a key down:

    all          every instance
    completed    the same, of which most have completed
    running      those in somebody's hands, as many as run at once; `owned`: of whatever status
    a status     any other, which are few beside the completed
    retrying     those of which something is being retried

Where conditions may leave out most of what lies in a stream, only so many are looked at, and the caller goes on from there.
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
"""Streams that are short: everything in them may be looked at."""
_CREATED_AT = 12
_LIVE_STATUSES = tuple(status for status in Status if status not in ENDED)
_STATUS_COUNT = len(Status) - 1
"""All statuses but that of archived generations."""


def scan_instances(cursor: Cursor, query: InstanceQuery) -> InstanceScan:
    """Instances, newest first, as far as was looked."""
    before = query.before if query.before is not None else _NO_UPPER_BOUND
    streams = _choose_streams(query)
    ends = [_window_end(cursor, name, status, query, before) for name, status in streams]
    floor = max([end for end in ends if end is not None], default=None)
    found = [_read_stream(cursor, name, status, query, before, floor) for name, status in streams]
    lines = list(heapq.merge(*found, key=_key_of, reverse=True))[: query.limit]
    # A stream that gave as many as were wanted has more below: so what is cut off, or comes next, lies below the last line.
    end = _key_of(lines[-1]) if len(lines) == query.limit and lines else floor
    return InstanceScan(_with_waits(cursor, lines), end)


def _choose_streams(query: InstanceQuery) -> list[tuple[str, Status | None]]:
    """The statements that give what is wanted, and the status to ask each for."""
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
    """Where looking along a stream ends, if it has to: what is left out by conditions could be all of it."""
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


def _with_waits(cursor: Cursor, lines: Iterable[Sequence[Any]]) -> list[InstanceListRow]:
    rows = [row_of(line) for line in lines]
    living = [row.instance_id for row in rows if not row.status.ended]
    waits = waits_of(cursor, living) if living else {}
    return [InstanceListRow(row, tuple(waits.get(row.instance_id, ()))) for row in rows]


def rows_by_id(cursor: Cursor, ids: Sequence[str]) -> list[InstanceListRow]:
    """The given instances, newest first."""
    return _with_waits(cursor, cursor.rows("scan_by_id", (as_json(ids),))) if ids else []


def ids_by_prefix(cursor: Cursor, prefix: str, *, limit: int) -> list[str]:
    """Ids that begin with a text."""
    after = _next_prefix(prefix)
    if after is None:
        return []
    return [line[0] for line in cursor.rows("ids_by_prefix", {"low": prefix, "high": after, "limit": limit})]


def _next_prefix(prefix: str) -> str | None:
    """The least text above all that begin with this one, by code points, as bytes of UTF-8 are ordered."""
    for at in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[at]) + 1
        if following <= 0x10FFFF:
            return prefix[:at] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
    return None


def ids_by_wait(cursor: Cursor, key: str, *, limit: int) -> list[str]:
    """Who waits for an event of a type, or a message of a channel."""
    return [line[0] for line in cursor.rows("ids_by_wait", {"key": key, "limit": limit})]


def ids_by_due(cursor: Cursor, *, before: int, limit: int) -> list[str]:
    """Who has been due since before a time, and nobody has taken up."""
    found: list[str] = []
    for workflow, version in kinds_waiting(cursor):
        values = {"workflow": workflow, "version": version, "before": before, "limit": limit - len(found)}
        found += [line[0] for line in cursor.rows("ids_by_due", values)]
        if len(found) >= limit:
            break
    return found


def contents(cursor: Cursor, ids: Sequence[str]) -> dict[str, Content]:
    """The arguments and errors of the given instances."""
    found = cursor.rows("contents_of", (as_json(ids),)) if ids else []
    return {instance_id: Content(given, error) for instance_id, given, error in found}


def errors(cursor: Cursor, ids: Sequence[str]) -> dict[str, bytes]:
    """What the given instances failed with."""
    return dict(cursor.rows("errors_of", (as_json(ids),))) if ids else {}


# --- counts


def count_instances(cursor: Cursor, *, failed_since: int, due_before: int, most: int) -> InstanceCounts:
    """How many there are of what operators ask about, each counted up to `most`."""
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
    """How many instances each of the workers has in hand, counted up to `most`."""
    return {worker: _count(cursor, "count_owned", owner=worker, most=most) for worker in workers}


def workflow_counts(cursor: Cursor, *, most: int) -> WorkflowCounts:
    """How many instances of each workflow are in flight, looking at `most` of each status."""
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
    """Since when the event has been waiting that waits longest."""
    found = cursor.only("outbox_lag")[0]
    return None if found is None else int(found)


# --- channels and groups


def channels(cursor: Cursor, *, after: str, limit: int, most: int) -> list[ChannelState]:
    """Channels that have subscribers or messages for anybody, by name."""
    found: list[ChannelState] = []
    while len(found) < limit:
        names = [line[0] for name in ("next_subscribed", "next_pooled") if (line := cursor.first(name, (after,)))]
        after = min([name for name in names if name is not None], default="")
        if not after:
            break
        found.append(channel(cursor, after, most=most))
    return found


def channel(cursor: Cursor, name: str, *, most: int) -> ChannelState:
    """One channel."""
    mode, subscribers, pooled, delivered, *oldest = cursor.only("channel_state", {"channel": name, "most": most})
    backlog = min(most, int(pooled) + int(delivered))
    return ChannelState(name, mode, int(subscribers), backlog, min([at for at in oldest if at is not None], default=None))


def subscribers(cursor: Cursor, name: str, *, after: str, limit: int, most: int) -> list[SubscriberState]:
    """Who has subscribed to a channel, by id."""
    values = {"channel": name, "after": after, "limit": limit, "most": most}
    return [
        SubscriberState(instance_id, mode, since, int(unread), bool(waits))
        for instance_id, mode, since, unread, waits in cursor.rows("subscribers_of", values)
    ]


def is_subscribed(cursor: Cursor, name: str, instance_id: str) -> bool:
    """Whether an instance has subscribed to a channel."""
    return bool(cursor.only("is_subscribed", (name, instance_id))[0])


def groups(cursor: Cursor, *, after: str, limit: int, most: int) -> list[tuple[str, int]]:
    """Groups by name, and how many are in each."""
    found: list[tuple[str, int]] = []
    while len(found) < limit and (line := cursor.first("next_group", (after,))) and line[0] is not None:
        after = line[0]
        found.append((after, _count(cursor, "count_members", name=after, most=most)))
    return found


def page_of_members(cursor: Cursor, name: str, *, after: str, limit: int) -> list[str]:
    """Who is in a group, by id."""
    return [line[0] for line in cursor.rows("page_of_members", (name, after, limit))]


def last_events(cursor: Cursor, kind: str, instance_id: str, *, limit: int) -> list[RecentEvent]:
    """The last events of a type that were for everybody or for one instance, newest first."""
    values = {"type": kind, "instance_id": instance_id, "limit": limit}
    return [
        RecentEvent(at, target, body, bool(taken), bool(before))
        for at, target, body, taken, before in cursor.rows("last_events", values)
    ]
