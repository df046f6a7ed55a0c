"""Compares throughput with DBOS and with bare one-row commits, interleaved within one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peer_env
from benchmarks.cases import CASES, Case
from benchmarks.child import Figures, run
from benchmarks.interleave import Results, describe_peer, interleave, median_of, ratio
from benchmarks.report import Target, judge, save, table

OURS, THEIRS, THEIRS_WAL, BARE = "romancy", "DBOS", "DBOS, WAL", "bare commits"
Measure = Callable[..., Figures]


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of rounds, and the duration of the measurements in seconds."""

    rounds: int
    warm_up: float
    ours: float
    theirs: float


FULL = Pace(rounds=5, warm_up=0.7, ours=2.0, theirs=3.0)
QUICK = Pace(rounds=1, warm_up=0.2, ours=0.7, theirs=1.0)


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run all cases, print the tables, save the figures."""
    pace = QUICK if quick else FULL
    engines = _engines(pace, peer_env.install())
    results = {case.name: _measure_case(case, engines, rounds or pace.rounds) for case in CASES}
    table(
        f"Throughput: medians of {rounds or pace.rounds} rounds, engines interleaved, durable commits on SQLite",
        ["", "unit", *engines, *(f"× {name}" for name in engines if name != OURS)],
        [_row(case, results[case.name]) for case in CASES],
        _notes(results),
    )
    targets = [Target(*_target(case, results[case.name])) for case in CASES if case.target and THEIRS in engines]
    judge(targets)
    save("throughput", {name: _summary(rates) for name, rates in results.items()}, targets, quick=quick)


def _engines(pace: Pace, python: Path | None) -> dict[str, Measure]:
    ours = {"warm_up": pace.warm_up, "seconds": pace.ours}
    theirs = {"warm_up": pace.warm_up, "seconds": pace.theirs}

    def romancy(file: str, case: Case) -> Figures:
        return run("romancy_throughput", {"database": file, "case": case.name, **ours})

    def dbos(file: str, case: Case, *, wal: bool) -> Figures:
        assert python is not None
        return run("dbos_throughput", {"database": file, "case": case.name, "wal": wal, **theirs}, python)

    def bare(file: str, case: Case) -> Figures:
        return run("bare_sqlite", {"database": file, **ours})

    peers: dict[str, Measure] = {THEIRS: partial(dbos, wal=False), THEIRS_WAL: partial(dbos, wal=True)}
    return {OURS: romancy, **(peers if python is not None else {}), BARE: bare}


def _measure_case(case: Case, engines: dict[str, Measure], rounds: int) -> Results:
    return interleave(case.label, {name: partial(measured, case=case) for name, measured in engines.items()}, rounds)


def _row(case: Case, results: Results) -> list[object]:
    rates = [median_of(results, name) for name in results]
    return [case.label, f"{case.unit}/s", *rates, *(ratio(results, OURS, name) for name in results if name != OURS)]


def _target(case: Case, results: Results) -> tuple[Any, ...]:
    return f"{case.label}, compared with DBOS (default settings)", ratio(results, OURS, THEIRS), ">=", case.target, "x"


def _summary(results: Results) -> dict[str, Any]:
    return {name: {"median": median_of(results, name), "rounds": found} for name, found in results.items()}


def _notes(results: dict[str, Results]) -> list[str]:
    first = next(iter(results.values()))
    notes = ["× is the median of each round's ratio. Bare commits: one INSERT for each COMMIT, WAL, synchronous=FULL."]
    return notes + [describe_peer(name, first[name][0]) for name in (THEIRS, THEIRS_WAL) if name in first]
