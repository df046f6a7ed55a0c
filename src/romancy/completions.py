"""Waiting for instances to end: one shared look at the database for all who wait in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from romancy.errors import StoreError
from romancy.model.status import Status
from romancy.model.transition import Ending
from romancy.store.port import Store

_log = logging.getLogger("romancy")
_POLL_INTERVAL = 1.0
"""Seconds after which the database is asked even if nothing was heard."""


class CompletionWaiter:
    """Futures of instances that have not ended."""

    def __init__(self, store: Store, is_alive: Callable[[], bool]) -> None:
        self._store = store
        self._is_alive = is_alive
        self._waiting: dict[str, list[asyncio.Future[tuple[Status, Ending] | None]]] = {}
        self._unchecked_ids: set[str] = set()
        """Instances that may have ended before somebody asked."""
        self._check_requested = asyncio.Event()
        self._must_check_all = False
        self._task: asyncio.Task[None] | None = None

    @property
    def has_waiters(self) -> bool:
        """Somebody waits for an instance to end."""
        return bool(self._waiting)

    def switch_store(self, store: Store) -> None:
        """Go on with another connection to the same database."""
        self._store = store
        self.on_notified()

    def watch(self, instance_id: str) -> asyncio.Future[tuple[Status, Ending] | None]:
        """A future that is done with the instance's end; with None if it is not there any more."""
        future: asyncio.Future[tuple[Status, Ending] | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance_id, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-completions")
        return future

    def unwatch(self, instance_id: str, future: asyncio.Future[tuple[Status, Ending] | None]) -> None:
        """Nobody waits for this future any more."""
        futures = self._waiting.get(instance_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[instance_id]

    def on_ended(self, instance_id: str, status: Status, ending: Ending) -> None:
        """An instance has ended in this process."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_result((status, ending))

    def fail(self, instance_id: str, error: Exception) -> None:
        """Who waits for this instance waits in vain."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        """Answer every wait for a result with this error."""
        for instance_id in list(self._waiting):
            self.fail(instance_id, error)

    def check_soon(self, instance_id: str) -> None:
        """Look soon whether it has ended already: once for all that are asked about meanwhile."""
        self._unchecked_ids.add(instance_id)
        self._check_requested.set()

    def on_notified(self) -> None:
        """Somebody else has written: look whether anybody's instance has ended."""
        self._must_check_all = True
        self._check_requested.set()

    async def stop(self) -> None:
        """Stop looking; whoever still waits is told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        self.fail_all(StoreError("The app was shut down before the instance ended."))

    async def _run(self) -> None:
        while self._waiting:
            try:
                async with asyncio.timeout(_POLL_INTERVAL):
                    await self._check_requested.wait()
            except TimeoutError:
                self._must_check_all = True
            self._check_requested.clear()
            new, self._unchecked_ids = self._unchecked_ids, set()
            ids = list(self._waiting if self._must_check_all else new & self._waiting.keys())
            self._must_check_all = False
            store = self._store
            try:
                await self._check(ids)
            except StoreError as error:
                self._on_check_failed(store, new, error)
            except Exception as error:  # who waits must not wait in vain
                _log.exception("looking for instances that have ended failed, will try again")
                found = StoreError(
                    f"It could not be looked up whether the instance has ended ({type(error).__name__}: {error})."
                )
                found.__cause__ = error
                self._on_check_failed(store, new, found)

    def _on_check_failed(self, store: Store, new: set[str], error: StoreError) -> None:
        if store is self._store and self._is_alive():  # else it is asked of the next one
            for instance_id in new:
                self.fail(instance_id, error)

    async def _check(self, ids: list[str]) -> None:
        endings = await self._store.endings(ids) if ids else {}
        for instance_id in ids:
            if (ending := endings.get(instance_id)) is not None or instance_id not in endings:
                for future in self._waiting.pop(instance_id, ()):
                    if not future.done():
                        future.set_result(ending)
