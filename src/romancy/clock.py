"""The only reader of time. Everything else gets a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Tells the time; tests put their own in its place."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class SystemClock:
    """The machine's clock, or that of a database server it is set by."""

    def __init__(self) -> None:
        self.offset = 0
        """Microseconds that are added to the machine's time."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000 + self.offset


def monotonic() -> float:
    """Seconds that only ever grow: for patience, never for what is written."""
    return time.monotonic()


def to_datetime(micros: int) -> datetime:
    """A time of the engine as an aware datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(when: datetime) -> int:
    """An aware datetime as a time of the engine, exactly."""
    return (when - _EPOCH) // timedelta(microseconds=1)
