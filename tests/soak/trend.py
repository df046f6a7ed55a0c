"""Whether something stays flat: the median of the last quarter of its samples, against that of the second quarter.

The first quarter is left out: caches fill, and what is kept for a while has not been kept for so long yet.
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
    """How much higher it may be: so many times, and so much beyond that."""

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
"""By the name of a column, or what stands before its colon: `rows:romancy_events`. The others are not judged."""
TIMES = ("p50_ms", "p99_ms")
"""What depends on how busy the machine is."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one column."""

    name: str
    before: float
    after: float
    most: float

    @property
    def is_flat(self) -> bool:
        """It has not grown, or not by more than it may."""
        return self.after <= self.most

    def __str__(self) -> str:
        word = "flat" if self.is_flat else "GROWS"
        return f"{word:5}  {self.name}: {self.before:.4g}, then {self.after:.4g} (at most {self.most:.4g})"


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Of every column that has a bound. A sample may lack a column; one that came later was nothing before."""
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
