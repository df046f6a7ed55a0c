"""Draws what happened in an instance: one row for each operation, time from left to right.

    shape   kind       ▆ attempt   ░ back-off   ◷──⚑ sleep   ╌ the owner is dead
    colour  outcome    also shown as ✓ or ✗ at the end of the row

Compensations have a lane of their own, under the name of the compensated activity. A pure function of an `InstanceRecord`
and a width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from romancy import HistoryEntry
from romancy.clock import MICROS, to_micros
from romancy.demo.records import InstanceRecord
from romancy.demo.terminal import Colour, paint, plain

_MARGIN = "   "
_LABEL = 13
_TRIES = 3
_RESULT = 9
_TICK_SPACE = 9
"""Columns that a tick of the axis needs, including its label."""

LEGEND = (
    "▆ attempt   ░ back-off   ◷──⚑ sleep   ╌ its owner is dead",
    "✗ killed    ×2 attempts  ↩ reverses   ┊ kill -9",
)


@dataclass(frozen=True, slots=True)
class Span:
    """A period, drawn with one character; the first and the last one may differ."""

    start: int
    end: int
    fill: str
    colour: Colour
    first: str = ""
    last: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the drawing."""

    label: str
    spans: Sequence[Span]
    tries: int = 1
    result: str = ""
    colour: Colour | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps times to columns."""

    start: int
    end: int
    columns: int

    def column(self, at: int, *, past: bool = False) -> int:
        """Return the column that begins at a time or, with `past`, ends there."""
        share = (at - self.start) / max(self.end - self.start, 1)
        return min(max(round(share * self.columns) - past, 0), self.columns - 1)


@dataclass(slots=True)
class Canvas:
    """The columns of one row."""

    scale: Scale
    cells: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.cells = [" "] * self.scale.columns

    def draw(self, span: Span) -> None:
        """Draw a span, which takes at least one column."""
        first = self.scale.column(span.start)
        last = max(self.scale.column(span.end, past=True), first)
        text = next((text for text in (span.text, span.text.strip()) if len(text) < last - first), "")
        for column in range(first, last + 1):
            self.cells[column] = paint(span.fill, span.colour)
        for offset, character in enumerate(text):
            self.cells[first + 1 + offset] = paint(character, span.colour)
        if span.first and first < last:
            self.cells[first] = paint(span.first, span.colour)
        if span.last:
            self.cells[last] = paint(span.last, span.colour)

    def mark(self, at: int) -> None:
        """Draw a vertical line if the column is empty."""
        column = self.scale.column(at, past=True)
        if self.cells[column] == " ":
            self.cells[column] = paint("┊", Colour.FAILED)

    def __str__(self) -> str:
        return "".join(self.cells)


def draw(record: InstanceRecord, width: int) -> list[str]:
    """Draw the timeline of an instance."""
    start, end = _bounds(record)
    columns = width - len(_MARGIN) - _LABEL - _TRIES - _RESULT - 3
    scale = Scale(start, end, columns)
    forward, back = _rows(record, "activity", "timer"), _rows(record, "compensation")
    rows = [Row("owner", list(_owners(record, end))), *forward]
    lines = [_title(record, end - start, width), _axis(scale), *(_line(row, scale, record) for row in rows)]
    if back:
        rule = "rollback " + "─" * (len(_MARGIN) + _LABEL + _TRIES + columns - len("rollback "))
        lines += [_MARGIN + paint(rule, Colour.ROLLBACK), *(_line(row, scale, record) for row in back)]
    return lines


def _bounds(record: InstanceRecord) -> tuple[int, int]:
    instance = record.instance
    return to_micros(instance.created_at), to_micros(instance.ended_at or instance.updated_at)


def _title(record: InstanceRecord, lasted: int, width: int) -> str:
    instance = record.instance
    good = instance.status == "completed"
    result = paint(f"{'✓' if good else '✗'} {instance.status}", Colour.OK if good else Colour.FAILED)
    reason = f": {instance.error.message}" if instance.error is not None else ""
    name = paint(instance.instance_id, Colour.STRONG)
    title = f"{_MARGIN}{name}  {instance.workflow_name}  {result} after {_seconds(lasted)}"
    return title + _cut(reason, width - len(plain(title)))


def _axis(scale: Scale) -> str:
    step = _step(scale)
    cells = [" "] * (scale.columns + _TICK_SPACE)
    for tick in range(0, scale.end - scale.start + 1, step):
        text = f"{tick / MICROS:g} s"
        column = scale.column(scale.start + tick)
        cells[column : column + len(text)] = text
    return paint((_MARGIN + " " * (_LABEL + _TRIES) + "".join(cells)).rstrip(), Colour.PALE)


def _step(scale: Scale) -> int:
    """Return the smallest round step whose labels do not overlap."""
    most = max(scale.columns // _TICK_SPACE, 1)
    power = MICROS // 10
    while True:
        for factor in (1, 2, 5):
            if (scale.end - scale.start) / (power * factor) <= most:
                return power * factor
        power *= 10


def _line(row: Row, scale: Scale, record: InstanceRecord) -> str:
    canvas = Canvas(scale)
    for span in row.spans:
        canvas.draw(span)
    if record.kill is not None:
        canvas.mark(record.kill.at)
    label = _cut(row.label, _LABEL - 1)
    tries = f"×{row.tries}" if row.tries > 1 else ""
    return f"{_MARGIN}{label:<{_LABEL}}{tries:<{_TRIES}}{canvas}  {paint(row.result, row.colour)}".rstrip()


def _rows(record: InstanceRecord, *kinds: str) -> list[Row]:
    entries = [entry for entry in record.history if entry.kind in kinds]
    return [_row(record, entry) for entry in sorted(entries, key=_scheduled)]


def _scheduled(entry: HistoryEntry) -> tuple[datetime, int]:
    # A compensation has the schedule time of its activity, so it is sorted by the time at which it was recorded.
    at = entry.at if entry.kind == "compensation" else entry.scheduled_at or entry.at
    return at, entry.seq


def _row(record: InstanceRecord, entry: HistoryEntry) -> Row:
    good = entry.outcome == "ok"
    spans = list(_timer(entry) if entry.kind == "timer" else _attempts(record, entry))
    works = sum(span.fill == "▆" for span in spans)
    compensated = entry.activity_id.removeprefix("compensate:")
    return Row(
        label=f"↩ {compensated}" if entry.kind == "compensation" else entry.activity_id,
        spans=spans,
        tries=works,
        result=f"{'✓' if good else '✗'} {_seconds(spans[-1].end - spans[0].start)}",
        colour=Colour.OK if good else Colour.FAILED,
    )


def _timer(entry: HistoryEntry) -> Iterator[Span]:
    start = to_micros(entry.scheduled_at or entry.at)
    yield Span(start, to_micros(entry.at), "─", Colour.WAITING, first="◷", last="⚑")


def _attempts(record: InstanceRecord, entry: HistoryEntry) -> Iterator[Span]:
    kill = record.kill
    if kill is not None and kill.attempt.op == entry.activity_id:
        yield Span(kill.attempt.started_at, kill.at, "▆", Colour.FAILED, last="✗")
    for failed in record.attempts:
        if failed.op == entry.activity_id:
            ended = failed.ended_at or failed.started_at
            yield Span(ended, failed.next_at or ended, "░", Colour.RETRY)
            yield Span(failed.started_at, ended, "▆", Colour.FAILED)
    start, end = to_micros(entry.started_at or entry.at), to_micros(entry.ended_at or entry.at)
    yield Span(start, end, "▆", _colour(entry))


def _colour(entry: HistoryEntry) -> Colour:
    if entry.outcome != "ok":
        return Colour.FAILED
    return Colour.ROLLBACK if entry.kind == "compensation" else Colour.OK


def _owners(record: InstanceRecord, end: int) -> Iterator[Span]:
    """Return the periods of ownership: from each claim until the owner was lost, or to the end."""
    claims = [line for line in record.journal if line.note.kind == "claimed"]
    for claim, after in zip(claims, [*claims[1:], None], strict=True):
        until = after.at if after is not None else end
        text = f" {worker_name(claim.worker)} "
        kill = record.kill
        if kill is not None and claim.worker == kill.attempt.worker:
            yield Span(kill.at, until, "╌", Colour.PALE)
            yield Span(claim.at, kill.at, "─", Colour.WORK, first="├", last="✗", text=text)
        else:
            yield Span(claim.at, until, "─", Colour.WORK, first="├", last="┤", text=text)


def worker_name(worker_id: str) -> str:
    """Return the label of a worker, without its incarnation."""
    return worker_id.partition("/")[0]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _seconds(micros: int) -> str:
    return f"{micros / MICROS:.2f} s"
