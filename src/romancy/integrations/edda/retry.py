"""Edda's retry policies."""

from __future__ import annotations

from dataclasses import dataclass

from romancy import ConfigurationError, TerminalError
from romancy import RetryPolicy as Policy

__all__ = ["AGGRESSIVE_RETRY", "CONSERVATIVE_RETRY", "DEFAULT_RETRY_POLICY", "INFINITE_RETRY", "RetryPolicy"]


@dataclass
class RetryPolicy:
    """When a failed attempt is retried. `max_attempts=None` and `max_duration=None` mean without limit."""

    initial_interval: float = 1.0
    backoff_coefficient: float = 2.0
    max_interval: float = 60.0
    max_attempts: int | None = 5
    max_duration: float | None = 300.0
    retryable_error_types: tuple[type[Exception], ...] = (Exception,)
    non_retryable_error_types: tuple[type[Exception], ...] = ()

    @property
    def romancy(self) -> Policy:
        """The equivalent romancy policy."""
        return Policy(
            max_attempts=0 if self.max_attempts is None else self.max_attempts,
            initial_interval=self.initial_interval,
            multiplier=self.backoff_coefficient,
            max_interval=self.max_interval,
            max_duration=self.max_duration,
            retryable=tuple(self.retryable_error_types),
            non_retryable=tuple(self.non_retryable_error_types),
        )

    def is_retryable(self, error: Exception) -> bool:
        """Return whether this kind of error is retried."""
        if isinstance(error, (TerminalError, *self.non_retryable_error_types)):
            return False
        return isinstance(error, tuple(self.retryable_error_types))

    def calculate_delay(self, attempt: int) -> float:
        """Return the seconds between this attempt, counted from 1, and the next."""
        return min(self.initial_interval * self.backoff_coefficient ** (attempt - 1), self.max_interval)


DEFAULT_RETRY_POLICY = RetryPolicy()
AGGRESSIVE_RETRY = RetryPolicy(0.1, 1.5, 10.0, 10, 60.0)
CONSERVATIVE_RETRY = RetryPolicy(5.0, 2.0, 300.0, 3, 900.0)
INFINITE_RETRY = RetryPolicy(max_attempts=None, max_duration=None)


def policy_of(given: object, what: str) -> Policy | None:
    """Return a romancy policy, given either kind."""
    if given is None or isinstance(given, Policy):
        return given
    if isinstance(given, RetryPolicy):
        return given.romancy
    raise ConfigurationError(f"{what}={given!r}: give a RetryPolicy, e.g. RetryPolicy(max_attempts=3).")
