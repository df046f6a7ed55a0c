"""Checks with large tables on PostgreSQL that every statement uses an index, and that it stays fast."""

from __future__ import annotations

from benchmarks.child import Figures, run
from benchmarks.postgres_server import serving
from benchmarks.report import Target, judge, save, table

RATIO = 2
LABELS = {
    "claim": "claim the one instance that is due",
    "nothing due": "search for due timers, when there are none",
    "next timers": "search for the timers of the next minute",
    "wake": "wake a waiting workflow with an event",
}


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Fill the tables, check the plans, time the same calls in large and in empty tables, print and save the figures."""
    ended, waiting, samples = (10_000, 10_000, 30) if quick else (1_000_000, 100_000, 100)
    with serving() as server, server.database() as large, server.database() as empty:
        filled = run("romancy_plans", {"task": "fill", "database": large, "ended": ended, "waiting": waiting})
        print(f"  filled in {filled['seconds']:.0f} s", flush=True)
        plans = run("romancy_plans", {"task": "explain", "database": large, "now": filled["now"]})
        load = {"task": "times", "large": large, "empty": empty, "samples": samples * (rounds or 1)}
        times = run("romancy_plans", load)
    _print(times, ended, waiting)
    for statement, steps in plans["faults"].items():
        print(f"  {statement}: {'; '.join(steps)}")
    targets = [Target(f"statements of {plans['statements']} that read a whole table", len(plans["faults"]), "<=", 0)]
    targets += [
        Target(f"{LABELS[name]}, compared with empty tables", _ratio(one), "<=", RATIO, "x") for name, one in times.items()
    ]
    judge(targets)
    save("plans", {"ended": ended, "waiting": waiting, "plans": plans, "times": times}, targets, quick=quick)


def _print(times: Figures, ended: int, waiting: int) -> None:
    table(
        f"PostgreSQL with {ended:,} ended and {waiting:,} waiting instances: medians, large and empty tables interleaved",
        ["", "large, ms", "empty, ms", "×"],
        [[LABELS[name], one["large"] * 1e3, one["empty"] * 1e3, _ratio(one)] for name, one in times.items()],
        ["Each statement is planned with and without usual values, as PostgreSQL does from the sixth execution on."],
    )


def _ratio(one: Figures) -> float:
    ratio: float = one["large"] / one["empty"]
    return ratio
