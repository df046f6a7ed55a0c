"""The only reader of time. Everything else gets a `Clock`."""

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
"""A machine's clock that is set by no more than this is followed at once: a correction, a leap second."""
_CHECK_INTERVAL = 1 * MICROS
"""How often it is seen whether the machine's clock has jumped, at most."""
_TRUST_AFTER = 60 * MICROS
"""How long a machine's clock must stay where it has jumped to before that counts."""
_CERTAIN_AFTER = 3600 * MICROS
"""How long after a jump nothing is deleted."""
_JUMP_CONSEQUENCE = "it counts if it stays there for a minute, and for an hour nothing is deleted"


class Clock(Protocol):
    """Tells the time; tests put their own in its place."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class SystemClock:
    """The time of the server that sets it; the machine's while none does.

    It is read off a clock that only ever grows, from where it was set: a machine whose date jumps counts on steadily. Where
    no server says what the time is, another date is believed when it has lasted.
    """

    def __init__(self, wall: Callable[[], int] | None = None, steady: Callable[[], int] | None = None) -> None:
        """In nanoseconds, `wall`: the machine's date, since 1970; `steady`: since any moment, without jumps."""
        self._wall = wall or time.time_ns
        self._steady = steady or _find_steady_clock()
        self._lock = threading.Lock()
        self._follows_server = False
        """A server says what the time is."""
        at = self.elapsed()
        self._offset = self._machine_now() - at
        self._expected = self._offset
        """What the machine's clock was ahead of the steady one when a server was asked."""
        self._next_check_at = at + _CHECK_INTERVAL
        self._jump: tuple[int, int] | None = None
        """How far the machine's clock has jumped, and since when it has."""
        self._jumped_at: int | None = None
        self.has_jumped = False
        """The machine's clock has jumped since a server was asked: perhaps the steady one stood still meanwhile."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        at = self._steady() // 1000
        if at >= self._next_check_at:
            self._check_jump(at)
        return at + self._offset

    def elapsed(self) -> int:
        """Microseconds since any moment: for how long something takes, whatever the date becomes meanwhile."""
        return self._steady() // 1000

    @property
    def ahead(self) -> int:
        """Microseconds that the machine's clock is ahead of this one."""
        return self._machine_now() - self.now()

    @property
    def is_certain(self) -> bool:
        """The date has not jumped lately: what is old may be deleted."""
        self.now()
        return self._follows_server or self._jumped_at is None or self.elapsed() - self._jumped_at >= _CERTAIN_AFTER

    def follow_server(self, theirs: int, began: int, ended: int) -> None:
        """A server's clock showed `theirs` some time between two readings of `elapsed`: it counts.

        This one is moved no further than it must be: what is less may be the way there and back.
        """
        with self._lock:
            self._offset = min(max(self._offset, theirs - ended), theirs - began)
            self._follows_server = True
            self._expected = self._machine_now() - self.elapsed()
            self.has_jumped = False

    def _machine_now(self) -> int:
        return self._wall() // 1000

    def _check_jump(self, at: int) -> None:
        """See whether the machine's clock still goes as the steady one."""
        with self._lock:
            self._next_check_at = at + _CHECK_INTERVAL
            if self._follows_server:
                self.has_jumped = self.has_jumped or abs(self._machine_now() - self.elapsed() - self._expected) > _JUMP
            else:
                self._follow_machine(at, self._machine_now() - at - self._offset)

    def _follow_machine(self, at: int, moved: int) -> None:
        if abs(moved) <= _JUMP:  # a correction; or it is back where it was
            self._offset += moved
            self._jump = None
        elif self._jump is None or abs(moved - self._jump[0]) > _JUMP:
            self._jump, self._jumped_at = (moved, at), at
            _log.warning("this machine's clock has jumped by %.3f s: %s", moved / MICROS, _JUMP_CONSEQUENCE)
        elif at - self._jump[1] >= _TRUST_AFTER:
            self._offset += moved
            self._jump, self._jumped_at = None, at
            _log.warning("this machine's clock has stayed where it jumped to, %.3f s off: it counts now", moved / MICROS)


def _find_steady_clock(system: Any = time) -> Callable[[], int]:
    """A clock of the system that goes on while the machine sleeps, if there is one."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # on macOS, the second goes on, and that of `time.monotonic` does not
        if (number := getattr(system, name, None)) is not None:
            with suppress(OSError):
                system.clock_gettime_ns(number)
                return partial(system.clock_gettime_ns, number)
    steady: Callable[[], int] = system.monotonic_ns
    return steady


def monotonic() -> float:
    """Seconds that only ever grow: for patience, never for what is written."""
    return time.monotonic()


def to_datetime(micros: int) -> datetime:
    """A time of the engine as an aware datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(when: datetime) -> int:
    """An aware datetime as a time of the engine, exactly."""
    return (when - _EPOCH) // timedelta(microseconds=1)
