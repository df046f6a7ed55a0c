"""Queries of the engine and the client. Where the statements of a query must agree, the caller reads on one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from romancy.model.history import AttemptRow, Entry
from romancy.model.instance import (
    Inbox,
    InboxItem,
    InstanceFilter,
    InstanceProgress,
    InstanceRow,
    LoadedInstance,
    StoredInstance,
    WorkerRow,
)
from romancy.model.status import Status
from romancy.model.transition import Ending, Wait
from romancy.store.port import JournalEntry, Runnable
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import NO_LIMIT, as_json, kinds_as_json
from romancy.store.sql.rows import (
    ROW_WIDTH,
    attempt_of,
    entry_of,
    inbox_item_of,
    journal_entry_of,
    row_of,
    status_of,
    wait_of,
    worker_of,
)

_NO_UPPER_BOUND = 2**63 - 1


def load(cursor: Cursor, instance_id: str) -> LoadedInstance | None:
    """Load everything a cold replay needs."""
    columns = cursor.first("get_row", (instance_id,))
    if columns is None:
        return None
    row = row_of(columns)
    entries = tuple(history(cursor, instance_id, row.generation, after=-1, limit=NO_LIMIT))
    length = entries[-1].seq if entries else 0
    earlier = tuple(attempts(cursor, instance_id, row.generation))
    progress = length + sum(attempt.next_at is not None for attempt in earlier)
    return LoadedInstance(
        replace(row, length=length),
        columns[ROW_WIDTH] or b"",
        entries,
        earlier,
        tuple(wait.op for wait in waits_of(cursor, [instance_id]).get(instance_id, ())),
        _inbox_items(cursor, instance_id),
        row.created_at if columns[_BEGUN_AT] is None else columns[_BEGUN_AT],
        columns[_BEGUN_AT + 2] if columns[_BEGUN_AT + 1] == progress else 0,
    )


def inbox(cursor: Cursor, instance_id: str) -> Inbox:
    """Return the inbox items, the matched waits, and the inbox version they belong to."""
    # The version first: an arrival after it is then reported again, and not overlooked.
    row = cursor.first("inbox_version_of", (instance_id,))
    matched: list[str] = cursor.json_rows("matched_waits", (instance_id,))
    return Inbox(0 if row is None else row[0], _inbox_items(cursor, instance_id), tuple(matched))


def with_unread_inbox(cursor: Cursor, worker: str) -> list[str]:
    """List the worker's instances whose inbox version is newer than the one they have seen."""
    found: list[str] = cursor.json_rows("with_unread_inbox", (worker,))
    return found


def owned(cursor: Cursor, worker: str) -> list[str]:
    """List the instances that a worker owns."""
    found: list[str] = cursor.json_rows("owned", (worker, NO_LIMIT))
    return found


def upcoming(cursor: Cursor, runnable: Sequence[Runnable], *, until: int, limit: int) -> list[tuple[str, int]]:
    """List unowned instances and their due times."""
    values = {"kinds": kinds_as_json(runnable), "until": until, "limit": limit}
    return cursor.rows("upcoming", values)


def kinds_waiting(cursor: Cursor) -> list[tuple[str, str]]:
    """List the workflows and versions of unowned instances."""
    return [(workflow, version) for workflow, version in cursor.json_rows("kinds_waiting", ())]


def workers(cursor: Cursor) -> list[WorkerRow]:
    """List the workers that have not been deregistered."""
    return [worker_of(row) for row in cursor.rows("all_workers")]


def statuses(cursor: Cursor, ids: Sequence[str]) -> dict[str, Status]:
    """Return the status of each instance that exists."""
    return {instance_id: status_of(word) for instance_id, word in cursor.json_rows("statuses_of", (as_json(ids),))}


def endings(cursor: Cursor, ids: Sequence[str]) -> dict[str, tuple[Status, Ending] | None]:
    """Return how each instance that exists has ended; None if it has not ended."""
    found: dict[str, tuple[Status, Ending] | None] = {}
    for instance_id, word, output, error in cursor.rows("endings_of", (as_json(ids),)):
        status = status_of(word)
        found[instance_id] = (status, Ending(output, error)) if status.ended else None
    return found


def progress_of(cursor: Cursor, ids: Sequence[str]) -> dict[str, InstanceProgress]:
    """Return the generation, history length and status of each instance that exists."""
    return {
        instance_id: InstanceProgress(generation, seq, status_of(word), updated_at)
        for instance_id, generation, seq, word, updated_at in cursor.rows("progress_of", (as_json(ids),))
    }


def get(cursor: Cursor, instance_id: str, generation: int | None = None) -> StoredInstance | None:
    """Return one instance with its payloads, as it is or as it was in an archived generation."""
    rows = cursor.rows("get_row", (instance_id,))
    if not rows:
        return None
    found = _to_stored(cursor, rows)[0]
    return found if generation in (None, found.row.generation) else _read_archived(cursor, found.row, generation)


def _read_archived(cursor: Cursor, row: InstanceRow, generation: int) -> StoredInstance | None:
    columns = cursor.first("generation", {"id": row.instance_id, "generation": generation})
    if columns is None:
        return None
    given, begun_at, ended_at = columns
    begun_at = row.created_at if begun_at is None else begun_at
    then = replace(
        row,
        status=Status.RECURRED,
        generation=generation,
        owner=None,
        created_at=begun_at,
        started_at=begun_at,
        updated_at=ended_at,
        ended_at=ended_at,
    )
    return StoredInstance(then, given, None, None, ())


def members(cursor: Cursor, group: str) -> list[str]:
    """List the members of a group, in the order they joined."""
    found: list[str] = cursor.json_rows("members_of", (group,))
    return found


def undeliverable(cursor: Cursor, *, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """List addressed events that can never be delivered: sequence number, time and encoded event."""
    return cursor.rows("undeliverable", {"after": after, "limit": limit})


_LISTS = {Status.RUNNING: "list_running", Status.COMPLETED: "list_completed"}
_BEGUN_AT = ROW_WIDTH + 3
_STATUS = 3
_CREATED_AT = 12
"""Index of the creation time in a row of these statements."""


def list_rows(cursor: Cursor, query: InstanceFilter) -> list[StoredInstance]:
    """List instances, newest first."""
    created, instance_id = _start_key(query)
    values = {
        "created": created,
        "id": instance_id,
        "after": query.created_after or 0,
        "workflow": query.workflow,
        "instance": query.instance_id,
        "limit": query.limit,
    }
    if not query.status:
        return _to_stored(cursor, cursor.rows("list_rows", values))
    rows = [
        row
        for status in sorted(set(query.status))
        for row in cursor.rows(_LISTS.get(status, "list_of_status"), {**values, "status": status})
    ]
    rows.sort(key=lambda row: (row[_CREATED_AT], row[0]), reverse=True)
    return _to_stored(cursor, rows[: query.limit])


def history(cursor: Cursor, instance_id: str, generation: int, *, after: int, limit: int) -> list[Entry]:
    """List the history entries of one generation, in order."""
    return [entry_of(row) for row in cursor.rows("history_of", (instance_id, generation, after, limit))]


def attempts(cursor: Cursor, instance_id: str, generation: int) -> list[AttemptRow]:
    """List the failed and open attempts of one generation."""
    return [attempt_of(row) for row in cursor.rows("attempts_of", (instance_id, generation))]


def journal(cursor: Cursor, instance_id: str) -> list[JournalEntry]:
    """List an instance's journal, oldest first."""
    return [journal_entry_of(row) for row in cursor.rows("journal_of", (instance_id,))]


def source(cursor: Cursor, code: str) -> str | None:
    """Return the source of a workflow."""
    row = cursor.first("source_of", (code,))
    return None if row is None else row[0]


def _start_key(query: InstanceFilter) -> tuple[int, str]:
    """Return the key below which the list continues. No id sorts below "", so `created_before` itself is excluded."""
    bound = (_NO_UPPER_BOUND if query.created_before is None else query.created_before, "")
    return bound if query.before is None else min(bound, query.before)


def _to_stored(cursor: Cursor, rows: Sequence[Sequence[Any]]) -> list[StoredInstance]:
    live = [row[0] for row in rows if not status_of(row[_STATUS]).ended]
    waits = waits_of(cursor, live) if live else {}
    return [_with_payloads(row, tuple(waits.get(row[0], ()))) for row in rows]


def _with_payloads(row: Sequence[Any], waits: tuple[Wait, ...]) -> StoredInstance:
    given, output, error = row[ROW_WIDTH:_BEGUN_AT]
    return StoredInstance(row_of(row), given or b"", output, error, waits)


def waits_of(cursor: Cursor, ids: Sequence[str]) -> dict[str, list[Wait]]:
    """Return the waits of each of the instances."""
    found: dict[str, list[Wait]] = {}
    for instance_id, *columns in cursor.rows("waits_of", (as_json(ids),)):
        found.setdefault(instance_id, []).append(wait_of(columns))
    return found


def _inbox_items(cursor: Cursor, instance_id: str) -> tuple[InboxItem, ...]:
    return tuple(inbox_item_of(row) for row in cursor.rows("inbox_of", (instance_id,)))
