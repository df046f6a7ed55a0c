"""The fast path: most writes of a batch take one statement each, whose WHERE clause does all checks.

It takes new instances and ends with nothing left to clear; steps share one statement (`step_batch`). A statement changes no
row on a conflict (the id is taken, the epoch is old, something arrived): then the write takes the slow path, which reads the
instance first and can tell why it refuses.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from romancy.errors import StoreError
from romancy.model.status import Status
from romancy.model.transition import (
    AcceptEvents,
    Applied,
    CreateInstance,
    Ending,
    PostMessage,
    Transition,
    Write,
    WriteResult,
)
from romancy.store.sql.fast_path import has_extras, is_step
from romancy.store.sqlite.statements import get_statement
from romancy.store.sqlite.step_batch import split_steps, write_steps


class SqliteFastPath:
    """The fast path of one transaction. Steps, and rows without conditions, are collected and written by `flush`."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.results: dict[int, WriteResult | StoreError] = {}
        self.slow_path: list[int] = []
        """Indexes of the writes that must take the slow path, after all others."""
        self._cursor = cursor
        self._pending_ids: set[str] = set()
        """Instances with a write that is still to be made: a later write of theirs must not overtake it."""
        self._steps: dict[int, Transition] = {}
        self._payloads: list[tuple[Any, ...]] = []
        self._results: list[tuple[Any, ...]] = []
        self._history: list[tuple[Any, ...]] = []

    def write(self, index: int, write: Write) -> None:
        """Make a write, gather it, or leave it for later."""
        if isinstance(write, AcceptEvents | PostMessage) or write.instance_id in self._pending_ids:
            self.slow_path.append(index)
        elif is_step(write):
            self._steps[index] = write
            self._pending_ids.add(write.instance_id)
        elif (result := self._decide(write)) is not None:
            self.results[index] = result
        else:
            self.slow_path.append(index)
            self._pending_ids.add(write.instance_id)

    def flush(self) -> None:
        """Write the collected rows and steps."""
        for name, rows in (
            ("add_payloads", self._payloads),
            ("set_results", self._results),
            ("add_history", self._history),
        ):
            if rows:
                self._cursor.executemany(get_statement(name), rows)
        for portion in split_steps(self._steps):
            done = write_steps(self._cursor, list(portion.values()))
            if done is None:
                self.slow_path += portion
            else:
                self.results |= zip(portion, done, strict=True)

    def _decide(self, write: Write) -> Applied | None:
        if type(write) is Transition and write.ending is not None:
            return self._end(write, write.ending)
        return self._create(write) if type(write) is CreateInstance else None

    def _end(self, write: Transition, ending: Ending) -> Applied | None:
        if write.inbox_seen != 0 or write.has_messaging_state or write.length is None or has_extras(write):
            return None
        fence = (write.instance_id, write.generation, write.epoch, write.worker, write.inbox_seen, write.length)
        values = (write.status, write.now, write.now, ending.fingerprint, *fence)
        if self._cursor.execute(get_statement("fast_end"), values).rowcount != 1:
            return None
        head = (write.instance_id, write.generation)
        self._results.append((ending.output, ending.error, *head))
        self._history += [head + entry for entry in write.history]
        return Applied(write.inbox_seen, False)

    def _create(self, write: CreateInstance) -> Applied | None:
        if "\0" in write.instance_id or write.ending is not None:
            return None  # the slow path raises the error
        owned = write.owner is not None
        values = (
            write.instance_id,
            write.workflow,
            write.version,
            Status.RUNNING if owned else Status.PENDING,
            1 if owned else 0,
            write.owner,
            None if owned else write.now,
            write.deadline_at,
            write.now,
            write.now if owned else None,
            write.now,
            write.code,
            write.python,
            write.digest,
        )
        if self._cursor.execute(get_statement("fast_create"), values).rowcount != 1:
            return None
        self._payloads.append((write.instance_id, write.input))
        return Applied(0, owned)
