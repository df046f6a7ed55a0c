"""Interleaves the measurements of several engines within one run; the result is the median of the rounds' ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from statistics import median

from benchmarks.child import Figures, folder
from benchmarks.report import figure

Measure = Callable[[str], Figures]
"""One measurement on a database of its own."""
Results = dict[str, list[Figures]]
"""The figures of each engine, by round."""
MakeDatabase = Callable[[], AbstractContextManager[str]]
"""Creates a database for one measurement, returns its address, and drops it afterwards."""


@contextmanager
def new_file() -> Iterator[str]:
    """Return the path of a file that does not exist yet, in a folder of its own."""
    with folder() as directory:
        yield str(directory / "bench.db")


def interleave(
    label: str,
    engines: Mapping[str, Measure],
    rounds: int,
    key: str = "rate",
    scale: float = 1.0,
    make_database: MakeDatabase = new_file,
) -> Results:
    """Measure each engine once a round; print the figure `key` of each after every round."""
    results: Results = {name: [] for name in engines}
    for number in range(rounds):
        names = list(engines)
        # The order rotates from round to round, so that no engine always profits from the state that another one leaves.
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            with make_database() as database:
                results[name].append(engines[name](database))
        latest = ", ".join(f"{name} {figure(found[-1][key] * scale)}" for name, found in results.items())
        print(f"  {label}, round {number + 1}: {latest}", flush=True)
    return results


def median_of(results: Results, name: str, key: str = "rate") -> float:
    """Return the median of an engine's figure over the rounds."""
    values: list[float] = [found[key] for found in results[name]]
    return median(values)


def ratio(results: Results, over: str, under: str, key: str = "rate") -> float:
    """Return the median of the rounds' ratios of two engines: the machine's speed changes between rounds."""
    ratios: list[float] = [a[key] / b[key] for a, b in zip(results[over], results[under], strict=True)]
    return median(ratios)


def describe_peer(name: str, figures: Figures, run_with: str = " when opened, measured with synchronous=FULL") -> str:
    """Describe another engine in a sentence: its version and settings."""
    settings = ", ".join(f"{key}={value}" for key, value in figures["settings"].items())
    return f"{name}: version {figures['version']}, with {settings}{run_with}."
