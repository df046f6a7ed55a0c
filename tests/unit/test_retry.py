"""Whether and when a failed attempt is repeated."""

from __future__ import annotations

import pytest

from romancy.core.retry import is_retryable, next_attempt_at
from romancy.errors import PayloadError, TerminalError
from romancy.model.retry import RetryPolicy

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


def delays(policy: RetryPolicy, attempts: int, key: str = "order-1/charge:1") -> list[float | None]:
    """The seconds between an attempt that fails at once and the next one."""
    found = [next_attempt_at(policy, attempt=n, first_at=NOON, now=NOON, key=key) for n in range(1, attempts + 1)]
    return [None if at is None else (at - NOON) / SECOND for at in found]


def test_the_default_waits_1_2_4_8_seconds_and_then_gives_up() -> None:
    assert delays(RetryPolicy.default(), 5) == [1, 2, 4, 8, None]


def test_none_never_tries_again() -> None:
    assert delays(RetryPolicy.none(), 1) == [None]


def test_fixed_keeps_its_interval() -> None:
    assert delays(RetryPolicy.fixed(4, 0.5), 4) == [0.5, 0.5, 0.5, None]


def test_the_interval_grows_up_to_its_maximum() -> None:
    assert delays(RetryPolicy.exponential(6, 1.0, 5.0), 6) == [1, 2, 4, 5, 5, None]


def test_without_a_limit_it_goes_on_for_ever_and_never_overflows() -> None:
    policy = RetryPolicy(max_attempts=0, multiplier=10.0, max_interval=60.0)
    for attempt in (1_000, 100_000):
        at = next_attempt_at(policy, attempt=attempt, first_at=NOON, now=NOON, key="k")
        assert at == NOON + 60 * SECOND


def test_a_whole_number_as_multiplier_does_not_overflow_either() -> None:
    policy = RetryPolicy(max_attempts=0, multiplier=2, max_interval=60)
    assert next_attempt_at(policy, attempt=5_000, first_at=NOON, now=NOON, key="k") == NOON + 60 * SECOND


def test_the_next_attempt_counts_from_now_not_from_the_first() -> None:
    policy = RetryPolicy(max_attempts=0)
    later = NOON + 90 * SECOND
    assert next_attempt_at(policy, attempt=2, first_at=NOON, now=later, key="k") == later + 2 * SECOND


def test_max_duration_counts_from_the_first_attempt() -> None:
    policy = RetryPolicy(max_attempts=0, max_duration=10.0)

    def at(now: int) -> int | None:
        return next_attempt_at(policy, attempt=1, first_at=NOON, now=now, key="k")

    assert at(NOON + 9 * SECOND) == NOON + 10 * SECOND  # exactly at the end is still in time
    assert at(NOON + 9 * SECOND + 1) is None


def test_attempts_and_duration_both_bind() -> None:
    assert delays(RetryPolicy(max_attempts=2, max_duration=100.0), 2) == [1, None]
    assert delays(RetryPolicy(max_attempts=9, max_duration=3.0), 3) == [1, 2, None]


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_jitter_stays_in_its_bounds_and_uses_them(jitter: float) -> None:
    policy = RetryPolicy(max_attempts=0, initial_interval=10.0, multiplier=1.0, jitter=jitter)
    found = [delay for n in range(500) for delay in delays(policy, 1, key=f"order-{n}") if delay is not None]
    low, high = 10 * (1 - jitter), 10 * (1 + jitter)
    assert low <= min(found) < low + jitter
    assert high - jitter < max(found) <= high


def test_jitter_is_the_same_for_the_same_attempt_and_differs_between_attempts_and_keys() -> None:
    policy = RetryPolicy(max_attempts=0, multiplier=1.0, jitter=0.5)
    assert delays(policy, 5) == delays(policy, 5)
    assert len(set(delays(policy, 5))) == 5
    assert delays(policy, 5) != delays(policy, 5, key="order-2/charge:1")


class Declined(ValueError):
    """An error of the user's."""


def test_what_is_retried_follows_the_classes() -> None:
    policy = RetryPolicy(retryable=(ValueError,), non_retryable=(Declined,))
    assert is_retryable(policy, ValueError(), terminal=False)
    assert not is_retryable(policy, Declined(), terminal=False)
    assert not is_retryable(policy, KeyError(), terminal=False)


def test_terminal_errors_and_what_cannot_be_stored_are_never_retried() -> None:
    policy = RetryPolicy()
    assert not is_retryable(policy, TerminalError(), terminal=True)
    assert not is_retryable(policy, PayloadError(), terminal=False)
    assert is_retryable(policy, RuntimeError(), terminal=False)


def test_what_is_not_an_exception_is_not_retried_by_default() -> None:
    assert not is_retryable(RetryPolicy(), SystemExit(1), terminal=False)
