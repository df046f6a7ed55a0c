"""A machine whose date can jump, and whose time can pass."""

from __future__ import annotations

import time

from romancy.clock import SystemClock

HOUR = 3600.0
DAY = 24 * HOUR


class Machine:
    """What a process reads its time from: the machine's own, and what a test adds to it."""

    def __init__(self, *, still: bool = False) -> None:
        """`still`: no time passes by itself."""
        self._still = (time.time_ns(), time.monotonic_ns()) if still else None
        self._ahead = 0
        self._passed = 0

    def jump(self, seconds: float) -> None:
        """Somebody sets the date."""
        self._ahead += round(seconds * 1e9)

    def let_pass(self, seconds: float) -> None:
        """Time passes, on every clock of the machine."""
        self._passed += round(seconds * 1e9)

    def wall(self) -> int:
        """The date, in nanoseconds."""
        return (self._still[0] if self._still else time.time_ns()) + self._passed + self._ahead

    def steady(self) -> int:
        """Nanoseconds since any moment."""
        return (self._still[1] if self._still else time.monotonic_ns()) + self._passed

    def clock(self) -> SystemClock:
        """The clock of a process on this machine."""
        return SystemClock(self.wall, self.steady)
