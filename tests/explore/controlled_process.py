"""Processes in the hand: apps on a virtual clock, whose stores do nothing unless the hand lets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from tests.explore.scheduler import Hand

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
"""Seconds between looks that nobody asked for."""


class _Alarms(TimerHeap):
    """Ring when the hand moves the clock."""

    def _arm(self) -> None:
        """Nothing to tell the event loop."""


class Process(App):
    """An app that does nothing unless the hand lets it."""

    def __init__(
        self,
        name: str,
        database: str,
        workflows: Sequence[Workflow[..., Any]],
        hand: Hand,
        clock: VirtualClock,
        passed: Callable[[str, str], None],
        cache_size: int,
    ) -> None:
        super().__init__(
            database, workflows=workflows, worker_id=name, cache_size=cache_size, poll_interval=_NEVER, clock=clock
        )
        self.name = name
        self.hand = hand
        self.crash_at: str | None = None
        """The point at which it dies next."""
        self.dead = False
        self.buried = False
        """Others hold it for dead, and it does not know."""
        self.storms = 0
        """So many of its next commits fail."""
        self.blind = 0
        """So many of its next looks at what arrived fail."""
        self._told = passed
        self._use_inline_executor = True
        self._with_heartbeat = False
        self._crash_point = self._passed

    # --- life

    async def _start_worker(self) -> None:
        assert self._open_store is not None
        assert self._committer is not None
        self._open_store = cast(Store, _Held(self._open_store, self))
        self._committer._store = self._open_store
        self._hold_gathering(self._committer)
        await super()._start_worker()
        assert self._worker is not None
        worker, tell = self._worker, self._worker.wake_for_inbox

        def call(instance_id: str) -> None:
            if not tell(instance_id):
                worker.on_due_elsewhere(self._clock.now())

        def nudge(instance_id: str) -> bool:
            self.hand.pass_on(self.name, f"call {instance_id}", partial(call, instance_id))
            return True

        worker.wake_for_inbox = nudge  # type: ignore[method-assign]

    def _hold_gathering(self, committer: Committer) -> None:
        flush = committer._flush

        async def held() -> None:
            if self.hand.gathers:
                await self.hand.gate(self.name, "gather")
            await flush()

        committer._flush = held  # type: ignore[method-assign]

    def _make_timers(self) -> TimerHeap:
        return _Alarms(self._clock.now)

    def _worker_options(self) -> WorkerOptions:
        return replace(super()._worker_options(), claim_pauses=(), horizon=1e9, block_warning=0.0)

    async def restart(self) -> None:
        """Die, if it has not, and begin anew; what the dead one held is free."""
        worker = self._worker
        self.dead = True
        for key in [key for key in self.hand.calls if key[0] == self.name]:
            del self.hand.calls[key]
        await self._die()
        self.dead, self.buried, self.crash_at = False, False, None
        self.storms = self.blind = 0
        await self.startup()
        if worker is not None:
            await self._free(worker.id)
            self.look()

    async def be_buried(self) -> None:
        """Be held for dead by others, and not know it."""
        assert self._worker is not None
        self.buried = True
        with contextlib.suppress(SimulatedCrash):
            await self._free(self._worker.id)

    async def _free(self, worker_id: str) -> None:
        """Free what a worker holds, as those do who hold it for dead."""
        dead = [(row.id, row.heartbeat_at) for row in await self._store.workers() if row.id == worker_id]
        await self._store.sweep(dead, now=self._clock.now(), limit=1_000)

    def forget(self, instance_id: str) -> None:
        """Forget an instance that has ended."""
        if self._worker is not None:
            self._worker.forget(instance_id)

    async def revive(self) -> None:
        """Learn that others held it for dead, and go on under a new name."""
        assert self._maintenance is not None
        self.buried = False
        with contextlib.suppress(SimulatedCrash):
            await self._maintenance.revive()

    async def keep_up(self) -> None:
        """What happens every heartbeat interval; nobody is held for dead for its silence, as nobody beats."""
        assert self._claimer is not None
        await self._store.sweep([], now=self._clock.now(), limit=1_000)
        for _ in range(2):  # what is missing once may be on its way
            await self._claimer.adopt_orphans()
        self.look()

    def look(self) -> None:
        """What happens every poll interval."""
        if self._claimer is not None and not self.dead:
            self._claimer.poll_soon()

    def hear(self) -> None:
        """Learn that somebody else has written."""
        if self._open_store is not None and not self.dead:
            self._on_notified()

    def ring(self) -> None:
        """Let the alarms ring that are due."""
        if self._worker is not None and not self.dead:
            self._worker.timers.fire()

    def next_due(self) -> int | None:
        """When the next alarm is due."""
        return None if self._worker is None or self.dead else self._worker.timers.next_due()

    def _passed(self, point: str) -> None:
        if not self.dead:
            self._told(self.name, point)
            self.dead = point == self.crash_at
        if self.dead:
            self._told(self.name, "death")
            raise SimulatedCrash(point)


class _Held:
    """A store whose every call waits for the hand."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process
        self._hand = process.hand

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
            await self._hand.gate(process.name, "commit")
        await self._unless_dead()
        if process.storms:
            process.storms -= 1
            raise StoreError("the disk is full for a moment")
        answers = await self._commit(batch)
        await self._hand.late(process.name, "committed")
        return answers

    async def _commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        if not self._hand.split:
            return await self._store.commit(batch)
        answers: list[WriteResult | StoreError] = []
        for write in batch:
            if answers:
                await self._hand.gate(self._process.name, "commit the next")
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
        await self._hand.late(self._process.name, "claim")
        await self._unless_dead()
        which: dict[str, Any] = {"ids": ids, "blocked": blocked, "blocked_before": blocked_before}
        return await self._told("claimed", self._store.claim(worker, runnable, now=now, limit=limit, **which))

    async def inbox(self, instance_id: str) -> Inbox:
        process = self._process
        await self._unless_dead()
        if process.blind:
            process.blind -= 1
            raise StoreError("the disk cannot be read for a moment")
        return await self._told(f"inbox {instance_id}", self._store.inbox(instance_id))

    async def load(self, instance_id: str) -> LoadedInstance | None:
        return await self._told(f"loaded {instance_id}", self._store.load(instance_id))

    async def upcoming(self, runnable: Sequence[Runnable], *, until: int, limit: int) -> list[tuple[str, int]]:
        return await self._told("upcoming", self._store.upcoming(runnable, until=until, limit=limit))

    async def with_unread_inbox(self, worker: str) -> list[str]:
        found = await self._told("arrivals", self._store.with_unread_inbox(worker))
        here = self._process._worker
        # Of those that are not here (one whose creation is yet to be told of) a finder makes nothing. `call` looks at once.
        return [instance_id for instance_id in found if here is not None and here.is_cached(instance_id)]

    async def _unless_dead(self) -> None:
        """The dead do not try again; they wait until they are gone."""
        if self._process.dead:
            await asyncio.get_running_loop().create_future()

    async def _told(self, what: str, reading: Awaitable[T]) -> T:
        found = await reading
        await self._hand.late(self._process.name, what)
        return found
