"""Notifies other processes of commits, and is notified by them, with a number in a table that every process increments.

MySQL has no notifications, so every process polls the number, often while it changes and seldom while it does not. A process
that misses a change finds the work later, by its own polling. The number is incremented after the commit, never in the
transaction (which would hold the lock of the row until its COMMIT), and once for several commits within a short time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from romancy.clock import monotonic
from romancy.store.mysql.pool import MySqlPool
from romancy.store.mysql.statements import get_statement
from romancy.store.sql.cursor import Values

_log = logging.getLogger("romancy.store")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
"""Seconds between two polls."""
_BACKOFF = 1.1
"""Factor by which each pause is longer than the one before, while the number does not change."""
_TIDY_INTERVAL = 60.0


class MySqlNotifier:
    """Notifies other processes, and polls for their notifications."""

    def __init__(self, connections: MySqlPool, on_notified: Callable[[], None], tidy: Callable[[], Awaitable[None]]) -> None:
        self._connections = connections
        self._on_notified = on_notified
        self._tidy = tidy
        self._notify_requested = asyncio.Event()
        self._known_version: int | None = None
        self._pause = _SHORTEST_PAUSE
        self._tidied = monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling."""
        self._task = asyncio.get_running_loop().create_task(self._poll_loop(), name="romancy-notifier")

    async def stop(self) -> None:
        """Stop polling."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()  # Python 3.11 may lose the cancellation while it connects: the loop then ends because of `_task`
            await asyncio.wait([task])

    def notify(self) -> None:
        """Notify other processes soon."""
        self._pause = _SHORTEST_PAUSE
        self._notify_requested.set()

    async def _poll_loop(self) -> None:
        while self._task is asyncio.current_task():
            try:
                await self._poll()
                if monotonic() - self._tidied > _TIDY_INTERVAL:
                    self._tidied = monotonic()
                    await self._tidy()
            except Exception as error:  # the notification is lost: other processes poll for work themselves
                _log.debug("could not poll for notifications: %s", error)
                self._known_version = None
            # The shortest pause is unconditional: all requests within it become one notification.
            await asyncio.sleep(_SHORTEST_PAUSE)
            await self._wait(self._pause - _SHORTEST_PAUSE)
            self._pause = min(self._pause * _BACKOFF, _LONGEST_PAUSE)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._notify_requested.wait()
        except TimeoutError:
            return

    async def _poll(self) -> None:
        notifies = self._notify_requested.is_set()
        self._notify_requested.clear()
        async with self._connections.acquire() as link:
            found = (await link.execute(_statement_text("read_notifications"))).rows
            version: int = found[0][0]
            pending = [row[1] for row in found if row[1] is not None]
            if pending:
                await link.execute(_statement_text("delete_pending_notifications", {"ids": pending}))
            notified = version != self._known_version or bool(pending)
            if notifies or pending:
                await link.execute(_statement_text("notify"))
                version += 1  # if another process has incremented it too, the next poll sees a higher number
        if notified:
            # Also at the first poll: there may have been commits before it.
            self._pause = _SHORTEST_PAUSE
            self._on_notified()
        self._known_version = version


def _statement_text(name: str, values: Values = ()) -> bytes:
    text = get_statement(name).text(values)
    assert text is not None
    return text
