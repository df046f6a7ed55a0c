"""Runs a program without a crash, then with one at every point, and tells what is wrong.

Commits take a few turns of the event loop here, as they do on a disk, and some fail and are repeated: what happens meanwhile
is a part of what is tested.
With an order, activities finish when a scheduler lets them, one or several at a time, and time may pass while they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.property.crashes.effect_log import Ended, World
from tests.property.crashes.workflow_programs import Node, interpret, is_exact

from romancy import (
    DeterminismViolationError,
    InvalidWorkflowStateError,
    StoreError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
)
from romancy.clock import SystemClock
from romancy.model.instance import LoadedInstance
from romancy.model.status import Status
from romancy.model.transition import Write
from romancy.store import committer
from romancy.store.open import open_store
from romancy.store.port import Store
from romancy.store.sql.store import SqlStore
from romancy.testing import TestEnvironment

_LIMIT = 10.0
"""Seconds until an instance that does not end is called stuck."""
_STORMS = 0.03
"""How often a commit fails and must be repeated."""
_MEMORY = Path("/dev/shm")  # simulated crashes lose nothing the kernel has, so the disk is not needed


class Divergence(AssertionError):
    """The engine did what it must not."""


@dataclass(frozen=True)
class Case:
    """How one instance is run."""

    name: str
    order: int | None = None
    """The seed of the scheduler; None: activities finish at once."""
    crashes: tuple[int, ...] = ()
    """Crash at these points, counted from the start and, after the first, from the crash before."""
    cancel: int | None = None
    """Cancel the instance after so many activities were let go."""
    pause: int | None = None
    """Pause the instance after so many activities were let go, and resume it soon after."""
    takeover: int | None = None
    """Have another worker take over, ours going on as a zombie, after so many activities were let go."""


def check(
    program: Node, order: int, *, crashes: int = 24, orders: int = 12, pauses: bool = False, database: str | None = None
) -> None:
    """Try a program with so many crashes (or at every point), then in so many orders. Raises `Divergence`."""
    with _folder() as folder:
        asyncio.run(_check(program, order, crashes, orders, pauses, database or str(folder / "crashes.db")))


async def _check(program: Node, order: int, crashes: int, orders: int, pauses: bool, database: str) -> None:
    chance = random.Random(order)
    with _slow_commits(chance):
        async with _laboratory(database, chance) as laboratory:
            first, points = await laboratory.run(program, Case("without a crash"))
            for crash in _sample(chance, points, crashes):
                ended, _ = await laboratory.run(program, Case(f"crash at {crash}", crashes=crash))
                _compare(program, first, ended, f"crash at {crash}")
            await _try_orders(laboratory, program, chance, first, orders, pauses)


async def _try_orders(
    laboratory: Laboratory, program: Node, chance: random.Random, first: Ended, orders: int, pauses: bool
) -> None:
    for number in range(orders):
        order, cancel = chance.randrange(2**32), chance.choice([None, None, chance.randrange(6)])
        pause = chance.choice([None, chance.randrange(6)]) if pauses else None
        calm = Case(f"order {order}, cancel {cancel}, pause {pause}", order, cancel=cancel, pause=pause)
        ended, points = await laboratory.run(program, calm)
        if cancel is None:
            _compare(program, first, ended, calm.name)
        if number % 3 == 0:
            case = Case(f"order {order}, taken over", order, takeover=chance.randrange(4))
        else:
            crashes = (chance.randrange(points) + 1, *([chance.randrange(points) + 1] if number % 3 == 1 else []))
            case = Case(f"{calm.name}, crash at {crashes}", order, crashes, cancel, pause)
        ended, _ = await laboratory.run(program, case)
        if case.cancel is None:
            _compare(program, first, ended, case.name)


def _sample(chance: random.Random, points: int, most: int) -> Sequence[tuple[int, ...]]:
    every = [(point,) for point in range(1, points + 1)]
    return every if len(every) <= most else sorted(chance.sample(every, most))


def _compare(program: Node, first: Ended, other: Ended, name: str) -> None:
    if is_exact(program) and first != other:
        raise Divergence(f"{name}: ended as {other}; without a crash as {first}")


class Laboratory:
    """An environment that many instances of a program run in, one after another."""

    def __init__(self, environment: TestEnvironment, store: Store, chance: random.Random) -> None:
        self._environment = environment
        self._store = store
        self._chance = chance
        self._count = 0

    async def run(self, program: Node, case: Case) -> tuple[Ended, int]:
        """Run a program to its end: how it ended, and how many crash points it passed."""
        environment = self._environment
        self._count += 1
        world = World(f"{self._count}", self._store, interpret, gated=case.order is not None)
        before = len(environment.reached)
        for index, crash in enumerate(case.crashes):
            environment.crash_at_step(sum(case.crashes[:index]) + crash)
        scheduler = asyncio.create_task(self._schedule(world, case))
        try:
            async with asyncio.timeout(_LIMIT):
                await self._start_and_wait(world.instance_id, program)
            ended = await world.check_end()
        except DeterminismViolationError as error:
            raise Divergence(f"{case.name}: blocked: {error}") from error
        except TimeoutError:
            stored = await self._store.get(world.instance_id)
            raise Divergence(f"{case.name}: stuck: {stored}; {world.faults}") from None
        finally:
            environment._planned_crashes.clear()
            scheduler.cancel()
            await asyncio.wait({scheduler})
            world.close()
        if not scheduler.cancelled() and scheduler.exception() is not None:
            raise Divergence(f"{case.name}: the scheduler failed") from scheduler.exception()
        if world.faults:
            raise Divergence(f"{case.name}: {'; '.join(world.faults)}")
        if not case.crashes and case.takeover is None:
            self._check_once(world, case)
        return ended, len(environment.reached) - before

    def _check_once(self, world: World, case: Case) -> None:
        ran = [(effect.op, effect.attempt) for effect in world.effects]
        if len(ran) != len(set(ran)):
            raise Divergence(f"{case.name}: ran twice without a crash: {ran}")

    async def _start_and_wait(self, instance_id: str, program: Node) -> None:
        workflow = interpret.with_options(instance_id=instance_id)
        handle = None
        while handle is None:
            try:
                handle = await self._environment.app.start_workflow(workflow, program)
            except (StoreError, InvalidWorkflowStateError):  # the process died meanwhile: ask its successor
                await asyncio.sleep(0.001)
        with contextlib.suppress(WorkflowFailedError, WorkflowCancelledError):
            await handle.result()

    # --- who finishes when

    async def _schedule(self, world: World, case: Case) -> None:
        if case.order is None:
            return
        chance = random.Random(case.order)
        zombies: list[asyncio.Future[None]] = []
        for count in range(10_000):
            if count == case.cancel:
                await self._cancel(world.instance_id)
            if count == case.pause:
                await self._pause(world.instance_id, chance)
            while not world.waiting:
                world.arrived.clear()
                await world.arrived.wait()
            if count == case.takeover:
                zombies = list(world.waiting)
                world.waiting.clear()
                await self._take_over(chance)
                continue
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if chance.random() < 0.15:
                self._pass_time()
            if zombies and chance.random() < 0.3:
                _let_go(zombies, chance)
            _let_go(world.waiting, chance)
            if chance.random() < 0.2:
                _let_go(world.waiting, chance)

    def _pass_time(self) -> None:
        """Let the next alarm ring although activities run."""
        worker = self._environment.app._worker
        due = worker.timers.next_due() if worker is not None else None
        if worker is not None and due is not None:
            self._environment.clock.move_to(due)
            worker.timers.fire()

    async def _cancel(self, instance_id: str) -> None:
        while True:
            try:
                await self._environment.app.cancel_workflow(instance_id, "enough")
                return
            except WorkflowNotCancellableError:
                return
            except (StoreError, InvalidWorkflowStateError, WorkflowNotFoundError):
                await asyncio.sleep(0.001)

    async def _pause(self, instance_id: str, chance: random.Random) -> None:
        app = self._environment.app
        await self._persist(instance_id, lambda: app.pause_workflow(instance_id), lambda loaded: loaded.row.status.ended)
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        await self._persist(instance_id, lambda: app.resume_workflow(instance_id), _is_not_paused)

    async def _persist(
        self, instance_id: str, ask: Callable[[], Awaitable[None]], needless: Callable[[LoadedInstance], bool]
    ) -> None:
        """Ask until the answer is yes, or it is seen that there is nothing to ask for."""
        while True:
            try:
                await ask()
                return
            except (StoreError, InvalidWorkflowStateError, WorkflowNotFoundError):
                await asyncio.sleep(0.001)
            loaded = await self._store.load(instance_id)
            if loaded is not None and needless(loaded):
                return

    async def _take_over(self, chance: random.Random) -> None:
        """Free the instance behind its owner's back, as those do who hold the owner for dead."""
        environment = self._environment
        now = environment.clock.now()
        dead = [(row.id, row.heartbeat_at) for row in await self._store.workers()]
        await self._store.sweep(dead, now=now, limit=1_000)
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        assert environment.app._maintenance is not None
        await environment.app._maintenance.revive()


def _is_not_paused(loaded: LoadedInstance) -> bool:
    return loaded.row.status is not Status.PAUSED and not any(mail.kind == "pause" for mail in loaded.inbox)


def _let_go(waiting: list[asyncio.Future[None]], chance: random.Random) -> None:
    if waiting:
        leave = waiting.pop(chance.randrange(len(waiting)))
        if not leave.done():
            leave.set_result(None)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-crashes-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.asynccontextmanager
async def _laboratory(database: str, chance: random.Random) -> AsyncIterator[Laboratory]:
    cache_size = chance.choice([0, 1, 1000])  # without a cache, whatever waits is replayed
    async with TestEnvironment(database, workflows=[interpret], cache_size=cache_size) as environment:
        store = open_store(database, clock=SystemClock(), threads="inline")
        await store.open()
        try:
            yield Laboratory(environment, store, chance)
        finally:
            await store.close()


@contextlib.contextmanager
def _slow_commits(chance: random.Random) -> Iterator[None]:
    original = SqlStore.commit

    async def commit(self: SqlStore, batch: Sequence[Write]) -> Any:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if chance.random() < _STORMS:
            raise StoreError("the disk is full for a moment")
        answers = await original(self, batch)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        return answers

    with mock.patch.object(SqlStore, "commit", commit), mock.patch.object(committer, "_FIRST_PAUSE", 0.0):
        yield
