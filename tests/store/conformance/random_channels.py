"""A crowd that competes for messages, at random: nobody waits beside a message, and none is lost or read twice."""

from __future__ import annotations

import random

import pytest
from tests.store.conformance.builders import publish, receive, request, row, subscribe, write
from tests.store.conformance.driver import Actor, actors, tell, unclaimed

from romancy.model.messaging import ChannelMode, Unsubscribe
from romancy.model.status import Status
from romancy.model.transition import ControlKind
from romancy.store.port import Store


class TestCrowds:
    """Whoever comes, waits, gives up, rests, dies or begins anew: what can be read is read."""

    @pytest.mark.parametrize("seed", range(12))
    async def test_nobody_waits_beside_a_message(self, store: Store, seed: int) -> None:
        crowd = Crowd(store, random.Random(seed))
        for _ in range(60):
            await crowd.happen()
        await crowd.settle()
        left = await unclaimed(store)
        assert len(crowd.heard) == len(set(crowd.heard)), "read twice"
        assert len(crowd.heard) + left == crowd.published
        waiting = [one.actor.id for one in crowd.people if one.waits and not one.rests]
        assert not (left and waiting), f"{waiting} wait while {left} messages lie there"


class Person:
    """One of the crowd."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.waits = False
        self.rests = False


class Crowd:
    """Instances that have subscribed to one channel."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store = store
        self.chance = chance
        self.people: list[Person] = []
        self.heard: list[str] = []
        self.published = 0
        self.born = 0
        self.now = 100

    async def happen(self) -> None:
        """Something happens."""
        self.now += 1
        if self.chance.random() < 0.3:
            self.published += 1
            await tell(self.store, publish(f"m{self.published}", now=self.now))
        elif len(self.people) < 5 and self.chance.random() < 0.4:
            await self._come()
        elif self.people:
            one = self.chance.choice(self.people)
            await (self._go_on(one) if one.rests else self._act(one))

    async def settle(self) -> None:
        """Whoever was called, or has lost its worker, looks; until nobody is called."""
        busy = True
        while busy:
            self.now += 1
            busy = False
            for one in self.people:
                if one.waits and not one.rests and (await self._is_free(one) or await one.actor.called()):
                    busy = True
                    await self._look(one)

    async def _come(self) -> None:
        self.born += 1
        (actor,) = await actors(self.store, f"i{self.born}", now=self.now)
        await actor.ask(subscribe(mode=ChannelMode.COMPETING), now=self.now, keep_owned=True)
        self.people.append(Person(actor))

    async def _act(self, one: Person) -> None:
        effects = [self._look, self._look, self._give_up, self._rest, self._end, self._recur, self._lose, self._resubscribe]
        await self.chance.choice(effects)(one)

    async def _look(self, one: Person) -> None:
        if await self._is_free(one):
            await one.actor.claimed(now=self.now)
        since = self.now if not one.waits else 99
        hold = self.chance.random() < 0.4
        heard = await one.actor.ask(receive(since=since), now=self.now, keep_owned=hold)
        self.heard += heard.values()
        one.waits = not heard

    async def _give_up(self, one: Person) -> None:
        if one.waits and not await self._is_free(one):
            await one.actor.write(now=self.now, withdrawn=("jobs:1",), keep_owned=True)
            one.waits = False

    async def _rest(self, one: Person) -> None:
        if one.actor.owned:
            await one.actor.write(now=self.now, status=Status.PAUSED)
        else:
            await write(self.store, request(ControlKind.PAUSE, one.actor.id, now=self.now))
        one.rests = True

    async def _go_on(self, one: Person) -> None:
        await write(self.store, request(ControlKind.RESUME, one.actor.id, now=self.now))
        one.rests = False
        await one.actor.claimed(now=self.now)
        if one.waits:
            await self._look(one)

    async def _end(self, one: Person) -> None:
        self.people.remove(one)
        await write(self.store, request(ControlKind.TERMINATE, one.actor.id, now=self.now))

    async def _recur(self, one: Person) -> None:
        if not await self._is_free(one):
            await one.actor.recur(now=self.now, archive=self.chance.random() < 0.5)
            one.waits = False

    async def _lose(self, one: Person) -> None:
        """All who are in hand lose their worker."""
        await self.store.sweep([], now=self.now, limit=99)
        for each in self.people:
            if each.actor.owned:
                each.actor.owned = False

    async def _resubscribe(self, one: Person) -> None:
        if not await self._is_free(one):
            await one.actor.do(Unsubscribe("jobs"), now=self.now)
            await one.actor.ask(subscribe(mode=ChannelMode.COMPETING), now=self.now, keep_owned=True)

    async def _is_free(self, one: Person) -> bool:
        """Its worker is gone: somebody has to claim it."""
        return (await row(self.store, one.actor.id)).epoch != one.actor.epoch
