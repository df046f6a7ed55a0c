"""A simulated process: an app in its own lane that can be killed, stopped, blocked and cut off from the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.simulate.loop import Lane
from tests.simulate.store_proxy import StoreProxy

from romancy import App
from romancy.core.asyncio_patches import OrderedSet
from romancy.errors import StoreError
from romancy.http.lazy_gateway import open_http
from romancy.http.types import HTTPSettings
from romancy.store.port import Store
from romancy.worker.runner.state import Discarded

if TYPE_CHECKING:
    from tests.simulate.simulation import Simulation

T = TypeVar("T")


class UnreachableError(Exception):
    """The process did not answer; the caller cannot know whether the call took effect."""


class SeededIds:
    """Ids derived from the seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def instance_id(self, now: int) -> str:
        """An id that sorts by time."""
        return f"{now // 1000:012x}-{self._rng.getrandbits(64):016x}"

    def incarnation(self) -> str:
        """A new id for each incarnation."""
        return f"{self._rng.getrandbits(32):08x}"


class Process(App):
    """One incarnation of a worker process."""

    def __init__(self, simulation: Simulation, name: str, **options: Any) -> None:
        super().__init__(simulation.path, worker_id=name, clock=simulation.clock, ids=simulation.ids, **options)
        self.simulation = simulation
        self.name = name
        self.lane = Lane(name, self)
        self.heartbeat_lane = Lane(f"{name}'s heartbeat", self)
        self.lanes = simulation.lanes
        self.up = False
        """The process has started and accepts calls."""
        self.shutting_down = False
        """The process is shutting down in an orderly way."""
        self.over = simulation.loop.create_future()
        """Resolved when the process is dead or has shut down."""
        self.stores: list[Store] = []
        self.proxies: list[StoreProxy] = []
        self.notified = False
        """A notification is on its way to the process."""
        self._cut_until = 0.0
        self._slow_until = 0.0
        self._calls: dict[asyncio.Future[Any], None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._use_inline_executor = True
        simulation.loop.add(self.lane)
        simulation.loop.add(self.heartbeat_lane)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the lane of the process."""
        self._tasks.append(self.simulation.loop.create_task(work, context=self.lane.context()))

    # --- start and end

    def begin(self) -> None:
        """Start the app in the lane of the process."""
        self._spawn(self._live())

    async def _live(self) -> None:
        try:
            await self.startup()
        except StoreError:
            self.kill()
            return
        except Exception as error:
            self.simulation.fault(f"{self.name} could not start: {error!r}")
            return
        self.up = True
        self.simulation.note(self.name, "is ready")

    async def _start_worker(self) -> None:
        await super()._start_worker()
        assert self._worker is not None
        # Plain sets of objects iterate in the order of addresses, which is not reproducible.
        self._worker.attempts = OrderedSet()
        for relay in self._relays:
            relay._deliveries = OrderedSet()
        settings = HTTPSettings(self._options["max_body_size"], self._options["request_timeout"], self._options["auth"])
        self._http = open_http(self, settings, self._clock)

    def opened_store(self, store: Store) -> Store:
        """Wrap the store in a proxy that injects faults."""
        self.stores.append(store)
        self.proxies.append(StoreProxy(store, self))
        return cast(Store, self.proxies[-1])

    def kill(self) -> None:
        """Kill the process like SIGKILL: no cleanup; callers see their connections break."""
        if self.lane.dead:
            return
        self.simulation.note(self.name, "dies")
        self.lane.kill()
        self.heartbeat_lane.kill()
        self._leave()

    def shut_down(self) -> None:
        """Shut down in an orderly way, like SIGTERM."""
        self.up, self.shutting_down = False, True
        self._spawn(self._shut_down())

    async def _shut_down(self) -> None:
        try:
            await self.shutdown()
        except Exception as error:
            self.simulation.fault(f"{self.name} could not shut down: {error!r}")
        self.simulation.note(self.name, "has shut down")
        self.kill()

    def _leave(self) -> None:
        self.up = False
        for call in self._calls:
            if not call.done():
                call.set_exception(UnreachableError(f"{self.name} is gone"))
        if not self.over.done():
            self.over.set_result(None)

    def discard(self) -> None:
        """Discard the runs that are still in memory after the simulation."""
        worker = self._worker
        if worker is not None:
            worker.stopping = True
            for runner in [*worker._runners.values(), *worker._parked.values()]:
                runner.handle(Discarded())
            worker.timers.close()

    # --- faults

    def stop(self, until: float) -> None:
        """Stop the process like SIGSTOP until this time."""
        self.lane.freeze(until)
        self.heartbeat_lane.freeze(until)

    def block(self, until: float) -> None:
        """Block the event loop until this time; heartbeats continue."""
        self.lane.freeze(until)

    def cut(self, until: float) -> None:
        """Make the database unreachable until this time."""
        self._cut_until = until

    def slow(self, until: float) -> None:
        """Make every call of the database slow until this time."""
        self._slow_until = until

    def recover(self) -> None:
        """End all faults of this process."""
        self.lane.thaw()
        self.heartbeat_lane.thaw()
        self._cut_until = self._slow_until = 0.0

    async def delay_call(self) -> None:
        """Delay a call or its answer."""
        fault_plan, now = self.simulation.fault_plan, self.simulation.loop.time()
        delay = fault_plan.delay()
        if now < self._slow_until:
            delay += fault_plan.rng.uniform(0.2, 3.0)
        if delay:
            await asyncio.sleep(delay)

    async def inject_fault(self, verb: str, *, before: bool) -> None:
        """Inject a fault before or after a call takes effect: raise `StoreError`, or kill the process and never return."""
        fault_plan = self.simulation.fault_plan
        when = "before" if before else "after"
        if self.lane.dead or fault_plan.happens(fault_plan.dies):
            self.simulation.note(self.name, f"dies {when} {verb}")
            self.kill()
            await asyncio.get_running_loop().create_future()
        if self.simulation.loop.time() < self._cut_until:
            raise _lost(f"the connection is cut {when} {verb}")
        if fault_plan.happens(fault_plan.fails_before if before else fault_plan.fails_after):
            self.simulation.note(self.name, f"fails {when} {verb}")
            raise _lost(f"a planned failure {when} {verb}")

    # --- calls from clients

    async def call_app(self, make: Callable[[Process], Awaitable[T]]) -> T:
        """Call the app like a client. Raises `UnreachableError` if the connection breaks or the answer is lost."""
        simulation = self.simulation
        if not self.up:
            raise UnreachableError(f"{self.name} does not answer")
        answer: asyncio.Future[T] = simulation.loop.create_future()
        self._calls[answer] = None
        await asyncio.sleep(simulation.fault_plan.delay())
        if not answer.done():  # otherwise the process died meanwhile
            self._spawn(self._answer(make, answer))
        try:
            async with asyncio.timeout(10):
                given = await answer
        except TimeoutError:
            raise UnreachableError(f"{self.name} did not answer in time") from None
        finally:
            self._calls.pop(answer, None)
        if simulation.fault_plan.happens(simulation.fault_plan.loses_notifications * 0.3):
            raise UnreachableError("the answer was lost")
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
