"""romancy on PostgreSQL, beside DBOS and Edda and beside bare commits of the same server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peer_env
from benchmarks.cases import BY_NAME, ON_POSTGRES, Case
from benchmarks.child import ChildFailed, Figures, folder, run
from benchmarks.interleave import Measure, Results, found_with, in_turn, middle, ratio
from benchmarks.postgres_server import Server, serving
from benchmarks.report import Target, judge, save, table

OURS, ELSEWHERE, DBOS, EDDA, INSERTS = "romancy", "romancy, sent by another client", "DBOS", "Edda", "pgbench"
WAITING, SENDERS = 200, 20
FEW = 20
"""So many wait in Edda: it wakes a handful in a second."""
AS_IT_COMES = {"wal": False, "look_every": None}
TIMES, MILLISECONDS, SHARE = 15, 5, 0.5
SHARES = {"twenty": 0.3, "ten": 0.8}
"""Workflows of one activity, and activities of workflows of ten, for each one-row insert of as many clients."""
COMMITS = {
    "one_activity": ("a one-activity workflow", 2),
    "wait": ("a wait", 1),
    "event": ("an event for one who waits", 1),
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how often is measured; seconds."""

    rounds: int
    warm_up: float
    seconds: float
    samples: int
    bursts: int
    their_samples: int


FULL = Pace(rounds=5, warm_up=1.0, seconds=3.0, samples=100, bursts=5, their_samples=15)
QUICK = Pace(rounds=1, warm_up=0.2, seconds=0.8, samples=20, bursts=1, their_samples=6)


Side = tuple[str, dict[str, Any]]
"""A module of `benchmarks.processes`, and what it is told."""


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run all cases in turn on one server, print the tables, save the figures."""
    pace = QUICK if quick else FULL
    rounds = rounds or pace.rounds
    pythons = _peers()
    with serving() as server:
        version = str(server.ask("SHOW server_version"))
        place = server.database
        loads = {
            case.name: in_turn(case.label, _loads(case, server, pythons, pace), rounds, place=place) for case in ON_POSTGRES
        }
        many = in_turn(f"{WAITING} wait, wakes/s", _many(pythons, pace), rounds, place=place)
        alone = in_turn("one waits, ms", _alone(pythons, pace), rounds, "latency", 1e3, place=place)
        bare = in_turn("bare commits/s", _bare(server, pace), rounds, place=place)
        with place() as database:
            counts = run("romancy_commits", {"task": "counts", "database": database, "times": pace.samples})
    _print_rates(loads, many, rounds, version)
    _print_alone(alone, rounds)
    _print_bare(bare, rounds)
    _print_counts(counts)
    targets = _targets(loads, many, alone, counts) + _beside_inserts(loads)
    judge(targets)
    figures = {"server": version, "throughput": loads, "many": many, "alone": alone, "bare": bare, "commits": counts}
    save("postgres", figures, targets, quick=quick)


def _peers() -> dict[str, Path]:
    found = {DBOS: peer_env.install(peer_env.DBOS), EDDA: peer_env.install(peer_env.EDDA)}
    return {name: python for name, python in found.items() if python is not None}


# --- what is measured


def _engines(pythons: Mapping[str, Path], sides: Mapping[str, Side]) -> dict[str, Measure]:
    """How each engine that there is is measured."""
    engines: dict[str, Measure] = {}
    for name, (side, arguments) in sides.items():
        python = pythons.get(name) if name in (DBOS, EDDA) else Path(sys.executable)
        if python is not None:
            engines[name] = partial(_measure, python, side, arguments)
    return engines


def _measure(python: Path, side: str, arguments: Mapping[str, object], database: str) -> Figures:
    """One measurement. A peer may try again: Edda gives up now and then on a lock of its own."""
    load = {"database": database, **arguments}
    try:
        return run(side, load, python)
    except ChildFailed as error:
        if python == Path(sys.executable):
            raise
        print(f"  {side} failed and is tried again: {str(error).splitlines()[-1]}")
        return run(side, load, python)


def _loads(case: Case, server: Server, pythons: Mapping[str, Path], pace: Pace) -> dict[str, Measure]:
    load = {"case": case.name, "warm_up": pace.warm_up, "seconds": pace.seconds}
    sides: dict[str, Side] = {
        OURS: ("romancy_throughput", load),
        DBOS: ("dbos_throughput", {**load, "wal": False}),
        EDDA: ("edda_throughput", {**load, "task": "throughput"}),
    }
    inserts = {INSERTS: partial(_pgbench, server, SENDERS, "simple", pace)} if case.name in SHARES else {}
    return _engines(pythons, sides) | inserts


def _many(pythons: Mapping[str, Path], pace: Pace) -> dict[str, Measure]:
    load = {"task": "rate", "waiting": WAITING, "senders": SENDERS, "bursts": pace.bursts}
    sides: dict[str, Side] = {
        OURS: ("romancy_wakeups", {**load, "way": "app"}),
        DBOS: ("dbos_wakeups", {**load, **AS_IT_COMES}),
        EDDA: ("edda_wakeups", {**load, "waiting": FEW, "bursts": 1}),
    }
    return _engines(pythons, sides)


def _alone(pythons: Mapping[str, Path], pace: Pace) -> dict[str, Measure]:
    ours = {"task": "latency", "samples": pace.samples}
    sides: dict[str, Side] = {
        OURS: ("romancy_wakeups", {**ours, "way": "app"}),
        ELSEWHERE: ("romancy_wakeups", {**ours, "way": "elsewhere"}),
        DBOS: ("dbos_wakeups", {**ours, "samples": pace.their_samples, **AS_IT_COMES}),
        EDDA: ("edda_wakeups", {**ours, "samples": pace.their_samples // 3}),
    }
    return _engines(pythons, sides)


def _bare(server: Server, pace: Pace) -> dict[str, Measure]:
    load = {"task": "commits", "warm_up": pace.warm_up, "seconds": pace.seconds}
    ours: dict[str, Side] = {
        f"asyncpg, {_connections(number)}": ("bare_postgres", {**load, "connections": number}) for number in (1, SENDERS)
    }
    theirs: dict[str, Measure] = {
        f"pgbench, {_connections(number)}": partial(_pgbench, server, number, "simple", pace) for number in (1, SENDERS)
    }
    prepared = partial(_pgbench, server, SENDERS, "prepared", pace)
    return _engines({}, ours) | theirs | {f"pgbench, {_connections(SENDERS)}, prepared": prepared}


def _pgbench(server: Server, connections: int, protocol: str, pace: Pace, database: str) -> Figures:
    """PostgreSQL's own, with the same rows; its own protocol is the simple one, unless it is told otherwise."""
    server.ask("CREATE TABLE rows (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value BYTEA NOT NULL)", database)
    with folder() as where:
        script = where / "insert.sql"
        script.write_text("INSERT INTO rows (value) VALUES ('{\"number\": 1}');\n", "utf-8")
        often = ["--no-vacuum", f"--protocol={protocol}", f"--client={connections}", f"--time={max(1, round(pace.seconds))}"]
        command = [str(server.programs / "pgbench"), *often, f"--file={script}", database]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"tps = ([\d.]+)", said)
    assert found is not None, said
    return {"rate": float(found[1])}


def _connections(number: int) -> str:
    return f"{number} connection{'s' if number > 1 else ''}"


# --- what is said about it


def _print_rates(loads: Mapping[str, Results], many: Results, rounds: int, version: str) -> None:
    names = list(many)
    rows = [_row(case.label, f"{case.unit}/s", loads[case.name], names) for case in ON_POSTGRES]
    rows.append(_row(f"{WAITING} woken by {SENDERS} senders", "wakes/s", many, names))
    notes = [
        "× is the median of each round's ratio. A private server, fsync and synchronous_commit on, a database for each.",
        *(found_with(name, many[name][0], "") for name in names if name != OURS),
    ]
    if EDDA in names:
        notes.append(f"Edda: workflows of 100 activities instead of 500, {FEW} waiting instead of {WAITING}.")
    table(
        f"PostgreSQL {version}: medians of {rounds} rounds, engines in turn",
        ["", "unit", *names, *(f"× {name}" for name in names if name != OURS)],
        rows,
        notes,
    )


def _row(label: str, unit: str, results: Results, names: Sequence[str]) -> list[object]:
    rates = [middle(results, name) for name in names]
    return [label, unit, *rates, *(ratio(results, OURS, name) for name in names if name != OURS)]


def _print_alone(results: Results, rounds: int) -> None:
    rows: list[list[object]] = []
    for name, found in results.items():
        times = sorted(time for one in found for time in one["all"])
        worst = times[int(0.95 * len(times))]
        rows.append([name, middle(results, name, "latency") * 1e3, worst * 1e3, ratio(results, name, OURS, "latency")])
    table(
        f"Waking one idle workflow on PostgreSQL: medians of {rounds} rounds, engines in turn",
        ["", "median ms", "95 % within", "× romancy"],
        rows,
        ["From the call that sends to the line behind the wait, in one process. Rung after a pause of random length."],
    )


def _print_bare(results: Results, rounds: int) -> None:
    table(
        f"The same server alone, one row for each commit: medians of {rounds} rounds",
        ["", "commits/s"],
        [[name, middle(results, name)] for name in results],
    )


def _print_counts(counts: Figures) -> None:
    table(
        "Commits, one workflow at a time, heartbeats and notifications apart",
        ["", "commits"],
        [[what, counts[key]] for key, (what, _) in COMMITS.items()],
    )


def _targets(loads: Mapping[str, Results], many: Results, alone: Results, counts: Figures) -> list[Target]:
    targets: list[Target] = []
    if DBOS in many:
        for case in ON_POSTGRES:
            assert case.target is not None
            targets.append(Target(f"{case.label}, beside DBOS", ratio(loads[case.name], OURS, DBOS), ">=", case.target, "x"))
        what = f"{WAITING} woken by {SENDERS} senders, beside DBOS"
        targets.append(Target(what, ratio(many, OURS, DBOS), ">=", TIMES, "x"))
    targets.append(Target("waking an idle workflow", middle(alone, OURS, "latency") * 1e3, "<=", MILLISECONDS, " ms"))
    if DBOS in alone:
        targets.append(Target("the same, beside DBOS", ratio(alone, OURS, DBOS, "latency"), "<", SHARE, "x"))
    return targets + [Target(f"commits of {what}", counts[key], "<=", most) for key, (what, most) in COMMITS.items()]


def _beside_inserts(loads: Mapping[str, Results]) -> list[Target]:
    """Against what the server itself can do: one-row commits, as many at once."""
    return [
        Target(f"{BY_NAME[case].label}, beside pgbench's inserts", ratio(loads[case], OURS, INSERTS), ">=", least, "x")
        for case, least in SHARES.items()
    ]
