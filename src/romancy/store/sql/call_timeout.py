"""The deadline of a call to a server, enforced in this process, whatever the server, the network and the driver do.

A call gets its deadline when it begins. Within it the call waits for a free connection, connects, and runs its statements. A
connection without a response at the deadline is cut: the driver then raises in the waiting task. Cancelling that task
instead would not help: the driver would open another connection to the silent server to ask it to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Generic, TypeVar

from romancy.clock import monotonic

C = TypeVar("C")
T = TypeVar("T")

CALL_TIMEOUT = 30.0
"""Seconds that a call may take."""
DEADLINE: ContextVar[float | None] = ContextVar("romancy_deadline", default=None)
"""The deadline of the current call, by `monotonic`."""
_TICK = 0.5
"""Longest time between two checks of the lent connections, in seconds."""


def deadline() -> float:
    """Return the deadline of the current call, or a new one if there is none."""
    found = DEADLINE.get()
    return monotonic() + CALL_TIMEOUT if found is None else found


async def in_time(doing: Awaitable[T]) -> T:
    """Wait for an awaitable that can be cancelled, until the deadline. Raises `TimeoutError`."""
    async with asyncio.timeout(max(deadline() - monotonic(), 0.0)):
        return await doing


class ConnectionWatchdog(Generic[C]):
    """Cuts connections that are lent beyond the deadline of their call."""

    def __init__(self, cut: Callable[[C], None]) -> None:
        self._cut = cut
        self._deadlines: dict[C, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: C) -> None:
        """Watch a connection that a call begins to use."""
        self._deadlines[connection] = deadline()
        if self._timer is None:
            self._schedule_check()

    def unwatch(self, connection: C) -> None:
        """Stop watching a connection: the call has returned it."""
        self._deadlines.pop(connection, None)

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(min(_TICK, CALL_TIMEOUT / 10), self._cut_overdue)

    def _cut_overdue(self) -> None:
        self._timer = None
        now = monotonic()
        for connection in [one for one, deadline in self._deadlines.items() if now >= deadline]:
            del self._deadlines[connection]
            self._cut(connection)
        if self._deadlines:
            self._schedule_check()
