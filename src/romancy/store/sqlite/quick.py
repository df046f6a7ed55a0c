"""The short way: what most writes of a batch do takes one statement each, decided by its WHERE.

A new instance, a step of a run that stays in hand, an end with nothing left to clear. The statement finds no row when
anything is out of the ordinary (the id is taken, the epoch old, something arrived): then the write goes the long way, which
looks first and can say why.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from romancy.model.status import Status
from romancy.model.transition import Applied, Create, Transition, Write
from romancy.store.sqlite.statements import one


class Quick:
    """The short way through one transaction. Rows that no decision hangs on are gathered and written by `flush`."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self._payloads: list[tuple[Any, ...]] = []
        self._results: list[tuple[Any, ...]] = []
        self._history: list[tuple[Any, ...]] = []

    def write(self, write: Write) -> Applied | None:
        """Make a write; None if it must go the long way."""
        if type(write) is Transition:
            return self._transition(write)
        if type(write) is Create:
            return self._create(write)
        return None

    def flush(self) -> None:
        """Write what was gathered."""
        for name, rows in (
            ("add_payloads", self._payloads),
            ("set_results", self._results),
            ("add_history", self._history),
        ):
            if rows:
                self._cursor.executemany(one(name), rows)

    def _transition(self, write: Transition) -> Applied | None:
        extras = write.attempts or write.closed or write.waits or write.withdrawn or write.consumed or write.notes
        if extras or write.new_epoch != write.epoch or write.blocked_by is not None or write.length is None:
            return None
        if write.deeds or write.asks or write.recur is not None:
            return None
        if write.ending is not None:
            done = write.seen == 0 and not write.bound and self._end(write)
        else:
            done = write.hold and write.wake_at is None and write.retrying_since is None and self._step(write)
        if not done:
            return None
        head = (write.instance_id, write.generation)
        self._history += [head + entry for entry in write.history]
        return Applied(write.seen, write.ending is None)

    def _step(self, write: Transition) -> bool:
        values = (*_fence(write), write.status, write.length)
        return self._cursor.execute(one("quick_check"), values).fetchone() is not None

    def _end(self, write: Transition) -> bool:
        ending = write.ending
        assert ending is not None
        values = (write.status, write.now, write.now, ending.fingerprint, *_fence(write), write.length)
        if self._cursor.execute(one("quick_end"), values).rowcount != 1:
            return False
        self._results.append((ending.output, ending.error, write.instance_id, write.generation))
        return True

    def _create(self, write: Create) -> Applied | None:
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
        if self._cursor.execute(one("quick_create"), values).rowcount != 1:
            return None
        self._payloads.append((write.instance_id, write.input))
        return Applied(0, held)


def _fence(write: Transition) -> tuple[Any, ...]:
    return write.instance_id, write.generation, write.epoch, write.worker, write.seen
