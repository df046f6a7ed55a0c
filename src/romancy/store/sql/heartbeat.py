"""`ServerHeartbeat`: renews a worker's heartbeat on a server, on a dedicated connection in the heartbeat thread."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod

from romancy.errors import StoreError

_HEARTBEAT_TIMEOUT = 10.0
"""Seconds that one renewal may take."""


class ServerHeartbeat(ABC):
    """Renews the heartbeat on an event loop of its own: the worker's event loop may be blocked by its workflows."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._closed = False

    @abstractmethod
    async def _renew(self, now: int) -> bool:
        """Renew the heartbeat, connecting first if needed. Return False if the worker was deregistered."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connection, if there is one."""

    @abstractmethod
    def _translate(self, error: Exception) -> StoreError:
        """Return the `StoreError` for an error of the driver."""

    def renew(self, now: int) -> bool:
        """Renew the heartbeat. Return False if the worker was deregistered."""
        with self._lock:
            if self._closed:
                raise StoreError(f"The heartbeat of worker {self._worker} is closed.")
            self._loop = self._loop or asyncio.new_event_loop()
            try:
                return self._loop.run_until_complete(asyncio.wait_for(self._renew(now), _HEARTBEAT_TIMEOUT))
            except Exception as error:
                self._loop.run_until_complete(self._disconnect())
                if isinstance(error, StoreError):
                    raise
                raise self._translate(error) from error

    def close(self) -> None:
        """Close the connection. Safe to call twice, from any thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._close()
            return
        closing = threading.Thread(target=self._close)  # an event loop cannot run inside another
        closing.start()
        closing.join()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._loop is not None:
                self._loop.run_until_complete(self._disconnect())
                self._loop.close()
                self._loop = None
