"""Measures what very many waiting instances cost: memory, start-up time, and the speed of other workflows."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import folder, run
from benchmarks.report import Target, judge, save, table

MEGABYTES, SECONDS, SPEED = 150, 5, 0.85


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Fill a file, compare it with an empty one, print the table, save the figures."""
    instances, seconds, rounds = (5_000, 0.7, rounds or 1) if quick else (100_000, 2.0, rounds or 5)
    with folder() as directory:
        file = directory / "full.db"
        filled = run("romancy_sleepers", {"task": "fill", "database": str(file), "instances": instances})
        pairs = [_pair(directory, file, number, seconds) for number in range(rounds)]
        size = file.stat().st_size
    empty, full = _medians([a for a, _ in pairs]), _medians([b for _, b in pairs])
    rate = median(b["rate"] / a["rate"] for a, b in pairs)
    latency = median(a["single_latency"] / b["single_latency"] for a, b in pairs)
    growth = filled["filled_mb"] - filled["idle_mb"]
    table(
        f"{instances:,} sleeping instances: medians of {rounds} rounds, the empty and the full file interleaved",
        ["", "empty", "full", "unit"],
        [
            ["start of a fresh process", empty["start"], full["start"], "s"],
            ["its first 20 workflows", empty["first"], full["first"], "s"],
            ["one activity, 20 at once", empty["rate"], full["rate"], "workflows/s"],
            ["latency of one of 20 at once", empty["latency"] * 1e3, full["latency"] * 1e3, "ms"],
            ["latency one after another", empty["single_latency"] * 1e3, full["single_latency"] * 1e3, "ms"],
            ["memory of a fresh process", empty["resident_mb"], full["resident_mb"], "MB"],
            ["memory of the process that started them", filled["idle_mb"], filled["filled_mb"], "MB"],
        ],
        [f"Started at {instances / filled['seconds']:,.0f} a second; {size / instances:,.0f} bytes in the file each."],
    )
    targets = [
        Target("memory they add to the process that started them", growth, "<", MEGABYTES, " MB"),
        Target("memory they add to a fresh process", full["resident_mb"] - empty["resident_mb"], "<", MEGABYTES, " MB"),
        Target("start of a fresh process", full["start"], "<", SECONDS, " s"),
        Target("rate of other workflows, full compared with empty", rate, ">=", SPEED, "x"),
        Target("speed one after another, full compared with empty", latency, ">=", SPEED, "x"),
    ]
    judge(targets)
    figures = {"instances": instances, "bytes_each": size / instances, "filled": filled, "rounds": pairs}
    save("sleeping", figures, targets, quick=quick)


def _pair(directory: Path, full: Path, number: int, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure an empty file and the full one, in alternating order."""
    files = [directory / f"empty{number}.db", full]
    if number % 2:
        files.reverse()
    found = {file: run("romancy_sleepers", {"task": "measure", "database": str(file), "seconds": seconds}) for file in files}
    return found[directory / f"empty{number}.db"], found[full]


def _medians(found: list[dict[str, Any]]) -> dict[str, float]:
    return {key: median(one[key] for one in found) for key in found[0]}
