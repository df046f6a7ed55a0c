"""Three stores on one database, each with connections of its own, race: two listen and speak, the third cancels.

Nobody waits for a time here. Whoever is let go looks again when somebody has been answered. Once nobody has anything left to
do, what was not heard is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.store.conformance.builders import (
    ORDER,
    accept,
    create,
    publish,
    receive,
    request,
    send,
    subscribe,
    transition,
    wait,
)
from tests.store.conformance.driver import said

from romancy.clock import SystemClock
from romancy.model.messaging import ChannelMode, Event, StoreCall
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, Ending, Write, WriteResult
from romancy.store.open import ServerOptions, open_store
from romancy.store.port import Store

MODES = ("event", "broadcast", "competing", "direct")
EACH = 2
"""So many things each side says in a row."""
_AT_ONCE = 8
_now = itertools.count(1_000)


@dataclass
class Round:
    """Something is said by both sides, while both listen."""

    name: str
    mode: str
    cancelled: bool
    """Side a is cancelled meanwhile."""
    chance: random.Random
    heard: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    ended: set[str] = field(default_factory=set[str])
    """Who has come to its end."""
    busy: int = 0
    """How many have something to do, or to look at."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: int = 0
    _over: bool = False

    def id(self, side: str) -> str:
        """The instance that listens."""
        return f"{self.name}/{side}"

    def tell(self) -> None:
        """Somebody was answered: let those look who wait."""
        self.busy, self._waiting = self.busy + self._waiting, 0
        self.news.set()
        self.news = asyncio.Event()

    def leave(self) -> None:
        """Somebody has nothing left to do."""
        self.tell()
        self.busy -= 1

    async def wait(self) -> bool:
        """Wait for somebody else to be answered. False: there is nobody left."""
        self.busy -= 1
        if self.busy:
            self._waiting += 1
            await self.news.wait()
        else:
            self._over = True
            self.news.set()
        return not self._over

    async def dawdle(self, most: int = 4) -> None:
        """Anything may come in between."""
        for _ in range(self.chance.randrange(most)):
            await asyncio.sleep(0)


class Listener:
    """An instance in the hands of a worker that does as the engine does: ask, look when told to, let go, be claimed."""

    def __init__(self, store: Store, round: Round, side: str) -> None:
        self._store, self._round, self._side = store, round, side
        self._id, self._worker = round.id(side), f"worker-{side}"
        self._epoch, self._length, self._seen = 1, 0, 0
        self._heard = round.heard.setdefault(side, [])
        self._cancelled = False

    async def begin(self) -> None:
        """Be there, and subscribed."""
        await commit(self._store, create(self._id, owner=self._worker, now=next(_now)))
        if self._round.mode != "event":
            mode = ChannelMode(self._round.mode)
            await self._ask(subscribe(self._round.name, mode), hold=True)

    async def listen(self) -> None:
        """Hear everything, or be cancelled."""
        asked = wait(self._round.name) if self._round.mode == "event" else receive(self._round.name)
        while not self._cancelled and len(self._heard) < 2 * EACH:
            await self._round.dawdle()
            answer = await self._ask(asked)
            if answer.replies:
                self._heard += said(answer.replies).values()
                self._round.tell()
            elif not answer.owned and not await self._claimed_again():
                return
            elif not answer.caught_up:
                await self._look()
        await self._end()
        self._round.leave()

    async def _end(self) -> None:
        status = Status.CANCELLED if self._cancelled else Status.COMPLETED
        if (await self._write(status=status, ending=Ending())).owned:  # it was cancelled, and did not know
            await self._look()
            await self._write(status=Status.CANCELLED, ending=Ending())
        self._round.ended.add(self._side)

    async def _ask(self, ask: StoreCall, *, hold: bool = False) -> Applied:
        return await self._write(status=Status.WAITING_FOR_EVENT, store_calls=(ask,), keep_owned=hold)

    async def _write(self, *, status: Status, keep_owned: bool = False, **more: object) -> Applied:
        made = transition(
            self._id,
            epoch=self._epoch,
            worker=self._worker,
            status=status,
            keep_owned=keep_owned,
            inbox_seen=self._seen,
            length=self._length,
            has_messaging_state=True,
            now=next(_now),
            **more,
        )
        answer = await commit(self._store, made)
        assert isinstance(answer, Applied), f"{self._id} got {answer}"
        self._length += len(answer.replies)
        if answer.caught_up:
            self._seen = answer.inbox_version
        return answer

    async def _look(self) -> None:
        inbox = await self._store.inbox(self._id)
        self._seen = inbox.inbox_version
        self._cancelled = any(mail.kind == "cancel" for mail in inbox.items)

    async def _claimed_again(self) -> bool:
        """Wait to be woken. False: there is nobody left to do it."""
        while True:
            news = self._round.news
            rows = await self._store.claim(self._worker, [ORDER], now=next(_now), limit=1, ids=[self._id])
            if rows:
                self._epoch, self._length = rows[0].epoch, rows[0].length
                await self._look()
                return True
            # Somebody may have held the row for a moment, who was answered meanwhile: then look again.
            if not news.is_set() and not await self._round.wait():
                return False


class StoreRace:
    """Many rounds on one database; what was heard wrongly."""

    def __init__(self, database: str, seed: int = 0) -> None:
        self._database = database
        self._chance = random.Random(seed)
        self.faults: list[str] = []

    def run(self, rounds: int) -> None:
        """So many rounds, or until something is wrong."""
        asyncio.run(self._run(rounds))

    async def _run(self, rounds: int) -> None:
        stores = [
            open_store(self._database, clock=SystemClock(), server=ServerOptions(listen_notify=False)) for _ in range(3)
        ]
        for store in stores:
            await store.open()
        todo = iter(range(rounds))
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(_AT_ONCE):
                    lanes.create_task(self._lane(stores, todo))
        finally:
            for store in stores:
                await store.close()

    async def _lane(self, stores: Sequence[Store], todo: Iterator[int]) -> None:
        for number in todo:
            if self.faults:
                return
            cancelled = self._chance.random() < 0.25
            mode = MODES[number % len(MODES)]
            round = Round(f"r{number}", mode, cancelled, random.Random(self._chance.random()))
            try:
                await self._play(stores, round)
            except* Exception as errors:
                self.faults += [f"{round.name}: {error!r}" for error in errors.exceptions]
            else:
                self.faults += faults_of(round)

    async def _play(self, stores: Sequence[Store], round: Round) -> None:
        sides = dict(zip("ab", stores, strict=False))
        listeners = [Listener(store, round, side) for side, store in sides.items()]
        for listener in listeners:
            await listener.begin()
        speaking = [self._speak(store, round, side) for side, store in sides.items()]
        if round.cancelled:
            speaking.append(self._cancel(stores[2], round))
        round.busy = len(speaking) + len(listeners)
        async with asyncio.TaskGroup() as all_at_once:
            for doing in (*speaking, *(listener.listen() for listener in listeners)):
                all_at_once.create_task(doing)

    async def _speak(self, store: Store, round: Round, side: str) -> None:
        for number in range(EACH):
            await round.dawdle()
            for write in _what_to_say(round, side, f"{side}{number}"):
                await commit(store, write)
                round.tell()
        round.leave()

    async def _cancel(self, store: Store, round: Round) -> None:
        await round.dawdle(100)
        await commit(store, request(ControlKind.CANCEL, round.id("a"), now=next(_now)))
        round.leave()


def _what_to_say(round: Round, side: str, word: str) -> list[Write]:
    name, now = round.name, next(_now)
    if round.mode == "event":
        return [accept(Event(word, name, name, b"{}"), now=now)]
    if round.mode == "direct":
        return [send(round.id(other), f"{word}", name, now=now) for other in "ab"]
    return [publish(word, name, now=now)]


def faults_of(round: Round) -> list[str]:
    """What was heard twice, not at all or out of order."""
    a, b = round.heard["a"], round.heard["b"]
    everything = sorted(f"{side}{number}" for side in "ab" for number in range(EACH))
    faults: list[str] = []
    for side, heard in round.heard.items():
        if any(_of(heard, sender) != sorted(_of(heard, sender)) for sender in "ab"):
            faults.append(f"{side} heard {heard}: out of order")
    if round.mode == "competing":
        if sorted(a + b) != everything:
            faults.append(f"of the jobs, a got {a}, b got {b}")
    elif sorted(b) != everything or (not round.cancelled and sorted(a) != everything):
        faults.append(f"a heard {a}, b heard {b}")
    elif round.mode != "direct" and a != b[: len(a)]:
        faults.append(f"a heard {a} and b {b}: not in the same order")
    if round.cancelled and "a" not in round.ended:
        faults.append("a was not told of its cancellation")
    return [f"{round.name} ({round.mode}{', cancelled' if round.cancelled else ''}): {fault}" for fault in faults]


def _of(heard: Sequence[str], sender: str) -> list[str]:
    return [word for word in heard if word.startswith(sender)]


async def commit(store: Store, write: Write) -> WriteResult:
    """Write one thing that the database must take."""
    (answer,) = await store.commit([write])
    assert not isinstance(answer, Exception), answer
    return answer
