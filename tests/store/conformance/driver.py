"""Instances, driven as their workers drive them."""

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
    """The values of the replies by operation: an event's id, a message's data, members, None, or an error's type."""
    return {reply.op: _said(reply) for reply in replies}


def _said(reply: StoreReply) -> Any:
    if reply.outcome is Outcome.ERROR:
        return type(decode_failure(reply.value or b""))
    body: Any = None if reply.value is None else json.loads(reply.value)
    if isinstance(body, dict):
        return body["id"] if "specversion" in body else body["data"]  # pyright: ignore[reportUnknownVariableType]
    return body


class DrivenInstance:
    """An instance as its worker knows it. Its run stays in memory, and it reads its inbox before it writes."""

    def __init__(self, store: Store, instance_id: str = "a", worker: str = ME, epoch: int = 1) -> None:
        self.store = store
        self.id = instance_id
        self.worker = worker
        self.generation = 1
        self.epoch = epoch
        self.owned = True
        self.length = 0

    async def build(self, *, now: int = 20, **more: Any) -> Transition:
        """Build a transition; by default it releases the instance."""
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
        """Take over what the answer to a transition says."""
        assert isinstance(answer, Applied), answer
        self.epoch, self.owned = made.new_epoch, answer.owned
        self.length += len(made.history) + len(answer.replies)
        if made.recur is not None:
            self.generation, self.length = self.generation + 1, 0
        return answer

    async def write(self, *, now: int = 20, **more: Any) -> Applied:
        """Write a transition."""
        made = await self.build(now=now, **more)
        (answer,) = await write(self.store, made)
        return self.learn(made, answer)

    async def ask(self, *asks: StoreCall, now: int = 20, **more: Any) -> dict[str, Any]:
        """Issue store calls, and return the values of the replies."""
        return said((await self.write(now=now, store_calls=asks, **more)).replies)

    async def do(self, *effects: Effect, now: int = 20, **more: Any) -> Applied:
        """Carry out effects, and keep the instance."""
        return await self.write(now=now, effects=effects, **({"keep_owned": True} | more))

    async def end(self, *, now: int = 90, status: Status = Status.COMPLETED) -> Applied:
        """End the instance."""
        return await self.write(now=now, status=status, ending=Ending(output=b"output"))

    async def recur(self, *, now: int = 60, archive: bool = True, **more: Any) -> Applied:
        """Begin the next generation."""
        next_one = Recurrence(b"next", archive=archive)
        return await self.write(now=now, keep_owned=True, recur=next_one, **more)

    async def claim(self, *, now: int, worker: str = OTHER, **more: Any) -> None:
        """Claim the instance for a worker, without a run in memory."""
        (one,) = await self.store.claim(worker, [ORDER], now=now, limit=1, ids=[self.id], **more)
        self.worker, self.epoch, self.length, self.owned = worker, one.epoch, one.length, True

    async def matched_waits(self) -> tuple[str, ...]:
        """The operations whose waits are matched."""
        return (await self.store.inbox(self.id)).matched_waits


async def new_instances(store: Store, *ids: str, now: int = 10) -> list[DrivenInstance]:
    """New instances of `worker-1`."""
    await write(store, *(create(one, now=now) for one in ids))
    return [DrivenInstance(store, one) for one in ids]


async def subscribers(
    store: Store, *ids: str, channel: str = "jobs", mode: ChannelMode = ChannelMode.COMPETING
) -> list[DrivenInstance]:
    """New instances that have subscribed to a channel, one after the other from time 11 on."""
    found = await new_instances(store, *ids)
    for at, one in enumerate(found, 11):
        assert await one.ask(subscribe(channel, mode), now=at, keep_owned=True) == {f"subscribe:{channel}": None}
    return found


async def tell(store: Store, sent: AcceptEvents | PostMessage) -> Applied | Accepted:
    """Write something from outside that must not be refused."""
    (answer,) = await write(store, sent)
    assert isinstance(answer, Applied | Accepted), answer
    return answer


async def delete_unread_messages(store: Store) -> int:
    """Delete the messages that no instance has received, and return their number."""
    return await store.prune_messaging(events_before=0, messages_before=999, limit=99)


async def leave_channel(one: DrivenInstance, how: str, *, now: int = 40) -> Applied:
    """End the instance's subscription or wait in the given way."""
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


async def pause_or_block(one: DrivenInstance, how: str, *, now: int = 40) -> Applied:
    """Pause or block the instance."""
    if how == "block":
        return await one.write(now=now, status=Status.BLOCKED, blocked_by="code-0")
    (answer,) = await write(one.store, request(ControlKind.PAUSE, one.id, now=now))
    assert isinstance(answer, Applied)
    return answer
