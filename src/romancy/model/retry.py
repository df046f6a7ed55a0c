"""`RetryPolicy`: how often an activity or a delivery is retried, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from romancy.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed attempt is followed by another.

    The delay before attempt n+1 is `initial_interval * multiplier ** (n - 1)`, at most `max_interval`; `jitter` (0 to 1)
    spreads it by up to that share in both directions. `max_attempts=0` means without limit; `max_duration` bounds the time
    from the first attempt in seconds. An error is retried when it is one of `retryable` and none of `non_retryable`.

    >>> RetryPolicy(max_attempts=3).max_attempts
    3
    """

    max_attempts: int = 5
    initial_interval: float = 1.0
    multiplier: float = 2.0
    max_interval: float = 60.0
    max_duration: float | None = None
    jitter: float = 0.0
    retryable: tuple[type[BaseException], ...] = (Exception,)
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Check each field. Raises `ConfigurationError` with the name of the field."""
        for name in ("initial_interval", "multiplier", "max_interval"):
            _require(name, getattr(self, name), at_least=0)
        if self.max_duration is not None:
            _require("max_duration", self.max_duration, at_least=0)
        if not isinstance(self.max_attempts, int) or isinstance(self.max_attempts, bool) or self.max_attempts < 0:
            raise ConfigurationError(
                f"RetryPolicy(max_attempts={self.max_attempts!r}): give a whole number of at least 0; 0 means without limit."
            )
        _require("jitter", self.jitter, at_least=0, at_most=1)
        object.__setattr__(self, "retryable", _classes("retryable", self.retryable))
        object.__setattr__(self, "non_retryable", _classes("non_retryable", self.non_retryable))

    @classmethod
    def default(cls) -> RetryPolicy:
        """Five attempts, 1, 2, 4 and 8 seconds apart."""
        return cls()

    @classmethod
    def none(cls) -> RetryPolicy:
        """One attempt."""
        return cls(max_attempts=1)

    @classmethod
    def fixed(cls, attempts: int, interval: float) -> RetryPolicy:
        """The same interval between all attempts."""
        return cls(max_attempts=attempts, initial_interval=interval, multiplier=1.0, max_interval=interval)

    @classmethod
    def exponential(cls, attempts: int, initial: float, maximum: float) -> RetryPolicy:
        """Intervals that double after each attempt, up to a maximum."""
        return cls(max_attempts=attempts, initial_interval=initial, max_interval=maximum)


def _require(name: str, value: object, *, at_least: float, at_most: float = math.inf) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not at_least <= cast(float, value) <= at_most:
        bounds = f"from {at_least:g} to {at_most:g}" if at_most != math.inf else f"of at least {at_least:g}"
        raise ConfigurationError(f"RetryPolicy({name}={value!r}): give a number {bounds}.")


def _classes(name: str, value: Any) -> tuple[type[BaseException], ...]:
    if not isinstance(value, tuple):
        return _classes(name, (value,))
    if all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in value):
        return value
    raise ConfigurationError(f"RetryPolicy({name}={value!r}): give exception classes, as a tuple.")
