"""The data of charts, from the counts of ended instances per minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from romancy.admin.records import ChartPoint
from romancy.clock import MICROS, to_datetime
from romancy.model.admin import Minute, bound_of
from romancy.model.status import Status

MINUTE = 60 * MICROS
SHOWN = 60
"""The number of minutes in a chart."""


def chart_points(minutes: Iterable[Minute], *, now: int) -> list[ChartPoint]:
    """Return the points of the last hour, one for each minute, including those in which no instance ended."""
    completed: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for minute in minutes:
        if minute.outcome == Status.COMPLETED:
            completed[minute.at] += minute.ended
        elif minute.outcome == Status.FAILED:
            failed[minute.at] += minute.ended
    last = now - now % MINUTE
    ats = range(max(0, last - (SHOWN - 1) * MINUTE), last + 1, MINUTE)
    return [ChartPoint(to_datetime(at), completed[at], failed[at]) for at in ats]


def ended(minutes: Iterable[Minute], outcome: Status) -> int:
    """Return how many instances ended with this outcome."""
    return sum(minute.ended for minute in minutes if minute.outcome == outcome)


def quantile(minutes: Iterable[Minute], share: float) -> float | None:
    """Return about how many seconds this share of the completed instances took at most; None if no instance completed."""
    buckets: Counter[int] = Counter()
    for minute in minutes:
        if minute.outcome == Status.COMPLETED:
            buckets.update(minute.buckets)
    wanted, seen = share * buckets.total(), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return bound_of(bucket) / MICROS
    return None
