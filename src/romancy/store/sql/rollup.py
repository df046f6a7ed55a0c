"""Counts how many instances ended in each minute. This happens afterwards, so that it costs nothing to end an instance.

A watermark says up to which time everything is counted. A worker counts an interval in the transaction that advances the
watermark over it. Of two workers that try at the same time only one can advance it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from romancy.clock import MICROS
from romancy.model.admin import Minute, bucket_of
from romancy.store.sql.cursor import Cursor

_WATERMARK = "rollup"
_MINUTE = 60 * MICROS
_MINUTES_PRUNED_AT_ONCE = 10
"""Minutes that are deleted at a time."""
_INITIAL_WINDOW = 60 * _MINUTE
"""Length of the first interval that is counted, back from now."""


def is_behind(cursor: Cursor, *, until: int) -> bool:
    """Return whether an instance ended before `until` and is not counted yet."""
    mark = cursor.first("watermark_of", (_WATERMARK,))
    since = max(0, until - _INITIAL_WINDOW) if mark is None else int(mark[0])
    return cursor.first("window_of_ended", (since, until, 0)) is not None


def advance(cursor: Cursor, *, until: int, limit: int, forget_before: int) -> int:
    """Count about `limit` instances that ended before `until` and are not counted yet; return how many."""
    mark = cursor.first("watermark_of", (_WATERMARK,))
    if mark is None:
        cursor.run("add_watermark", (_WATERMARK, max(0, until - _INITIAL_WINDOW)))
        mark = cursor.only("watermark_of", (_WATERMARK,))
    old = int(mark[0])
    if until <= old:
        return 0
    bound = cursor.first("window_of_ended", (old, until, limit))
    new = until if bound is None else int(bound[0])
    # Before counting: if another worker has advanced the watermark meanwhile, it has counted these instances.
    if not cursor.run("advance_watermark", {"name": _WATERMARK, "old": old, "new": new}):
        return 0
    counted = _count(cursor, cursor.rows("ended_between", (old, new)))
    _prune_minutes(cursor, forget_before)
    return counted


def _prune_minutes(cursor: Cursor, before: int) -> None:
    """Delete some of the oldest minutes: more per run than new ones are added."""
    for _ in range(_MINUTES_PRUNED_AT_ONCE):
        oldest = cursor.only("oldest_minute")[0]
        if oldest is None or oldest >= before:
            return
        cursor.run("forget_minute", (oldest,))


def _count(cursor: Cursor, ended: Iterable[tuple[str, str, int, int]]) -> int:
    """Add ended instances to the counts of their minutes; return how many."""
    numbers: Counter[tuple[int, str, str]] = Counter()
    buckets: dict[tuple[int, str, str], Counter[int]] = {}
    for workflow, outcome, at, took in ended:
        key = (at - at % _MINUTE, workflow, outcome)
        numbers[key] += 1
        buckets.setdefault(key, Counter())[bucket_of(took)] += 1
    counted = numbers.total()
    for minute in {key[0] for key in numbers}:
        for workflow, outcome, count, histogram in cursor.rows("rolled_up_at", (minute,)):
            key = (minute, workflow, outcome)
            if key in numbers:
                buckets[key].update(_histogram(histogram))
                numbers[key] += count
    if numbers:
        cursor.many("roll_up", [(*key, count, json.dumps(buckets[key])) for key, count in sorted(numbers.items())])
    return counted


def minutes(cursor: Cursor, *, since: int) -> list[Minute]:
    """Return the counts of the minutes from `since` on."""
    found = cursor.rows("rolled_up", (since - since % _MINUTE,))
    return [Minute(at, workflow, outcome, count, _histogram(raw)) for at, workflow, outcome, count, raw in found]


def _histogram(raw: str) -> dict[int, int]:
    return {int(bucket): count for bucket, count in json.loads(raw).items()}
