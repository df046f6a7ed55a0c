"""Durations in the public API: seconds, or a `timedelta`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

from romancy.errors import ConfigurationError

Duration: TypeAlias = float | timedelta


def micros(duration: Duration, what: str) -> int:
    """Convert a duration to microseconds. Raises a `ConfigurationError` about `what` if it is negative or not a duration."""
    value = _signed(duration, what)
    if value < 0:
        raise ConfigurationError(f"{what} is {duration!r}: a duration cannot be negative.")
    return value


def remainder(duration: Duration, what: str) -> int:
    """Convert a duration as `micros` does, but a negative one to zero.

    As in asyncio, a negative duration is not an error here: it was computed from a time that has passed.
    """
    return max(0, _signed(duration, what))


def _signed(duration: Duration, what: str) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, bool) or not isinstance(duration, int | float) or not math.isfinite(duration):
        raise ConfigurationError(f"{what} is {duration!r}: give seconds as a number, or a datetime.timedelta.")
    return round(duration * 1_000_000)


def optional_micros(duration: Duration | None, what: str) -> int | None:
    """Convert a limit as `micros` does. None stays None; zero is refused."""
    if duration is None:
        return None
    value = micros(duration, what)
    if value == 0:
        raise ConfigurationError(f"{what} is {duration!r}: give a duration above zero, or None for no limit.")
    return value
