"""Ownership of instances (claiming, releasing, sweeping dead workers), registration of workers, and pruning.

Each public function is the work of one transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from romancy.clock import MICROS
from romancy.model.instance import InstanceRow, WorkerRow
from romancy.store.port import Runnable, SweepResult
from romancy.store.sql import channels, events
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import NO_LIMIT, as_json, kinds_as_json
from romancy.store.sql.rows import row_of
from romancy.store.sql.wakeups import wake_replacements

_WORKER = attrgetter("id", "label", "service", "hostname", "pid", "python", "workflows", "started_at", "heartbeat_at")
_PRUNE_STATEMENTS = (
    "prune_instances", "prune_payloads", "prune_history", "prune_attempts", "prune_losses", "prune_journal",
    "prune_consumed_by_instance",
)  # fmt: skip
_ISOLATION_TIME = 30 * MICROS
"""For so long an isolated instance keeps back other suspects of its worker, unless it records something before."""
_ISOLATION_RETRY_AFTER = 1 * MICROS
"""Delay of a suspect that is kept back while another one runs isolated."""
_SHARED_LOSS_FACTOR = 2
"""An instance that lost its workers beside other suspects is paused only after this multiple of the limit."""


def find_due(
    cursor: Cursor,
    worker: str,
    runnable: Sequence[Runnable],
    ids: Sequence[str] | None,
    *,
    now: int,
    limit: int,
    offset: int,
) -> list[str]:
    """Return the instances that a worker claims: due and runnable, round robin over the kinds, oldest first in each."""
    if ids is None:
        found = cursor.json_rows("due", {"kinds": kinds_as_json(runnable), "now": now, "limit": limit})
    else:
        found = cursor.json_rows("due_of", (as_json(ids), now))
    if suspects := [row[0] for row in found if row[4]]:
        kept_back = _isolate_suspects(cursor, worker, suspects, now)
        found = [row for row in found if row[0] not in kept_back]
    return _pick_fairly(found, runnable, limit, offset)


def find_blocked(
    cursor: Cursor, runnable: Sequence[Runnable], ids: Sequence[str] | None, *, before: int, limit: int, offset: int
) -> list[str]:
    """Return blocked instances to claim: blocked by other code than `runnable` names, or by any code before a time."""
    # With `ids` there is no limit in the statement: it could leave out the given ones.
    bounds = {"before": before, "limit": limit if ids is None else NO_LIMIT}
    found = cursor.json_rows("blocked", {"kinds": kinds_as_json(runnable), **bounds})
    given = None if ids is None else set(ids)
    return _pick_fairly([row for row in found if given is None or row[0] in given], runnable, limit, offset)


def claim(cursor: Cursor, worker: str, ids: Sequence[str], *, now: int) -> list[InstanceRow]:
    """Give instances to a worker under a new epoch."""
    if not ids:
        return []
    keys = as_json(ids)
    cursor.run("claim_instances", {"worker": worker, "now": now, "ids": keys})
    cursor.run("note_each", {"now": now, "kind": "claimed", "detail": "", "ids": keys})
    return [row_of(row) for row in cursor.json_rows("instance_rows", (keys,))]


def release(cursor: Cursor, worker: str, *, now: int) -> int:
    """Free all instances that a worker owns, and deregister the worker."""
    freed = _free(cursor, cursor.json_rows("owned", (worker, NO_LIMIT)), "released", now)
    cursor.run("deregister_worker", (worker,))
    return freed


def sweep(
    cursor: Cursor, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None
) -> SweepResult:
    """Free instances of workers whose heartbeat has not changed since they were found dead, and of unregistered owners.

    With `max_losses`, instances that have lost so many workers without recording anything in between are paused instead.
    """
    freed, paused = 0, list[tuple[str, str]]()
    for worker, heartbeat_at in dead:
        if _has_heartbeat_changed(cursor, worker, heartbeat_at):
            continue
        room = limit - freed
        # Reading one more than may be freed shows whether the worker owns nothing afterwards.
        owned = cursor.json_rows("owned", (worker, room + 1))
        lost = owned[:room]
        if max_losses is not None and lost:
            culprits = _count_losses(cursor, worker, lost, max_losses, now)
            paused += culprits
            freed += len(culprits)
            lost = [id for id in lost if id not in dict(culprits)]
        freed += _free(cursor, lost, "lost", now)
        if len(owned) <= room:
            cursor.run("deregister_worker", (worker,))
    # An unregistered owner was declared dead and is alive, or belongs to another copy of the database: no loss is counted.
    freed += _free(cursor, cursor.json_rows("orphans", (limit - freed,)), "lost", now)
    return SweepResult(freed, tuple(paused))


def mark_unrunnable(cursor: Cursor, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
    """Block instances of kinds that no worker can run, once they have been due for long."""
    blocked = 0
    for kind in kinds:
        found = cursor.json_rows("due", {"kinds": kinds_as_json([kind]), "now": due_before, "limit": limit - blocked})
        if found:
            label = f"{kind.workflow} version {kind.version}" if kind.version else kind.workflow
            keys, why = as_json(row[0] for row in found), f"no running worker has workflow {label}"
            cursor.run("mark_unrunnable", {"now": now, "ids": keys})
            cursor.run("note_each", {"now": now, "kind": "blocked", "detail": why, "ids": keys})
            wake_replacements(cursor, [row[0] for row in found], now)
        blocked += len(found)
    return blocked


def register_worker(cursor: Cursor, worker: WorkerRow) -> None:
    """Register a worker."""
    cursor.run("register_worker", _WORKER(worker))


def save_source(cursor: Cursor, values: tuple[str, str, str, str, int], *, replace: bool) -> None:
    """Save a source: code, workflow, version, source, time."""
    cursor.run("replace_source" if replace else "save_source", values)


def save_handlers(cursor: Cursor, handlers: Sequence[tuple[str, str, bool]], now: int) -> None:
    """Record which workflows (name, version) handle events of their name and which do not."""
    for workflow, version, handles in handlers:
        if handles:
            cursor.run("save_handler", (workflow, version, now))
        else:
            cursor.run("drop_handler", (workflow, version))


def prune_instances(cursor: Cursor, *, ended_before: int, limit: int) -> int:
    """Delete instances that ended long ago, with all their rows."""
    ids = cursor.json_rows("prunable", (ended_before, limit))
    if ids:
        for name in _PRUNE_STATEMENTS:
            cursor.run(name, (as_json(ids),))
    return len(ids)


def prune_generations(cursor: Cursor, *, over_before: int, limit: int) -> int:
    """Delete archived generations that ended long ago."""
    old = cursor.rows("old_generations", (over_before, limit))
    if old:
        for name in ("forget_payload", "forget_history", "forget_attempts"):
            cursor.many(name, old)
    return len(old)


def prune_messaging(cursor: Cursor, *, events_before: int, messages_before: int, limit: int) -> int:
    """Delete events that are older than the retention, and old messages that no instance has taken."""
    pruned = events.prune(cursor, accepted_before=events_before, limit=limit)
    return max(pruned, channels.prune(cursor, created_before=messages_before, limit=limit))


def _has_heartbeat_changed(cursor: Cursor, worker: str, heartbeat_at: int) -> bool:
    # Read under the write lock: a heartbeat that had to wait for another holder of the lock has been written by now.
    row = cursor.first("heartbeat_of", (worker,))
    return row is not None and row[0] != heartbeat_at


def _isolate_suspects(cursor: Cursor, worker: str, ids: Sequence[str], now: int) -> set[str]:
    """Let a worker run only one suspect at a time (an instance that the next loss may pause); put off and return the others.

    When that worker dies, the loss can be attributed to the one suspect, and not to those that merely ran beside it.
    """
    suspects = sorted(row[0] for row in cursor.json_rows("losses", {"ids": as_json(ids)}) if row[6])
    since = now - _ISOLATION_TIME
    owned = [id for id, claimed_at in cursor.json_rows("owned_isolated", (worker,)) if claimed_at > since]
    kept_back = suspects if owned else suspects[1:]
    if kept_back:
        cursor.run("put_off", {"at": now + _ISOLATION_RETRY_AFTER, "ids": as_json(kept_back)})
    return set(kept_back)


def _count_losses(cursor: Cursor, worker: str, ids: Sequence[str], max_losses: int, now: int) -> list[tuple[str, str]]:
    """Count the loss of their worker for instances, and pause those with too many losses; return their ids and reasons."""
    found = cursor.json_rows("losses", {"ids": as_json(ids)})
    suspects = (
        [row[0] for row in found] if max_losses == 1 else [id for id, _ in cursor.json_rows("owned_isolated", (worker,))]
    )
    paused: list[tuple[str, str]] = []
    rows, notes = [], []
    for id, owner, epoch, generation, progress, before, _, ops in found:
        losses = before + 1
        rows.append((id, generation, progress, losses, int(losses >= max_losses - 1)))
        if losses >= max_losses and (suspects == [id] or losses >= _SHARED_LOSS_FACTOR * max_losses):
            where = f" in {ops}" if ops else " without recording anything in between"
            why = f"its worker died {losses} time{'s' * (losses > 1)}{where}, last on {owner}"
            paused.append((id, why))
            notes.append((id, now, "pause", why, "", epoch))
    cursor.many("note_losses", rows)
    if paused:
        keys = as_json([id for id, _ in paused])
        cursor.run("note_each", {"now": now, "kind": "lost", "detail": "", "ids": keys})
        cursor.many("add_notes", notes)
        cursor.run("set_aside", {"now": now, "ids": keys})
        wake_replacements(cursor, [id for id, _ in paused], now)
    return paused


def _free(cursor: Cursor, ids: Sequence[str], why: str, now: int) -> int:
    if ids:
        keys = as_json(ids)
        cursor.run("note_each", {"now": now, "kind": why, "detail": "", "ids": keys})
        cursor.run("free", {"now": now, "ids": keys})
        wake_replacements(cursor, ids, now)  # others may take sooner what these were woken for
    return len(ids)


def _pick_fairly(found: Iterable[Sequence[str]], runnable: Sequence[Runnable], limit: int, offset: int) -> list[str]:
    """Return up to `limit` ids, round robin over the kinds; `offset` rotates the kind that comes first."""
    queues: dict[tuple[str, str], deque[str]] = {(kind.workflow, kind.version): deque() for kind in runnable}
    for instance_id, workflow, version, *_ in sorted(found, key=lambda row: row[3]):
        if (workflow, version) in queues:
            queues[workflow, version].append(instance_id)
    waiting = deque(queue for queue in queues.values() if queue)
    waiting.rotate(-offset)
    return [instance_id for instance_id, _ in zip(_round_robin(waiting), range(limit), strict=False)]


def _round_robin(waiting: deque[deque[str]]) -> Iterator[str]:
    while waiting:
        queue = waiting.popleft()
        yield queue.popleft()
        if queue:
            waiting.append(queue)
