"""Telling other processes that there is something to look at, and hearing it from them: a number that everybody raises.

MySQL has no notifications, so everybody looks at the number, often while things happen and seldom when nothing does. It is
a hint: who misses one looks all the same, only later. It is raised after the commit, never in it (whoever changes the row
would keep all others waiting until its COMMIT), and many changes at once raise it once.
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
"""Seconds between two looks."""
_BACKOFF = 1.1
"""How much longer each pause is than the one before, while nothing happens."""
_TIDY_INTERVAL = 60.0


class MySqlNotifier:
    """Rings for others, and sees whether they have rung."""

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
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._poll_loop(), name="romancy-watch")

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()  # while it connects, Python 3.11 may swallow that: then it sees that it is not wanted any more
            await asyncio.wait([task])

    def notify(self) -> None:
        """Others have something to look at."""
        self._pause = _SHORTEST_PAUSE
        self._notify_requested.set()

    async def _poll_loop(self) -> None:
        while self._task is asyncio.current_task():
            try:
                await self._poll()
                if monotonic() - self._tidied > _TIDY_INTERVAL:
                    self._tidied = monotonic()
                    await self._tidy()
            except Exception as error:  # a hint that is lost: others look by themselves
                _log.debug("could not look for what others wrote: %s", error)
                self._known_version = None
            # The pause first: many rings within it are one.
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
        ringing = self._notify_requested.is_set()
        self._notify_requested.clear()
        async with self._connections.acquire() as link:
            found = (await link.execute(_statement_text("read_notifications"))).rows
            rung: int = found[0][0]
            hints = [line[1] for line in found if line[1] is not None]
            if hints:
                await link.execute(_statement_text("delete_pending_notifications", {"ids": hints}))
            foreign = rung != self._known_version or bool(hints)
            if ringing or hints:
                await link.execute(_statement_text("notify"))
                rung += 1  # more, if somebody else rang just now: that is seen with the next look
        if foreign:
            # There may have been something before the first look, too.
            self._pause = _SHORTEST_PAUSE
            self._on_notified()
        self._known_version = rung


def _statement_text(name: str, values: Values = ()) -> bytes:
    text = get_statement(name).text(values)
    assert text is not None
    return text
