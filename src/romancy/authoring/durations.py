"""Durations as users write them: seconds, or a timedelta."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

from romancy.errors import ConfigurationError

Duration: TypeAlias = float | timedelta


def micros(duration: Duration, what: str) -> int:
    """A duration in microseconds; what is not one is refused with a sentence that names it."""
    if isinstance(duration, timedelta):
        value = duration // timedelta(microseconds=1)
    elif isinstance(duration, bool) or not isinstance(duration, int | float) or not math.isfinite(duration):
        raise ConfigurationError(f"{what} is {duration!r}: give seconds as a number, or a datetime.timedelta.")
    else:
        value = round(duration * 1_000_000)
    if value < 0:
        raise ConfigurationError(f"{what} is {duration!r}: a duration cannot be negative.")
    return value


def optional_micros(duration: Duration | None, what: str) -> int | None:
    """As `micros`; None stays None, and nothing is not a limit."""
    if duration is None:
        return None
    value = micros(duration, what)
    if value == 0:
        raise ConfigurationError(f"{what} is {duration!r}: give a duration above zero, or None for no limit.")
    return value
