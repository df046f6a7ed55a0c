"""Measures a workflow that recurs forever: the cost of a round early and late, with and without an archive."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from benchmarks.child import Figures, run
from benchmarks.interleave import interleave
from benchmarks.report import Target, judge, save, table

ARCHIVED, UNARCHIVED = "with its archive", "without an archive"
COST, MEGABYTES = 1.3, 10


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run the workflow, print the table, save the figures."""
    times, window, repetitions = (2_000, 200, rounds or 1) if quick else (20_000, 1_000, rounds or 3)
    engines = {
        name: partial(_recur, archive=archive, times=times, window=window)
        for name, archive in ((ARCHIVED, True), (UNARCHIVED, False))
    }
    results = interleave(f"round {times:,}, µs", engines, repetitions, "wall", 1e6)
    rows: list[list[object]] = []
    for name, found in results.items():
        for when, label in (("early", f"around round {2 * window:,}"), ("late", f"around round {times:,}")):
            costs = [_middle(found, when, kind) for kind in ("wall", "processor", "resident_mb")]
            rows.append([f"{label}, {name}", costs[0] * 1e6, costs[1] * 1e6, costs[2]])
    table(
        f"A workflow of one activity that recurs {times:,} times: medians of {repetitions} repetitions",
        ["", "wall µs a round", "processor µs", "memory, MB"],
        rows,
        ["Early and late rounds are some time apart: on a shared machine, only the processor time is comparable."],
    )
    late = median(one["late"]["processor"] / one["early"]["processor"] for one in results[ARCHIVED])
    growth = median(one["late"]["resident_mb"] - one["early"]["resident_mb"] for one in results[ARCHIVED])
    targets = [
        Target(f"processor time of round {times:,} compared with round {2 * window:,}", late, "<=", COST, "x"),
        Target(f"memory added from round {2 * window:,} to {times:,}", growth, "<", MEGABYTES, " MB"),
    ]
    judge(targets)
    save("recurring", {"times": times, **results}, targets, quick=quick)


def _recur(file: str, *, archive: bool, times: int, window: int) -> Figures:
    found = run(
        "romancy_recurrence", {"task": "recur", "database": file, "rounds": times, "window": window, "archive": archive}
    )
    return {**found, "wall": found["late"]["wall"]}


def _middle(found: list[dict[str, Any]], when: str, kind: str) -> float:
    costs: list[float] = [one[when][kind] for one in found]
    return median(costs)
