"""Writes many plain steps with one statement: runs that continue under the same epoch, and only their history grows.

Most writes are steps. The statement checks every epoch itself and writes all or nothing, so a batch of steps needs no
transaction around it. That saves more than statements: Python releases its global lock at each, and a writer that needs it
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
    """Whether the whole batch can be one statement."""
    entries = 0
    for write in batch:
        if not is_step(write):
            return False
        entries += len(write.history)
    return entries <= MAX_STEP_ENTRIES


def split_steps(steps: Mapping[int, Transition]) -> Iterator[dict[int, Transition]]:
    """Yield the steps in portions of one statement each."""
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
    """Write steps of at most `MAX_STEP_ENTRIES` entries. Returns None, and writes none, if one has to take the slow path.

    Each number of entries has a statement of its own, prepared once.
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
