"""Plain steps, many with one statement: a run goes on under the same epoch, and only its history grows.

Most writes are this. The statement checks every epoch itself and writes all or nothing, so a batch of nothing else needs no
transaction around it. That saves more than statements: Python lets go of its global lock at each, and a writer that wants it
back waits for the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from romancy.errors import StoreError
from romancy.model.transition import Applied, Transition, Write, WriteResult
from romancy.store.sql.fast_path import MAX_STEP_ENTRIES, is_step
from romancy.store.sqlite.statements import repeat_values


def is_one_statement(batch: Sequence[Write]) -> TypeGuard[Sequence[Transition]]:
    """The whole batch can be one statement."""
    entries = 0
    for write in batch:
        if not is_step(write):
            return False
        entries += len(write.history)
    return entries <= MAX_STEP_ENTRIES


def split_steps(steps: Mapping[int, Transition]) -> Iterator[dict[int, Transition]]:
    """The steps in portions of one statement each."""
    portion: dict[int, Transition] = {}
    entries = 0
    for index, step in steps.items():
        entries += len(step.history)
        if entries > MAX_STEP_ENTRIES:
            yield portion
            portion, entries = {}, len(step.history)
        portion[index] = step
    if portion:
        yield portion


def write_steps(cursor: sqlite3.Cursor, steps: Sequence[Transition]) -> list[WriteResult | StoreError] | None:
    """Write steps, no more entries than `MOST`; None if one of them must go the long way: then none is written.

    Each number of entries is a statement of its own, prepared once.
    """
    values: list[Any] = []
    for step in steps:
        head = (step.instance_id, step.generation, step.epoch, step.worker, step.inbox_seen, step.status)
        for entry in step.history:
            values += head
            values += entry
    try:
        cursor.execute(repeat_values("add_steps", sum([len(step.history) for step in steps])), values)
    except sqlite3.IntegrityError:
        return None
    return [Applied(step.inbox_seen, True) for step in steps]
