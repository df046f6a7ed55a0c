"""Apps on a virtual clock that read and write only when the scheduler lets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from tests.explore.scheduler import Scheduler

from romancy import App
from romancy.authoring.workflow import Workflow
from romancy.crash_points import SimulatedCrash
from romancy.errors import StoreError
from romancy.model.instance import Inbox, InstanceRow, LoadedInstance
from romancy.model.transition import CreateInstance, Write, WriteResult
from romancy.store.committer import Committer
from romancy.store.port import Runnable, Store
from romancy.testing.environment import VirtualClock
from romancy.worker.timers import TimerHeap
from romancy.worker.worker import WorkerOptions

T = TypeVar("T")

_NEVER = 1e6
"""Poll interval in seconds; the explorer polls explicitly instead."""


class _ManualTimers(TimerHeap):
    """Timers that fire when the explorer moves the clock."""

    def _arm(self) -> None:
        """Nothing to do: the event loop has no timers."""


class Process(App):
    """An app whose store calls wait at the gates of the scheduler."""

    def __init__(
        self,
        name: str,
        database: str,
        workflows: Sequence[Workflow[..., Any]],
        scheduler: Scheduler,
        clock: VirtualClock,
        on_point: Callable[[str, str], None],
        cache_size: int,
    ) -> None:
        super().__init__(
            database, workflows=workflows, worker_id=name, cache_size=cache_size, poll_interval=_NEVER, clock=clock
        )
        self.name = name
        self.scheduler = scheduler
        self.crash_at: str | None = None
        """The crash point at which the process dies next."""
        self.dead = False
        self.declared_dead = False
        """Other processes have declared this worker dead, and it does not know it yet."""
        self.commit_failures = 0
        """The number of next commits that fail."""
        self.read_failures = 0
        """The number of next reads of an inbox that fail."""
        self._report = on_point
        self._use_inline_executor = True
        self._with_heartbeat = False
        self._crash_point = self._on_point

    # --- start, crash, takeover

    async def _start_worker(self) -> None:
        assert self._open_store is not None
        assert self._committer is not None
        self._open_store = cast(Store, _GatedStore(self._open_store, self))
        self._committer._store = self._open_store
        self._gate_batches(self._committer)
        await super()._start_worker()
        assert self._worker is not None
        worker, wake_for_inbox = self._worker, self._worker.wake_for_inbox

        def wake(instance_id: str) -> None:
            if not wake_for_inbox(instance_id):
                worker.on_due_elsewhere(self._clock.now())

        def notify_later(instance_id: str) -> bool:
            self.scheduler.notify(self.name, f"wake {instance_id}", partial(wake, instance_id))
            return True

        worker.wake_for_inbox = notify_later  # type: ignore[method-assign]

    def _gate_batches(self, committer: Committer) -> None:
        flush = committer._flush

        async def gated() -> None:
            if self.scheduler.gates_batches:
                await self.scheduler.gate(self.name, "batch")
            await flush()

        committer._flush = gated  # type: ignore[method-assign]

    def _make_timers(self) -> TimerHeap:
        return _ManualTimers(self._clock.now)

    def _worker_options(self) -> WorkerOptions:
        return replace(super()._worker_options(), claim_pauses=(), horizon=1e9, block_warning=0.0)

    async def restart(self) -> None:
        """Kill the process if it is alive, start a new one, and free the instances of the old one."""
        worker = self._worker
        self.dead = True
        for key in [key for key in self.scheduler.notifications if key[0] == self.name]:
            del self.scheduler.notifications[key]
        await self._die()
        self.dead, self.declared_dead, self.crash_at = False, False, None
        self.commit_failures = self.read_failures = 0
        await self.startup()
        if worker is not None:
            await self._free(worker.id)
            self.poll()

    async def be_declared_dead(self) -> None:
        """Free the instances of this worker without its knowledge, as other processes do after a missed lease."""
        assert self._worker is not None
        self.declared_dead = True
        with contextlib.suppress(SimulatedCrash):
            await self._free(self._worker.id)

    async def _free(self, worker_id: str) -> None:
        """Free the instances of a worker, as a sweep does."""
        dead = [(row.id, row.heartbeat_at) for row in await self._store.workers() if row.id == worker_id]
        await self._store.sweep(dead, now=self._clock.now(), limit=1_000)

    def forget(self, instance_id: str) -> None:
        """Drop an instance that has ended."""
        if self._worker is not None:
            self._worker.forget(instance_id)

    async def revive(self) -> None:
        """Let the worker learn that it was declared dead; it continues under a new name."""
        assert self._maintenance is not None
        self.declared_dead = False
        with contextlib.suppress(SimulatedCrash):
            await self._maintenance.revive()

    async def run_maintenance(self) -> None:
        """Run the maintenance of one heartbeat interval. Without heartbeats no worker is swept for its silence."""
        assert self._claimer is not None
        await self._store.sweep([], now=self._clock.now(), limit=1_000)
        for _ in range(2):  # an instance that is missing once may be on its way
            await self._claimer.adopt_orphans()
        self.poll()

    def poll(self) -> None:
        """Poll as after a poll interval."""
        if self._claimer is not None and not self.dead:
            self._claimer.poll_soon()

    def receive_notification(self) -> None:
        """Receive the notification that another process has committed."""
        if self._open_store is not None and not self.dead:
            self._on_notified()

    def fire_timers(self) -> None:
        """Fire the timers that are due."""
        if self._worker is not None and not self.dead:
            self._worker.timers.fire()

    def next_due(self) -> int | None:
        """The time of the next timer."""
        return None if self._worker is None or self.dead else self._worker.timers.next_due()

    def _on_point(self, point: str) -> None:
        if not self.dead:
            self._report(self.name, point)
            self.dead = point == self.crash_at
        if self.dead:
            self._report(self.name, "death")
            raise SimulatedCrash(point)


class _GatedStore:
    """A store whose calls wait at the gates of the scheduler."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process
        self._scheduler = process.scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        return self._store.on_remote_commit

    @on_remote_commit.setter
    def on_remote_commit(self, call: Callable[[], None] | None) -> None:
        self._store.on_remote_commit = call

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        process = self._process
        if not all(isinstance(write, CreateInstance) for write in batch):
            await self._scheduler.gate(process.name, "commit")
        await self._unless_dead()
        if process.commit_failures:
            process.commit_failures -= 1
            raise StoreError("the disk is full for a moment")
        answers = await self._commit(batch)
        await self._scheduler.extra_gate(process.name, "committed")
        return answers

    async def _commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        if not self._scheduler.split:
            return await self._store.commit(batch)
        answers: list[WriteResult | StoreError] = []
        for write in batch:
            if answers:
                await self._scheduler.gate(self._process.name, "commit the next")
                await self._unless_dead()
            answers += await self._store.commit([write])
        return answers

    async def claim(
        self,
        worker: str,
        runnable: Sequence[Runnable],
        *,
        now: int,
        limit: int,
        ids: Sequence[str] | None = None,
        blocked: bool = False,
        blocked_before: int = 0,
    ) -> list[InstanceRow]:
        await self._scheduler.extra_gate(self._process.name, "claim")
        await self._unless_dead()
        which: dict[str, Any] = {"ids": ids, "blocked": blocked, "blocked_before": blocked_before}
        return await self._gate_answer("claimed", self._store.claim(worker, runnable, now=now, limit=limit, **which))

    async def inbox(self, instance_id: str) -> Inbox:
        process = self._process
        await self._unless_dead()
        if process.read_failures:
            process.read_failures -= 1
            raise StoreError("the disk cannot be read for a moment")
        return await self._gate_answer(f"inbox {instance_id}", self._store.inbox(instance_id))

    async def load(self, instance_id: str) -> LoadedInstance | None:
        return await self._gate_answer(f"loaded {instance_id}", self._store.load(instance_id))

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> list[tuple[str, int]]:
        return await self._gate_answer("upcoming", self._store.upcoming(runnable, until=until, limit=limit))

    async def with_unread_inbox(self, worker: str) -> list[str]:
        found = await self._gate_answer("unread", self._store.with_unread_inbox(worker))
        here = self._process._worker
        # A claimer ignores instances that are not cached here, such as one whose creation is not answered yet.
        return [instance_id for instance_id in found if here is not None and here.is_cached(instance_id)]

    async def _unless_dead(self) -> None:
        """Block for ever in a dead process, which must not retry."""
        if self._process.dead:
            await asyncio.get_running_loop().create_future()

    async def _gate_answer(self, what: str, reading: Awaitable[T]) -> T:
        found = await reading
        await self._scheduler.extra_gate(self._process.name, what)
        return found
