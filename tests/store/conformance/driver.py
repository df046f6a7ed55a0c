"""Instances as their workers know them: they ask, hear, speak and go on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.store.conformance.builders import ME, ORDER, OTHER, create, request, subscribe, transition, write

from romancy.model.history import Outcome
from romancy.model.messaging import ChannelMode, Effect, StoreCall, StoreReply, Unsubscribe
from romancy.model.status import Status
from romancy.model.transition import (
    Accepted,
    AcceptEvents,
    Applied,
    ControlKind,
    Ending,
    PostMessage,
    Recurrence,
    Transition,
    WriteResult,
)
from romancy.serde.failure import decode_failure
from romancy.store.port import Store


def said(replies: tuple[StoreReply, ...]) -> dict[str, Any]:
    """What was answered, by operation: an event's id, a message's data, a list of members, None, or the type of an error."""
    return {reply.op: _said(reply) for reply in replies}


def _said(reply: StoreReply) -> Any:
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
            "status": Status.RUNNING if more.get("keep_owned") else Status.WAITING_FOR_EVENT,
            "keep_owned": False,
            "length": self.length,
            "has_messaging_state": True,
        }
        if "inbox_seen" not in more:
            given["inbox_seen"] = (await self.store.inbox(self.id)).inbox_version
        stamp = {"worker": self.worker, "epoch": given["new_epoch"]}
        given["store_calls"] = tuple(replace(ask, entry=ask.entry._replace(**stamp)) for ask in more.pop("store_calls", ()))
        return transition(self.id, epoch=self.epoch, now=now, **(given | more))

    def learn(self, made: Transition, answer: WriteResult) -> Applied:
        """What it has written was answered."""
        assert isinstance(answer, Applied), answer
        self.epoch, self.owned = made.new_epoch, answer.owned
        self.length += len(made.history) + len(answer.replies)
        if made.recur is not None:
            self.generation, self.length = self.generation + 1, 0
        return answer

    async def write(self, *, now: int = 20, **more: Any) -> Applied:
        """Write something."""
        made = await self.made(now=now, **more)
        (answer,) = await write(self.store, made)
        return self.learn(made, answer)

    async def ask(self, *asks: StoreCall, now: int = 20, **more: Any) -> dict[str, Any]:
        """Ask the store; what it said."""
        return said((await self.write(now=now, store_calls=asks, **more)).replies)

    async def do(self, *effects: Effect, now: int = 20, **more: Any) -> Applied:
        """Say something, and keep the instance in hand."""
        return await self.write(now=now, effects=effects, **({"keep_owned": True} | more))

    async def end(self, *, now: int = 90, status: Status = Status.COMPLETED) -> Applied:
        """Come to an end."""
        return await self.write(now=now, status=status, ending=Ending(output=b"output"))

    async def recur(self, *, now: int = 60, archive: bool = True, **more: Any) -> Applied:
        """Begin the next generation."""
        next_one = Recurrence(b"next", archive=archive)
        return await self.write(now=now, keep_owned=True, recur=next_one, **more)

    async def claimed(self, *, now: int, worker: str = OTHER, **more: Any) -> None:
        """Somebody claims it, and goes on with it cold."""
        (one,) = await self.store.claim(worker, [ORDER], now=now, limit=1, ids=[self.id], **more)
        self.worker, self.epoch, self.length, self.owned = worker, one.epoch, one.length, True

    async def called(self) -> tuple[str, ...]:
        """Its waits for which something has come."""
        return (await self.store.inbox(self.id)).matched_waits


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
        assert await one.ask(subscribe(channel, mode), now=at, keep_owned=True) == {f"subscribe:{channel}": None}
    return found


async def tell(store: Store, said_outside: AcceptEvents | PostMessage) -> Applied | Accepted:
    """Say something from outside that nothing speaks against."""
    (answer,) = await write(store, said_outside)
    assert isinstance(answer, Applied | Accepted), answer
    return answer


async def unclaimed(store: Store) -> int:
    """How many messages nobody has taken; they are gone afterwards."""
    return await store.prune_messaging(events_before=0, messages_before=999, limit=99)


async def gone(one: Actor, how: str, *, now: int = 40) -> Applied:
    """Leave a channel for good, one way or the other."""
    match how:
        case "end":
            return await one.end(now=now)
        case "unsubscribe":
            return await one.do(Unsubscribe("jobs"), now=now)
        case "withdraw":
            return await one.write(now=now, withdrawn=("jobs:1",), keep_owned=True)
        case "recur":
            return await one.recur(now=now)
        case _:
            (answer,) = await write(one.store, request(ControlKind.TERMINATE, one.id, now=now))
            assert isinstance(answer, Applied)
            return answer


async def at_rest(one: Actor, how: str, *, now: int = 40) -> Applied:
    """Cease to run until somebody says so."""
    if how == "block":
        return await one.write(now=now, status=Status.BLOCKED, blocked_by="code-0")
    (answer,) = await write(one.store, request(ControlKind.PAUSE, one.id, now=now))
    assert isinstance(answer, Applied)
    return answer
