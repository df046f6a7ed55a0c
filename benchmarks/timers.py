"""Measures how many of a thousand sleeping workflows resume on time, on a worker with no other work."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peer_env
from benchmarks.child import Figures, run
from benchmarks.interleave import Measure, Results, describe_peer, interleave, median_of
from benchmarks.report import Target, judge, save, table
from benchmarks.timer_load import PROMPT

OURS, SMALL, FOUND, THEIRS = "romancy", "romancy, a tenth in memory", "romancy, found in the file", "DBOS, WAL"
SHARE = 99
SLEEPERS, SPREAD = 1000, 5.0


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run the sleeping workflows, print the table, save the figures."""
    rounds = rounds or (1 if quick else 5)
    results = interleave("within 50 ms, %", _engines(peer_env.install()), rounds, "prompt", 100)
    table(
        f"{SLEEPERS:,} sleepers, due within {SPREAD:g} s: medians of {rounds} rounds, engines interleaved",
        ["", f"% within {PROMPT * 1e3:.0f} ms", "median ms late", "99 % within ms", "last, ms late", "first, ms late"],
        [_row(results, name) for name in results],
        [
            "Late: from the due time to the line after the sleep. Found in the file: started by another app.",
            "DBOS keeps all of its sleeping workflows in memory.",
            *(describe_peer(name, results[name][0]) for name in (THEIRS,) if name in results),
        ],
    )
    what = f"of {SLEEPERS:,} sleepers resume within {PROMPT * 1e3:.0f} ms"
    targets = [Target(what, 100 * median_of(results, OURS, "prompt"), ">=", SHARE, " %")]
    judge(targets)
    save("timers", dict(results), targets, quick=quick)


def _engines(python: Path | None) -> dict[str, Measure]:
    load: dict[str, Any] = {"task": "sleepers", "count": SLEEPERS, "spread": SPREAD}
    engines: dict[str, Measure] = {
        OURS: partial(_ours, **load, lead=3.0, cache_size=SLEEPERS, found=False),
        SMALL: partial(_ours, **load, lead=3.0, cache_size=SLEEPERS // 10, found=False),
        FOUND: partial(_ours, **load, lead=4.0, cache_size=SLEEPERS, found=True),
    }
    if python is not None:
        engines[THEIRS] = partial(_theirs, python, **load, lead=25.0, wal=True)
    return engines


def _ours(file: str, **arguments: object) -> Figures:
    return run("romancy_timers", {"database": file, **arguments})


def _theirs(python: Path, file: str, **arguments: object) -> Figures:
    return run("dbos_timers", {"database": file, **arguments}, python)


def _row(results: Results, name: str) -> list[object]:
    late = [median_of(results, name, key) * 1e3 for key in ("median", "most", "last", "first")]
    return [name, 100 * median_of(results, name, "prompt"), *late]
