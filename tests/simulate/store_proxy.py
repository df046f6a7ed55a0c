"""Proxy between a simulated process and its store, where faults are injected.

The store behind it is a real one on a file. A call takes effect at one point of virtual time, and nothing else happens
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

_NOTIFYING = frozenset({"commit", "release", "sweep"})
"""Calls after which other processes are notified."""
_NOT_DELAYED = frozenset({"open", "close", "verified_time"})
"""Calls that are neither delayed nor failed: they do not reach the database."""


class StoreProxy:
    """The store as one process sees it."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process
        self._remote_commit_callback: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if not inspect.iscoroutinefunction(real):
            return real
        forward = partial(self._forward, name, real)
        setattr(self, name, forward)
        return forward

    @property
    def concurrent_batches(self) -> int:
        """The number of concurrent batches of this seed; only database servers allow several."""
        return self._process.lanes

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called when another process has committed, unless the notification is lost."""
        return self._remote_commit_callback

    @on_remote_commit.setter
    def on_remote_commit(self, call: Callable[[], None] | None) -> None:
        self._remote_commit_callback = call

    def notify(self) -> None:
        """Report a commit of another process."""
        if self._remote_commit_callback is not None:
            self._remote_commit_callback()

    async def _forward(self, verb: str, real: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        process = self._process
        if verb in _NOT_DELAYED:
            return await real(*args, **kwargs)
        await process.delay_call()
        await process.inject_fault(verb, before=True)
        done = await real(*args, **kwargs)
        process.simulation.on_store_call(process, verb, args, kwargs, done)
        if verb in _NOTIFYING:
            process.simulation.notify_others(process)
        await process.inject_fault(verb, before=False)
        await process.delay_call()
        return done


class SimulatedHeartbeat(HeartbeatThread):
    """The heartbeat of a worker, in a lane of its own instead of a thread."""

    def __init__(self, worker: Any, connection: HeartbeatConnection) -> None:
        super().__init__(worker, connection)
        self._process: Process = worker.app
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sending heartbeats."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._go_on(), context=self._process.heartbeat_lane.context())

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self._stop.set()
        if self._task is not None:
            self._task.cancel()
        self._connection.close()

    async def _go_on(self) -> None:
        with contextlib.closing(self._connection):  # for a killed process: closed after the simulation
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
        """Like `_renew`, but with delays and faults."""
        process, interval = self._process, round(self._worker.options.heartbeat_interval * 1_000_000)
        while True:
            now = self._worker.clock.now()
            await process.delay_call()
            await process.inject_fault("beat", before=True)
            alive = self._connection.renew(now)
            process.simulation.on_store_call(process, "beat", (), {}, alive)
            await process.inject_fault("beat", before=False)
            if alive:
                self.heartbeat_at = now
            if not alive or self._stop.is_set() or self._worker.clock.now() - now < interval:
                return alive

    def _call_on_loop(self, callback: Any) -> None:
        """Call back in the lane of the process, not in the lane of the heartbeat."""
        asyncio.get_running_loop().call_soon(callback, context=self._process.lane.context())
