"""Looking for instances that fit a filter, newest first, within a bound in time.

A filter that names something sharp (an id, what is waited for, what is overdue) gives ids, if they are not too many.
Anything else goes along the store's lists, from a key down, window by window. What the store does not decide is decided
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from romancy.clock import monotonic
from romancy.manage.filters import OVERDUE, Filter, Wish
from romancy.manage.summaries import error_line
from romancy.model.operators import Key, Line, Survey
from romancy.model.status import ENDED, Status
from romancy.store.port import Store
from romancy.views import value_of

TIME_BOX = 0.25
"""Seconds after which a search gives back what it has."""
_MOST_IDS = 2000
"""More than these are not sorted: they are looked for along the lists instead."""
_FIRST_WINDOW, _LARGEST_WINDOW = 2000, 20_000
_PORTION = 500
"""Instances that are decided about at once."""
_CONTENTS = 100
"""Payloads that are read at once."""
_WITH_ERROR = frozenset({Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class Found:
    """What fits, how far the search has come, and whether there may be more."""

    lines: list[Line]
    end: Key | None = None
    more: bool = False
    stopped: bool = False
    """Its time was over before the page was full."""
    looked_at: int = 0


async def search(store: Store, wanted: Filter, *, now: int, before: Key | None, limit: int) -> Found:
    """Up to `limit` instances that fit, below a key."""
    statuses = _possible(wanted)
    if not statuses:
        return Found([])
    start = _below(before, wanted.created_before)
    ids = await _sharp(store, wanted, now)
    if ids is not None and len(ids) <= _MOST_IDS:
        return await _among(store, wanted, ids, now=now, before=start, limit=limit)
    seeking = _Seeking(store, wanted, now, limit, monotonic() + TIME_BOX)
    survey = _survey(wanted, statuses, start, limit)
    if len(wanted.words.any) == 1:  # the beginning of an id if there is one, else a part of a workflow's name
        word = wanted.words.any[0]
        survey = replace(survey, instance=word) if ids else replace(survey, workflow=survey.workflow or word)
    return await seeking.along(survey)


def _possible(wanted: Filter) -> frozenset[Status]:
    """The statuses that what fits can have."""
    statuses = wanted.statuses
    if wanted.error.any:
        statuses &= _WITH_ERROR
    if wanted.waits.any or wanted.worker.any or wanted.retrying or wanted.overdue:
        statuses -= ENDED
    return statuses


def _below(before: Key | None, created_before: int | None) -> Key | None:
    bounds = [key for key in (before, None if created_before is None else (created_before + 1, "")) if key is not None]
    return min(bounds, default=None)


async def _sharp(store: Store, wanted: Filter, now: int) -> list[str] | None:
    """The ids of all that can fit, if the filter names something that gives them; more than are sorted: too many."""
    limit = _MOST_IDS + 1
    if wanted.id.any and all(_ends_open(one) for one in wanted.id.any):
        return await _until_too_many([partial(_by_id, store, one, limit) for one in wanted.id.any])
    if len(wanted.words.any) == 1:
        return await store.ids_by_prefix(wanted.words.any[0], limit=limit) or None
    if wanted.waits.any and not any("*" in key for key in wanted.waits.any):
        return await _until_too_many([partial(store.ids_by_wait, key, limit=limit) for key in wanted.waits.any])
    if wanted.overdue:
        return await store.ids_by_due(before=now - OVERDUE, limit=limit)
    return None


async def _until_too_many(asks: Sequence[Callable[[], Awaitable[list[str]]]]) -> list[str]:
    """What the questions give together; none is asked once there are more than are sorted."""
    found: list[str] = []
    for ask in asks:
        if len(found) <= _MOST_IDS:
            found += await ask()
    return found


def _ends_open(pattern: str) -> bool:
    return "*" not in pattern[:-1] and len(pattern) > 1


async def _by_id(store: Store, pattern: str, limit: int) -> list[str]:
    return await store.ids_by_prefix(pattern[:-1], limit=limit) if pattern.endswith("*") else [pattern]


async def _among(store: Store, wanted: Filter, ids: Sequence[str], *, now: int, before: Key | None, limit: int) -> Found:
    """Those of a bounded number of instances that fit."""
    found: list[Line] = []
    ids = list(dict.fromkeys(ids))
    for start in range(0, len(ids), _PORTION):
        lines = await store.lines(ids[start : start + _PORTION])
        below = [line for line in lines if before is None or _key(line) < before]
        found += await fitting(store, wanted, below, now)
    found.sort(key=_key, reverse=True)
    page = found[:limit]
    return Found(page, _key(page[-1]) if page else None, len(found) > limit, looked_at=len(ids))


def _survey(wanted: Filter, statuses: frozenset[Status], before: Key | None, limit: int) -> Survey:
    sure = not _decides_more(wanted)
    return Survey(
        statuses=statuses,
        owned=bool(wanted.worker.any),
        retrying=wanted.retrying is True and not wanted.worker.any,
        workflow=_part(wanted.workflow),
        instance=_part(wanted.id),
        created_after=wanted.created_after or 0,
        before=before,
        window=_FIRST_WINDOW,
        limit=limit + 1 if sure else _PORTION,
    )


def _decides_more(wanted: Filter) -> bool:
    """Not everything that the store gives fits."""
    wishes = (wanted.workflow, wanted.id, wanted.worker, wanted.waits, wanted.words)
    return any(wishes) or wanted.by_content or wanted.retrying is not None or wanted.overdue is not None


def _part(wish: Wish) -> str | None:
    """A text that must be in what a sole pattern fits."""
    if len(wish.any) != 1:
        return None
    return max(wish.any[0].split("*"), key=len) or None


class _Seeking:
    """A search along the store's lists."""

    def __init__(self, store: Store, wanted: Filter, now: int, limit: int, deadline: float) -> None:
        self._store = store
        self._wanted = wanted
        self._now = now
        self._limit = limit
        self._deadline = deadline
        self._hits: list[Line] = []
        self._looked = 0

    async def along(self, survey: Survey) -> Found:
        """Go on until the page is full, the lists are at their end, or the time is over."""
        while True:
            surveyed = await self._store.survey(survey)
            at = await self._take(surveyed.lines, survey.before)
            if len(self._hits) > self._limit:
                page = self._hits[: self._limit]
                return Found(page, _key(page[-1]), more=True, looked_at=self._looked)
            over = monotonic() > self._deadline
            if at is not None:  # the time was over among the lines
                return Found(self._hits, at, more=True, stopped=True, looked_at=self._looked)
            if surveyed.end is None:
                return Found(self._hits, looked_at=self._looked)
            if over:
                return Found(self._hits, surveyed.end, more=True, stopped=True, looked_at=self._looked)
            window = min(2 * survey.window, _LARGEST_WINDOW)
            survey = replace(survey, before=surveyed.end, window=window)

    async def _take(self, lines: Sequence[Line], before: Key | None) -> Key | None:
        """Decide about lines; where the time was over, if it was."""
        for start in range(0, len(lines), _CONTENTS):
            portion = lines[start : start + _CONTENTS]
            self._hits += await fitting(self._store, self._wanted, portion, self._now)
            self._looked += len(portion)
            if len(self._hits) > self._limit:
                return None
            if self._wanted.by_content and monotonic() > self._deadline and start + _CONTENTS < len(lines):
                return _key(portion[-1])
        return None


async def fitting(store: Store, wanted: Filter, lines: Sequence[Line], now: int) -> list[Line]:
    """Those of the lines that fit."""
    fit = [line for line in lines if wanted.fits(line.row, line.waits, now)]
    if not wanted.by_content or not fit:
        return fit
    contents = await store.contents([line.row.instance_id for line in fit])
    found: list[Line] = []
    for line in fit:
        content = contents.get(line.row.instance_id)
        if content is not None:
            error = "" if content.error is None else error_line(content.error)
            if wanted.fits_content(value_of(content.input), error):
                found.append(line)
    return found


def _key(line: Line) -> Key:
    return line.row.created_at, line.row.instance_id
