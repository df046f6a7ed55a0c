"""A process: an app in a lane of its own, which can be killed, stopped, blocked and cut off from the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.simulate.loop import Lane
from tests.simulate.store_proxy import Seam

from romancy import App
from romancy.core.asyncio_patches import OrderedSet
from romancy.errors import StoreError
from romancy.http.lazy_gateway import open_http
from romancy.http.types import HTTPSettings
from romancy.store.port import Store

if TYPE_CHECKING:
    from tests.simulate.simulation import World

T = TypeVar("T")


class Gone(Exception):
    """The process does not answer: whoever called cannot know what was done."""


class SeededIds:
    """Ids by the seed's chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def instance_id(self, now: int) -> str:
        """Sorted by time."""
        return f"{now // 1000:012x}-{self._chance.getrandbits(64):016x}"

    def incarnation(self) -> str:
        """Another each time."""
        return f"{self._chance.getrandbits(32):08x}"


class Process(App):
    """One incarnation of a worker."""

    def __init__(self, world: World, name: str, **options: Any) -> None:
        super().__init__(world.path, worker_id=name, clock=world.clock, ids=world.ids, **options)
        self.world = world
        self.name = name
        self.lane = Lane(name, self)
        self.heart = Lane(f"{name}'s heart", self)
        self.lanes = world.lanes
        self.up = False
        """It has started and takes calls."""
        self.leaving = False
        """It is shutting down."""
        self.over = world.loop.create_future()
        """Done when it is dead, or has shut down."""
        self.stores: list[Store] = []
        self.seams: list[Seam] = []
        self.told = False
        """It is about to be told that somebody has written."""
        self._cut_until = 0.0
        self._slow_until = 0.0
        self._calls: dict[asyncio.Future[Any], None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._use_inline_executor = True
        world.loop.add(self.lane)
        world.loop.add(self.heart)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in its own lane."""
        self._tasks.append(self.world.loop.create_task(work, context=self.lane.context()))

    # --- life

    def begin(self) -> None:
        """Start, in its own lane."""
        self._spawn(self._live())

    async def _live(self) -> None:
        try:
            await self.startup()
        except StoreError:
            self.kill()
            return
        except Exception as error:
            self.world.fault(f"{self.name} could not start: {error!r}")
            return
        self.up = True
        self.world.note(self.name, "is up")

    async def _start_worker(self) -> None:
        await super()._start_worker()
        assert self._worker is not None
        # Sets of objects are ordered by their addresses: the same seed would not give the same order again.
        self._worker.attempts = OrderedSet()
        for relay in self._relays:
            relay._deliveries = OrderedSet()
        settings = HTTPSettings(self._options["max_body_size"], self._options["request_timeout"], self._options["auth"])
        self._http = open_http(self, settings, self._clock)

    def opened_store(self, store: Store) -> Store:
        """The store, behind its seam."""
        self.stores.append(store)
        self.seams.append(Seam(store, self))
        return cast(Store, self.seams[-1])

    def kill(self) -> None:
        """SIGKILL: nothing more happens, nothing is cleaned up; who is connected sees the line break."""
        if self.lane.dead:
            return
        self.world.note(self.name, "dies")
        self.lane.kill()
        self.heart.kill()
        self._leave()

    def shut_down(self) -> None:
        """SIGTERM."""
        self.up, self.leaving = False, True
        self._spawn(self._shut_down())

    async def _shut_down(self) -> None:
        try:
            await self.shutdown()
        except Exception as error:
            self.world.fault(f"{self.name} could not shut down: {error!r}")
        self.world.note(self.name, "has shut down")
        self.kill()

    def _leave(self) -> None:
        self.up = False
        for call in self._calls:
            if not call.done():
                call.set_exception(Gone(f"{self.name} is gone"))
        if not self.over.done():
            self.over.set_result(None)

    def discard(self) -> None:
        """When all is over: let its instances go."""
        worker = self._worker
        if worker is not None:
            worker.stopping = True
            for host in [*worker._runners.values(), *worker._parked.values()]:
                host.discard()
            worker.timers.close()

    # --- trouble

    def stop(self, until: float) -> None:
        """SIGSTOP, and SIGCONT then."""
        self.lane.freeze(until)
        self.heart.freeze(until)

    def block(self, until: float) -> None:
        """Something blocks the event loop; the heart beats on."""
        self.lane.freeze(until)

    def cut(self, until: float) -> None:
        """The database cannot be reached."""
        self._cut_until = until

    def slow(self, until: float) -> None:
        """Every call of the database takes long."""
        self._slow_until = until

    def recover(self) -> None:
        """Nothing is wrong any more."""
        self.lane.thaw()
        self.heart.thaw()
        self._cut_until = self._slow_until = 0.0

    async def on_the_way(self) -> None:
        """A call is on its way to the database, or an answer back."""
        weather, now = self.world.weather, self.world.loop.time()
        delay = weather.delay()
        if now < self._slow_until:
            delay += weather.chance.uniform(0.2, 3.0)
        if delay:
            await asyncio.sleep(delay)

    async def trouble(self, verb: str, *, before: bool) -> None:
        """What goes wrong before a call is done, or after. Raises `StoreError`; does not return where the process dies."""
        weather = self.world.weather
        when = "before" if before else "after"
        if self.lane.dead or weather.happens(weather.dies):
            self.world.note(self.name, f"dies {when} {verb}")
            self.kill()
            await asyncio.get_running_loop().create_future()
        if self.world.loop.time() < self._cut_until:
            raise _lost(f"the line is cut {when} {verb}")
        if weather.happens(weather.fails_before if before else weather.fails_after):
            self.world.note(self.name, f"fails {when} {verb}")
            raise _lost(f"something failed {when} {verb}")

    # --- calls from outside

    async def ask(self, make: Callable[[Process], Awaitable[T]]) -> T:
        """Call the process from outside. Raises `Gone` if the line breaks, or the answer gets lost."""
        world = self.world
        if not self.up:
            raise Gone(f"{self.name} does not answer")
        answer: asyncio.Future[T] = world.loop.create_future()
        self._calls[answer] = None
        await asyncio.sleep(world.weather.delay())
        if not answer.done():  # else it has died meanwhile
            self._spawn(self._answer(make, answer))
        try:
            async with asyncio.timeout(10):
                given = await answer
        except TimeoutError:
            raise Gone(f"{self.name} does not answer in time") from None
        finally:
            self._calls.pop(answer, None)
        if world.weather.happens(world.weather.loses * 0.3):
            raise Gone("the answer was lost")
        return given

    async def _answer(self, make: Callable[[Process], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        try:
            given = await make(self)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if not answer.done():
            answer.set_result(given)


def _lost(why: str) -> StoreError:
    error = StoreError(f"The connection to the database was lost: {why}.")
    error.retryable = True
    return error
