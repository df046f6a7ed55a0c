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
    Deed,
    Event,
    LeaveGroup,
    Members,
    Message,
    Publish,
    Question,
    Reply,
    SendTo,
    Subscribe,
    Wanted,
)
from romancy.model.transition import (
    Accept,
    Accepted,
    Answer,
    Applied,
    Create,
    Ending,
    Post,
    Recurrence,
    Request,
    RequestKind,
    Transition,
    Write,
)
from romancy.serde.failure import decode_failure
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
    addressed: dict[str, str | int | bool] = {} if to is None else {TARGET: to}
    return Event(event_id, "shop", kind, extensions=addressed, **({"data": b"{}"} | more))


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


def said(replies: tuple[Reply, ...]) -> dict[str, Any]:
    """What was answered, by operation: an event's id, a message's data, a list of members, None, or the type of an error."""
    return {reply.op: _said(reply) for reply in replies}


def _said(reply: Reply) -> Any:
    if reply.outcome is Outcome.ERROR:
        return type(decode_failure(reply.value or b""))
    body: Any = None if reply.value is None else json.loads(reply.value)
    if isinstance(body, dict):
        return body["id"] if "specversion" in body else body["data"]  # pyright: ignore[reportUnknownVariableType]
    return body


class Actor:
    """An instance as its worker knows it. It goes on warm, and before it writes it has seen what arrived."""

    def __init__(self, store: Store, instance_id: str = "a", worker: str = ME, epoch: int = 1) -> None:
        self.store = store
        self.id = instance_id
        self.worker = worker
        self.generation = 1
        self.epoch = epoch
        self.owned = True
        self.length = 0

    async def made(self, *, now: int = 20, **more: Any) -> Transition:
        """What it would write; by default it lets go afterwards."""
        given: dict[str, Any] = {
            "generation": self.generation,
            "worker": self.worker,
            "new_epoch": self.epoch if self.owned else self.epoch + 1,
            "status": Status.WAITING_FOR_EVENT,
            "hold": False,
            "length": self.length,
            "bound": True,
        }
        if "seen" not in more:
            given["seen"] = (await self.store.inbox(self.id)).signal
        return transition(self.id, epoch=self.epoch, now=now, **(given | more))

    def learn(self, made: Transition, answer: Answer) -> Applied:
        """What it has written was answered."""
        assert isinstance(answer, Applied), answer
        self.epoch, self.owned = made.new_epoch, answer.held
        self.length += len(made.history) + len(answer.replies)
        if made.recur is not None:
            self.generation, self.length = self.generation + 1, 0
        return answer

    async def write(self, *, now: int = 20, **more: Any) -> Applied:
        """Write something."""
        made = await self.made(now=now, **more)
        (answer,) = await write(self.store, made)
        return self.learn(made, answer)

    async def ask(self, *asks: Ask, now: int = 20, **more: Any) -> dict[str, Any]:
        """Ask the store; what it said."""
        return said((await self.write(now=now, asks=asks, **more)).replies)

    async def do(self, *deeds: Deed, now: int = 20, **more: Any) -> Applied:
        """Say something, and keep the instance in hand."""
        return await self.write(now=now, deeds=deeds, **({"status": Status.RUNNING, "hold": True} | more))

    async def end(self, *, now: int = 90, status: Status = Status.COMPLETED) -> Applied:
        """Come to an end."""
        return await self.write(now=now, status=status, ending=Ending(output=b"output"))

    async def recur(self, *, now: int = 60, archive: bool = True, **more: Any) -> Applied:
        """Begin the next generation."""
        next_one = Recurrence(b"next", archive=archive)
        return await self.write(now=now, status=Status.RUNNING, hold=True, recur=next_one, **more)

    async def claimed(self, *, now: int, worker: str = OTHER, **more: Any) -> None:
        """Somebody claims it, and goes on with it cold."""
        (one,) = await self.store.claim(worker, [ORDER], now=now, limit=1, ids=[self.id], **more)
        self.worker, self.epoch, self.length, self.owned = worker, one.epoch, one.length, True

    async def called(self) -> tuple[str, ...]:
        """Its waits for which something has come."""
        return (await self.store.inbox(self.id)).called


async def actors(store: Store, *ids: str, now: int = 10) -> list[Actor]:
    """New instances of `worker-1`."""
    await write(store, *(create(one, now=now) for one in ids))
    return [Actor(store, one) for one in ids]


async def subscribers(
    store: Store, *ids: str, channel: str = "jobs", mode: ChannelMode = ChannelMode.COMPETING
) -> list[Actor]:
    """New instances that have subscribed to a channel, one after the other from time 11 on."""
    found = await actors(store, *ids)
    for at, one in enumerate(found, 11):
        assert await one.ask(subscribe(channel, mode), now=at, hold=True) == {f"subscribe:{channel}": None}
    return found


async def tell(store: Store, said_outside: Accept | Post) -> Applied | Accepted:
    """Say something from outside that nothing speaks against."""
    (answer,) = await write(store, said_outside)
    assert isinstance(answer, Applied | Accepted), answer
    return answer


# --- reading


async def deeds(store: Store, instance_id: str = "a") -> list[str]:
    """The kinds of lines in an instance's journal."""
    return [line.note.kind for line in await store.journal(instance_id)]


def _answer(answer: object) -> Answer:
    assert not isinstance(answer, Exception), answer
    return answer  # type: ignore[return-value]
