"""Monitor that reads the database after every commit, over its own connection, and reports violated invariants.

The invariants hold at every moment and under every fault, and do not depend on the workflows.
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
"""The statuses in which an instance can first be seen; the last two if the request is in the batch of the start."""
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
    # Pending: the owner was declared dead or shut down, or a pause and a resume were committed in one batch.
    Status.RUNNING: _LIVE | _ENDS | {Status.PENDING},
    Status.WAITING_FOR_EVENT: _LIVE | _ENDS | {Status.PENDING},
    Status.WAITING_FOR_MESSAGE: _LIVE | _ENDS | {Status.PENDING},
    Status.WAITING_FOR_TIMER: _LIVE | _ENDS | {Status.PENDING},
    # Once compensation has begun, the instance can only end, however often it is interrupted.
    Status.COMPENSATING: frozenset({Status.PAUSED, Status.PENDING, *_ENDS}) - {Status.COMPLETED},
    Status.PAUSED: _LIVE | _ENDS | {Status.PENDING},
    **dict.fromkeys(_ENDS, frozenset()),
}
"""The allowed changes of status. No instance may become blocked here, because the code always fits."""

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


class InstanceSnapshot(NamedTuple):
    """The row of an instance as read from the database."""

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


class HistoryRow(NamedTuple):
    """An entry of a history as read from the database."""

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


class DatabaseMonitor:
    """Compares each state of the database with the one before."""

    def __init__(self, path: str, fault: Callable[[str], None]) -> None:
        self._path = path
        self._connection = sqlite3.connect(":memory:")
        self._fault = fault
        self.rows: dict[str, InstanceSnapshot] = {}
        self._owners: dict[tuple[str, int], str] = {}
        """The worker that wrote under each epoch of an instance."""
        self._histories: dict[tuple[str, int], list[HistoryRow]] = {}

    def open(self) -> None:
        """Connect to the database file, which exists by now."""
        self._connection.close()
        self._connection = sqlite3.connect(self._path, isolation_level=None)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    # --- reading

    def history(self, instance_id: str, generation: int) -> list[HistoryRow]:
        """The history of one generation of an instance."""
        return [HistoryRow(*line) for line in self._connection.execute(_HISTORY, (instance_id, generation))]

    def failed(self, instance_id: str, generation: int) -> set[tuple[str, int]]:
        """The failed attempts on record: operation and attempt number."""
        return set(self._connection.execute(_FAILED, (instance_id, generation)))

    def has_event(self, source: str, id: str) -> bool:
        """Whether an event is stored."""
        found = self._connection.execute("SELECT 1 FROM romancy_events WHERE source = ? AND id = ?", (source, id))
        return found.fetchone() is not None

    def outbox_size(self) -> int:
        """The number of events in the outbox."""
        return int(self._connection.execute("SELECT count(*) FROM romancy_outbox").fetchone()[0])

    # --- checks after a write

    def check_rows(self) -> None:
        """Check every row that has changed."""
        before, self.rows = self.rows, self._read()
        for id in before.keys() - self.rows.keys():
            self._fault(f"{id} has disappeared")
        for row in self.rows.values():
            known = before.get(row.id)
            if known != row:
                self._check(known, row)

    def check_batch(self, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        """Check a batch that was committed."""
        for write, answer in zip(batch, answers, strict=True):
            if isinstance(write, Transition) and isinstance(answer, Applied):
                self._check_writer(write)
        self.check_rows()
        for id in dict.fromkeys(_touched(batch)):
            if id in self.rows:
                self.check_history(self.rows[id])

    def _read(self) -> dict[str, InstanceSnapshot]:
        found = self._connection.execute(_ROWS).fetchall()
        return {row[0]: InstanceSnapshot(row[0], row[1], Status(row[2]), *row[3:]) for row in found}

    def _check(self, before: InstanceSnapshot | None, row: InstanceSnapshot) -> None:
        if before is None:
            if row.status not in _BEGINS:
                self._fault(f"{row.id} was created as {row.status}")
        else:
            self._check_change(before, row)
        if row.owner is not None:
            self._check_owner(row.id, row.epoch, row.owner)
        if not row.status.ended and not _can_wake(row):
            self._fault(f"{row.id} is {row.status}, and nothing will wake it: {row}")
        if row.status.ended and (row.owner is not None or row.wake_at is not None or row.waits):
            self._fault(f"{row.id} is {row.status}, but it still has an owner, a wake time or waits: {row}")

    def _check_change(self, before: InstanceSnapshot, row: InstanceSnapshot) -> None:
        if row.status is not before.status and row.status not in _FOLLOWS.get(before.status, frozenset()):
            self._fault(f"{row.id} changed from {before.status} to {row.status}")
        if row.epoch < before.epoch or row.generation < before.generation:
            self._fault(f"{row.id} went back from {before} to {row}")
        if row.owner is not None and row.owner != before.owner and row.epoch == before.epoch:
            self._fault(f"{row.id} changed owner from {before.owner} to {row.owner} without a new epoch ({row.epoch})")
        if before.status.ended:
            self._fault(f"{row.id} changed after its end from {before} to {row}")

    def _check_owner(self, id: str, epoch: int, worker: str) -> None:
        known = self._owners.setdefault((id, epoch), worker)
        if known != worker:
            self._fault(f"{worker} and {known} both owned {id} under epoch {epoch}")

    def _check_writer(self, write: Transition) -> None:
        """Only the owner writes an instance, or the worker that claims it with this write, and under its epoch."""
        row = self.rows.get(write.instance_id)
        if row is None:
            return  # created by the same batch
        if row.epoch > write.epoch:
            self._fault(
                f"{write.worker} wrote {row.id} under epoch {write.epoch}; its epoch was {row.epoch}, its owner {row.owner}"
            )
        elif row.owner not in (None, write.worker):
            self._fault(f"{write.worker} wrote {row.id}, which {row.owner} owned")
        self._check_owner(row.id, write.new_epoch, write.worker)

    def check_history(self, row: InstanceSnapshot) -> None:
        """A history only grows, without gaps; each operation is recorded once, by the owner."""
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


def _can_wake(row: InstanceSnapshot) -> bool:
    if row.owner is not None or row.wake_at is not None or row.waits:
        return True
    return row.status is Status.PAUSED
