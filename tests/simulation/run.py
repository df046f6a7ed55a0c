"""One seed: make a world, let it go wrong, let it recover, and see that nothing was lost, doubled or forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from tests.property.talking.actors import Cast, hands, listen, seen, speak
from tests.property.talking.chance import random_cast
from tests.property.talking.checks import check as check_talk
from tests.property.talking.hand import Hand
from tests.property.talking.scene import Scene, Stage
from tests.simulation import weather as weathers
from tests.simulation.clients import Clients
from tests.simulation.loop import Restless, SimulatedLoop, lane
from tests.simulation.orders import ARRIVED, Spec, arrived, expected, order, outsides, random_order, said_by
from tests.simulation.process import Process
from tests.simulation.seam import SimulatedHeart
from tests.simulation.watch import Watch
from tests.simulation.world import Complaints, Failed, SimulatedBroker, World

from romancy import app as apps
from romancy import clock as clocks
from romancy import connected
from romancy.authoring.sources import stored_source
from romancy.authoring.workflow import Workflow
from romancy.clock import MICROS
from romancy.core import patch
from romancy.core.commands import Finish
from romancy.errors import DeterminismViolationError
from romancy.model.history import Kind, Outcome
from romancy.model.status import Status
from romancy.store.open import open_store
from romancy.store.port import Store
from romancy.testing import RecordedHistory, replay_history
from romancy.testing.environment import VirtualClock
from romancy.worker import upkeep

_MEMORY = Path("/dev/shm")  # simulated crashes lose nothing the kernel has, so the disk is not needed
_WORKFLOWS: list[Workflow[..., Any]] = [order, arrived, listen, speak]
_PATIENCE = 120.0
"""Virtual seconds after the last trouble within which everything must be done."""


@dataclass(frozen=True)
class Report:
    """How a seed went."""

    seed: int
    faults: tuple[str, ...]
    digest: str
    trace: tuple[str, ...]
    seconds: float
    """Of virtual time."""


def simulate(seed: int) -> Report:
    """Run one seed. The same seed gives the same outcome."""
    chance = random.Random(f"{seed} loop")
    weather = weathers.draw(random.Random(f"{seed} weather"))
    loop = SimulatedLoop(chance)
    patch.install()
    with _folder() as folder, _deterministic(loop):
        world = World(seed, loop, str(folder / "simulation.db"), weather)
        with _listened_to(world):
            return _run(world, loop)


def _run(world: World, loop: SimulatedLoop) -> Report:
    loop.set_exception_handler(lambda _, context: world.fault(f"the event loop: {context}"))
    play = Play(world)
    try:
        asyncio.set_event_loop(None)
        loop.run_until_complete(play.run())
    except (Failed, Restless) as error:
        if not world.ledger.faults:
            world.fault(str(error))
    except Exception as error:  # a client, a check or the engine broke down
        world.fault(f"{type(error).__name__}: {error}")
        world.trace += traceback.format_exc().splitlines()
    finally:
        outcome = Report(
            world.seed, tuple(world.ledger.faults), world.digest, tuple(world.trace), loop.time()
        )
        loop.set_exception_handler(lambda _, context: None)
        play.clean_up()
        loop.close()
    return outcome


class Play:
    """What happens in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} play")
        chance = self._chance
        self._options: dict[str, Any] = {
            "workflows": _WORKFLOWS,
            "cache_size": chance.choice([0, 1, 3, 1000]),
            "max_concurrent_workflows": chance.choice([1, 3, 1000, 1000]),
            "max_concurrent_activities": chance.choice([1, 3, 100]),
            "heartbeat_interval": 1.0,
            "lease_timeout": 4.0,
            "poll_interval": chance.choice([0.3, 1.0, 2.0]),
            "outbox_interval": chance.choice([0.5, 2.0]),
            "outbox_batch_size": chance.choice([1, 5, 100]),
            "shutdown_timeout": 2.0,
            "block_warning": 0.0,
        }
        self._cast = random_cast("t", chance) if chance.random() < 0.7 else Cast((), (), ())
        self._orders = [random_order(f"o{number}", chance) for number in range(chance.randint(1, 5))]
        self._clients = Clients(world, random.Random(f"{world.seed} clients"))
        self._keepers: list[asyncio.Task[None]] = []
        self._reader: Store

    async def run(self) -> None:
        """All of it. What is wrong is in the ledger."""
        world = self._world
        await self._open()
        self._keepers = [asyncio.create_task(self._keep(f"p{number}")) for number in range(self._chance.choice([1, 2, 2, 3]))]
        self._begin_clients()
        await self._trouble()
        await self._recover()
        await self._check_end()
        world.note("", "the end")

    async def _open(self) -> None:
        world = self._world
        self._reader = open_store(world.path, clock=world.clock, threads="inline")
        await self._reader.open()
        world.watch = Watch(world.path, world.fault)

    def _begin_clients(self) -> None:
        clients, chance, cast = self._clients, self._chance, self._cast
        for spec in (*self._orders, *cast.listeners, *cast.speakers):
            clients.spawn(clients.start(spec, waits="steps" in spec and chance.random() < 0.5))
        for outsider in cast.outsiders:
            clients.spawn(clients.send(outsider))
        clients.spawn(clients.arrive("a0", chance.randint(0, 4)))
        for spec in (*self._orders, *cast.listeners):
            if chance.random() < 0.3:
                clients.spawn(clients.steer(spec["id"], chance.choice(["pause", "pause", "cancel", "terminate"])))

    # --- processes

    async def _keep(self, name: str) -> None:
        """Bring up a process, and another when it is gone."""
        number = 0
        while True:
            number += 1
            process = Process(self._world, f"{name}.{number}", broker=SimulatedBroker(self._world), **self._options)
            self._world.processes.append(process)
            process.begin()
            await process.over
            await asyncio.sleep(self._chance.uniform(0.1, 5.0))

    # --- what goes wrong

    async def _trouble(self) -> None:
        world, weather = self._world, self._world.weather
        end = world.loop.time() + weather.lasts
        while (left := end - world.loop.time()) > 0:
            await self._sleep(min(left, weather.chance.expovariate(1 / weather.pause)))
            alive = [process for process in world.processes if not process.over.done()]
            if weather.disasters and alive:
                self._strike(weather.chance.choice(weather.disasters), weather.chance.choice(alive))

    def _strike(self, what: str, process: Process) -> None:
        world, chance = self._world, self._world.weather.chance
        until = world.loop.time() + chance.choice([0.5, 2.0, 6.0, 15.0])
        world.note(process.name, f"trouble: {what} until {until:.1f}")
        match what:
            case "kill":
                process.kill()
            case "restart":
                if process.up:
                    process.shut_down()
            case "jump":
                world.clock.ahead += round(chance.choice([-2.0, -0.5, 0.5, 3.0, 10.0, 60.0]) * MICROS)
            case _:
                getattr(process, what)(until)

    async def _recover(self) -> None:
        """Nothing goes wrong any more: everything must come to its end."""
        world = self._world
        world.note("", "everything is well again")
        world.weather.clear_up()
        for process in world.processes:
            process.recover()
        deadline = world.loop.time() + _PATIENCE
        while not self._at_rest():
            if world.loop.time() > deadline:
                self._tell_what_is_left()
                raise Failed("not everything was done")
            await self._sleep(1.0)
        await self._sleep(10.0)  # whoever comes back late, comes back now
        if not self._at_rest():
            self._tell_what_is_left()

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._clients.check()
        if self._world.ledger.faults:
            raise Failed

    def _at_rest(self) -> bool:
        return self._clients.done and not any(True for _ in self._left())

    def _left(self) -> Iterator[str]:
        """What is not done."""
        world = self._world
        endless = {spec["id"] for spec in self._cast.listeners}
        world.watch.look()
        for row in world.watch.rows.values():
            if row.status.ended:
                continue
            waits = row.owner is None and row.wake_at is None and row.status is not Status.PAUSED
            if row.id not in endless or not waits:
                yield f"{row}"
        if world.watch.undelivered():
            yield f"{world.watch.undelivered()} events in the outbox"

    def _tell_what_is_left(self) -> None:
        if not self._clients.done:
            self._world.fault("clients wait for ever")
        for left in self._left():
            self._world.fault(f"forgotten: {left}")

    # --- the end

    async def _check_end(self) -> None:
        world, ledger = self._world, self._world.ledger
        for id in world.started:
            if id not in world.watch.rows:
                world.fault(f"{id} was acknowledged, and is gone")
        lost = set(ledger.for_broker) - set(world.received)
        if lost:
            world.fault(f"the broker never got {sorted(lost)}")
        for row in world.watch.rows.values():
            world.watch.check_history(row)
            if row.workflow in (order.name, ARRIVED):
                world.check_recorded(row.id, row.generation)
        for spec in self._orders:
            await self._check_order(spec)
        await self._check_arrivals()
        await self._check_talk()
        if ledger.faults:
            raise Failed

    async def _check_order(self, spec: Spec) -> None:
        world, id = self._world, spec["id"]
        stored = await self._reader.get(id)
        assert stored is not None
        status, steered = stored.row.status, id in self._clients.steered
        right = Status.FAILED if spec["badly"] else Status.COMPLETED
        if status is not right and not (steered and status in (Status.CANCELLED, Status.TERMINATED)):
            world.fault(f"{id} is {status}: {stored.error!r}")
        if status is Status.COMPLETED:
            result = order.result.decode(stored.output or b"")
            if result != expected(spec) or self._clients.results.get(id, result) != result:
                world.fault(f"{id} returned {result}, not {expected(spec)}; told: {self._clients.results.get(id)}")
        elif id in self._clients.results:
            world.fault(f"{id} is {status}, and somebody was given a result")
        if status in (Status.COMPLETED, Status.FAILED):
            said = [sent.data["by"] for sent in world.ledger.sent.values() if sent.data["by"].startswith(f"{id}:")]
            if sorted(said) != sorted(said_by(spec)):
                world.fault(f"{id} was to say {said_by(spec)}, and said {said}")
        await self._check_replay(id, order)
        self._check_way_back(id, stored.row.generation, undone=status in (Status.FAILED, Status.CANCELLED))

    def _check_way_back(self, id: str, generation: int, *, undone: bool) -> None:
        """What can be undone was, the last first; or nothing was."""
        history = self._world.watch.history(id, generation)
        done = [entry[4] for entry in history if entry[3] == Kind.COMPENSATION]
        undoable = [f"compensate:{entry[4]}" for entry in history if _is_undoable(entry)]
        if undone and done != undoable[::-1]:
            self._world.fault(f"{id} has undone {done}; completed were {undoable}")
        if not undone and done and self._world.watch.rows[id].status is Status.COMPLETED:
            self._world.fault(f"{id} has undone {done} although nothing failed")

    async def _check_replay(self, id: str, workflow: Workflow[..., Any]) -> None:
        loaded = await self._reader.load(id)
        stored = await self._reader.get(id)
        assert loaded is not None
        assert stored is not None
        row = loaded.row
        recorded = RecordedHistory(
            row.workflow, row.version, id, row.generation, loaded.begun_at, loaded.input, loaded.history
        )
        try:
            replayed = replay_history(workflow, recorded)
        except DeterminismViolationError as error:
            self._world.fault(f"{id} cannot be replayed: {error}")
            return
        verdict = replayed.verdict
        again = workflow.result.encode(verdict.value) if isinstance(verdict, Finish) else None
        if row.status is Status.COMPLETED and again != stored.output:
            self._world.fault(f"{id} returned {stored.output!r}; replayed, {again!r}")

    async def _check_arrivals(self) -> None:
        """Each event has started one instance."""
        world = self._world
        events = [sent for sent in world.ledger.sent.values() if sent.event is not None and sent.event.type == ARRIVED]
        rows = [row for row in world.watch.rows.values() if row.workflow == ARRIVED]
        results: list[int] = []
        for row in rows:
            stored = await self._reader.get(row.id)
            assert stored is not None
            results.append(arrived.result.decode(stored.output) if stored.output is not None else -1)
            await self._check_replay(row.id, arrived)
        if sorted(results) != sorted(2 * sent.data["n"] for sent in events):
            world.fault(f"events {[sent.id for sent in events]} have started {rows} with the results {results}")

    async def _check_talk(self) -> None:
        world = self._world
        stage = Stage((), Hand(), VirtualClock(), self._reader)
        cast = self._cast
        await check_talk(Scene(stage, cast, world.ledger, [*world.acknowledged]))

    # --- cleaning up

    def clean_up(self) -> None:
        """Nothing of this world is left."""
        world, loop = self._world, self._world.loop
        world.weather.clear_up()
        with contextlib.suppress(AttributeError):
            world.watch.close()
        for process in world.processes:
            for one in (process.lane, process.heart):
                one.rise()
        logging.getLogger("romancy").disabled = True
        try:
            loop.run_until_complete(self._bury())
        finally:
            logging.getLogger("romancy").disabled = False

    async def _bury(self) -> None:
        world = self._world
        for process in world.processes:
            for store in process.stores:
                await store.close()
        ours = asyncio.current_task()
        for process in world.processes:
            with contextlib.suppress(Exception):
                await process._die()
        tasks = [task for task in asyncio.all_tasks() if task is not ours]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(AttributeError):
            await self._reader.close()
        for spec in self._cast.listeners:
            seen.pop(spec["id"], None)


def _is_undoable(entry: tuple[Any, ...]) -> bool:
    if entry[3] == Kind.ACTIVITY:
        return entry[7] == "book" and entry[5] == Outcome.OK
    return bool(entry[3] == Kind.REGISTRATION)


# --- where it is


class _Leisure(Hand):
    """Whatever the actors of the talking wait for takes a while, by chance."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def gate(self, process: str, what: str) -> None:
        """Wait."""
        await asyncio.sleep(self._chance.choice([0.0, 0.1, 1.0, 4.0]))

    async def late(self, process: str, what: str) -> None:
        """Wait as well."""
        await self.gate(process, what)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-simulation-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _deterministic(loop: SimulatedLoop) -> Iterator[None]:
    """Nothing in here reads a clock, draws other chance or depends on when memory is collected."""
    was = gc.isenabled()
    gc.disable()
    try:
        with (
            mock.patch.object(clocks, "time", _Time(loop)),
            mock.patch.object(upkeep, "Heart", SimulatedHeart),
            mock.patch.object(connected, "open_store", _open_for_process),
            mock.patch.object(apps, "stored_source", cache(stored_source)),  # read from a file at every start
        ):
            yield
    finally:
        if was:
            gc.enable()
        gc.collect(0)  # all that this seed has left behind is young


class _Time:
    """The module `time`, as far as the engine uses it."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.monotonic = loop.time

    def time_ns(self) -> int:
        """Nobody may ask."""
        raise AssertionError("something reads the machine's clock")


def _open_for_process(database: str, **options: Any) -> Store:
    process = lane().owner
    assert isinstance(process, Process)
    return process.opened_store(open_store(database, **options))


@contextlib.contextmanager
def _listened_to(world: World) -> Iterator[None]:
    """What the engine complains about is heard; activities act upon this world."""
    logger, complaints = logging.getLogger("romancy"), Complaints(world)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(complaints)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    hands.append(_Leisure(random.Random(f"{world.seed} leisure")))
    outsides.append(world)
    try:
        yield
    finally:
        outsides.pop()
        hands.pop()
        logger.removeHandler(complaints)
        logger.propagate, logger.level = propagates, level
