"""Writes with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from romancy.model.history import Attempt, Entry, Kind, Outcome, Role
from romancy.model.instance import Row, WorkerRow
from romancy.model.status import Status
from romancy.model.transition import Answer, Applied, Create, Ending, Request, RequestKind, Transition
from romancy.store.port import Runnable, Store

MakeStore = Callable[[], Awaitable[Store]]
ORDER = Runnable("order", "1", "code-1")
ME = "worker-1"
OTHER = "worker-2"


def create(instance_id: str = "a", *, now: int = 10, owner: str | None = ME, **more: Any) -> Create:
    """A new instance of the workflow `order`."""
    given: dict[str, Any] = {"workflow": "order", "version": "1", "input": b"input", "digest": b"digest"}
    return Create(instance_id, now=now, owner=owner, **(given | more))


def transition(instance_id: str = "a", *, epoch: int = 1, **more: Any) -> Transition:
    """What a run of `worker-1` did; by default it goes on."""
    given: dict[str, Any] = {
        "generation": 1,
        "worker": ME,
        "new_epoch": epoch,
        "status": Status.RUNNING,
        "now": 20,
        "hold": True,
        "seen": 0,
    }
    return Transition(instance_id, epoch=epoch, **(given | more))


def ending(instance_id: str = "a", *, status: Status = Status.COMPLETED, **more: Any) -> Transition:
    """The end of a run."""
    how: dict[str, Any] = {"ending": Ending(output=b"output"), "hold": False, "now": 30}
    return transition(instance_id, status=status, **(how | more))


def entry(seq: int, op: str = "", *, kind: Kind = Kind.ACTIVITY, outcome: Outcome = Outcome.OK, **more: Any) -> Entry:
    """One entry of a history."""
    return Entry(seq, kind, op or f"op-{seq}", outcome, at=seq, **more)


def beside(seq: int, op: str, **more: Any) -> Entry:
    """A compensation that ran."""
    return entry(seq, op, kind=Kind.COMPENSATION, role=Role.BESIDE, **more)


def attempt(op: str = "op-1", number: int = 1, *, is_open: bool = True, **more: Any) -> Attempt:
    """An attempt of an activity."""
    return Attempt(op, number, "charge", is_open, ME, 1, "app.py:1", scheduled_at=1, started_at=2, **more)


def request(kind: RequestKind, instance_id: str = "a", *, now: int = 50, reason: str | None = None) -> Request:
    """What the operator asks."""
    return Request(instance_id, kind, now, reason, by="operator")


def worker(worker_id: str = ME, *, beat_at: int = 10) -> WorkerRow:
    """A worker's incarnation."""
    return WorkerRow(worker_id, "label", "service", "host", 1, "3.11", "[]", 10, beat_at)


async def write(store: Store, *writes: Any) -> list[Answer]:
    """Commit a batch none of which may fail."""
    answers = await store.commit(writes)
    return [_answer(answer) for answer in answers]


async def started(store: Store, *ids: str) -> None:
    """Instances that `worker-1` owns under epoch 1."""
    assert await write(store, *(create(one) for one in ids)) == [Applied(0, held=True)] * len(ids)


async def row(store: Store, instance_id: str = "a") -> Row:
    """The hot row of an instance that exists."""
    loaded = await store.load(instance_id)
    assert loaded is not None
    return loaded.row


async def deeds(store: Store, instance_id: str = "a") -> list[str]:
    """The kinds of lines in an instance's journal."""
    return [line.note.kind for line in await store.journal(instance_id)]


def _answer(answer: object) -> Answer:
    assert not isinstance(answer, Exception), answer
    return answer  # type: ignore[return-value]
