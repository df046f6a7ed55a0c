"""How long a call to a server may take in all: a clock of ours, whatever the server, the line and the driver do.

A call has a deadline from its beginning. Until then it waits for a free connection, connects, and asks. A connection that
has not answered at the deadline is cut off: then the driver raises in the task that waits. (To cancel that task instead
would be the driver's affair: it asks the silent server, over another connection, to stop.)
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
"""When the call that is being made must be over, by `monotonic`."""
_TICK = 0.5
"""Seconds between two looks at the connections that are lent, at most."""


def deadline() -> float:
    """When the call must be over that is being made; from now on, if it does not say."""
    found = DEADLINE.get()
    return monotonic() + CALL_TIMEOUT if found is None else found


async def in_time(doing: Awaitable[T]) -> T:
    """Wait for something that can be cancelled. Raises `TimeoutError`."""
    async with asyncio.timeout(max(deadline() - monotonic(), 0.0)):
        return await doing


class ConnectionWatchdog(Generic[C]):
    """Cuts off connections that are lent for longer than their call may take."""

    def __init__(self, cut: Callable[[C], None]) -> None:
        self._cut = cut
        self._deadlines: dict[C, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: C) -> None:
        """From now on somebody asks there."""
        self._deadlines[connection] = deadline()
        if self._timer is None:
            self._schedule_check()

    def unwatch(self, connection: C) -> None:
        """Nobody does any more."""
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
