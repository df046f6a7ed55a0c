"""The search for instances that match a filter, newest first and within a time limit.

If an index covers a term of the filter (ids, waits, overdue instances), the store returns the ids of the candidates, unless
they are too many. For other filters the search scans the store's list of instances from a key downwards, in windows. This
module checks the conditions that the store does not.
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
"""Seconds after which a search returns what it has found."""
_MOST_IDS = 2000
"""The most ids that are read and sorted; if there are more, the search scans the list instead."""
_FIRST_WINDOW, _LARGEST_WINDOW = 2000, 20_000
_PORTION = 500
"""The number of instances that are checked at a time."""
_CONTENTS = 100
"""The number of instances whose payloads are read at a time."""
_WITH_ERROR = frozenset({Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The instances that match, the key at which the search ended, and whether there may be more."""

    rows: list[InstanceListRow]
    end: InstanceKey | None = None
    has_more: bool = False
    stopped: bool = False
    """The time limit was reached before the page was full."""
    scanned: int = 0


async def search(store: Store, filter: Filter, *, now: int, before: InstanceKey | None, limit: int) -> SearchResult:
    """Return up to `limit` instances below a key that match."""
    statuses = _possible_statuses(filter)
    if not statuses:
        return SearchResult([])
    start = _upper_bound(before, filter.created_before)
    ids = await _ids_from_index(store, filter, now)
    if ids is not None and len(ids) <= _MOST_IDS:
        return await _search_ids(store, filter, ids, now=now, before=start, limit=limit)
    scan = _ListSearch(store, filter, now, limit, monotonic() + TIME_BOX)
    query = _make_query(filter, statuses, start, limit)
    if len(filter.words.any) == 1:  # the beginning of an id if there is such an id, otherwise a part of a workflow's name
        word = filter.words.any[0]
        query = replace(query, instance=word) if ids else replace(query, workflow=query.workflow or word)
    return await scan.run(query)


def _possible_statuses(filter: Filter) -> frozenset[Status]:
    """Return the statuses that a matching instance can have."""
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
    """Return the ids of all candidates; None if no index gives them. More than `_MOST_IDS` ids may be incomplete."""
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
    """Return the ids from all queries. Once there are too many ids, the remaining queries are not run."""
    found: list[str] = []
    for query in queries:
        if len(found) <= _MOST_IDS:
            found += await query()
    return found


def _is_prefix_pattern(pattern: str) -> bool:
    return "*" not in pattern[:-1] and len(pattern) > 1


async def _by_id(store: Store, pattern: str, limit: int) -> list[str]:
    return await store.ids_by_prefix(pattern[:-1], limit=limit) if pattern.endswith("*") else [pattern]


async def _search_ids(
    store: Store, filter: Filter, ids: Sequence[str], *, now: int, before: InstanceKey | None, limit: int
) -> SearchResult:
    """Search the instances with these ids."""
    found: list[InstanceListRow] = []
    ids = list(dict.fromkeys(ids))
    for start in range(0, len(ids), _PORTION):
        rows = await store.rows_by_id(ids[start : start + _PORTION])
        below = [row for row in rows if before is None or _key(row) < before]
        found += await select_matching(store, filter, below, now)
    found.sort(key=_key, reverse=True)
    page = found[:limit]
    return SearchResult(page, _key(page[-1]) if page else None, len(found) > limit, scanned=len(ids))


def _make_query(filter: Filter, statuses: frozenset[Status], before: InstanceKey | None, limit: int) -> InstanceQuery:
    exact = not _must_check_rows(filter)
    return InstanceQuery(
        statuses=statuses,
        owned=bool(filter.worker.any),
        retrying=filter.retrying is True and not filter.worker.any,
        workflow=_required_text(filter.workflow),
        instance=_required_text(filter.id),
        created_after=filter.created_after or 0,
        before=before,
        window=_FIRST_WINDOW,
        limit=limit + 1 if exact else _PORTION,
    )


def _must_check_rows(filter: Filter) -> bool:
    """Return whether the store may return instances that do not match."""
    terms = (filter.workflow, filter.id, filter.worker, filter.waits, filter.words)
    return any(terms) or filter.by_content or filter.retrying is not None or filter.overdue is not None


def _required_text(term: FilterTerm) -> str | None:
    """Return a text that is part of every match, if there is a single pattern; otherwise None."""
    if len(term.any) != 1:
        return None
    return max(term.any[0].split("*"), key=len) or None


class _ListSearch:
    """A search that scans the store's list of instances."""

    def __init__(self, store: Store, filter: Filter, now: int, limit: int, deadline: float) -> None:
        self._store = store
        self._filter = filter
        self._now = now
        self._limit = limit
        self._deadline = deadline
        self._hits: list[InstanceListRow] = []
        self._scanned = 0

    async def run(self, query: InstanceQuery) -> SearchResult:
        """Scan until the page is full, the list ends, or the time limit is reached."""
        while True:
            scanned = await self._store.scan_instances(query)
            at = await self._add_matches(scanned.rows, query.before)
            if len(self._hits) > self._limit:
                page = self._hits[: self._limit]
                return SearchResult(page, _key(page[-1]), has_more=True, scanned=self._scanned)
            over = monotonic() > self._deadline
            if at is not None:  # the time limit was reached within the rows
                return SearchResult(self._hits, at, has_more=True, stopped=True, scanned=self._scanned)
            if scanned.end is None:
                return SearchResult(self._hits, scanned=self._scanned)
            if over:
                return SearchResult(self._hits, scanned.end, has_more=True, stopped=True, scanned=self._scanned)
            window = min(2 * query.window, _LARGEST_WINDOW)
            query = replace(query, before=scanned.end, window=window)

    async def _add_matches(self, rows: Sequence[InstanceListRow], before: InstanceKey | None) -> InstanceKey | None:
        """Add the rows that match; return the key of the last checked row if the time limit was reached, otherwise None."""
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
    """Return the rows that match."""
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
