"""Engines measured in turn, within one run: what is judged is the median of each round's ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from statistics import median

from benchmarks.child import Figures, folder
from benchmarks.report import figure

Measure = Callable[[str], Figures]
"""One measurement on a database of its own."""
Results = dict[str, list[Figures]]
"""What was found, by engine and round."""
Place = Callable[[], AbstractContextManager[str]]
"""Makes a database for one measurement, and throws it away: its address."""


@contextmanager
def file() -> Iterator[str]:
    """A file that does not exist yet, in a folder of its own."""
    with folder() as where:
        yield str(where / "bench.db")


def in_turn(
    label: str,
    engines: Mapping[str, Measure],
    rounds: int,
    key: str = "rate",
    scale: float = 1.0,
    place: Place = file,
) -> Results:
    """So many rounds; one line of progress for each, with what stands under `key`."""
    results: Results = {name: [] for name in engines}
    for number in range(rounds):
        names = list(engines)
        # Each engine comes first, second, ... in its turn: none profits from what the one before it leaves behind.
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            with place() as database:
                results[name].append(engines[name](database))
        latest = ", ".join(f"{name} {figure(found[-1][key] * scale)}" for name, found in results.items())
        print(f"  {label}, round {number + 1}: {latest}", flush=True)
    return results


def middle(results: Results, name: str, key: str = "rate") -> float:
    """The median over rounds."""
    values: list[float] = [found[key] for found in results[name]]
    return median(values)


def ratio(results: Results, over: str, under: str, key: str = "rate") -> float:
    """How many times one is the other: the median over rounds, since the machine's speed changes between them."""
    ratios: list[float] = [a[key] / b[key] for a, b in zip(results[over], results[under], strict=True)]
    return median(ratios)


def found_with(name: str, figures: Figures, run_with: str = ", run with synchronous=FULL") -> str:
    """What a peer was, in a sentence."""
    settings = ", ".join(f"{key}={value}" for key, value in figures["settings"].items())
    return f"{name}: version {figures['version']}, found with {settings}{run_with}."
