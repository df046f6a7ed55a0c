"""The seam between a process and its store: every call passes here, and here it can go wrong.

The store behind it is the real one, on a file; a call of it is done at one point of virtual time, and nothing else happens
meanwhile, as in a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from romancy.errors import StoreError
from romancy.store.port import HeartbeatConnection, Store
from romancy.worker.maintenance import HeartbeatThread

if TYPE_CHECKING:
    from tests.simulate.simulated_process import Process

_TELLING = frozenset({"commit", "release", "sweep"})
"""What others are told of."""
_NEVER_LATE = frozenset({"open", "close", "verified_time"})
"""The time of a file is asked of nobody."""


class Seam:
    """A store, as far as a process can reach it."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process
        self._foreign: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if not inspect.iscoroutinefunction(real):
            return real
        passage = partial(self._pass, name, real)
        setattr(self, name, passage)
        return passage

    @property
    def concurrent_batches(self) -> int:
        """As many as this seed has; on a server there are several."""
        return self._process.lanes

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called when another process has written, if nothing goes wrong."""
        return self._foreign

    @on_remote_commit.setter
    def on_remote_commit(self, call: Callable[[], None] | None) -> None:
        self._foreign = call

    def tell(self) -> None:
        """Somebody else has written."""
        if self._foreign is not None:
            self._foreign()

    async def _pass(self, verb: str, real: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        process = self._process
        if verb in _NEVER_LATE:
            return await real(*args, **kwargs)
        await process.on_the_way()
        await process.trouble(verb, before=True)
        done = await real(*args, **kwargs)
        process.world.done(process, verb, args, kwargs, done)
        if verb in _TELLING:
            process.world.tell_others(process)
        await process.trouble(verb, before=False)
        await process.on_the_way()
        return done


class SimulatedHeart(HeartbeatThread):
    """Beats in a lane of its own instead of a thread."""

    def __init__(self, worker: Any, pulse: HeartbeatConnection) -> None:
        super().__init__(worker, pulse)
        self._process: Process = worker.app
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to beat."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._go_on(), context=self._process.heart.context())

    def stop(self) -> None:
        """Stop beating."""
        self._stop.set()
        if self._task is not None:
            self._task.cancel()
        self._connection.close()

    async def _go_on(self) -> None:
        with contextlib.closing(self._connection):  # of one that was killed: when its world ends
            while True:
                await asyncio.sleep(self._worker.options.heartbeat_interval)
                try:
                    alive = await self._write_heartbeat_slowly()
                except StoreError:
                    continue
                self.heartbeats += 1
                if not alive and not self._stop.is_set():
                    self._call_on_loop(self._on_worker_dead)

    async def _write_heartbeat_slowly(self) -> bool:
        """As `_renew`, where a beat may take its time."""
        process, interval = self._process, round(self._worker.options.heartbeat_interval * 1_000_000)
        while True:
            now = self._worker.clock.now()
            await process.on_the_way()
            await process.trouble("beat", before=True)
            alive = self._connection.renew(now)
            process.world.done(process, "beat", (), {}, alive)
            await process.trouble("beat", before=False)
            if alive:
                self.heartbeat_at = now
            if not alive or self._stop.is_set() or self._worker.clock.now() - now < interval:
                return alive

    def _call_on_loop(self, callback: Any) -> None:
        """On the event loop of the process, not in the heart's lane."""
        asyncio.get_running_loop().call_soon(callback, context=self._process.lane.context())
