"""Who owns what: claims, releases, dead workers, and what is thrown away.

Each function is the work of one transaction.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from romancy.model.instance import Row, WorkerRow
from romancy.store.port import Runnable
from romancy.store.sqlite import channels, events
from romancy.store.sqlite.calls import pass_on
from romancy.store.sqlite.keys import as_json, fetch, kinds_as_json
from romancy.store.sqlite.rows import row_of
from romancy.store.sqlite.statements import one

_WORKER = attrgetter("id", "label", "service", "host", "pid", "python", "kinds", "started_at", "beat_at")
_PRUNED = ("prune_instances", "prune_payloads", "prune_history", "prune_attempts", "prune_journal", "prune_consumed")


def due(
    cursor: sqlite3.Cursor, runnable: Sequence[Runnable], ids: Sequence[str] | None, *, now: int, limit: int, turn: int
) -> list[str]:
    """The instances to claim: due and runnable, each kind in its turn, the oldest of a kind first."""
    if ids is None:
        found = fetch(cursor, "due", {"kinds": kinds_as_json(runnable), "now": now, "limit": limit})
    else:
        found = fetch(cursor, "due_of", (as_json(ids), now))
    return _fairly(found, runnable, limit, turn)


def blocked(
    cursor: sqlite3.Cursor, runnable: Sequence[Runnable], ids: Sequence[str] | None, *, limit: int, turn: int
) -> list[str]:
    """The instances to claim that other code than ours could not run."""
    # With `ids` the bound must not hide the wanted ones behind others.
    found = fetch(cursor, "blocked", {"kinds": kinds_as_json(runnable), "limit": limit if ids is None else -1})
    wanted = None if ids is None else set(ids)
    return _fairly([line for line in found if wanted is None or line[0] in wanted], runnable, limit, turn)


def take(cursor: sqlite3.Cursor, worker: str, ids: Sequence[str], *, now: int) -> list[Row]:
    """Give instances to a worker under a new epoch."""
    if not ids:
        return []
    keys = as_json(ids)
    cursor.execute(one("take"), {"worker": worker, "now": now, "ids": keys})
    cursor.execute(one("note_each"), {"now": now, "kind": "claimed", "detail": "", "ids": keys})
    return [row_of(line) for line in fetch(cursor, "rows", (keys,))]


def release(cursor: sqlite3.Cursor, worker: str, *, now: int) -> int:
    """Free everything a worker owns and strike it off."""
    freed = _free(cursor, fetch(cursor, "owned", (worker, -1)), "released", now)
    cursor.execute(one("strike"), (worker,))
    return freed


def sweep(cursor: sqlite3.Cursor, dead: Sequence[tuple[str, int]], *, now: int, limit: int) -> int:
    """Free instances of workers that are still as silent as they were seen, and of owners that are no workers."""
    freed = 0
    for worker, beat_at in dead:
        if _has_beaten(cursor, worker, beat_at):
            continue
        room = limit - freed
        # One more than there is room for tells whether the worker will be empty.
        owned = fetch(cursor, "owned", (worker, room + 1))
        freed += _free(cursor, owned[:room], "lost", now)
        if len(owned) <= room:
            cursor.execute(one("strike"), (worker,))
    return freed + _free(cursor, fetch(cursor, "orphans", (limit - freed,)), "lost", now)


def strand(cursor: sqlite3.Cursor, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
    """Block instances of kinds that nobody can run, once they have been due for long."""
    stranded = 0
    for kind in kinds:
        found = fetch(cursor, "due", {"kinds": kinds_as_json([kind]), "now": due_before, "limit": limit - stranded})
        if found:
            label = f"{kind.workflow} version {kind.version}" if kind.version else kind.workflow
            keys, why = as_json(line[0] for line in found), f"no worker knows the workflow {label}"
            cursor.execute(one("strand"), {"now": now, "ids": keys})
            cursor.execute(one("note_each"), {"now": now, "kind": "blocked", "detail": why, "ids": keys})
            pass_on(cursor, [line[0] for line in found], now)
        stranded += len(found)
    return stranded


def enlist(cursor: sqlite3.Cursor, worker: WorkerRow) -> None:
    """Record a worker."""
    cursor.execute(one("enlist"), _WORKER(worker))


def save_source(cursor: sqlite3.Cursor, values: tuple[str, str, str, str, int]) -> None:
    """Keep a source: code, workflow, version, source, time."""
    cursor.execute(one("save_source"), values)


def save_handlers(cursor: sqlite3.Cursor, handlers: Sequence[tuple[str, str, bool]], now: int) -> None:
    """Note which workflows (name, version) handle events, and which do not."""
    for workflow, version, handles in handlers:
        if handles:
            cursor.execute(one("save_handler"), (workflow, version, now))
        else:
            cursor.execute(one("drop_handler"), (workflow, version))


def prune(cursor: sqlite3.Cursor, *, ended_before: int, limit: int) -> int:
    """Delete instances that ended long ago, with everything of theirs."""
    ids = fetch(cursor, "prunable", (ended_before, limit))
    if ids:
        for name in _PRUNED:
            cursor.execute(one(name), (as_json(ids),))
    return len(ids)


def forget(cursor: sqlite3.Cursor, *, events_before: int, messages_before: int, limit: int) -> int:
    """Delete events that are older than the promise, and messages that nobody took."""
    forgotten = events.prune(cursor, accepted_before=events_before, limit=limit)
    return max(forgotten, channels.prune(cursor, created_before=messages_before, limit=limit))


def _has_beaten(cursor: sqlite3.Cursor, worker: str, beat_at: int) -> bool:
    # Read under the write lock: a worker that was kept from beating by whoever held it has had its chance.
    row = cursor.execute(one("heartbeat"), (worker,)).fetchone()
    return row is not None and row[0] != beat_at


def _free(cursor: sqlite3.Cursor, ids: Sequence[str], why: str, now: int) -> int:
    if ids:
        keys = as_json(ids)
        cursor.execute(one("note_each"), {"now": now, "kind": why, "detail": "", "ids": keys})
        cursor.execute(one("free"), {"now": now, "ids": keys})
        pass_on(cursor, ids, now)  # what they were called for, somebody else may have sooner
    return len(ids)


def _fairly(found: Iterable[Sequence[str]], runnable: Sequence[Runnable], limit: int, turn: int) -> list[str]:
    """Up to `limit` ids, one of each kind after the other, beginning with another kind at each turn."""
    queues: dict[tuple[str, str], deque[str]] = {(kind.workflow, kind.version): deque() for kind in runnable}
    for instance_id, workflow, version, _ in sorted(found, key=lambda line: line[3]):
        if (workflow, version) in queues:
            queues[workflow, version].append(instance_id)
    waiting = deque(queue for queue in queues.values() if queue)
    waiting.rotate(-turn)
    return [instance_id for instance_id, _ in zip(_in_turn(waiting), range(limit), strict=False)]


def _in_turn(waiting: deque[deque[str]]) -> Iterator[str]:
    while waiting:
        queue = waiting.popleft()
        yield queue.popleft()
        if queue:
            waiting.append(queue)
