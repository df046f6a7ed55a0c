"""Small charts: functions from numbers to SVG. Attributes hold the geometry; colours come from the style sheet."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.admin.records import ChartPoint
from romancy.viewer.html_text import Markup, attribute

_WIDTH, _HEIGHT = 240, 40


def sparkline(points: Sequence[ChartPoint], title: str, *, failures: bool = False) -> Markup:
    """Draw the ended instances per minute as bars, failed ones in their own colour; `failures`: only the failed ones."""
    counts = [(0 if failures else one.completed, one.failed) for one in points]
    most = max((done + failed for done, failed in counts), default=0)
    ended, failed = sum(done + bad for done, bad in counts), sum(bad for _, bad in counts)
    label = f"{title}: {failed:,} failed" if failures else f"{title}: {ended:,} ended, including {failed:,} failed"
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<line class="base" x1="0" x2="{w}" y1="{base}" y2="{base}"/>{bars}</svg>'
    ).format(w=_WIDTH, h=_HEIGHT, base=_HEIGHT - 0.5, label=attribute(label), bars=_bars(counts, most))


def _bars(counts: Sequence[tuple[int, int]], most: int) -> Markup:
    if not most:
        return Markup("")
    step = _WIDTH / len(counts)
    bars: list[Markup] = []
    for number, (done, failed) in enumerate(counts):
        high, low = _HEIGHT * (done + failed) / most, _HEIGHT * failed / most
        if done:
            bars.append(_bar("ok", number * step, step, _HEIGHT - high, high - low))
        if failed:
            bars.append(_bar("failed", number * step, step, _HEIGHT - low, low))
    return Markup("").join(bars)


def _bar(tone: str, left: float, width: float, top: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
        tone, left, top, max(width - min(1, width / 4), 0.5), max(height, 1)
    )
