"""The short way: what most writes of a batch do takes one statement each, decided by its WHERE.

A new instance, an end with nothing left to clear; steps in between share one statement (`steps`). The statement finds no row
when anything is out of the ordinary (the id is taken, the epoch old, something arrived): then the write goes the long way,
which looks first and can say why.
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
    """The short way through one transaction. Steps, and rows no decision hangs on, are gathered and written by `flush`."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.answers: dict[int, WriteResult | StoreError] = {}
        self.slow_path: list[int] = []
        """What must go the long way, after everything else."""
        self._cursor = cursor
        self._pending_ids: set[str] = set()
        """Instances of which something is yet to be written: what follows it must not overtake it."""
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
        elif (answer := self._decide(write)) is not None:
            self.answers[index] = answer
        else:
            self.slow_path.append(index)
            self._pending_ids.add(write.instance_id)

    def flush(self) -> None:
        """Write what was gathered."""
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
                self.answers |= zip(portion, done, strict=True)

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
            return None  # the long way says what is wrong with it
        held = write.owner is not None
        values = (
            write.instance_id,
            write.workflow,
            write.version,
            Status.RUNNING if held else Status.PENDING,
            1 if held else 0,
            write.owner,
            None if held else write.now,
            write.deadline_at,
            write.now,
            write.now if held else None,
            write.now,
            write.code,
            write.python,
            write.digest,
        )
        if self._cursor.execute(get_statement("fast_create"), values).rowcount != 1:
            return None
        self._payloads.append((write.instance_id, write.input))
        return Applied(0, held)
