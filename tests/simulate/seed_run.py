"""Run of one seed: build a simulation, run it under faults, let it recover, and report violations."""

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

from tests.explore.participants import schedulers
from tests.explore.scheduler import Scheduler
from tests.simulate import fault_plan
from tests.simulate.loop import LivelockError, SimulatedLoop, lane
from tests.simulate.orchestrator import Orchestrator
from tests.simulate.order_workflows import effect_recorders
from tests.simulate.simulated_process import Process
from tests.simulate.simulation import ErrorLogHandler, Failed, Simulation
from tests.simulate.store_proxy import SimulatedHeartbeat

from romancy import app as apps
from romancy import clock as clocks
from romancy import runtime
from romancy.core import asyncio_patches
from romancy.registry.source_capture import stored_source
from romancy.store.open import open_store
from romancy.store.port import Store
from romancy.worker import maintenance

_stored_source = cache(stored_source)  # otherwise read from a file at every start
_MEMORY = Path("/dev/shm")  # a simulated crash loses nothing that the kernel has, so no disk is needed


@dataclass(frozen=True)
class Report:
    """The outcome of one seed."""

    seed: int
    faults: tuple[str, ...]
    digest: str
    """Hash of everything that happened; equal digests mean equal runs."""
    trace: tuple[str, ...]
    seconds: float
    """Virtual seconds."""


def simulate(seed: int) -> Report:
    """Run one seed. The same seed produces the same report."""
    asyncio_patches.install()
    loop = SimulatedLoop(random.Random(f"{seed} loop"))
    with _folder() as folder, _deterministic(loop):
        simulation = Simulation(
            seed, loop, str(folder / "simulation.db"), fault_plan.draw(random.Random(f"{seed} fault plan"))
        )
        with _checking_error_log(simulation):
            return _run(simulation, Orchestrator(simulation))


def _run(simulation: Simulation, orchestrator: Orchestrator) -> Report:
    loop = simulation.loop
    loop.set_exception_handler(lambda _, context: simulation.fault(f"the event loop: {context}"))
    try:
        loop.run_until_complete(orchestrator.run())
    except (Failed, LivelockError) as error:
        if not simulation.model.faults:
            simulation.fault(str(error))
    except Exception as error:  # a client, a check or the engine failed
        simulation.fault(f"{type(error).__name__}: {error}")
        simulation.trace += traceback.format_exc().splitlines()
    report = Report(simulation.seed, tuple(simulation.model.faults), simulation.digest, tuple(simulation.trace), loop.time())
    _end(simulation, orchestrator)
    return report


def _end(simulation: Simulation, orchestrator: Orchestrator) -> None:
    """Clean up after the report is complete, with logging disabled."""
    logger, loop = logging.getLogger("romancy"), simulation.loop
    logger.disabled = True
    loop.set_exception_handler(lambda _, context: None)
    simulation.fault_plan.stop_faults()
    for process in simulation.processes:
        process.lane.revive()
        process.heartbeat_lane.revive()
    try:
        loop.run_until_complete(orchestrator.clean_up())
    finally:
        loop.close()
        logger.disabled = False


# --- surroundings


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-simulation-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _deterministic(loop: SimulatedLoop) -> Iterator[None]:
    """Replace every source of nondeterminism: clocks, heartbeat threads, garbage collection."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with (
            mock.patch.object(clocks, "time", _Time(loop)),
            mock.patch.object(maintenance, "HeartbeatThread", SimulatedHeartbeat),
            mock.patch.object(runtime, "open_store", _open_for_process),
            mock.patch.object(apps, "stored_source", _stored_source),
        ):
            yield
    finally:
        if collects:
            gc.enable()
        gc.collect(0)  # everything that this seed has left behind is in the youngest generation


class _Time:
    """The part of the module `time` that the engine uses. Threads of other tests read the real clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()

    def monotonic(self) -> float:
        """Virtual time, within the simulation's thread."""
        return self._loop.time() if threading.get_ident() == self._thread else time.monotonic()

    def time_ns(self) -> int:
        """The real time for other threads; an error within the simulation."""
        if threading.get_ident() != self._thread:
            return time.time_ns()
        raise AssertionError("the simulation reads the machine's clock")


def _open_for_process(database: str, **options: Any) -> Store:
    process = lane().owner
    assert isinstance(process, Process)
    return process.opened_store(open_store(database, **options))


@contextlib.contextmanager
def _checking_error_log(simulation: Simulation) -> Iterator[None]:
    """Report errors that the engine logs as faults, and record the effects of activities in this simulation."""
    logger, handler = logging.getLogger("romancy"), ErrorLogHandler(simulation)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    schedulers.append(_RandomDelays(random.Random(f"{simulation.seed} delays")))
    effect_recorders.append(simulation)
    try:
        yield
    finally:
        effect_recorders.pop()
        schedulers.pop()
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)


class _RandomDelays(Scheduler):
    """A scheduler for the participants of `tests/explore` that delays them at random instead of stopping them at gates."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    async def gate(self, process: str, what: str) -> None:
        """Wait for a random time."""
        await asyncio.sleep(self._rng.choice([0.0, 0.1, 1.0, 4.0]))

    async def extra_gate(self, process: str, what: str) -> None:
        """Wait for a random time."""
        await self.gate(process, what)
