"""Draws the timeline as SVG. The shape shows the kind of a span, the colour its outcome.

activity       solid bar              event, message   hollow bar
back-off       hatched bar            timer            thin line with a flag where it is due
queue          hairline               compensation     bar with a notch, in the rollback lane
effect         small diamond          open end         dashed up to now
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from romancy.admin.records import Timeline, TimelineSpan
from romancy.clock import to_micros
from romancy.model.instance import JournalLine
from romancy.viewer import formatters
from romancy.viewer.html_text import Markup, attribute
from romancy.viewer.timeline.rows import FoldedRows, OperationRow, fold_rows, rows_of, split_compensations
from romancy.viewer.timeline.scale import BUSY, ScaleSegment, Tick, TimeScale, build_scale

ROWS = 200
"""Most rows that a page draws."""
_THIN = 0.45
"""The least width of a bar in percent: about three pixels."""
_HEIGHT = 24
_MIDDLE = _HEIGHT / 2

_PAST = {"ok": "completed", "error": "failed", "cancelled": "cancelled"}
_KINDS = {"event": "event", "message": "message", "timer": "timer", "effect": "effect"}
_OPEN = {"activity": "running", "compensation": "running", "backoff": "backing off", "queue": "queued"}
ICONS = {
    "activity": "play",
    "event": "envelope",
    "message": "envelope",
    "timer": "clock",
    "compensation": "revert",
    "effect": "send",
}


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A drawn row; `lines` are the rows that it folds."""

    key: str
    name: str
    kind: str
    outcome: str
    note: str
    track: Markup
    lines: tuple[DrawnRow, ...] = ()

    @property
    def icon(self) -> str:
        """The icon of the kind."""
        return ICONS.get(self.kind, "dot")

    @property
    def tone(self) -> str:
        """The colour of the outcome."""
        return _tone(self.kind, self.outcome)


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap: its position, its duration as text, and the offset that expands it."""

    left: float
    right: float
    label: str
    offset: int


@dataclass(frozen=True, slots=True)
class TimelineDrawing:
    """A drawn timeline."""

    ticks: list[Tick]
    gaps: list[Gap]
    axis: Markup
    owners: Markup
    done: list[DrawnRow]
    compensations: list[DrawnRow]
    left_out: int
    """Number of rows that are not drawn."""
    cut: bool


def draw_timeline(
    timeline: Timeline, *, link: str = "", open_link: str = "", opened: Sequence[int] | None = (), limit: int = ROWS
) -> TimelineDrawing:
    """Draw a timeline. `link`: the target of spans; `open_link`: the target of gaps, to which the offset is appended."""
    sized = build_scale(timeline, opened)
    pen = _RowRenderer(sized, timeline, link, open_link)
    rows = rows_of(timeline.spans)
    done, compensations = split_compensations(rows[:limit])
    return TimelineDrawing(
        ticks=sized.ticks(),
        gaps=[Gap(one.left, one.right, formatters.micros(one.length), one.start - sized.start) for one in sized.gaps()],
        axis=pen.axis(),
        owners=pen.owners(),
        done=[pen.line(one) for one in fold_rows(done)],
        compensations=[pen.line(one) for one in fold_rows(compensations)],
        left_out=max(len(rows) - limit, 0),
        cut=timeline.cut,
    )


class _RowRenderer:
    """Draws rows on one scale."""

    def __init__(self, sized: TimeScale, timeline: Timeline, link: str, open_link: str) -> None:
        self.scale = sized
        self.timeline = timeline
        self.link = link
        self.open_link = open_link
        self._background = self._lines()

    def line(self, row: OperationRow | FoldedRows) -> DrawnRow:
        """Draw a row, or a fold of rows."""
        if isinstance(row, OperationRow):
            return DrawnRow(row.key, row.name, row.kind, row.outcome, _note(row), self._track(row.spans))
        spans = [span for one in row.rows for span in one.spans]
        lines = tuple(self.line(one) for one in row.rows)
        return DrawnRow(row.name, row.name, row.kind, row.outcome, _fold_note(row), self._overview(spans), lines)

    # --- the background

    def _lines(self) -> Markup:
        """Draw the background of every row: the ticks, the gaps and the current time."""
        ticks = [_upright("grid", tick.left) for tick in self.scale.ticks()]
        gaps = [_rect("gap", one.left, one.right - one.left, 0, _HEIGHT) for one in self.scale.gaps()]
        now = [] if self.timeline.ended_at is not None else [_upright("now", 99.9)]
        return Markup("").join([*gaps, *ticks, *now])

    def axis(self) -> Markup:
        """Draw the axis with its labels."""
        ticks = [
            Markup('<text class="{}" x="{:.3f}%" y="15" dx="3">{}</text>').format(_rank(tick), tick.left, tick.label)
            for tick in self.scale.ticks()
        ]
        gaps = [self._gap(one) for one in self.scale.gaps()]
        return self._svg(Markup("").join([*ticks, *gaps]), "axis")

    def _gap(self, piece: ScaleSegment) -> Markup:
        label = f"gap of {formatters.micros(piece.length)} in which nothing ran"
        text = '<a class="gap-link" href="{}{}" aria-label="Expand the {}"><title>{}</title>{}'
        caption = '<text class="gap-label" x="{:.3f}%" y="15" text-anchor="middle">{}</text></a>'
        return Markup(text + caption).format(
            self.open_link,
            piece.start - self.scale.start,
            label,
            label,
            _rect("reach", piece.left, piece.right - piece.left, 0, _HEIGHT),
            (piece.left + piece.right) / 2,
            formatters.rough(piece.length),
        )

    def _svg(self, inside: Markup, name: str = "") -> Markup:
        return Markup('<svg class="track {}" width="100%" height="{}">{}{}</svg>').format(
            name, _HEIGHT, self._background, inside
        )

    # --- rows

    def _track(self, spans: Sequence[TimelineSpan]) -> Markup:
        return self._svg(Markup("").join(self._span(one) for one in spans))

    def _overview(self, spans: Sequence[TimelineSpan]) -> Markup:
        """Draw the shapes of a fold without texts: the rows inside have them."""
        return self._svg(Markup('<g aria-hidden="true">{}</g>').format(Markup("").join(self._shape(one) for one in spans)))

    def _span(self, span: TimelineSpan) -> Markup:
        label = attribute(describe_span(span, self.timeline.now))
        return Markup('<a class="span" href="{}{}" aria-label="{}"><title>{}</title>{}</a>').format(
            self.link, f"#seq{span.seq}" if span.seq else "", label, label, self._shape(span)
        )

    def _shape(self, span: TimelineSpan) -> Markup:
        left = self.scale.position(span.start)
        right = self.scale.position(max(self.scale.end if span.end is None else span.end, span.start))
        wide = min(max(right - left, _THIN), 100.0)
        left = min(left, 100 - wide)
        tone = _tone(span.kind, span.outcome)
        reach = _rect("reach", left, max(wide, 1.2), 0, _HEIGHT)
        drawn = reach + _SHAPES.get(span.kind, _bar)(f"{tone} open" if span.end is None else tone, left, wide)
        return drawn + (_dashes(tone, left, wide) if span.end is None and span.kind in BUSY else "")

    # --- ownership

    def owners(self) -> Markup:
        """Draw the strip above the rows: the worker that owned the instance at each time, and the marks of its journal."""
        marks = sorted(self.timeline.marks, key=lambda one: one.at)
        stretches = _ownership(marks, self.timeline.spans, self.scale.start, self.scale.end)
        drawn = [self._owner(number, *stretch) for number, stretch in enumerate(stretches)]
        drawn += [self._mark(one) for one in marks if one.kind not in ("claimed", "released")]
        return self._svg(Markup("").join(drawn), "owners")

    def _owner(self, number: int, worker: str, start: int, end: int) -> Markup:
        left, right = self.scale.position(start), self.scale.position(end)
        label = attribute(f"owned by worker {worker} for {formatters.micros(end - start)}")
        shape = _rect(f"owner owner-{number % 2}", left, max(right - left, _THIN), 9, 6)
        return Markup('<g class="span" tabindex="0" role="img" aria-label="{}"><title>{}</title>{}</g>').format(
            label, label, shape
        )

    def _mark(self, mark: JournalLine) -> Markup:
        label = attribute(f"{mark.kind} at {formatters.exact(mark.at)}" + (f": {mark.detail}" if mark.detail else ""))
        return Markup(
            '<g class="span" tabindex="0" role="img" aria-label="{}"><title>{}</title>'
            '<svg x="{:.3f}%" overflow="visible"><path class="mark {}" d="M0 4l4 4h-3v10h-2v-10h-3z"/></svg></g>'
        ).format(label, label, self.scale.position(to_micros(mark.at)), "bad" if mark.kind in _BAD else "")


def _rank(tick: Tick) -> str:
    """Return the class of a tick; a narrow screen hides the labels of class `more`."""
    return "more" if tick.label.startswith("+") else "first zero" if tick.label == "0" else "first"


_BAD = frozenset({"lost", "blocked", "terminate"})


def describe_span(span: TimelineSpan, now: int) -> str:
    """Describe a span: `charge, attempt 2, failed after 1.2 s`."""
    parts = [span.name or span.row]
    if span.kind in ("activity", "compensation"):
        parts[0] = f"compensation: {parts[0]}" if span.kind == "compensation" else parts[0]
        parts += [f"attempt {span.attempt}"] if span.attempt else []
    elif span.kind not in ("backoff", "queue"):
        parts.append(_KINDS.get(span.kind, span.kind))
    parts.append(_lasted(span, now))
    parts += [span.note] if span.note else []
    parts += [f"on {span.worker_id}"] if span.worker_id else []
    return ", ".join(parts)


def _lasted(span: TimelineSpan, now: int) -> str:
    if span.end is None:
        due = "" if span.due is None else f", due in {formatters.micros(span.due - now)}" if span.due > now else ", due now"
        return f"{_OPEN.get(span.kind, 'waiting')} for {formatters.micros(max(now - span.start, 0))}{due}"
    if span.kind == "effect":
        return _PAST.get(span.outcome, span.outcome)
    if span.end < span.start:
        return f"{_PAST.get(span.outcome, span.outcome)} (clock skew of {formatters.micros(span.start - span.end)})"
    if span.kind in ("backoff", "queue"):
        return f"{_OPEN[span.kind]} for {formatters.micros(span.end - span.start)}"
    return f"{_PAST.get(span.outcome, span.outcome)} after {formatters.micros(span.end - span.start)}"


def _note(row: OperationRow) -> str:
    return f"×{row.attempts}" if row.attempts > 1 else ""


def _fold_note(row: FoldedRows) -> str:
    parts = [
        f"{row.count(outcome):,} {word}" for outcome, word in (("error", "failed"), ("open", "open")) if row.count(outcome)
    ]
    return ", ".join([f"{len(row.rows):,} calls", *parts])


def _ownership(
    marks: Sequence[JournalLine], spans: Sequence[TimelineSpan], begin: int, end: int
) -> list[tuple[str, int, int]]:
    """Return the periods of ownership: worker, start, end. A worker that created and ran the instance has no claim in the
    journal, so the first owner comes from the spans.
    """
    changes = [(to_micros(one.at), one.worker_id if one.kind == "claimed" else "") for one in marks if one.kind in _CHANGES]
    first = next((one.worker_id for one in spans if one.worker_id), "")
    if first and (not changes or changes[0][1] == ""):
        changes.insert(0, (begin, first))
    return [
        (worker, max(start, begin), min(stop, end))
        for (start, worker), (stop, _) in pairwise([*changes, (end, "")])
        if worker and stop > begin
    ]


_CHANGES = frozenset({"claimed", "released", "lost", "pause", "terminate"})


def _tone(kind: str, outcome: str) -> str:
    if outcome == "error":
        return "failed"
    if kind == "backoff":
        return "retry"
    if kind == "compensation":
        return "rollback"
    if kind == "queue" or outcome == "cancelled":
        return "idle"
    if outcome == "open":
        return "work" if kind == "activity" else "waiting"
    return "ok"


# --- shapes: positions in percent, heights in pixels


def _rect(name: str, left: float, width: float, top: float, height: float, more: str = "") -> Markup:
    return Markup('<rect class="{}" x="{:.3f}%" y="{}" width="{:.3f}%" height="{}"{}/>').format(
        name, left, top, width, height, Markup(more)
    )


def _upright(name: str, left: float) -> Markup:
    return Markup('<line class="{}" x1="{:.3f}%" x2="{:.3f}%" y1="0" y2="{}"/>').format(name, left, left, _HEIGHT)


def _bar(tone: str, left: float, width: float) -> Markup:
    return _rect(f"bar t-{tone}", left, width, 5, 14, ' rx="2"')


def _hatched(tone: str, left: float, width: float) -> Markup:
    return _rect(f"hatch t-{tone}", left, width, 7, 10, ' fill="url(#hatch)"')


def _hollow(tone: str, left: float, width: float) -> Markup:
    return _rect(f"hollow t-{tone}", left, width, 6, 12, ' rx="2"')


def _thin(tone: str, left: float, width: float) -> Markup:
    flag = Markup(
        '<svg x="{:.3f}%" overflow="visible"><path class="flag t-{}" d="M-1 4h8l-2 3 2 3h-7v10h-1z"/></svg>'
    ).format(left + width, tone)
    return _rect(f"thin t-{tone}", left, width, _MIDDLE - 1.5, 3) + flag


def _hairline(tone: str, left: float, width: float) -> Markup:
    return _rect(f"thin t-{tone}", left, width, _MIDDLE - 0.5, 1)


def _notched(tone: str, left: float, width: float) -> Markup:
    notch = Markup('<svg x="{:.3f}%" overflow="visible"><path class="flag t-{}" d="M0 3l-6 9 6 9z"/></svg>').format(
        left, tone
    )
    return _rect(f"bar t-{tone}", left, width, 5, 14) + notch


def _diamond(tone: str, left: float, width: float) -> Markup:
    return Markup('<svg x="{:.3f}%" overflow="visible"><path class="flag t-{}" d="M0 6l6 6-6 6-6-6z"/></svg>').format(
        left, tone
    )


def _dashes(tone: str, left: float, width: float) -> Markup:
    """Draw the open end over the last part of a bar."""
    start = max(left, left + width - 4)
    return Markup('<line class="open-end t-{}" x1="{:.3f}%" x2="{:.3f}%" y1="{}" y2="{}"/>').format(
        tone, start, left + width, _MIDDLE, _MIDDLE
    )


_SHAPES = {
    "activity": _bar,
    "backoff": _hatched,
    "event": _hollow,
    "message": _hollow,
    "timer": _thin,
    "queue": _hairline,
    "compensation": _notched,
    "effect": _diamond,
}
