"""Applies a retry policy: whether a failed attempt is retried, and when."""

from __future__ import annotations

from hashlib import blake2b

from romancy.errors import PayloadError
from romancy.model.retry import RetryPolicy

_MICROS = 1_000_000


def is_retryable(policy: RetryPolicy, error: BaseException, *, terminal: bool) -> bool:
    """The policy allows retries after this kind of error. A result that cannot be stored is never retried."""
    if terminal or isinstance(error, PayloadError):
        return False
    return isinstance(error, policy.retryable) and not isinstance(error, policy.non_retryable)


def next_attempt_at(policy: RetryPolicy, *, attempt: int, first_at: int, now: int, key: str) -> int | None:
    """When the attempt after `attempt` starts; None when the policy allows no more.

    The jitter is derived from `key` and the number of the attempt, so that it differs between instances and is reproducible.
    """
    if policy.max_attempts and attempt >= policy.max_attempts:
        return None
    at = now + round(_interval(policy, attempt, key) * _MICROS)
    if policy.max_duration is not None and at > first_at + policy.max_duration * _MICROS:
        return None
    return at


def _interval(policy: RetryPolicy, attempt: int, key: str) -> float:
    if not policy.initial_interval:
        return 0.0
    try:
        interval = min(policy.initial_interval * policy.multiplier ** (attempt - 1), policy.max_interval)
    except OverflowError:
        interval = policy.max_interval
    if not policy.jitter:
        return interval
    drawn = int.from_bytes(blake2b(f"{key}:{attempt}".encode(), digest_size=8).digest(), "big") / 2**64
    return interval * (1 + policy.jitter * (2 * drawn - 1))
