"""Who owns what: claims, releases, dead workers, and what is thrown away.

Each function is the work of one transaction.
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
"""So long an instance that has to run alone keeps others of its kind back, unless it records something before."""
_ISOLATION_RETRY_AFTER = 1 * MICROS
"""After so long an instance that has to run alone is looked at again, while another one runs."""
_SHARED_LOSS_FACTOR = 2
"""So many times the limit is how often an instance may lose its worker beside others that are as suspect."""


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
    """The instances that a worker claims: due and runnable, each kind in its turn, the oldest of a kind first."""
    if ids is None:
        found = cursor.json_rows("due", {"kinds": kinds_as_json(runnable), "now": now, "limit": limit})
    else:
        found = cursor.json_rows("due_of", (as_json(ids), now))
    if suspects := [line[0] for line in found if line[4]]:
        kept_back = _isolate_suspects(cursor, worker, suspects, now)
        found = [line for line in found if line[0] not in kept_back]
    return _pick_fairly(found, runnable, limit, offset)


def find_blocked(
    cursor: Cursor, runnable: Sequence[Runnable], ids: Sequence[str] | None, *, before: int, limit: int, offset: int
) -> list[str]:
    """The instances to claim that other code than ours could not run, or that any could not before a time."""
    # With `ids` the bound must not hide the wanted ones behind others.
    bounds = {"before": before, "limit": limit if ids is None else NO_LIMIT}
    found = cursor.json_rows("blocked", {"kinds": kinds_as_json(runnable), **bounds})
    wanted = None if ids is None else set(ids)
    return _pick_fairly([line for line in found if wanted is None or line[0] in wanted], runnable, limit, offset)


def claim(cursor: Cursor, worker: str, ids: Sequence[str], *, now: int) -> list[InstanceRow]:
    """Give instances to a worker under a new epoch."""
    if not ids:
        return []
    keys = as_json(ids)
    cursor.run("claim_instances", {"worker": worker, "now": now, "ids": keys})
    cursor.run("note_each", {"now": now, "kind": "claimed", "detail": "", "ids": keys})
    return [row_of(line) for line in cursor.json_rows("instance_rows", (keys,))]


def release(cursor: Cursor, worker: str, *, now: int) -> int:
    """Free everything a worker owns and strike it off."""
    freed = _free(cursor, cursor.json_rows("owned", (worker, NO_LIMIT)), "released", now)
    cursor.run("deregister_worker", (worker,))
    return freed


def sweep(
    cursor: Cursor, dead: Sequence[tuple[str, int]], *, now: int, limit: int, max_losses: int | None = None
) -> SweepResult:
    """Free instances of workers that are still as silent as they were seen, and of owners that are no workers.

    With `max_losses`, instances that have lost so many workers without recording anything in between are paused instead.
    """
    freed, paused = 0, list[tuple[str, str]]()
    for worker, beat_at in dead:
        if _has_heartbeat_changed(cursor, worker, beat_at):
            continue
        room = limit - freed
        # One more than there is room for tells whether the worker will be empty.
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
    # An owner that is no worker was taken for dead and is not, or is of another copy of the database: no loss is counted.
    freed += _free(cursor, cursor.json_rows("orphans", (limit - freed,)), "lost", now)
    return SweepResult(freed, tuple(paused))


def mark_unrunnable(cursor: Cursor, kinds: Sequence[Runnable], *, due_before: int, now: int, limit: int) -> int:
    """Block instances of kinds that nobody can run, once they have been due for long."""
    stranded = 0
    for kind in kinds:
        found = cursor.json_rows("due", {"kinds": kinds_as_json([kind]), "now": due_before, "limit": limit - stranded})
        if found:
            label = f"{kind.workflow} version {kind.version}" if kind.version else kind.workflow
            keys, why = as_json(line[0] for line in found), f"no worker knows the workflow {label}"
            cursor.run("mark_unrunnable", {"now": now, "ids": keys})
            cursor.run("note_each", {"now": now, "kind": "blocked", "detail": why, "ids": keys})
            wake_replacements(cursor, [line[0] for line in found], now)
        stranded += len(found)
    return stranded


def register_worker(cursor: Cursor, worker: WorkerRow) -> None:
    """Record a worker."""
    cursor.run("register_worker", _WORKER(worker))


def save_source(cursor: Cursor, values: tuple[str, str, str, str, int], *, replace: bool) -> None:
    """Keep a source: code, workflow, version, source, time."""
    cursor.run("replace_source" if replace else "save_source", values)


def save_handlers(cursor: Cursor, handlers: Sequence[tuple[str, str, bool]], now: int) -> None:
    """Note which workflows (name, version) handle events, and which do not."""
    for workflow, version, handles in handlers:
        if handles:
            cursor.run("save_handler", (workflow, version, now))
        else:
            cursor.run("drop_handler", (workflow, version))


def prune_instances(cursor: Cursor, *, ended_before: int, limit: int) -> int:
    """Delete instances that ended long ago, with everything of theirs."""
    ids = cursor.json_rows("prunable", (ended_before, limit))
    if ids:
        for name in _PRUNE_STATEMENTS:
            cursor.run(name, (as_json(ids),))
    return len(ids)


def prune_generations(cursor: Cursor, *, over_before: int, limit: int) -> int:
    """Delete archived generations that were over long ago."""
    old = cursor.rows("old_generations", (over_before, limit))
    if old:
        for name in ("forget_payload", "forget_history", "forget_attempts"):
            cursor.many(name, old)
    return len(old)


def prune_messaging(cursor: Cursor, *, events_before: int, messages_before: int, limit: int) -> int:
    """Delete events that are older than the promise, and messages that nobody took."""
    forgotten = events.prune(cursor, accepted_before=events_before, limit=limit)
    return max(forgotten, channels.prune(cursor, created_before=messages_before, limit=limit))


def _has_heartbeat_changed(cursor: Cursor, worker: str, heartbeat_at: int) -> bool:
    # Read under the write lock: a worker that was kept from beating by whoever held it has had its chance.
    row = cursor.first("heartbeat_of", (worker,))
    return row is not None and row[0] != heartbeat_at


def _isolate_suspects(cursor: Cursor, worker: str, ids: Sequence[str], now: int) -> set[str]:
    """Of instances whose next loss would be one too many a worker runs one at a time; the others are put off.

    When that worker dies, the one is told from those that merely ran beside it.
    """
    suspects = sorted(line[0] for line in cursor.json_rows("losses", {"ids": as_json(ids)}) if line[6])
    since = now - _ISOLATION_TIME
    held = [id for id, claimed_at in cursor.json_rows("owned_isolated", (worker,)) if claimed_at > since]
    kept_back = suspects if held else suspects[1:]
    if kept_back:
        cursor.run("put_off", {"at": now + _ISOLATION_RETRY_AFTER, "ids": as_json(kept_back)})
    return set(kept_back)


def _count_losses(cursor: Cursor, worker: str, ids: Sequence[str], max_losses: int, now: int) -> list[tuple[str, str]]:
    """Count that instances have lost their worker; those that have lost too many are paused: their ids, and why."""
    found = cursor.json_rows("losses", {"ids": as_json(ids)})
    suspects = (
        [line[0] for line in found] if max_losses == 1 else [id for id, _ in cursor.json_rows("owned_isolated", (worker,))]
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
    """Up to `limit` ids, one of each kind after the other, beginning with another kind at each turn."""
    queues: dict[tuple[str, str], deque[str]] = {(kind.workflow, kind.version): deque() for kind in runnable}
    for instance_id, workflow, version, *_ in sorted(found, key=lambda line: line[3]):
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
