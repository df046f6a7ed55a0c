"""Measures throughput on PostgreSQL with up to a million waiting instances, and in several processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from benchmarks.child import Figures, run
from benchmarks.postgres_server import Server, serving
from benchmarks.report import Target, judge, save, table

WAITING_COUNTS = (0, 10_000, 100_000, 1_000_000)
PROCESSES = (1, 2, 4)
LEAST = 0.5
"""Target: the rate with the largest number of waiting instances, as a share of the rate in empty tables."""


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run both measurements, print the tables, save the figures."""
    seconds, rounds = (0.8, 1) if quick else (3.0, rounds or 3)
    counts = WAITING_COUNTS[:2] if quick else WAITING_COUNTS
    with serving() as server:
        waiting = _with_waiting(server, counts, rounds, seconds)
        processes = _with_processes(server, rounds, seconds)
    _print("With waiting instances, on PostgreSQL", "waiting", waiting, rounds)
    _print("In several processes, on one PostgreSQL server", "processes", processes, rounds)
    share = waiting[counts[-1]] / waiting[0]
    targets = [Target(f"workflows/s with {counts[-1]:,} waiting instances, compared with none", share, ">=", LEAST, "x")]
    judge(targets)
    save("scaling", {"waiting": waiting, "processes": processes}, targets, quick=quick)


def _with_waiting(server: Server, counts: tuple[int, ...], rounds: int, seconds: float) -> dict[int, float]:
    """Return the best rate for each number of waiting instances: other load on the machine only ever lowers a rate."""
    best: dict[int, float] = {}
    for number in counts:
        with server.database() as database:
            if number:
                filled = run("romancy_plans", {"task": "fill", "database": database, "ended": 0, "waiting": number})
                print(f"  {number:,} waiting: filled in {filled['seconds']:.0f} s", flush=True)
            best[number] = max(_load(database, seconds)["rate"] for _ in range(rounds))
        print(f"  with {number:,}: {best[number]:,.0f} workflows/s", flush=True)
    return best


def _with_processes(server: Server, rounds: int, seconds: float) -> dict[int, float]:
    best: dict[int, float] = {}
    for number in PROCESSES:
        with server.database() as database, ThreadPoolExecutor(number) as pool:
            rates = [
                sum(one["rate"] for one in pool.map(_load, [database] * number, [seconds] * number)) for _ in range(rounds)
            ]
        best[number] = max(rates)
        print(f"  {number} processes: {best[number]:,.0f} workflows/s", flush=True)
    return best


def _load(database: str, seconds: float) -> Figures:
    return run("romancy_throughput", {"database": database, "case": "twenty", "warm_up": 1.0, "seconds": seconds})


def _print(title: str, what: str, found: dict[int, float], rounds: int) -> None:
    first = next(iter(found.values()))
    rows = [[f"{number:,}", rate, rate / first] for number, rate in found.items()]
    table(
        f"{title}: one activity, 20 at once in each process",
        [what, "workflows/s", "×"],
        rows,
        [f"The best of {rounds} rounds."],
    )
