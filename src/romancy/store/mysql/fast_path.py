"""The fast path: two packets for most writes of a batch.

It takes new instances, steps that only append to the history, and ends with nothing left to clear. A write with a conflict
(the epoch is old, something arrived, another transaction has locked the row) is left out here and takes the slow path,
which can tell why it refuses. If an id is taken, or a history has grown since it was read, a unique key refuses the insert,
and the whole batch takes the slow path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from romancy.model.transition import AcceptEvents, Applied, CreateInstance, PostMessage, Transition, Write, WriteResult
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.fast_path import has_extras, is_step
from romancy.store.sql.transaction_runner import Work
from romancy.store.sql.transitions import create
from romancy.store.sql.unit_of_work import InstanceState, UnitOfWork


class OwnedRow(NamedTuple):
    """A row of the statement `fast_path`: an instance that no other transaction has locked."""

    id: str
    generation: int
    epoch: int
    owner: str | None
    inbox_version: int
    inbox_version_seen: int
    status: str
    wake_at: int | None
    retrying_since: int | None
    length: int


def select_fast(batch: Sequence[Write]) -> Work[dict[int, WriteResult]] | None:
    """Return the work for those writes of a batch that can take the fast path, or None if there are none."""
    chosen: dict[int, CreateInstance | Transition] = {}
    seen: set[str] = set()
    for index, write in enumerate(batch):
        if isinstance(write, AcceptEvents | PostMessage):
            continue
        # A later write of an instance must not overtake an earlier one.
        if write.instance_id not in seen and isinstance(write, CreateInstance | Transition) and _is_plain(write):
            chosen[index] = write
        seen.add(write.instance_id)
    return partial(apply_fast, chosen=chosen) if chosen else None


def _is_plain(write: CreateInstance | Transition) -> bool:
    if isinstance(write, CreateInstance):
        return write.ending is None and "\0" not in write.instance_id  # else the slow path raises the error
    return is_step(write) or _is_plain_end(write)


def _is_plain_end(write: Transition) -> bool:
    plain = write.ending is not None and not write.has_messaging_state and write.length is not None and write.inbox_seen == 0
    return plain and not has_extras(write)


def apply_fast(cursor: Cursor, chosen: dict[int, CreateInstance | Transition]) -> dict[int, WriteResult]:
    """Apply the writes without conflict; the others have no result."""
    ids = [write.instance_id for write in chosen.values() if isinstance(write, Transition)]
    rows = {row[0]: OwnedRow(*row) for row in cursor.rows("fast_path", {"ids": ids})} if ids else {}
    results: dict[int, WriteResult] = {}
    unit = _FastUnitOfWork(cursor)
    for index, write in sorted(chosen.items(), key=lambda item: item[1].instance_id):
        if isinstance(write, CreateInstance):
            results[index] = create(unit, write)
        elif _is_current(write, rows.get(write.instance_id)):
            results[index] = unit.apply(write)
    unit.flush()
    return results


def _is_current(write: Transition, owned: OwnedRow | None) -> bool:
    """Whether the instance has not changed since its run last read it."""
    if owned is None or (owned.generation, owned.epoch, owned.owner) != (write.generation, write.epoch, write.worker):
        return False
    if not owned.inbox_version == owned.inbox_version_seen == write.inbox_seen or owned.length != write.length:
        return False
    return write.ending is not None or (owned.status, owned.wake_at, owned.retrying_since) == (write.status, None, None)


class _FastUnitOfWork(UnitOfWork):
    """A unit of work that loads no states: `apply_fast` has made all checks."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor, (), read_statement=None)

    def apply(self, write: Transition) -> WriteResult:
        """Apply a step, or an end."""
        state = InstanceState(write.instance_id, write.status, write.generation)
        self.add_history(state, write.history)
        if (ending := write.ending) is not None:
            row = (write.status, write.now, write.now, ending.fingerprint, write.instance_id)
            self.cursor.many("fast_end", [row])
            self.set_results(state, ending.output, ending.error)
        return Applied(write.inbox_seen, ending is None)
