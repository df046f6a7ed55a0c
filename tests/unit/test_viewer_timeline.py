"""The timeline: a function from spans to rows of SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romancy.admin.records import Timeline, TimelineSpan
from romancy.model.instance import JournalLine
from romancy.viewer.timeline.rows import FoldedRows, OperationRow, fold_rows, rows_of
from romancy.viewer.timeline.scale import build_scale
from romancy.viewer.timeline.svg import describe_span, draw_timeline

MS = 1000
SECOND = 1000 * MS
DAY = 86_400 * SECOND


def span(row: str, start: int, end: int | None, kind: str = "activity", outcome: str = "ok", **more: Any) -> TimelineSpan:
    return TimelineSpan(row, row.partition(":")[0], kind, outcome, start, end, **more)


def timeline(
    *spans: TimelineSpan, ended_at: int | None = None, now: int = 0, marks: list[JournalLine] | None = None
) -> Timeline:
    return Timeline(0, ended_at, now or ended_at or 0, list(spans), marks or [])


def test_without_idle_time_the_scale_is_linear() -> None:
    drawn = build_scale(timeline(span("a:1", 0, 10), span("b:1", 10, 40), ended_at=40))
    assert [drawn.position(at) for at in (0, 10, 20, 40)] == [0, 25, 50, 100]
    assert not drawn.gaps()


def test_a_month_of_sleep_becomes_a_break_of_its_true_length() -> None:
    line = timeline(
        span("a:1", 0, SECOND),
        span("sleep:1", SECOND, SECOND + 30 * DAY, "timer"),
        span("b:1", SECOND + 30 * DAY, 2 * SECOND + 30 * DAY),
        ended_at=2 * SECOND + 30 * DAY,
    )
    (gap,) = build_scale(line).gaps()
    assert gap.length == 30 * DAY
    assert gap.right - gap.left < 10
    assert [one.label for one in draw_timeline(line).gaps] == ["30 d"]
    first, second = build_scale(line).position(SECOND), build_scale(line).position(SECOND + 30 * DAY)
    assert first == pytest.approx(100 - second, abs=1e-6)  # both seconds have the same width


def test_a_shorter_sleep_beside_a_long_one_becomes_a_break_too() -> None:
    line = timeline(
        span("a:1", 0, SECOND),
        span("b:1", DAY, DAY + SECOND),
        span("c:1", 40 * DAY, 40 * DAY + SECOND),
        ended_at=40 * DAY + SECOND,
    )
    assert len(build_scale(line).gaps()) == 2


def test_a_break_can_be_opened_and_all_can() -> None:
    line = timeline(span("a:1", 0, SECOND), span("b:1", DAY, DAY + SECOND), ended_at=DAY + SECOND)
    assert build_scale(line, [SECOND]).gaps() == build_scale(line, None).gaps() == []
    assert len(build_scale(line, [5]).gaps()) == 1


def test_time_in_which_only_waiting_happens_is_not_broken_away_altogether() -> None:
    line = timeline(span("sleep:1", 0, None, "timer", "open"), now=DAY)
    assert build_scale(line).gaps() == []
    assert build_scale(line).position(DAY) == 100


def test_many_breaks_share_less_than_half_of_the_width() -> None:
    starts = [4**number * SECOND for number in range(14)]
    line = timeline(*(span(f"a:{start}", start, start + MS) for start in starts), ended_at=starts[-1] + MS)
    gaps = build_scale(line).gaps()
    assert len(gaps) == 12
    assert sum(one.right - one.left for one in gaps) == pytest.approx(45)


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12), st.booleans()), max_size=20), st.integers(0, 10**12)
)
def test_places_never_run_backwards_and_stay_inside(given: list[tuple[int, int, bool]], now: int) -> None:
    spans = [
        span(f"a:{number}", min(pair), None if is_open else max(pair), outcome="open" if is_open else "ok")
        for number, (*pair, is_open) in enumerate(given)
    ]
    drawn = build_scale(timeline(*spans, now=now))
    times = sorted({drawn.start, drawn.end, *(one.start for one in spans), *(one.end for one in spans if one.end)})
    places = [drawn.position(at) for at in times]
    assert places == sorted(places)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)
    for tick in drawn.ticks():
        assert 0 <= tick.left <= 100 + 1e-6


def test_attempts_of_one_operation_share_a_row() -> None:
    spans = [
        span("charge:1", 0, 5, outcome="error", attempt=1),
        span("charge:1", 5, 9, "backoff", attempt=1),
        span("charge:1", 9, 12, attempt=2),
    ]
    (row,) = rows_of(spans)
    assert (row.attempts, row.outcome, row.kind) == (2, "ok", "activity")
    (line,) = draw_timeline(timeline(*spans, ended_at=12)).done
    assert line.note == "×2"
    assert line.track.count('class="bar') == 2
    assert line.track.count('class="hatch') == 1


def test_more_than_five_of_a_name_fold_with_the_troubled_first() -> None:
    spans = [span(f"send:{number}", number, number + 1, outcome="error" if number == 6 else "ok") for number in range(8)]
    (group,) = fold_rows(rows_of(spans))
    assert isinstance(group, FoldedRows)
    assert group.rows[0].key == "send:6"
    assert group.outcome == "error"
    assert all(isinstance(one, OperationRow) for one in fold_rows(rows_of(spans[:5])))


def test_what_was_undone_stands_in_a_lane_of_its_own() -> None:
    drawing = draw_timeline(timeline(span("a:1", 0, 5), span("compensate:a:1", 6, 9, "compensation"), ended_at=9))
    assert [line.name for line in drawing.done] == ["a"]
    assert [line.kind for line in drawing.compensations] == ["compensation"]
    assert "t-rollback" in drawing.compensations[0].track


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (span("charge:1", 0, 1_200_000, outcome="error", attempt=2), "charge, attempt 2, failed after 1.2 s"),
        (span("charge:1", 0, 3 * MS, "backoff"), "charge, backing off for 3 ms"),
        (span("paid:1", 0, None, "event", "open"), "paid, event, waiting for 10 s"),
        (span("nap:1", 0, None, "timer", "open", due=15 * SECOND), "nap, timer, waiting for 10 s, due in 5 s"),
        (
            span("a:1", 0, 5 * MS, "compensation", attempt=1, note="compensates b:1"),
            "compensation: a, attempt 1, completed after 5 ms, compensates b:1",
        ),
        (span("send:1", 5, 5, "effect", worker_id="w1"), "send, effect, completed, on w1"),
    ],
)
def test_each_span_says_what_it_is(one: TimelineSpan, words: str) -> None:
    assert describe_span(one, 10 * SECOND) == words


def test_the_drawing_is_well_formed_whatever_names_hold() -> None:
    evil = "<script>&\"'\0\u202e\ud800"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=3)
    marks = [JournalLine(at, "lost", evil, evil, 1), JournalLine(at, "claimed", "", evil, 2)]
    kinds = ["activity", "backoff", "event", "message", "timer", "queue", "compensation", "effect", "news"]
    spans = [span(f"{evil}:{kind}", 0, None, kind, "open", note=evil, worker_id=evil) for kind in kinds]
    drawing = draw_timeline(timeline(*spans, now=DAY, marks=marks), link='instance?id="<', open_link='instance?"')
    for markup in (drawing.axis, drawing.owners, *(line.track for line in [*drawing.done, *drawing.compensations])):
        tree = ET.fromstring(str(markup))
        assert not tree.findall(".//script")
        assert not re.search("[\0\u202e\ud800]", markup)


def test_owners_are_told_from_the_journal() -> None:
    begun = datetime(1970, 1, 1, tzinfo=UTC)
    marks = [
        JournalLine(begun + timedelta(microseconds=10), "lost", "", "w1", 1),
        JournalLine(begun + timedelta(microseconds=20), "claimed", "", "w2", 2),
    ]
    drawing = draw_timeline(timeline(span("a:1", 0, 30, worker_id="w1"), ended_at=30, marks=marks))
    assert re.findall(r'aria-label="(owned by worker \w+ for [^"]+)"', drawing.owners) == [
        "owned by worker w1 for 0.01 ms",
        "owned by worker w2 for 0.01 ms",
    ]


def test_rows_beyond_the_limit_are_counted() -> None:
    drawing = draw_timeline(
        timeline(*(span(f"n{number}:1", number, number + 1) for number in range(30)), ended_at=40), limit=20
    )
    assert (len(drawing.done), drawing.left_out) == (20, 10)
