"""What an app counts, as Prometheus reads it: the text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from romancy.metrics.metrics import Histogram, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_EDGE = 'le="{}"'


def exposition(metrics: Iterable[Metric]) -> str:
    """Each figure: what it is, its kind, and its values."""
    return "".join(f"{line}\n" for figure in metrics for line in _lines(figure))


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
    """A bucket counts everything up to its edge, so each contains those before it."""
    below = list(accumulate(histogram.counts))
    for edge, count in zip([*map(str, histogram.edges), "+Inf"], below, strict=True):
        yield f"{name}_bucket{_braced([*pairs, _EDGE.format(edge)])} {count}"
    yield f"{name}_sum{_braced(pairs)} {histogram.total / histogram.unit}"
    yield f"{name}_count{_braced(pairs)} {below[-1]}"


def _braced(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""
