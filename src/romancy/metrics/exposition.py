"""Writes metrics in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from romancy.metrics.metrics import Histogram, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_EDGE = 'le="{}"'


def exposition(metrics: Iterable[Metric]) -> str:
    """The help text, the type and the values of each metric."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning.translate(_IN_HELP)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.values:
        pairs = [f'{name}="{label.translate(_IN_LABELS)}"' for name, label in zip(metric.labels, labels, strict=True)]
        if isinstance(value, Histogram):
            yield from _buckets(metric.name, pairs, value)
        else:
            yield f"{metric.name}{_braced(pairs)} {value}"


def _buckets(name: str, pairs: list[str], histogram: Histogram) -> Iterator[str]:
    """The lines of a histogram. Buckets are cumulative: each counts all values up to its edge."""
    below = list(accumulate(histogram.counts))
    for edge, count in zip([*map(str, histogram.edges), "+Inf"], below, strict=True):
        yield f"{name}_bucket{_braced([*pairs, _EDGE.format(edge)])} {count}"
    yield f"{name}_sum{_braced(pairs)} {histogram.total / histogram.unit}"
    yield f"{name}_count{_braced(pairs)} {below[-1]}"


def _braced(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""
