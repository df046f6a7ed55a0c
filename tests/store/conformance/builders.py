"""Builders of writes, with defaults for the fields that a test does not state."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from romancy.model.history import AttemptRow, Entry, Kind, Outcome, Role
from romancy.model.instance import InstanceRow, WorkerRow
from romancy.model.messaging import (
    TARGET,
    ChannelMode,
    Event,
    LeaveGroup,
    ListMembers,
    Message,
    Publish,
    SendTo,
    StoreCall,
    StoreCommand,
    Subscribe,
    WaitSelector,
)
from romancy.model.status import Status
from romancy.model.transition import (
    AcceptEvents,
    Applied,
    ControlKind,
    ControlRequest,
    CreateInstance,
    Ending,
    PostMessage,
    Transition,
    Write,
    WriteResult,
)
from romancy.store.port import Runnable, Store

MakeStore = Callable[[], Awaitable[Store]]
ORDER = Runnable("order", "1", "code-1")
ME = "worker-1"
OTHER = "worker-2"


def create(instance_id: str = "a", *, now: int = 10, owner: str | None = ME, **more: Any) -> CreateInstance:
    """A new instance of the workflow `order`."""
    given: dict[str, Any] = {"workflow": "order", "version": "1", "input": b"input", "digest": b"digest"}
    return CreateInstance(instance_id, now=now, owner=owner, **(given | more))


def transition(instance_id: str = "a", *, epoch: int = 1, **more: Any) -> Transition:
    """A transition of a run of `worker-1`; by default it keeps the instance."""
    given: dict[str, Any] = {
        "generation": 1,
        "worker": ME,
        "new_epoch": epoch,
        "status": Status.RUNNING,
        "now": 20,
        "keep_owned": True,
        "inbox_seen": 0,
    }
    return Transition(instance_id, epoch=epoch, **(given | more))


def ending(instance_id: str = "a", *, status: Status = Status.COMPLETED, **more: Any) -> Transition:
    """A transition that ends the instance."""
    given_ending: dict[str, Any] = {"ending": Ending(output=b"output"), "keep_owned": False, "now": 30}
    return transition(instance_id, status=status, **(given_ending | more))


def entry(seq: int, op: str = "", *, kind: Kind = Kind.ACTIVITY, outcome: Outcome = Outcome.OK, **more: Any) -> Entry:
    """An entry of a history; by default of an activity that succeeded at once under its first worker."""
    usual: dict[str, Any] = {"attempt": 1, "worker": ME, "epoch": 1}
    return Entry(seq, kind, op or f"op-{seq}", outcome, at=seq, **(usual | more))


def compensation(seq: int, op: str, **more: Any) -> Entry:
    """The entry of a compensation."""
    return entry(seq, op, kind=Kind.COMPENSATION, role=Role.OUT_OF_BAND, **more)


def attempt(op: str = "op-1", number: int = 1, *, is_open: bool = True, **more: Any) -> AttemptRow:
    """An attempt of an activity."""
    return AttemptRow(op, number, "charge", is_open, ME, 1, "app.py:1", scheduled_at=1, started_at=2, **more)


def request(kind: ControlKind, instance_id: str = "a", *, now: int = 50, reason: str | None = None) -> ControlRequest:
    """A control request of an operator."""
    return ControlRequest(instance_id, kind, now, reason, by="operator")


def worker(worker_id: str = ME, *, heartbeat_at: int = 10) -> WorkerRow:
    """The row of a worker's incarnation."""
    return WorkerRow(worker_id, "label", "service", "host", 1, "3.11", "[]", 10, heartbeat_at)


async def write(store: Store, *writes: Write) -> list[WriteResult]:
    """Commit a batch in which no write may fail."""
    answers = await store.commit(writes)
    return [_answer(answer) for answer in answers]


async def started(store: Store, *ids: str) -> None:
    """Create instances that `worker-1` owns under epoch 1."""
    assert await write(store, *(create(one) for one in ids)) == [Applied(0, owned=True)] * len(ids)


async def row(store: Store, instance_id: str = "a") -> InstanceRow:
    """The hot row of an instance that exists."""
    loaded = await store.load(instance_id)
    assert loaded is not None
    return loaded.row


# --- messaging


def event(event_id: str = "e-1", kind: str = "paid", *, to: str | None = None, **more: Any) -> Event:
    """An event from the source `shop`."""
    given: dict[str, Any] = {"data": b"{}", "extensions": {} if to is None else {TARGET: to}}
    return Event(event_id, "shop", kind, **(given | more))


def accept(*events: Event, now: int = 30, **more: Any) -> AcceptEvents:
    """Events from outside."""
    return AcceptEvents(events, now, **more)


def message(data: str = "one", channel: str = "jobs") -> Message:
    """A message with a word as its payload."""
    return Message(f"m-{data}", channel, json.dumps(data).encode())


def publish(data: str = "one", channel: str = "jobs", *, now: int = 30) -> PostMessage:
    """A message to a channel, from outside."""
    return PostMessage(Publish(message(data, channel)), now)


def send(target: str, data: str = "one", channel: str = "jobs", *, now: int = 30) -> PostMessage:
    """A message to one instance, from outside."""
    return PostMessage(SendTo(message(data, channel), target), now)


def wait(kind: str = "paid", *, op: str = "", due: int | None = None, since: int = 20, **selector: Any) -> StoreCall:
    """A wait for an event of a type."""
    return _ask(Kind.EVENT, op or f"{kind}:1", WaitSelector(kind, **selector), since=since, due=due)


def receive(channel: str = "jobs", *, op: str = "", due: int | None = None, since: int = 20) -> StoreCall:
    """A wait for a message of a channel."""
    return _ask(Kind.MESSAGE, op or f"{channel}:1", WaitSelector(channel), since=since, due=due)


def subscribe(channel: str = "jobs", mode: ChannelMode = ChannelMode.BROADCAST) -> StoreCall:
    """A subscription."""
    asked = {"channel": channel, "mode": mode.value}
    return _ask(Kind.SUBSCRIBE, f"subscribe:{channel}", Subscribe(channel, mode), asked=asked)


def send_to(target: str, data: str = "one", channel: str = "jobs") -> StoreCall:
    """A message to one instance, which must exist."""
    return _ask(Kind.SEND_TO, f"send_to:{target}", SendTo(message(data, channel), target))


def leave(group: str = "crew") -> StoreCall:
    """The end of a membership."""
    return _ask(Kind.LEAVE_GROUP, f"leave:{group}", LeaveGroup(group), asked={"group": group})


def members(group: str = "crew") -> StoreCall:
    """A query for the members of a group."""
    return _ask(Kind.MEMBERS, f"members:{group}", ListMembers(group))


def _ask(
    kind: Kind,
    op: str,
    question: StoreCommand,
    *,
    since: int = 20,
    due: int | None = None,
    asked: dict[str, str] | None = None,
) -> StoreCall:
    given = None if asked is None else json.dumps(asked).encode()
    bare = Entry(0, kind, op, Outcome.OK, since, name=op, digest=b"digest", input=given, site="app.py:7", scheduled_at=since)
    return StoreCall(bare, question, due)


# --- reading


async def journal_kinds(store: Store, instance_id: str = "a") -> list[str]:
    """The kinds of lines in an instance's journal."""
    return [line.note.kind for line in await store.journal(instance_id)]


def _answer(answer: object) -> WriteResult:
    assert not isinstance(answer, Exception), answer
    return answer  # type: ignore[return-value]
