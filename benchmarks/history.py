"""Measures the cost of a step late in a long history, and of a cold resume of such a history."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.child import folder, run
from benchmarks.report import Target, judge, save, table

TARGET = 1.3


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run the long workflow several times, print the table, save the figures."""
    length, windows, rounds = (2_000, 5, rounds or 1) if quick else (10_000, 10, rounds or 3)
    compared = [_compare(length, windows) for _ in range(rounds)]
    early = [window for found in compared for window in found["early"]]
    late = [window for found in compared for window in found["late"]]
    whole = median(found["whole"] for found in compared)
    cold, single = _resume(length), _resume(1)
    table(
        f"A history of {length:,} entries: {rounds} repetitions, {windows} pairs of windows of 100 steps each",
        ["", "wall ms", "processor ms"],
        [
            ["a step around step 100", *_costs(early)],
            [f"a step after step {length:,}", *_costs(late)],
            ["late compared with early, median of the pairs", _ratio(early, late, "wall"), _ratio(early, late, "processor")],
            [f"the mean of the first {length:,} steps", whole / length * 1e3, ""],
            [f"cold resume of {length:,} entries, from app started to next step", cold["resume"] * 1e3, ""],
            ["cold resume of 1 entry", single["resume"] * 1e3, ""],
        ],
    )
    targets = [
        Target(
            f"{kind} time of a step after {length:,} compared with one around 100",
            _ratio(early, late, kind),
            "<=",
            TARGET,
            "x",
        )
        for kind in ("wall", "processor")
    ]
    judge(targets)
    figures = {"length": length, "compared": compared, "resume": cold, "resume_of_one": single}
    save("history", figures, targets, quick=quick)


def _costs(windows: Sequence[dict[str, float]]) -> list[float]:
    return [median(window[kind] for window in windows) * 1e3 for kind in ("wall", "processor")]


def _ratio(early: Sequence[dict[str, float]], late: Sequence[dict[str, float]], kind: str) -> float:
    return median(b[kind] / a[kind] for a, b in zip(early, late, strict=True))


def _compare(length: int, windows: int) -> dict[str, Any]:
    with folder() as directory:
        return run(
            "romancy_history",
            {"task": "compare", "database": str(directory / "bench.db"), "length": length, "windows": windows},
        )


def _resume(length: int) -> dict[str, Any]:
    with folder() as directory:
        database = str(directory / "bench.db")
        run("romancy_history", {"task": "interrupt", "database": database, "length": length})
        return run("romancy_history", {"task": "resume", "database": database})
