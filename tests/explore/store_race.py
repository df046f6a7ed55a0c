"""Real race of three stores on one database, each with its own connections: two listen and send, the third cancels.

The round does not wait for real time. A listener that was released looks again whenever another participant has received an
answer. Once no participant has anything left to do, whatever was not received is lost.
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
"""The number of items that each side sends."""
_CONCURRENT_ROUNDS = 8
_now = itertools.count(1_000)


@dataclass
class Round:
    """One round: both sides listen and send."""

    name: str
    mode: str
    cancelled: bool
    """Whether side a is cancelled meanwhile."""
    rng: random.Random
    received: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    ended: set[str] = field(default_factory=set[str])
    """The sides that have ended."""
    busy: int = 0
    """The number of participants that have something to do or to read."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: int = 0
    _over: bool = False

    def id(self, side: str) -> str:
        """The id of the listening instance of a side."""
        return f"{self.name}/{side}"

    def notify(self) -> None:
        """An answer has arrived: let the waiting listeners look again."""
        self.busy, self._waiting = self.busy + self._waiting, 0
        self.changed.set()
        self.changed = asyncio.Event()

    def finish(self) -> None:
        """A participant has finished."""
        self.notify()
        self.busy -= 1

    async def wait(self) -> bool:
        """Wait for the answer of another participant. False if all others have finished."""
        self.busy -= 1
        if self.busy:
            self._waiting += 1
            await self.changed.wait()
        else:
            self._over = True
            self.changed.set()
        return not self._over

    async def yield_randomly(self, most: int = 4) -> None:
        """Yield to the event loop a random number of times."""
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)


class Listener:
    """An instance driven like by a worker: it issues waits, reads its inbox, is released, and is claimed again."""

    def __init__(self, store: Store, round: Round, side: str) -> None:
        self._store, self._round, self._side = store, round, side
        self._id, self._worker = round.id(side), f"worker-{side}"
        self._epoch, self._length, self._seen = 1, 0, 0
        self._received = round.received.setdefault(side, [])
        self._cancelled = False

    async def begin(self) -> None:
        """Create the instance and subscribe it."""
        await commit(self._store, create(self._id, owner=self._worker, now=next(_now)))
        if self._round.mode != "event":
            mode = ChannelMode(self._round.mode)
            await self._ask(subscribe(self._round.name, mode), hold=True)

    async def listen(self) -> None:
        """Receive everything, or be cancelled."""
        asked = wait(self._round.name) if self._round.mode == "event" else receive(self._round.name)
        while not self._cancelled and len(self._received) < 2 * EACH:
            await self._round.yield_randomly()
            answer = await self._ask(asked)
            if answer.replies:
                self._received += said(answer.replies).values()
                self._round.notify()
            elif not answer.owned and not await self._reclaim():
                return
            elif not answer.caught_up:
                await self._read_inbox()
        await self._end()
        self._round.finish()

    async def _end(self) -> None:
        status = Status.CANCELLED if self._cancelled else Status.COMPLETED
        if (await self._write(status=status, ending=Ending())).owned:  # it was cancelled without knowing it
            await self._read_inbox()
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

    async def _read_inbox(self) -> None:
        inbox = await self._store.inbox(self._id)
        self._seen = inbox.inbox_version
        self._cancelled = any(mail.kind == "cancel" for mail in inbox.items)

    async def _reclaim(self) -> bool:
        """Wait until the instance can be claimed again. False if no other participant is left to wake it."""
        while True:
            changed = self._round.changed
            rows = await self._store.claim(self._worker, [ORDER], now=next(_now), limit=1, ids=[self._id])
            if rows:
                self._epoch, self._length = rows[0].epoch, rows[0].length
                await self._read_inbox()
                return True
            # Another transaction may have locked the row for a moment and be answered by now: then look again.
            if not changed.is_set() and not await self._round.wait():
                return False


class StoreRace:
    """Runs rounds on one database and collects faults."""

    def __init__(self, database: str, seed: int = 0) -> None:
        self._database = database
        self._rng = random.Random(seed)
        self.faults: list[str] = []

    def run(self, rounds: int) -> None:
        """Run this number of rounds, or stop at the first fault."""
        asyncio.run(self._run(rounds))

    async def _run(self, rounds: int) -> None:
        stores = [
            open_store(self._database, clock=SystemClock(), server=ServerOptions(listen_notify=False)) for _ in range(3)
        ]
        for store in stores:
            await store.open()
        todo = iter(range(rounds))
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(_CONCURRENT_ROUNDS):
                    workers.create_task(self._worker(stores, todo))
        finally:
            for store in stores:
                await store.close()

    async def _worker(self, stores: Sequence[Store], todo: Iterator[int]) -> None:
        for number in todo:
            if self.faults:
                return
            cancelled = self._rng.random() < 0.25
            mode = MODES[number % len(MODES)]
            round = Round(f"r{number}", mode, cancelled, random.Random(self._rng.random()))
            try:
                await self._run_round(stores, round)
            except* Exception as errors:
                self.faults += [f"{round.name}: {error!r}" for error in errors.exceptions]
            else:
                self.faults += faults_of(round)

    async def _run_round(self, stores: Sequence[Store], round: Round) -> None:
        sides = dict(zip("ab", stores, strict=False))
        listeners = [Listener(store, round, side) for side, store in sides.items()]
        for listener in listeners:
            await listener.begin()
        sending = [self._send(store, round, side) for side, store in sides.items()]
        if round.cancelled:
            sending.append(self._cancel(stores[2], round))
        round.busy = len(sending) + len(listeners)
        async with asyncio.TaskGroup() as all_at_once:
            for doing in (*sending, *(listener.listen() for listener in listeners)):
                all_at_once.create_task(doing)

    async def _send(self, store: Store, round: Round, side: str) -> None:
        for number in range(EACH):
            await round.yield_randomly()
            for write in _writes_to_send(round, side, f"{side}{number}"):
                await commit(store, write)
                round.notify()
        round.finish()

    async def _cancel(self, store: Store, round: Round) -> None:
        await round.yield_randomly(100)
        await commit(store, request(ControlKind.CANCEL, round.id("a"), now=next(_now)))
        round.finish()


def _writes_to_send(round: Round, side: str, word: str) -> list[Write]:
    name, now = round.name, next(_now)
    if round.mode == "event":
        return [accept(Event(word, name, name, b"{}"), now=now)]
    if round.mode == "direct":
        return [send(round.id(other), f"{word}", name, now=now) for other in "ab"]
    return [publish(word, name, now=now)]


def faults_of(round: Round) -> list[str]:
    """What was received twice, not at all or out of order."""
    a, b = round.received["a"], round.received["b"]
    everything = sorted(f"{side}{number}" for side in "ab" for number in range(EACH))
    faults: list[str] = []
    for side, received in round.received.items():
        if any(_of(received, sender) != sorted(_of(received, sender)) for sender in "ab"):
            faults.append(f"{side} received {received}: out of order")
    if round.mode == "competing":
        if sorted(a + b) != everything:
            faults.append(f"of the jobs, a got {a}, b got {b}")
    elif sorted(b) != everything or (not round.cancelled and sorted(a) != everything):
        faults.append(f"a received {a}, b received {b}")
    elif round.mode != "direct" and a != b[: len(a)]:
        faults.append(f"a received {a} and b {b}: not in the same order")
    if round.cancelled and "a" not in round.ended:
        faults.append("a did not end as cancelled")
    return [f"{round.name} ({round.mode}{', cancelled' if round.cancelled else ''}): {fault}" for fault in faults]


def _of(received: Sequence[str], sender: str) -> list[str]:
    return [word for word in received if word.startswith(sender)]


async def commit(store: Store, write: Write) -> WriteResult:
    """Commit one write that must succeed."""
    (answer,) = await store.commit([write])
    assert not isinstance(answer, Exception), answer
    return answer
