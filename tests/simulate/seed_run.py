"""One seed: make a world, let it go wrong, let it recover, and see that nothing was lost, doubled or forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from tests.explore.participants import hands
from tests.explore.scheduler import Hand
from tests.simulate import fault_plan
from tests.simulate.loop import Restless, SimulatedLoop, lane
from tests.simulate.orchestrator import Play
from tests.simulate.order_workflows import outsides
from tests.simulate.simulated_process import Process
from tests.simulate.simulation import Complaints, Failed, World
from tests.simulate.store_proxy import SimulatedHeart

from romancy import app as apps
from romancy import clock as clocks
from romancy import runtime
from romancy.core import asyncio_patches
from romancy.registry.source_capture import stored_source
from romancy.store.open import open_store
from romancy.store.port import Store
from romancy.worker import maintenance

_stored_source = cache(stored_source)  # read from a file at every start
_MEMORY = Path("/dev/shm")  # simulated crashes lose nothing the kernel has, so the disk is not needed


@dataclass(frozen=True)
class Report:
    """How a seed went."""

    seed: int
    faults: tuple[str, ...]
    digest: str
    """Stands for everything that happened."""
    trace: tuple[str, ...]
    seconds: float
    """Of virtual time."""


def simulate(seed: int) -> Report:
    """Run one seed. The same seed gives the same report."""
    asyncio_patches.install()
    loop = SimulatedLoop(random.Random(f"{seed} loop"))
    with _folder() as folder, _deterministic(loop):
        world = World(seed, loop, str(folder / "simulation.db"), fault_plan.draw(random.Random(f"{seed} weather")))
        with _listened_to(world):
            return _run(world, Play(world))


def _run(world: World, play: Play) -> Report:
    loop = world.loop
    loop.set_exception_handler(lambda _, context: world.fault(f"the event loop: {context}"))
    try:
        loop.run_until_complete(play.run())
    except (Failed, Restless) as error:
        if not world.ledger.faults:
            world.fault(str(error))
    except Exception as error:  # a client, a check or the engine broke down
        world.fault(f"{type(error).__name__}: {error}")
        world.trace += traceback.format_exc().splitlines()
    report = Report(world.seed, tuple(world.ledger.faults), world.digest, tuple(world.trace), loop.time())
    _end(world, play)
    return report


def _end(world: World, play: Play) -> None:
    """All is told: what is left of it goes, in silence."""
    logger, loop = logging.getLogger("romancy"), world.loop
    logger.disabled = True
    loop.set_exception_handler(lambda _, context: None)
    world.weather.clear_up()
    for process in world.processes:
        process.lane.rise()
        process.heart.rise()
    try:
        loop.run_until_complete(play.clean_up())
    finally:
        loop.close()
        logger.disabled = False


# --- where it is


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-simulation-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _deterministic(loop: SimulatedLoop) -> Iterator[None]:
    """Nothing in here reads a clock, draws other chance or depends on when memory is collected."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with (
            mock.patch.object(clocks, "time", _Time(loop)),
            mock.patch.object(maintenance, "HeartbeatThread", SimulatedHeart),
            mock.patch.object(runtime, "open_store", _open_for_process),
            mock.patch.object(apps, "stored_source", _stored_source),
        ):
            yield
    finally:
        if collects:
            gc.enable()
        gc.collect(0)  # all that this seed has left behind is young


class _Time:
    """The module `time`, as far as the engine uses it. Other threads, of other tests, have the machine's."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()

    def monotonic(self) -> float:
        """The simulation's."""
        return self._loop.time() if threading.get_ident() == self._thread else time.monotonic()

    def time_ns(self) -> int:
        """Nobody may ask."""
        if threading.get_ident() != self._thread:
            return time.time_ns()
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
        logger.propagate = propagates
        logger.setLevel(level)


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
