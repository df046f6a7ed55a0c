"""Waiting for the ends of instances: one query serves all callers that wait in this process."""

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
"""Seconds after which the database is queried even without a notification."""


class CompletionWaiter:
    """The futures of callers that wait for instances to end, and the task that resolves them."""

    def __init__(self, store: Store, is_alive: Callable[[], bool]) -> None:
        self._store = store
        self._is_alive = is_alive
        self._waiting: dict[str, list[asyncio.Future[tuple[Status, Ending] | None]]] = {}
        self._unchecked_ids: set[str] = set()
        """Watched instances that may have ended before the caller began to wait."""
        self._check_requested = asyncio.Event()
        self._must_check_all = False
        self._task: asyncio.Task[None] | None = None

    @property
    def has_waiters(self) -> bool:
        """Whether any caller waits for an instance to end."""
        return bool(self._waiting)

    def switch_store(self, store: Store) -> None:
        """Continue with another store on the same database."""
        self._store = store
        self.on_notified()

    def watch(self, instance_id: str) -> asyncio.Future[tuple[Status, Ending] | None]:
        """Return a future that resolves to the end of the instance, or to None if the instance does not exist any more."""
        future: asyncio.Future[tuple[Status, Ending] | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance_id, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-completions")
        return future

    def unwatch(self, instance_id: str, future: asyncio.Future[tuple[Status, Ending] | None]) -> None:
        """Forget a future whose caller waits no longer."""
        futures = self._waiting.get(instance_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[instance_id]

    def on_ended(self, instance_id: str, status: Status, ending: Ending) -> None:
        """Resolve the futures of an instance that has ended in this process."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_result((status, ending))

    def fail(self, instance_id: str, error: Exception) -> None:
        """Fail the futures of this instance with this error."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        """Fail all futures with this error."""
        for instance_id in list(self._waiting):
            self.fail(instance_id, error)

    def check_soon(self, instance_id: str) -> None:
        """Check soon whether the instance has ended already, with one query for all instances requested meanwhile."""
        self._unchecked_ids.add(instance_id)
        self._check_requested.set()

    def on_notified(self) -> None:
        """Check all watched instances soon, because another process has committed something."""
        self._must_check_all = True
        self._check_requested.set()

    async def stop(self) -> None:
        """Stop the task, and fail the futures that are left."""
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
            except Exception as error:  # the task must not die of it: its callers would wait for ever
                _log.exception("checking for ended instances failed, will try again")
                failure = StoreError(f"Checking whether the instance has ended failed ({type(error).__name__}: {error}).")
                failure.__cause__ = error
                self._on_check_failed(store, new, failure)

    def _on_check_failed(self, store: Store, new: set[str], error: StoreError) -> None:
        if store is self._store and self._is_alive():  # otherwise the next store is queried
            for instance_id in new:
                self.fail(instance_id, error)

    async def _check(self, ids: list[str]) -> None:
        endings = await self._store.endings(ids) if ids else {}
        for instance_id in ids:
            if (ending := endings.get(instance_id)) is not None or instance_id not in endings:
                for future in self._waiting.pop(instance_id, ()):
                    if not future.done():
                        future.set_result(ending)
