"""Looking for instances that fit a filter, newest first, within a bound in time.

A filter that names something sharp (an id, what is waited for, what is overdue) gives ids, if they are not too many.
Anything else goes along the store's lists, from a key down, window by window. What the store does not decide is decided
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from romancy.admin.filters import OVERDUE, Filter, FilterTerm
from romancy.admin.summaries import error_line
from romancy.clock import monotonic
from romancy.model.admin import InstanceKey, InstanceListRow, InstanceQuery
from romancy.model.status import ENDED, Status
from romancy.presenters import value_of
from romancy.store.port import Store

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
class SearchResult:
    """What fits, how far the search has come, and whether there may be more."""

    rows: list[InstanceListRow]
    end: InstanceKey | None = None
    has_more: bool = False
    stopped: bool = False
    """Its time was over before the page was full."""
    scanned: int = 0


async def search(store: Store, filter: Filter, *, now: int, before: InstanceKey | None, limit: int) -> SearchResult:
    """Up to `limit` instances that fit, below a key."""
    statuses = _possible_statuses(filter)
    if not statuses:
        return SearchResult([])
    start = _upper_bound(before, filter.created_before)
    ids = await _ids_from_index(store, filter, now)
    if ids is not None and len(ids) <= _MOST_IDS:
        return await _search_ids(store, filter, ids, now=now, before=start, limit=limit)
    seeking = _ListSearch(store, filter, now, limit, monotonic() + TIME_BOX)
    survey = _make_query(filter, statuses, start, limit)
    if len(filter.words.any) == 1:  # the beginning of an id if there is one, else a part of a workflow's name
        word = filter.words.any[0]
        survey = replace(survey, instance=word) if ids else replace(survey, workflow=survey.workflow or word)
    return await seeking.run(survey)


def _possible_statuses(filter: Filter) -> frozenset[Status]:
    """The statuses that what fits can have."""
    statuses = filter.statuses
    if filter.error.any:
        statuses &= _WITH_ERROR
    if filter.waits.any or filter.worker.any or filter.retrying or filter.overdue:
        statuses -= ENDED
    return statuses


def _upper_bound(before: InstanceKey | None, created_before: int | None) -> InstanceKey | None:
    bounds = [key for key in (before, None if created_before is None else (created_before + 1, "")) if key is not None]
    return min(bounds, default=None)


async def _ids_from_index(store: Store, filter: Filter, now: int) -> list[str] | None:
    """The ids of all that can fit, if the filter names something that gives them; more than are sorted: too many."""
    limit = _MOST_IDS + 1
    if filter.id.any and all(_is_prefix_pattern(one) for one in filter.id.any):
        return await _until_too_many([partial(_by_id, store, one, limit) for one in filter.id.any])
    if len(filter.words.any) == 1:
        return await store.ids_by_prefix(filter.words.any[0], limit=limit) or None
    if filter.waits.any and not any("*" in key for key in filter.waits.any):
        return await _until_too_many([partial(store.ids_by_wait, key, limit=limit) for key in filter.waits.any])
    if filter.overdue:
        return await store.ids_by_due(before=now - OVERDUE, limit=limit)
    return None


async def _until_too_many(queries: Sequence[Callable[[], Awaitable[list[str]]]]) -> list[str]:
    """What the questions give together; none is asked once there are more than are sorted."""
    found: list[str] = []
    for ask in queries:
        if len(found) <= _MOST_IDS:
            found += await ask()
    return found


def _is_prefix_pattern(pattern: str) -> bool:
    return "*" not in pattern[:-1] and len(pattern) > 1


async def _by_id(store: Store, pattern: str, limit: int) -> list[str]:
    return await store.ids_by_prefix(pattern[:-1], limit=limit) if pattern.endswith("*") else [pattern]


async def _search_ids(
    store: Store, filter: Filter, ids: Sequence[str], *, now: int, before: InstanceKey | None, limit: int
) -> SearchResult:
    """Those of a bounded number of instances that fit."""
    found: list[InstanceListRow] = []
    ids = list(dict.fromkeys(ids))
    for start in range(0, len(ids), _PORTION):
        lines = await store.rows_by_id(ids[start : start + _PORTION])
        below = [line for line in lines if before is None or _key(line) < before]
        found += await select_matching(store, filter, below, now)
    found.sort(key=_key, reverse=True)
    page = found[:limit]
    return SearchResult(page, _key(page[-1]) if page else None, len(found) > limit, scanned=len(ids))


def _make_query(filter: Filter, statuses: frozenset[Status], before: InstanceKey | None, limit: int) -> InstanceQuery:
    sure = not _must_check_rows(filter)
    return InstanceQuery(
        statuses=statuses,
        owned=bool(filter.worker.any),
        retrying=filter.retrying is True and not filter.worker.any,
        workflow=_required_text(filter.workflow),
        instance=_required_text(filter.id),
        created_after=filter.created_after or 0,
        before=before,
        window=_FIRST_WINDOW,
        limit=limit + 1 if sure else _PORTION,
    )


def _must_check_rows(filter: Filter) -> bool:
    """Not everything that the store gives fits."""
    wishes = (filter.workflow, filter.id, filter.worker, filter.waits, filter.words)
    return any(wishes) or filter.by_content or filter.retrying is not None or filter.overdue is not None


def _required_text(term: FilterTerm) -> str | None:
    """A text that must be in what a sole pattern fits."""
    if len(term.any) != 1:
        return None
    return max(term.any[0].split("*"), key=len) or None


class _ListSearch:
    """A search along the store's lists."""

    def __init__(self, store: Store, filter: Filter, now: int, limit: int, deadline: float) -> None:
        self._store = store
        self._filter = filter
        self._now = now
        self._limit = limit
        self._deadline = deadline
        self._hits: list[InstanceListRow] = []
        self._scanned = 0

    async def run(self, query: InstanceQuery) -> SearchResult:
        """Go on until the page is full, the lists are at their end, or the time is over."""
        while True:
            surveyed = await self._store.scan_instances(query)
            at = await self._add_matches(surveyed.rows, query.before)
            if len(self._hits) > self._limit:
                page = self._hits[: self._limit]
                return SearchResult(page, _key(page[-1]), has_more=True, scanned=self._scanned)
            over = monotonic() > self._deadline
            if at is not None:  # the time was over among the lines
                return SearchResult(self._hits, at, has_more=True, stopped=True, scanned=self._scanned)
            if surveyed.end is None:
                return SearchResult(self._hits, scanned=self._scanned)
            if over:
                return SearchResult(self._hits, surveyed.end, has_more=True, stopped=True, scanned=self._scanned)
            window = min(2 * query.window, _LARGEST_WINDOW)
            query = replace(query, before=surveyed.end, window=window)

    async def _add_matches(self, rows: Sequence[InstanceListRow], before: InstanceKey | None) -> InstanceKey | None:
        """Decide about lines; where the time was over, if it was."""
        for start in range(0, len(rows), _CONTENTS):
            portion = rows[start : start + _CONTENTS]
            self._hits += await select_matching(self._store, self._filter, portion, self._now)
            self._scanned += len(portion)
            if len(self._hits) > self._limit:
                return None
            if self._filter.by_content and monotonic() > self._deadline and start + _CONTENTS < len(rows):
                return _key(portion[-1])
        return None


async def select_matching(store: Store, filter: Filter, rows: Sequence[InstanceListRow], now: int) -> list[InstanceListRow]:
    """Those of the lines that fit."""
    fit = [line for line in rows if filter.fits(line.row, line.waits, now)]
    if not filter.by_content or not fit:
        return fit
    contents = await store.contents([line.row.instance_id for line in fit])
    found: list[InstanceListRow] = []
    for line in fit:
        content = contents.get(line.row.instance_id)
        if content is not None:
            error = "" if content.error is None else error_line(content.error)
            if filter.fits_content(value_of(content.input), error):
                found.append(line)
    return found


def _key(row: InstanceListRow) -> InstanceKey:
    return row.row.created_at, row.row.instance_id
