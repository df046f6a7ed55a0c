"""Check of crashes: run a program without a crash, then with a crash at every point, and compare.

Commits take a few passes of the event loop, as on a disk, and some fail and are repeated, so that other things happen
meanwhile. With an order, activities finish when a scheduler lets them, one or several at a time, and time may pass while
they run.
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

from tests.property.crashes.effect_log import EffectLog, Ended
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
"""Seconds after which an instance that has not ended counts as stuck."""
_COMMIT_FAILURE_RATE = 0.03
"""Probability that a commit fails and must be repeated."""
_MEMORY = Path("/dev/shm")  # a simulated crash loses nothing that the kernel has, so no disk is needed


class Divergence(AssertionError):
    """The engine behaved differently after a crash, or violated an invariant."""


@dataclass(frozen=True)
class Case:
    """How one instance is run."""

    name: str
    order: int | None = None
    """The seed of the scheduler; None: activities finish immediately."""
    crashes: tuple[int, ...] = ()
    """Crash at these points, counted from the start or from the crash before."""
    cancel: int | None = None
    """Cancel the instance after this number of released activities."""
    pause: int | None = None
    """Pause the instance after this number of released activities, and resume it soon after."""
    takeover: int | None = None
    """Free the instance after this number of released activities, while the old attempts continue."""


def check(
    program: Node, order: int, *, crashes: int = 24, orders: int = 12, pauses: bool = False, database: str | None = None
) -> None:
    """Run a program with crashes at every point or at a sample, then in random orders. Raises `Divergence`."""
    with _folder() as folder:
        asyncio.run(_check(program, order, crashes, orders, pauses, database or str(folder / "crashes.db")))


async def _check(program: Node, order: int, crashes: int, orders: int, pauses: bool, database: str) -> None:
    rng = random.Random(order)
    with _slow_commits(rng):
        async with _open_tester(database, rng) as tester:
            first, points = await tester.run(program, Case("without a crash"))
            for crash in _sample(rng, points, crashes):
                ended, _ = await tester.run(program, Case(f"crash at {crash}", crashes=crash))
                _compare(program, first, ended, f"crash at {crash}")
            await _try_orders(tester, program, rng, first, orders, pauses)


async def _try_orders(
    tester: CrashTester, program: Node, rng: random.Random, first: Ended, orders: int, pauses: bool
) -> None:
    for number in range(orders):
        order, cancel = rng.randrange(2**32), rng.choice([None, None, rng.randrange(6)])
        pause = rng.choice([None, rng.randrange(6)]) if pauses else None
        no_crash = Case(f"order {order}, cancel {cancel}, pause {pause}", order, cancel=cancel, pause=pause)
        ended, points = await tester.run(program, no_crash)
        if cancel is None:
            _compare(program, first, ended, no_crash.name)
        if number % 3 == 0:
            case = Case(f"order {order}, taken over", order, takeover=rng.randrange(4))
        else:
            crashes = (rng.randrange(points) + 1, *([rng.randrange(points) + 1] if number % 3 == 1 else []))
            case = Case(f"{no_crash.name}, crash at {crashes}", order, crashes, cancel, pause)
        ended, _ = await tester.run(program, case)
        if case.cancel is None:
            _compare(program, first, ended, case.name)


def _sample(rng: random.Random, points: int, most: int) -> Sequence[tuple[int, ...]]:
    every = [(point,) for point in range(1, points + 1)]
    return every if len(every) <= most else sorted(rng.sample(every, most))


def _compare(program: Node, first: Ended, other: Ended, name: str) -> None:
    if is_exact(program) and first != other:
        raise Divergence(f"{name}: ended as {other}; without a crash: {first}")


class CrashTester:
    """A test environment in which instances of a program run one after another."""

    def __init__(self, environment: TestEnvironment, store: Store, rng: random.Random) -> None:
        self._environment = environment
        self._store = store
        self._rng = rng
        self._count = 0

    async def run(self, program: Node, case: Case) -> tuple[Ended, int]:
        """Run a program to its end: how it ended, and how many crash points it passed."""
        environment = self._environment
        self._count += 1
        log = EffectLog(f"{self._count}", self._store, interpret, gated=case.order is not None)
        before = len(environment.reached)
        for index, crash in enumerate(case.crashes):
            environment.crash_at_step(sum(case.crashes[:index]) + crash)
        scheduler = asyncio.create_task(self._schedule(log, case))
        try:
            async with asyncio.timeout(_LIMIT):
                await self._start_and_wait(log.instance_id, program)
            ended = await log.check_end()
        except DeterminismViolationError as error:
            raise Divergence(f"{case.name}: blocked: {error}") from error
        except TimeoutError:
            stored = await self._store.get(log.instance_id)
            raise Divergence(f"{case.name}: stuck: {stored}; {log.faults}") from None
        finally:
            environment._planned_crashes.clear()
            scheduler.cancel()
            await asyncio.wait({scheduler})
            log.close()
        if not scheduler.cancelled() and scheduler.exception() is not None:
            raise Divergence(f"{case.name}: the scheduler failed") from scheduler.exception()
        if log.faults:
            raise Divergence(f"{case.name}: {'; '.join(log.faults)}")
        if not case.crashes and case.takeover is None:
            self._check_once(log, case)
        return ended, len(environment.reached) - before

    def _check_once(self, log: EffectLog, case: Case) -> None:
        ran = [(effect.op, effect.attempt) for effect in log.effects]
        if len(ran) != len(set(ran)):
            raise Divergence(f"{case.name}: an attempt began twice without a crash: {ran}")

    async def _start_and_wait(self, instance_id: str, program: Node) -> None:
        workflow = interpret.with_options(instance_id=instance_id)
        handle = None
        while handle is None:
            try:
                handle = await self._environment.app.start_workflow(workflow, program)
            except (StoreError, InvalidWorkflowStateError):  # the process died meanwhile: repeat the call on the next one
                await asyncio.sleep(0.001)
        with contextlib.suppress(WorkflowFailedError, WorkflowCancelledError):
            await handle.result()

    # --- order of completion

    async def _schedule(self, log: EffectLog, case: Case) -> None:
        if case.order is None:
            return
        rng = random.Random(case.order)
        late_attempts: list[asyncio.Future[None]] = []
        for count in range(10_000):
            if count == case.cancel:
                await self._cancel(log.instance_id)
            if count == case.pause:
                await self._pause(log.instance_id, rng)
            while not log.waiting:
                log.arrived.clear()
                await log.arrived.wait()
            if count == case.takeover:
                late_attempts = list(log.waiting)
                log.waiting.clear()
                await self._take_over(rng)
                continue
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
            if rng.random() < 0.15:
                self._fire_next_timer()
            if late_attempts and rng.random() < 0.3:
                _release_one(late_attempts, rng)
            _release_one(log.waiting, rng)
            if rng.random() < 0.2:
                _release_one(log.waiting, rng)

    def _fire_next_timer(self) -> None:
        """Fire the next timer while activities run."""
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

    async def _pause(self, instance_id: str, rng: random.Random) -> None:
        app = self._environment.app
        await self._retry_until_done(
            instance_id, lambda: app.pause_workflow(instance_id), lambda loaded: loaded.row.status.ended
        )
        for _ in range(rng.randrange(8)):
            await asyncio.sleep(0)
        await self._retry_until_done(instance_id, lambda: app.resume_workflow(instance_id), _is_not_paused)

    async def _retry_until_done(
        self, instance_id: str, ask: Callable[[], Awaitable[None]], is_needless: Callable[[LoadedInstance], bool]
    ) -> None:
        """Repeat a request until it is accepted or no longer needed."""
        while True:
            try:
                await ask()
                return
            except (StoreError, InvalidWorkflowStateError, WorkflowNotFoundError):
                await asyncio.sleep(0.001)
            loaded = await self._store.load(instance_id)
            if loaded is not None and is_needless(loaded):
                return

    async def _take_over(self, rng: random.Random) -> None:
        """Free the instance without its owner's knowledge, as a sweep by another worker does."""
        environment = self._environment
        now = environment.clock.now()
        dead = [(row.id, row.heartbeat_at) for row in await self._store.workers()]
        await self._store.sweep(dead, now=now, limit=1_000)
        for _ in range(rng.randrange(5)):
            await asyncio.sleep(0)
        assert environment.app._maintenance is not None
        await environment.app._maintenance.revive()


def _is_not_paused(loaded: LoadedInstance) -> bool:
    return loaded.row.status is not Status.PAUSED and not any(item.kind == "pause" for item in loaded.inbox)


def _release_one(waiting: list[asyncio.Future[None]], rng: random.Random) -> None:
    if waiting:
        released = waiting.pop(rng.randrange(len(waiting)))
        if not released.done():
            released.set_result(None)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-crashes-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.asynccontextmanager
async def _open_tester(database: str, rng: random.Random) -> AsyncIterator[CrashTester]:
    cache_size = rng.choice([0, 1, 1000])  # without a cache every waiting instance is replayed
    async with TestEnvironment(database, workflows=[interpret], cache_size=cache_size) as environment:
        store = open_store(database, clock=SystemClock(), threads="inline")
        await store.open()
        try:
            yield CrashTester(environment, store, rng)
        finally:
            await store.close()


@contextlib.contextmanager
def _slow_commits(rng: random.Random) -> Iterator[None]:
    original = SqlStore.commit

    async def commit(self: SqlStore, batch: Sequence[Write]) -> Any:
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        if rng.random() < _COMMIT_FAILURE_RATE:
            raise StoreError("the disk is full for a moment")
        answers = await original(self, batch)
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        return answers

    with mock.patch.object(SqlStore, "commit", commit), mock.patch.object(committer, "_FIRST_PAUSE", 0.0):
        yield
