"""Histories as spans of time."""

from __future__ import annotations

from typing import Any

from tests.admin.test_filters import row

from romancy.admin.records import Timeline, TimelineSpan
from romancy.admin.timeline import build_timeline
from romancy.model.history import AttemptRow, Entry, Kind, Outcome, Role
from romancy.model.transition import Wait, WaitKind


def drawn(
    *entries: Entry, attempts: tuple[AttemptRow, ...] = (), waits: tuple[Wait, ...] = (), now: int = 100_000
) -> Timeline:
    return build_timeline(row(), entries, attempts, waits, [], begun_at=0, now=now)


def spans(*entries: Entry, **more: Any) -> list[tuple[str, str, str, int, int | None]]:
    return [(one.row, one.kind, one.outcome, one.start, one.end) for one in drawn(*entries, **more).spans]


def done(seq: int, op: str, start: int, end: int, **more: Any) -> Entry:
    given: dict[str, Any] = {"name": op.partition(":")[0], "attempt": 1, "scheduled_at": start}
    return Entry(seq, Kind.ACTIVITY, op, Outcome.OK, end, started_at=start, ended_at=end, **(given | more))


def failed(op: str, number: int, start: int, end: int, next_at: int) -> AttemptRow:
    return AttemptRow(op, number, op.partition(":")[0], False, "w", 1, "", start, start, end, next_at, b"{}")


def test_an_activity_that_had_to_wait_for_its_turn() -> None:
    assert spans(done(1, "charge:1", 5000, 9000, scheduled_at=1000)) == [
        ("charge:1", "queue", "ok", 1000, 5000),
        ("charge:1", "activity", "ok", 5000, 9000),
    ]


def test_attempts_and_back_offs_share_the_row_of_their_operation() -> None:
    entry = done(1, "charge:1", 40_000, 41_000, attempt=3, scheduled_at=1000)
    before = (failed("charge:1", 1, 1000, 2000, 10_000), failed("charge:1", 2, 10_000, 12_000, 40_000))
    assert spans(entry, attempts=before) == [
        ("charge:1", "activity", "error", 1000, 2000),
        ("charge:1", "backoff", "ok", 2000, 10_000),
        ("charge:1", "activity", "error", 10_000, 12_000),
        ("charge:1", "backoff", "ok", 12_000, 40_000),
        ("charge:1", "activity", "ok", 40_000, 41_000),
    ]


def test_what_is_open_has_no_end_but_may_be_due() -> None:
    attempts = (failed("charge:1", 1, 1000, 2000, 900_000),)
    waits = (
        Wait("timer:1", WaitKind.TIMER, 3000, 700_000),
        Wait("paid:1", WaitKind.EVENT, 4000, key="paid", subject="42"),
        Wait("charge:1", WaitKind.RETRY, 1000, 900_000),
    )
    found = drawn(attempts=attempts, waits=waits).spans
    assert [(one.row, one.kind, one.outcome, one.end, one.due) for one in found] == [
        ("charge:1", "activity", "error", 2000, None),
        ("charge:1", "backoff", "open", None, 900_000),
        ("timer:1", "timer", "open", None, 700_000),
        ("paid:1", "event", "open", None, None),
    ]
    assert (found[3].name, found[3].note) == ("paid", "subject 42")


def test_rows_stand_in_the_order_in_which_they_were_asked_for() -> None:
    late = done(1, "b:1", 2000, 3000)
    early = done(2, "a:1", 1000, 9000)
    assert [one.row for one in drawn(late, early).spans] == ["a:1", "b:1"]


def test_a_compensation_names_what_it_undoes() -> None:
    undo = Entry(
        2,
        Kind.COMPENSATION,
        "compensate:charge:1",
        Outcome.OK,
        9000,
        "refund",
        Role.OUT_OF_BAND,
        started_at=8000,
        ended_at=9000,
    )
    (span,) = drawn(undo).spans
    assert (span.kind, span.name, span.note) == ("compensation", "refund", "compensates charge:1")


def test_waits_that_ended_and_effects() -> None:
    event = Entry(1, Kind.EVENT, "paid:1", Outcome.ERROR, 5000, "paid", scheduled_at=1000)
    said = Entry(2, Kind.SEND_EVENT, "send:1", Outcome.OK, 6000, "send_event:sent", Role.OUT_OF_BAND)
    cancel = Entry(3, Kind.CANCEL, "", Outcome.OK, 7000)
    assert spans(event, said, cancel) == [
        ("paid:1", "event", "error", 1000, 5000),
        ("send:1", "effect", "ok", 6000, 6000),
        ("cancel:3", "effect", "ok", 7000, 7000),
    ]


def test_clocks_that_differ_never_give_a_negative_stretch() -> None:
    (span,) = drawn(done(1, "charge:1", 9000, 5000)).spans
    assert span == TimelineSpan(
        "charge:1", "charge", "activity", "ok", 5000, 5000, attempt=1, seq=1, note="clock skew", worker_id="", epoch=0
    )


def test_what_a_retry_set_aside_says_so() -> None:
    (span,) = drawn(done(1, "charge:1", 1000, 2000, role=Role.DISCARDED)).spans
    assert span.note == "discarded by a retry of the instance"
