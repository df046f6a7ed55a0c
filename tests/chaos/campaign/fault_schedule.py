"""What goes wrong during a campaign, by a plan that follows from its seed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.chaos.campaign.campaign_processes import Counter, DidNotStop, Post
from tests.chaos.campaign.database_targets import Place
from tests.chaos.campaign.network_namespace import Island
from tests.chaos.campaign.tcp_proxy import Cable
from tests.chaos.worker_processes import LEASE, write_lock

_PATIENCE = 15.0
"""Seconds after which a new process that is not ready is left to itself."""


class Blow(StrEnum):
    """What can happen."""

    KILL_WORKER = "a worker is killed"
    KILL_SERVER = "a server is killed"
    STOP_WORKER = "a worker stands still, for longer than its lease"
    STOP_SERVER = "a server stands still, for longer than its lease"
    RELIEVE_SERVER = "a server is stopped in order, and another started"
    CUT = "a process is cut off from the database"
    FREEZE = "a process hears nothing from the database, and is not heard"
    DEAF = "a process does not hear what the database says"
    MUTE = "the database does not hear what a process says"
    PULL = "what a process and the database send each other vanishes"
    CLIENTS_CUT = "a server is cut off from its clients"
    CLIENTS_DEAF = "clients do not hear what a server says"
    RESTART = "the database is stopped in order, and started"
    CRASH = "the database is killed, and started"
    LOCK = "somebody holds the write lock of the file"


PROCESSES = (Blow.KILL_WORKER, Blow.KILL_SERVER, Blow.STOP_WORKER, Blow.STOP_SERVER, Blow.RELIEVE_SERVER)
CLIENTS = (Blow.CLIENTS_CUT, Blow.CLIENTS_DEAF)
ISLANDS = (Blow.PULL,)
LINES = (Blow.CUT, Blow.FREEZE, Blow.DEAF, Blow.MUTE, *CLIENTS, Blow.RESTART, Blow.CRASH)
FILES = (Blow.LOCK, *CLIENTS)


@dataclass(frozen=True, slots=True)
class Strike:
    """One thing that happens."""

    blow: Blow
    victim: float
    """Which of the candidates: a part of them."""
    seconds: float
    """How long it lasts."""
    breaks: bool
    """A line that stood still breaks afterwards, and what was held up on it is lost."""
    calm: float
    """Seconds until the next."""


def plan(blows: Sequence[Blow], seed: str, calm: float) -> Iterator[Strike]:
    """Without end; all of them come before one comes again."""
    chance = random.Random(seed)
    while True:
        for blow in chance.sample(blows, len(blows)):
            long = LEASE * (1.5 + chance.random()) if blow in (Blow.STOP_WORKER, Blow.STOP_SERVER) else 2.5 * chance.random()
            yield Strike(blow, chance.random(), long, chance.random() < 0.5, calm * chance.random())


@dataclass
class Weather:
    """Two lanes: processes suffer, and, beside that, lines and the database."""

    place: Place
    workers: list[Post]
    counters: list[Counter]
    folder: Path
    seed: int
    calm: float = 1.0
    trouble: list[str] = field(default_factory=list[str])
    """What processes did that they must not do."""
    done: Tally[Blow] = field(default_factory=Tally[Blow])

    async def rage(self, over: asyncio.Event) -> None:
        """Until it is over; whatever was done to anybody has ended then."""
        others = FILES if self.place.server is None else (*LINES, *(ISLANDS if self._islands else ()))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._strike_on(PROCESSES, over))
            group.create_task(self._strike_on(others, over))

    async def _strike_on(self, blows: Sequence[Blow], over: asyncio.Event) -> None:
        for strike in plan(blows, f"{self.seed} {blows[0]}", self.calm):
            if over.is_set():
                return
            await self._strike(strike)
            self.done[strike.blow] += 1
            await _unless(over, strike.calm)

    async def _strike(self, strike: Strike) -> None:
        with (self.folder / "weather").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {strike}\n")
        match strike.blow:
            case Blow.KILL_WORKER | Blow.KILL_SERVER:
                await self._kill(self._post(strike), strike)
            case Blow.STOP_WORKER | Blow.STOP_SERVER:
                await self._stop(self._post(strike), strike)
            case Blow.RELIEVE_SERVER:
                await self._relieve(self._post(strike))
            case Blow.RESTART | Blow.CRASH:
                await self._restart(hard=strike.blow is Blow.CRASH)
            case Blow.PULL:
                await self._pull(self._islands[int(strike.victim * len(self._islands))], strike)
            case Blow.LOCK:
                await asyncio.to_thread(self._lock, strike.seconds)
            case _:
                await self._trouble(self._cable(strike), strike)

    @property
    def _islands(self) -> list[Island]:
        return [post.island for post in self.workers if post.island is not None]

    def _post(self, strike: Strike) -> Post:
        some = self.workers if strike.blow in (Blow.KILL_WORKER, Blow.STOP_WORKER) else self.counters
        return some[int(strike.victim * len(some))]

    def _cable(self, strike: Strike) -> Cable:
        if strike.blow in CLIENTS:
            return self.counters[int(strike.victim * len(self.counters))].line
        posts = [*self.workers, *self.counters]
        cable = posts[int(strike.victim * len(posts))].cable
        assert cable is not None
        return cable

    async def _kill(self, post: Post, strike: Strike) -> None:
        assert post.hand is not None
        await asyncio.to_thread(post.hand.kill)
        await asyncio.sleep(strike.seconds / 10)
        await self._replace(post)

    async def _stop(self, post: Post, strike: Strike) -> None:
        assert post.hand is not None
        post.hand.stop()
        await asyncio.sleep(strike.seconds)
        post.hand.go_on()

    async def _relieve(self, post: Post) -> None:
        try:
            await asyncio.to_thread(post.finish)
        except DidNotStop as error:
            self.trouble.append(str(error))
        await self._replace(post)

    async def _replace(self, post: Post) -> None:
        """Start the next; wait for it, if it need not wait for the database: there must be somebody left to suffer."""
        post.start()
        with suppress(AssertionError):
            await post.until_ready(_PATIENCE)

    async def _restart(self, *, hard: bool) -> None:
        assert self.place.server is not None
        await asyncio.to_thread(self.place.server.stop, hard=hard)
        await asyncio.to_thread(self.place.server.start)

    def _lock(self, seconds: float) -> None:
        with write_lock(self.folder):
            time.sleep(seconds)

    async def _pull(self, island: Island, strike: Strike) -> None:
        island.pull()
        await asyncio.sleep(strike.seconds)
        island.plug()

    async def _trouble(self, cable: Cable, strike: Strike) -> None:
        if strike.blow in (Blow.CUT, Blow.CLIENTS_CUT):
            cable.cut()
        else:
            deaf, mute = strike.blow in (Blow.DEAF, Blow.CLIENTS_DEAF), strike.blow is Blow.MUTE
            cable.freeze(there=not deaf, back=not mute)
        await asyncio.sleep(strike.seconds)
        if strike.breaks:
            cable.cut()
        cable.mend()


async def _unless(over: asyncio.Event, seconds: float) -> None:
    """Wait so long, unless it is over before."""
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return
