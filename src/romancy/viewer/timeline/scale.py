"""The time scale: maps times to horizontal positions, and collapses long idle times into gaps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from romancy.admin.records import Timeline, TimelineSpan
from romancy.viewer import formatters

BUSY = frozenset({"activity", "compensation"})
"""Kinds of spans in which something runs."""
_COLLAPSED = 0.10
"""An idle period that would take more than this fraction of the width becomes a gap."""
_GAP = 9.0
"""The percentage of the width of a gap, if there are few."""
_ALL_GAPS = 45.0
"""The greatest percentage of the width of all gaps together."""
_MOST_GAPS = 12
_TICKS = 11.0
"""The least distance between two ticks, in percent of the width."""


@dataclass(frozen=True, slots=True)
class ScaleSegment:
    """A period of time and its position. A broken one is drawn as a gap of fixed width."""

    start: int
    end: int
    left: float
    right: float
    broken: bool = False

    @property
    def length(self) -> int:
        """The duration in microseconds."""
        return self.end - self.start

    def position(self, at: int) -> float:
        """Return the position of a time in this segment."""
        return self.left + (self.right - self.left) * (at - self.start) / max(self.length, 1)


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of the axis."""

    left: float
    label: str


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The whole time range, from 0 on the left to 100 on the right."""

    pieces: Sequence[ScaleSegment]

    @property
    def start(self) -> int:
        """The start of the range."""
        return self.pieces[0].start

    @property
    def end(self) -> int:
        """The end of the range."""
        return self.pieces[-1].end

    def position(self, at: int) -> float:
        """Return the position of a time; times outside the range are at the edge."""
        inside = min(max(at, self.start), self.end)
        number = bisect_right(self.pieces, inside, key=lambda piece: piece.start) - 1
        return self.pieces[max(number, 0)].position(inside)

    def gaps(self) -> list[ScaleSegment]:
        """Return the gaps: the segments that are not drawn to scale."""
        return [piece for piece in self.pieces if piece.broken]

    def ticks(self) -> list[Tick]:
        """Return the ticks. The first tick of a run shows its offset from the start, the others their offset in the run."""
        runs = _runs(self.pieces)
        drawn = sum(run.right - run.left for run in runs)
        each = drawn / max(sum(run.length for run in runs), 1)
        return [tick for run in runs for tick in _ticks(run, _step(_TICKS / max(each, 1e-12)), run.start - self.start)]


def build_scale(timeline: Timeline, opened: Iterable[int] | None = ()) -> TimeScale:
    """Return the scale of a timeline. `opened`: offsets of the gaps that are drawn to scale; None: all gaps are."""
    end = max([timeline.ended_at or timeline.now, *(one.end or one.start for one in timeline.spans), timeline.begun_at + 1])
    begin = min([timeline.begun_at, *(one.start for one in timeline.spans)])
    stretches = _stretches(timeline.spans, begin, end)
    broken = set[int]() if opened is None else _broken(stretches, {begin + offset for offset in opened})
    return TimeScale(_lay_out(stretches, broken))


def _stretches(spans: Sequence[TimelineSpan], begin: int, end: int) -> list[tuple[int, int, bool]]:
    """Cut the time at every start and end of a span; return start, end, and whether an activity runs."""
    changes: dict[int, int] = {begin: 0, end: 0}
    for span in spans:
        until = max(span.start, end if span.end is None else span.end)
        busy = span.kind in BUSY
        changes[span.start] = changes.get(span.start, 0) + busy
        changes[until] = changes.get(until, 0) - busy
    times = sorted(at for at in changes if begin <= at <= end)
    running = 0
    stretches: list[tuple[int, int, bool]] = []
    for start, stop in pairwise(times):
        running += changes[start]
        stretches.append((start, stop, running > 0))
    return stretches


def _broken(stretches: Sequence[tuple[int, int, bool]], opened: set[int]) -> set[int]:
    """Return the starts of the gaps. Longest first: once one is collapsed, the next may be too long for the rest."""
    if not any(busy for _, _, busy in stretches):
        return set()  # otherwise nothing would be drawn to scale
    idle = sorted(
        ((stop - start, start) for start, stop, busy in stretches if not busy and start not in opened), reverse=True
    )
    rest = sum(stop - start for start, stop, _ in stretches)
    broken: set[int] = set()
    for length, start in idle[:_MOST_GAPS]:
        if length <= _COLLAPSED * rest:
            break
        broken.add(start)
        rest -= length
    return broken


def _lay_out(stretches: Sequence[tuple[int, int, bool]], broken: set[int]) -> list[ScaleSegment]:
    width = min(_GAP, _ALL_GAPS / len(broken)) if broken else 0.0
    drawn = sum(stop - start for start, stop, _ in stretches if start not in broken)
    each = (100 - width * len(broken)) / max(drawn, 1)
    pieces: list[ScaleSegment] = []
    left = 0.0
    for start, stop, _ in stretches:
        right = left + (width if start in broken else (stop - start) * each)
        pieces.append(ScaleSegment(start, stop, left, right, start in broken))
        left = right
    return pieces


def _runs(pieces: Sequence[ScaleSegment]) -> list[ScaleSegment]:
    """Join adjacent segments that are drawn to scale."""
    runs: list[ScaleSegment] = []
    for piece in pieces:
        if piece.broken:
            continue
        if runs and runs[-1].end == piece.start:
            runs[-1] = ScaleSegment(runs[-1].start, piece.end, runs[-1].left, piece.right)
        else:
            runs.append(piece)
    return runs


def _ticks(run: ScaleSegment, step: int, offset: int) -> list[Tick]:
    first = Tick(run.left, formatters.micros(offset) if offset else "0")
    if run.right - run.left < _TICKS / 2:
        return [first] if not offset else []
    more = range(run.start + step, run.end, step)
    near_end = [at for at in more if run.position(at) < run.right - _TICKS * 0.7]
    return [first, *(Tick(run.position(at), f"+{formatters.micros(at - run.start)}") for at in near_end)]


def _step(least: float) -> int:
    """Return the next round number of microseconds."""
    for step in _STEPS:
        if step >= least:
            return step
    day = _STEPS[-1]
    return day * (int(least // day) + 1)


_SECOND, _MINUTE, _HOUR = 1_000_000, 60_000_000, 3_600_000_000
_STEPS: tuple[int, ...] = (
    *(factor * 10**power for power in range(6) for factor in (1, 2, 5)),
    *(_SECOND * factor for factor in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * factor for factor in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * factor for factor in (1, 2, 3, 6, 12, 24)),
)
