"""What the engine and people read. Each function reads one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from romancy.model.history import Attempt, Entry
from romancy.model.instance import Inbox, Loaded, Mail, Query, Row, Stored, WorkerRow
from romancy.model.status import Status
from romancy.model.transition import Wait
from romancy.store.port import JournalEntry, Runnable
from romancy.store.sqlite.keys import as_json, fetch, kinds_as_json
from romancy.store.sqlite.rows import (
    ROW_WIDTH,
    attempt_of,
    entry_of,
    journal_entry_of,
    mail_of,
    row_of,
    status_of,
    wait_of,
    worker_of,
)
from romancy.store.sqlite.statements import one

_ENDLESS = 2**63 - 1
_ALL = -1


def load(cursor: sqlite3.Cursor, instance_id: str) -> Loaded | None:
    """Everything a cold replay needs."""
    line = cursor.execute(one("get_row"), (instance_id,)).fetchone()
    if line is None:
        return None
    row = row_of(line)
    entries = tuple(history(cursor, instance_id, row.generation, after=_ALL, limit=_ALL))
    return Loaded(
        replace(row, length=entries[-1].seq if entries else 0),
        line[ROW_WIDTH] or b"",
        entries,
        tuple(attempts(cursor, instance_id, row.generation)),
        tuple(wait.op for wait in _waits(cursor, [instance_id]).get(instance_id, ())),
        _mails(cursor, instance_id),
        row.created_at if line[_BEGUN_AT] is None else line[_BEGUN_AT],
    )


def inbox(cursor: sqlite3.Cursor, instance_id: str) -> Inbox:
    """What has arrived, and the counter it belongs to."""
    line = cursor.execute(one("signal_of"), (instance_id,)).fetchone()
    called: list[str] = fetch(cursor, "called", (instance_id,))
    return Inbox(0 if line is None else line[0], _mails(cursor, instance_id), tuple(called))


def arrivals(cursor: sqlite3.Cursor, worker: str) -> list[str]:
    """The worker's instances with something unseen."""
    found: list[str] = fetch(cursor, "arrivals", (worker,))
    return found


def owned(cursor: sqlite3.Cursor, worker: str) -> list[str]:
    """The instances a worker owns."""
    found: list[str] = fetch(cursor, "owned", (worker, -1))
    return found


def upcoming(cursor: sqlite3.Cursor, runnable: Sequence[Runnable], *, until: int, limit: int) -> list[tuple[str, int]]:
    """Unowned instances and when they are due."""
    values = {"kinds": kinds_as_json(runnable), "until": until, "limit": limit}
    return cursor.execute(one("upcoming"), values).fetchall()


def kinds_waiting(cursor: sqlite3.Cursor) -> list[tuple[str, str]]:
    """Each workflow and version that unowned instances wait for."""
    return [(workflow, version) for workflow, version in fetch(cursor, "kinds_waiting", ())]


def workers(cursor: sqlite3.Cursor) -> list[WorkerRow]:
    """Every worker that has not been struck off."""
    return [worker_of(line) for line in cursor.execute(one("all_workers"))]


def statuses(cursor: sqlite3.Cursor, ids: Sequence[str]) -> dict[str, Status]:
    """The status of each instance that exists."""
    return {instance_id: status_of(word) for instance_id, word in fetch(cursor, "statuses_of", (as_json(ids),))}


def get(cursor: sqlite3.Cursor, instance_id: str, generation: int | None = None) -> Stored | None:
    """One instance with its payloads, as it is or as it was in an archived generation."""
    lines = cursor.execute(one("get_row"), (instance_id,)).fetchall()
    if not lines:
        return None
    found = _stored(cursor, lines)[0]
    return found if generation in (None, found.row.generation) else _archived(cursor, found.row, generation)


def _archived(cursor: sqlite3.Cursor, row: Row, generation: int) -> Stored | None:
    line = cursor.execute(one("generation"), {"id": row.instance_id, "generation": generation}).fetchone()
    if line is None:
        return None
    given, begun_at, ended_at = line
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
    return Stored(then, given, None, None, ())


def members(cursor: sqlite3.Cursor, group: str) -> list[str]:
    """Who is in a group, in the order they joined."""
    found: list[str] = fetch(cursor, "members_of", (group,))
    return found


def undeliverable(cursor: sqlite3.Cursor, *, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """Addressed events that can never be delivered: place, time and the event itself."""
    return cursor.execute(one("undeliverable"), {"after": after, "limit": limit}).fetchall()


_LISTS = {Status.RUNNING: "list_running", Status.COMPLETED: "list_completed"}
_BEGUN_AT = ROW_WIDTH + 3
_CREATED_AT = 12
"""Where in a row of these statements the time of creation stands."""


def list_rows(cursor: sqlite3.Cursor, query: Query) -> list[Stored]:
    """Instances, newest first."""
    created, instance_id = _start(query)
    values = {
        "created": created,
        "id": instance_id,
        "after": query.created_after or 0,
        "workflow": query.workflow,
        "instance": query.instance_id,
        "limit": query.limit,
    }
    if not query.status:
        return _stored(cursor, cursor.execute(one("list_rows"), values).fetchall())
    lines = [
        line
        for status in sorted(set(query.status))
        for line in cursor.execute(one(_LISTS.get(status, "list_of_status")), {**values, "status": status})
    ]
    lines.sort(key=lambda line: (line[_CREATED_AT], line[0]), reverse=True)
    return _stored(cursor, lines[: query.limit])


def history(cursor: sqlite3.Cursor, instance_id: str, generation: int, *, after: int, limit: int) -> list[Entry]:
    """Entries of one generation, in order."""
    return [entry_of(line) for line in cursor.execute(one("history_of"), (instance_id, generation, after, limit))]


def attempts(cursor: sqlite3.Cursor, instance_id: str, generation: int) -> list[Attempt]:
    """Failed and open attempts of one generation."""
    return [attempt_of(line) for line in cursor.execute(one("attempts_of"), (instance_id, generation))]


def journal(cursor: sqlite3.Cursor, instance_id: str) -> list[JournalEntry]:
    """An instance's journal, oldest first."""
    return [journal_entry_of(line) for line in cursor.execute(one("journal_of"), (instance_id,))]


def source(cursor: sqlite3.Cursor, code: str) -> str | None:
    """The source of a workflow."""
    line = cursor.execute(one("source_of"), (code,)).fetchone()
    return None if line is None else line[0]


def _start(query: Query) -> tuple[int, str]:
    """The key the list continues below. No id is below the empty one, so `created_before` itself is left out."""
    bound = (_ENDLESS if query.created_before is None else query.created_before, "")
    return bound if query.before is None else min(bound, query.before)


def _stored(cursor: sqlite3.Cursor, lines: Sequence[Sequence[Any]]) -> list[Stored]:
    waits = _waits(cursor, [line[0] for line in lines])
    return [_with_payloads(line, tuple(waits.get(line[0], ()))) for line in lines]


def _with_payloads(line: Sequence[Any], waits: tuple[Wait, ...]) -> Stored:
    given, output, error = line[ROW_WIDTH:_BEGUN_AT]
    return Stored(row_of(line), given or b"", output, error, waits)


def _waits(cursor: sqlite3.Cursor, ids: Sequence[str]) -> dict[str, list[Wait]]:
    found: dict[str, list[Wait]] = {}
    for instance_id, *line in cursor.execute(one("waits_of"), (as_json(ids),)):
        found.setdefault(instance_id, []).append(wait_of(line))
    return found


def _mails(cursor: sqlite3.Cursor, instance_id: str) -> tuple[Mail, ...]:
    return tuple(mail_of(line) for line in cursor.execute(one("inbox_of"), (instance_id,)))
