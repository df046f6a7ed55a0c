"""Builds the timeline of one generation: spans of time from its history, its attempts, its waits and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from romancy.admin.records import Timeline, TimelineSpan
from romancy.model.history import EFFECTS, STORE_CALLS, WAITS, AttemptRow, Entry, Kind, Role
from romancy.model.instance import InstanceRow, JournalLine
from romancy.model.transition import Wait, WaitKind

_COMPENSATE = "compensate:"
_NOTABLE_QUEUE = 1000
"""Microseconds from which the wait of an attempt for a slot is drawn."""
_ASIDE = {Role.RETAINED: "kept by a retry of the instance", Role.DISCARDED: "discarded by a retry of the instance"}
_KINDS = {WaitKind.EVENT: "event", WaitKind.MESSAGE: "message", WaitKind.TIMER: "timer", WaitKind.RETRY: "backoff"}


def build_timeline(
    row: InstanceRow,
    entries: Sequence[Entry],
    attempts: Sequence[AttemptRow],
    waits: Sequence[Wait],
    marks: Sequence[JournalLine],
    *,
    begun_at: int,
    now: int,
    cut: bool = False,
) -> Timeline:
    """Return the timeline of one generation."""
    spans = [
        *(span for entry in entries for span in _entry_spans(entry)),
        *(span for attempt in attempts for span in _attempt_spans(attempt, _is_last(attempt, attempts), now)),
        *(_wait_span(wait) for wait in waits if wait.kind is not WaitKind.RETRY),
    ]
    return Timeline(begun_at, row.ended_at, now, _in_order(spans), list(marks), cut)


def _in_order(spans: Iterable[TimelineSpan]) -> list[TimelineSpan]:
    """Sort the spans by row, and within a row by time. Rows are in the order in which their operations began."""
    listed = list(spans)
    first: dict[str, int] = {}
    for span in listed:
        first[span.row] = min(span.start, first.get(span.row, span.start))
    return sorted(listed, key=lambda span: (first[span.row], span.row, span.start, span.attempt, span.seq))


def _entry_spans(entry: Entry) -> Iterator[TimelineSpan]:
    end = entry.ended_at if entry.ended_at is not None else entry.at
    if entry.kind in (Kind.ACTIVITY, Kind.COMPENSATION):
        start = entry.started_at if entry.started_at is not None else end
        yield from _queue(entry, start)
        yield _span(entry, "activity" if entry.kind is Kind.ACTIVITY else "compensation", start, end)
    elif entry.kind in WAITS or entry.kind is Kind.TIMER:
        start = entry.scheduled_at if entry.scheduled_at is not None else entry.at
        yield _span(entry, entry.kind.value, start, entry.at)
    elif entry.kind in EFFECTS | STORE_CALLS:
        yield _span(entry, "effect", entry.at, entry.at)
    elif entry.kind in (Kind.CANCEL, Kind.TIMEOUT, Kind.RETRY):
        yield TimelineSpan(f"{entry.kind}:{entry.seq}", entry.kind.value, "effect", "ok", entry.at, entry.at, seq=entry.seq)


def _queue(entry: Entry, start: int) -> Iterator[TimelineSpan]:
    """Yield the time in the queue before the first attempt, if it is notable. Later attempts follow a back-off instead."""
    scheduled = entry.scheduled_at
    if scheduled is not None and entry.attempt <= 1 and start - scheduled >= _NOTABLE_QUEUE:
        yield TimelineSpan(entry.op, entry.name, "queue", "ok", scheduled, start, site=entry.site, seq=entry.seq)


def _span(entry: Entry, kind: str, start: int, end: int) -> TimelineSpan:
    compensated = entry.op.removeprefix(_COMPENSATE)
    notes = [f"compensates {compensated}" if entry.kind is Kind.COMPENSATION else "", _ASIDE.get(entry.role, "")]
    notes.append("clock skew" if start > end else "")
    return TimelineSpan(
        row=entry.op,
        name=entry.name or entry.op.rpartition(":")[0] or entry.op,
        kind=kind,
        outcome=entry.outcome.value,
        start=min(start, end),
        end=end,
        attempt=entry.attempt,
        worker_id=entry.worker,
        epoch=entry.epoch,
        site=entry.site,
        seq=entry.seq,
        note="; ".join(filter(None, notes)),
    )


def _attempt_spans(attempt: AttemptRow, last: bool, now: int) -> Iterator[TimelineSpan]:
    kind = "compensation" if attempt.op.startswith(_COMPENSATE) else "activity"
    scheduled = attempt.scheduled_at
    if attempt.attempt == 1 and attempt.started_at - scheduled >= _NOTABLE_QUEUE:
        yield TimelineSpan(attempt.op, attempt.name, "queue", "ok", scheduled, attempt.started_at, site=attempt.site)
    yield TimelineSpan(
        row=attempt.op,
        name=attempt.name,
        kind=kind,
        outcome="open" if attempt.open else "error",
        start=attempt.started_at,
        end=None if attempt.open else attempt.ended_at,
        attempt=attempt.attempt,
        worker_id=attempt.worker,
        epoch=attempt.epoch,
        site=attempt.site,
    )
    if attempt.next_at is not None and attempt.ended_at is not None:
        still = last and attempt.next_at > now
        yield TimelineSpan(
            row=attempt.op,
            name=attempt.name,
            kind="backoff",
            outcome="open" if still else "ok",
            start=attempt.ended_at,
            end=None if still else max(attempt.ended_at, attempt.next_at),
            attempt=attempt.attempt,
            site=attempt.site,
            due=attempt.next_at,
        )


def _is_last(attempt: AttemptRow, attempts: Sequence[AttemptRow]) -> bool:
    return not any(other.op == attempt.op and other.attempt > attempt.attempt for other in attempts)


def _wait_span(wait: Wait) -> TimelineSpan:
    name = wait.key or wait.op.rpartition(":")[0] or wait.op
    note = "" if wait.subject is None else f"subject {wait.subject}"
    return TimelineSpan(wait.op, name, _KINDS[wait.kind], "open", wait.since, None, site=wait.site, note=note, due=wait.due)
