"""Clocks. Only this module reads the time; all other code is given a `Clock`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

_log = logging.getLogger("romancy.clock")
MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JUMP = 2 * MICROS
"""The largest change of the machine's clock that is followed at once: a correction, a leap second."""
_CHECK_INTERVAL = 1 * MICROS
"""The shortest time between two checks whether the machine's clock has jumped."""
_TRUST_AFTER = 60 * MICROS
"""The time for which the machine's clock must keep its new value after a jump before that value is used."""
_CERTAIN_AFTER = 3600 * MICROS
"""The time after a jump in which nothing is deleted."""
_JUMP_CONSEQUENCE = "the new time is used if it lasts for a minute, and nothing is deleted for an hour"


class Clock(Protocol):
    """A source of the time; tests replace it."""

    def now(self) -> int:
        """Return the time in microseconds since 1970, UTC."""
        ...


class SystemClock:
    """The clock of an app: it shows the time of the database server, or that of the machine while no server has set it.

    The time is that of a steady clock, which never jumps, plus an offset, so it keeps its pace when the machine's date
    jumps. Without a server, the new date of the machine is used when it has lasted for a minute.
    """

    def __init__(self, wall: Callable[[], int] | None = None, steady: Callable[[], int] | None = None) -> None:
        """Both functions return nanoseconds: `wall` the machine's date since 1970, `steady` a clock without jumps."""
        self._wall = wall or time.time_ns
        self._steady = steady or _find_steady_clock()
        self._lock = threading.Lock()
        self._follows_server = False
        """Whether a server has set this clock."""
        at = self.elapsed()
        self._offset = self._machine_now() - at
        self._expected = self._offset
        """The lead of the machine's clock over the steady clock when a server last set this one."""
        self._next_check_at = at + _CHECK_INTERVAL
        self._jump: tuple[int, int] | None = None
        """The size and time of a jump of the machine's clock whose new value is not used yet."""
        self._jumped_at: int | None = None
        self.has_jumped = False
        """Whether the machine's clock has jumped since a server last set this one: the steady clock may have stood still."""

    def now(self) -> int:
        """Return the time in microseconds since 1970, UTC."""
        at = self._steady() // 1000
        if at >= self._next_check_at:
            self._check_jump(at)
        return at + self._offset

    def elapsed(self) -> int:
        """Return microseconds since an arbitrary origin, for measuring durations: they do not depend on the date."""
        return self._steady() // 1000

    @property
    def ahead(self) -> int:
        """The lead of the machine's clock over this one, in microseconds."""
        return self._machine_now() - self.now()

    @property
    def is_certain(self) -> bool:
        """Whether the date is reliable, so that rows may be deleted by their age: it has not jumped recently."""
        self.now()
        return self._follows_server or self._jumped_at is None or self.elapsed() - self._jumped_at >= _CERTAIN_AFTER

    def follow_server(self, theirs: int, began: int, ended: int) -> None:
        """Follow a server, whose clock showed `theirs` at some time between two readings of `elapsed`.

        This clock is moved no further than it must be: a smaller difference may come from the round trip.
        """
        with self._lock:
            self._offset = min(max(self._offset, theirs - ended), theirs - began)
            self._follows_server = True
            self._expected = self._machine_now() - self.elapsed()
            self.has_jumped = False

    def _machine_now(self) -> int:
        return self._wall() // 1000

    def _check_jump(self, at: int) -> None:
        """Check whether the machine's clock and the steady clock still run alike."""
        with self._lock:
            self._next_check_at = at + _CHECK_INTERVAL
            if self._follows_server:
                self.has_jumped = self.has_jumped or abs(self._machine_now() - self.elapsed() - self._expected) > _JUMP
            else:
                self._follow_machine(at, self._machine_now() - at - self._offset)

    def _follow_machine(self, at: int, moved: int) -> None:
        if abs(moved) <= _JUMP:  # a correction, or the clock has jumped back
            self._offset += moved
            self._jump = None
        elif self._jump is None or abs(moved - self._jump[0]) > _JUMP:
            self._jump, self._jumped_at = (moved, at), at
            _log.warning("this machine's clock has jumped by %.3f s: %s", moved / MICROS, _JUMP_CONSEQUENCE)
        elif at - self._jump[1] >= _TRUST_AFTER:
            self._offset += moved
            self._jump, self._jumped_at = None, at
            _log.warning("this machine's clock has kept its new time since it jumped: it is set by %.3f s", moved / MICROS)


def _find_steady_clock(system: Any = time) -> Callable[[], int]:
    """Return a clock of the system that also runs while the machine sleeps, if there is one."""
    # On macOS CLOCK_MONOTONIC runs while the machine sleeps, and the clock of `time.monotonic` does not.
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if (number := getattr(system, name, None)) is not None:
            with suppress(OSError):
                system.clock_gettime_ns(number)
                return partial(system.clock_gettime_ns, number)
    steady: Callable[[], int] = system.monotonic_ns
    return steady


def monotonic() -> float:
    """Return the seconds of a monotonic clock: for timeouts, never for times that are stored."""
    return time.monotonic()


def to_datetime(micros: int) -> datetime:
    """Convert a time of the engine to an aware datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(when: datetime) -> int:
    """Convert an aware datetime to a time of the engine, exactly."""
    return (when - _EPOCH) // timedelta(microseconds=1)
