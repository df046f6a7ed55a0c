"""Verdicts on samples: the median of the last quarter is compared with that of the second quarter.

The first quarter is left out, because caches fill and retention has not yet deleted anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

Sample = Mapping[str, float]
_QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Bound:
    """The allowed growth: a factor and an amount beyond it."""

    times: float
    more: float


BOUNDS = {
    "memory_mb": Bound(1.10, 5),
    "threads": Bound(1.0, 1),
    "files": Bound(1.0, 4),
    "p50_ms": Bound(1.5, 3),
    "p99_ms": Bound(2.0, 30),
    "rows": Bound(1.2, 100),
    "kb": Bound(1.3, 1024),
}
"""By the name of a column, or the part before its colon: `rows:romancy_events`. Other columns are not judged."""
TIMES = ("p50_ms", "p99_ms")
"""The columns that depend on the load of the machine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one column."""

    name: str
    before: float
    after: float
    most: float

    @property
    def is_flat(self) -> bool:
        """Whether the column has not grown by more than its bound."""
        return self.after <= self.most

    def __str__(self) -> str:
        word = "flat" if self.is_flat else "GROWS"
        return f"{word:5}  {self.name}: {self.before:.4g}, then {self.after:.4g} (at most {self.most:.4g})"


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """The verdict on every column with a bound. A column that is missing in the earlier samples counts as zero there."""
    quarter = len(samples) // _QUARTERS
    if not quarter:
        raise ValueError(f"{len(samples)} samples are too few to judge by: the soak must be longer.")
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    names = [name for name in dict.fromkeys(chain(*samples)) if name.partition(":")[0] in BOUNDS]
    return [_verdict(name, _median(second, name), _median(last, name)) for name in names]


def _verdict(name: str, before: float, after: float) -> Verdict:
    bound = BOUNDS[name.partition(":")[0]]
    return Verdict(name, before, after, before * bound.times + bound.more)


def _median(samples: Sequence[Sample], name: str) -> float:
    return median([sample[name] for sample in samples if name in sample] or [0.0])
