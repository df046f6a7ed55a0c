"""A simulated machine whose wall clock can jump and whose time can pass."""

from __future__ import annotations

import time

from romancy.clock import SystemClock

HOUR = 3600.0
DAY = 24 * HOUR


class Machine:
    """The clocks of a machine: the real ones plus what a test adds."""

    def __init__(self, *, still: bool = False) -> None:
        """With `still`, no time passes by itself."""
        self._still = (time.time_ns(), time.monotonic_ns()) if still else None
        self._ahead = 0
        self._passed = 0

    def jump(self, seconds: float) -> None:
        """Set the wall clock ahead or back."""
        self._ahead += round(seconds * 1e9)

    def let_pass(self, seconds: float) -> None:
        """Let time pass on all clocks of the machine."""
        self._passed += round(seconds * 1e9)

    def wall(self) -> int:
        """The wall clock in nanoseconds."""
        return (self._still[0] if self._still else time.time_ns()) + self._passed + self._ahead

    def steady(self) -> int:
        """The monotonic clock in nanoseconds."""
        return (self._still[1] if self._still else time.monotonic_ns()) + self._passed

    def clock(self) -> SystemClock:
        """The clock of a process on this machine."""
        return SystemClock(self.wall, self.steady)
