"""A worker's heartbeat, on a connection of its own in the thread that beats."""

from __future__ import annotations

import asyncio
import threading

from romancy.errors import StoreError
from romancy.store.mysql.connections import Connections, Link
from romancy.store.mysql.failures import translate
from romancy.store.mysql.statements import one

_PATIENCE = 10.0


class MySqlPulse:
    """Beats on an event loop of its own: the worker's may be blocked by its workflows."""

    def __init__(self, connections: Connections, worker: str) -> None:
        self._connections = connections
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._closed = False

    def beat(self, now: int) -> bool:
        """Renew the worker's life. False: the worker was struck off."""
        with self._lock:
            if self._closed:
                raise StoreError(f"The heartbeat of worker {self._worker} is closed.")
            self._loop = self._loop or asyncio.new_event_loop()
            try:
                return self._loop.run_until_complete(asyncio.wait_for(self._beat(now), _PATIENCE))
            except Exception as error:
                self._loop.run_until_complete(self._let_go())
                raise translate(error, self._connections.label) from error

    def close(self) -> None:
        """Let the connection go. Safe to call twice, from any thread."""
        closing = threading.Thread(target=self._close)  # an event loop cannot run inside another
        closing.start()
        closing.join()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._loop is not None:
                self._loop.run_until_complete(self._let_go())
                self._loop.close()
                self._loop = None

    async def _beat(self, now: int) -> bool:
        if self._link is None or not self._link.usable:
            await self._let_go()
            self._link = await self._connections.connect()
        text = one("beat").text((now, self._worker))
        assert text is not None
        return (await self._link.ask(text)).changed == 1

    async def _let_go(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()
