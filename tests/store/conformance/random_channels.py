"""Random competing subscribers: no instance waits while there is a message, and no message is lost or received twice."""

from __future__ import annotations

import random

import pytest
from tests.store.conformance.builders import publish, receive, request, row, subscribe, write
from tests.store.conformance.driver import DrivenInstance, delete_unread_messages, new_instances, tell

from romancy.model.messaging import ChannelMode, Unsubscribe
from romancy.model.status import Status
from romancy.model.transition import ControlKind
from romancy.store.port import Store


class TestRandomChannels:
    """Instances subscribe, wait, give up, pause, lose their workers and recur, and every message can still be received."""

    @pytest.mark.parametrize("seed", range(12))
    async def test_no_instance_waits_while_there_is_a_message(self, store: Store, seed: int) -> None:
        population = Population(store, random.Random(seed))
        for _ in range(60):
            await population.act()
        await population.settle()
        left = await delete_unread_messages(store)
        assert len(population.received) == len(set(population.received)), "received twice"
        assert len(population.received) + left == population.published
        waiting = [one.instance.id for one in population.members if one.is_waiting and not one.paused]
        assert not (left and waiting), f"{waiting} wait although there are {left} messages"


class Member:
    """An instance, and whether it waits or is paused."""

    def __init__(self, instance: DrivenInstance) -> None:
        self.instance = instance
        self.is_waiting = False
        self.paused = False


class Population:
    """Instances that have subscribed to one channel."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self.store = store
        self.rng = rng
        self.members: list[Member] = []
        self.received: list[str] = []
        self.published = 0
        self.created = 0
        self.now = 100

    async def act(self) -> None:
        """Do one random action."""
        self.now += 1
        if self.rng.random() < 0.3:
            self.published += 1
            await tell(self.store, publish(f"m{self.published}", now=self.now))
        elif len(self.members) < 5 and self.rng.random() < 0.4:
            await self._subscribe_new()
        elif self.members:
            one = self.rng.choice(self.members)
            await (self._resume(one) if one.paused else self._act_on(one))

    async def settle(self) -> None:
        """Let each woken instance, and each one without a worker, receive, until no instance is woken."""
        busy = True
        while busy:
            self.now += 1
            busy = False
            for one in self.members:
                if one.is_waiting and not one.paused and (await self._is_free(one) or await one.instance.matched_waits()):
                    busy = True
                    await self._receive(one)

    async def _subscribe_new(self) -> None:
        self.created += 1
        (instance,) = await new_instances(self.store, f"i{self.created}", now=self.now)
        await instance.ask(subscribe(mode=ChannelMode.COMPETING), now=self.now, keep_owned=True)
        self.members.append(Member(instance))

    async def _act_on(self, one: Member) -> None:
        effects = [
            self._receive,
            self._receive,
            self._withdraw,
            self._pause,
            self._end,
            self._recur,
            self._lose_workers,
            self._resubscribe,
        ]
        await self.rng.choice(effects)(one)

    async def _receive(self, one: Member) -> None:
        if await self._is_free(one):
            await one.instance.claim(now=self.now)
        since = self.now if not one.is_waiting else 99
        hold = self.rng.random() < 0.4
        received = await one.instance.ask(receive(since=since), now=self.now, keep_owned=hold)
        self.received += received.values()
        one.is_waiting = not received

    async def _withdraw(self, one: Member) -> None:
        if one.is_waiting and not await self._is_free(one):
            await one.instance.write(now=self.now, withdrawn=("jobs:1",), keep_owned=True)
            one.is_waiting = False

    async def _pause(self, one: Member) -> None:
        if one.instance.owned:
            await one.instance.write(now=self.now, status=Status.PAUSED)
        else:
            await write(self.store, request(ControlKind.PAUSE, one.instance.id, now=self.now))
        one.paused = True

    async def _resume(self, one: Member) -> None:
        await write(self.store, request(ControlKind.RESUME, one.instance.id, now=self.now))
        one.paused = False
        await one.instance.claim(now=self.now)
        if one.is_waiting:
            await self._receive(one)

    async def _end(self, one: Member) -> None:
        self.members.remove(one)
        await write(self.store, request(ControlKind.TERMINATE, one.instance.id, now=self.now))

    async def _recur(self, one: Member) -> None:
        if not await self._is_free(one):
            await one.instance.recur(now=self.now, archive=self.rng.random() < 0.5)
            one.is_waiting = False

    async def _lose_workers(self, one: Member) -> None:
        """All owned instances lose their worker."""
        await self.store.sweep([], now=self.now, limit=99)
        for each in self.members:
            if each.instance.owned:
                each.instance.owned = False

    async def _resubscribe(self, one: Member) -> None:
        if not await self._is_free(one):
            await one.instance.do(Unsubscribe("jobs"), now=self.now)
            await one.instance.ask(subscribe(mode=ChannelMode.COMPETING), now=self.now, keep_owned=True)

    async def _is_free(self, one: Member) -> bool:
        """Whether its worker has lost it, so that a worker must claim it."""
        return (await row(self.store, one.instance.id)).epoch != one.instance.epoch
