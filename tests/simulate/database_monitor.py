"""Looks into the database after every commit, with a connection of its own, and tells what must not be.

What is checked here holds at every moment, whatever goes wrong: it needs no knowledge of the workflows.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from romancy.errors import StoreError
from romancy.model.status import ENDED, Status
from romancy.model.transition import Applied, Transition, Write, WriteResult

_BEGINS = frozenset({Status.PENDING, Status.RUNNING, Status.PAUSED, Status.TERMINATED})
"""The last two: with the commit of its start."""
_LIVE = frozenset(
    {
        Status.RUNNING,
        Status.WAITING_FOR_EVENT,
        Status.WAITING_FOR_MESSAGE,
        Status.WAITING_FOR_TIMER,
        Status.COMPENSATING,
        Status.PAUSED,
    }
)
_ENDS = ENDED - {Status.RECURRED}
_FOLLOWS: dict[Status, frozenset[Status]] = {
    Status.PENDING: _LIVE | {Status.CANCELLED, Status.TERMINATED, Status.FAILED},
    # Pending: its owner is held for dead, or has shut down; or it was paused and let go on with one commit.
    Status.RUNNING: _LIVE | _ENDS | {Status.PENDING},
    Status.WAITING_FOR_EVENT: _LIVE | _ENDS | {Status.PENDING},
    Status.WAITING_FOR_MESSAGE: _LIVE | _ENDS | {Status.PENDING},
    Status.WAITING_FOR_TIMER: _LIVE | _ENDS | {Status.PENDING},
    # Nothing but its end comes after the way back has begun, however often it is interrupted.
    Status.COMPENSATING: frozenset({Status.PAUSED, Status.PENDING, *_ENDS}) - {Status.COMPLETED},
    Status.PAUSED: _LIVE | _ENDS | {Status.PENDING},
    **dict.fromkeys(_ENDS, frozenset()),
}
"""Which status may come after which. None may become blocked here: the code fits."""

_ROWS = """
SELECT i.id, i.workflow, i.status, i.generation, i.epoch, i.owner, i.wake_at, i.inbox_version, i.inbox_version_seen,
       (SELECT count(*) FROM romancy_waits AS w WHERE w.instance_id = i.id)
FROM romancy_instances AS i ORDER BY i.id
"""
_HISTORY = """
SELECT seq, kind, op, outcome, at, name, role, digest, input, value, attempt, worker, epoch
FROM romancy_history WHERE instance_id = ? AND generation = ? ORDER BY seq
"""
_FAILED = "SELECT op, attempt FROM romancy_attempts WHERE instance_id = ? AND generation = ? AND NOT open"


class Seen(NamedTuple):
    """An instance, as the database has it."""

    id: str
    workflow: str
    status: Status
    generation: int
    epoch: int
    owner: str | None
    wake_at: int | None
    inbox_version: int
    inbox_version_seen: int
    waits: int


class Recorded(NamedTuple):
    """A line of a history, as the database has it."""

    seq: int
    kind: str
    op: str
    outcome: str
    at: int
    name: str
    role: int
    digest: bytes
    input: bytes | None
    value: bytes | None
    attempt: int
    worker: str
    epoch: int


class Watch:
    """Compares what is in the database with what was there before."""

    def __init__(self, path: str, fault: Callable[[str], None]) -> None:
        self._path = path
        self._connection = sqlite3.connect(":memory:")
        self._fault = fault
        self.rows: dict[str, Seen] = {}
        self._owners: dict[tuple[str, int], str] = {}
        """Who has written under each epoch of an instance."""
        self._histories: dict[tuple[str, int], list[Recorded]] = {}

    def open(self) -> None:
        """Begin to look: the file is there."""
        self._connection.close()
        self._connection = sqlite3.connect(self._path, isolation_level=None)

    def close(self) -> None:
        """Look no more."""
        self._connection.close()

    # --- looking

    def history(self, instance_id: str, generation: int) -> list[Recorded]:
        """What is recorded of an instance."""
        return [Recorded(*line) for line in self._connection.execute(_HISTORY, (instance_id, generation))]

    def failed(self, instance_id: str, generation: int) -> set[tuple[str, int]]:
        """Attempts that are recorded as failed: operation and number."""
        return set(self._connection.execute(_FAILED, (instance_id, generation)))

    def has_event(self, source: str, id: str) -> bool:
        """Whether an event is stored."""
        found = self._connection.execute("SELECT 1 FROM romancy_events WHERE source = ? AND id = ?", (source, id))
        return found.fetchone() is not None

    def undelivered(self) -> int:
        """How much is left in the outbox."""
        return int(self._connection.execute("SELECT count(*) FROM romancy_outbox").fetchone()[0])

    # --- after a commit

    def look(self) -> None:
        """Something other than a batch was written."""
        before, self.rows = self.rows, self._read()
        for id in before.keys() - self.rows.keys():
            self._fault(f"{id} was there, and is gone")
        for row in self.rows.values():
            known = before.get(row.id)
            if known != row:
                self._check(known, row)

    def committed(self, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        """A batch was written."""
        for write, answer in zip(batch, answers, strict=True):
            if isinstance(write, Transition) and isinstance(answer, Applied):
                self._check_writer(write)
        self.look()
        for id in dict.fromkeys(_touched(batch)):
            if id in self.rows:
                self.check_history(self.rows[id])

    def _read(self) -> dict[str, Seen]:
        found = self._connection.execute(_ROWS).fetchall()
        return {row[0]: Seen(row[0], row[1], Status(row[2]), *row[3:]) for row in found}

    def _check(self, before: Seen | None, row: Seen) -> None:
        if before is None:
            if row.status not in _BEGINS:
                self._fault(f"{row.id} begins as {row.status}")
        else:
            self._check_change(before, row)
        if row.owner is not None:
            self._check_owner(row.id, row.epoch, row.owner)
        if not row.status.ended and not _can_wake(row):
            self._fault(f"{row.id} is {row.status}, and nothing will ever wake it: {row}")
        if row.status.ended and (row.owner is not None or row.wake_at is not None or row.waits):
            self._fault(f"{row.id} is {row.status}, and somebody still has it or waits for it: {row}")

    def _check_change(self, before: Seen, row: Seen) -> None:
        if row.status is not before.status and row.status not in _FOLLOWS.get(before.status, frozenset()):
            self._fault(f"{row.id} was {before.status}, and is {row.status}")
        if row.epoch < before.epoch or row.generation < before.generation:
            self._fault(f"{row.id} went back from {before} to {row}")
        if row.owner is not None and row.owner != before.owner and row.epoch == before.epoch:
            self._fault(f"{row.id} came from {before.owner} to {row.owner} without a new epoch ({row.epoch})")
        if before.status.ended:
            self._fault(f"{row.id} had ended as {before}, and is {row}")

    def _check_owner(self, id: str, epoch: int, worker: str) -> None:
        known = self._owners.setdefault((id, epoch), worker)
        if known != worker:
            self._fault(f"{worker} and {known} both had {id} under epoch {epoch}")

    def _check_writer(self, write: Transition) -> None:
        """Only its owner writes an instance, or whoever claims it with the write; and under its epoch."""
        row = self.rows.get(write.instance_id)
        if row is None:
            return  # created by the same batch
        if row.epoch > write.epoch:
            self._fault(f"{write.worker} wrote {row.id} under epoch {write.epoch}; it was {row.epoch}, of {row.owner}")
        elif row.owner not in (None, write.worker):
            self._fault(f"{write.worker} wrote {row.id}, which was {row.owner}'s")
        self._check_owner(row.id, write.new_epoch, write.worker)

    def check_history(self, row: Seen) -> None:
        """A history only grows, without gaps; everything is recorded once, by the one who had the instance."""
        now = self.history(row.id, row.generation)
        before = self._histories.get((row.id, row.generation), [])
        if now[: len(before)] != before:
            self._fault(f"the history of {row.id} was changed: {before} became {now}")
        if [entry.seq for entry in now] != list(range(1, len(now) + 1)):
            self._fault(f"the history of {row.id} has gaps: {[entry.seq for entry in now]}")
        ops = Counter(entry.op for entry in now)
        if twice := [op for op, times in ops.items() if times > 1]:
            self._fault(f"{twice} of {row.id} is recorded more than once")
        for entry in now[len(before) :]:
            if entry.worker:
                self._check_owner(row.id, entry.epoch, entry.worker)
        self._histories[row.id, row.generation] = now


def _touched(batch: Sequence[Write]) -> Iterator[str]:
    for write in batch:
        if isinstance(write, Transition):
            yield write.instance_id


def _can_wake(row: Seen) -> bool:
    if row.owner is not None or row.wake_at is not None or row.waits:
        return True
    return row.status is Status.PAUSED
