"""Writes with what a test does not care about filled in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from romancy.model.history import Attempt, Entry, Kind, Outcome, Role
from romancy.model.instance import Row, WorkerRow
from romancy.model.status import Status
from romancy.model.talk import (
    TARGET,
    Ask,
    ChannelMode,
    Event,
    LeaveGroup,
    Members,
    Message,
    Publish,
    Question,
    SendTo,
    Subscribe,
    Wanted,
)
from romancy.model.transition import (
    Accept,
    Answer,
    Applied,
    Create,
    Ending,
    Post,
    Request,
    RequestKind,
    Transition,
    Write,
)
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
    """One entry of a history, by default as most are: of an activity that succeeded at once under its first worker."""
    usual: dict[str, Any] = {"attempt": 1, "worker": ME, "epoch": 1}
    return Entry(seq, kind, op or f"op-{seq}", outcome, at=seq, **(usual | more))


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


async def write(store: Store, *writes: Write) -> list[Answer]:
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


# --- what is said and asked


def event(event_id: str = "e-1", kind: str = "paid", *, to: str | None = None, **more: Any) -> Event:
    """An event of the shop's."""
    given: dict[str, Any] = {"data": b"{}", "extensions": {} if to is None else {TARGET: to}}
    return Event(event_id, "shop", kind, **(given | more))


def accept(*events: Event, now: int = 30, **more: Any) -> Accept:
    """Events from outside."""
    return Accept(events, now, **more)


def message(data: str = "one", channel: str = "jobs") -> Message:
    """A message that says a word."""
    return Message(f"m-{data}", channel, json.dumps(data).encode())


def publish(data: str = "one", channel: str = "jobs", *, now: int = 30) -> Post:
    """A message for a channel, from outside."""
    return Post(Publish(message(data, channel)), now)


def send(target: str, data: str = "one", channel: str = "jobs", *, now: int = 30) -> Post:
    """A message for one instance, from outside."""
    return Post(SendTo(message(data, channel), target), now)


def wait(kind: str = "paid", *, op: str = "", due: int | None = None, since: int = 20, **wish: Any) -> Ask:
    """A wait for an event of a type."""
    return _ask(Kind.EVENT, op or f"{kind}:1", Wanted(kind, **wish), since=since, due=due)


def receive(channel: str = "jobs", *, op: str = "", due: int | None = None, since: int = 20) -> Ask:
    """A wait for a message of a channel."""
    return _ask(Kind.MESSAGE, op or f"{channel}:1", Wanted(channel), since=since, due=due)


def subscribe(channel: str = "jobs", mode: ChannelMode = ChannelMode.BROADCAST) -> Ask:
    """A subscription."""
    asked = {"channel": channel, "mode": mode.value}
    return _ask(Kind.SUBSCRIBE, f"subscribe:{channel}", Subscribe(channel, mode), asked=asked)


def send_to(target: str, data: str = "one", channel: str = "jobs") -> Ask:
    """A message for one instance, which must be there."""
    return _ask(Kind.SEND_TO, f"send_to:{target}", SendTo(message(data, channel), target))


def leave(group: str = "crew") -> Ask:
    """The end of a membership."""
    return _ask(Kind.LEAVE_GROUP, f"leave:{group}", LeaveGroup(group), asked={"group": group})


def members(group: str = "crew") -> Ask:
    """Who is in a group."""
    return _ask(Kind.MEMBERS, f"members:{group}", Members(group))


def _ask(
    kind: Kind, op: str, question: Question, *, since: int = 20, due: int | None = None, asked: dict[str, str] | None = None
) -> Ask:
    given = None if asked is None else json.dumps(asked).encode()
    bare = Entry(0, kind, op, Outcome.OK, since, name=op, digest=b"digest", input=given, site="app.py:7", scheduled_at=since)
    return Ask(bare, question, due)


# --- reading


async def deeds(store: Store, instance_id: str = "a") -> list[str]:
    """The kinds of lines in an instance's journal."""
    return [line.note.kind for line in await store.journal(instance_id)]


def _answer(answer: object) -> Answer:
    assert not isinstance(answer, Exception), answer
    return answer  # type: ignore[return-value]
