"""Compares romancy on PostgreSQL with DBOS, Edda and bare commits of the same server."""

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
from benchmarks.interleave import Measure, Results, describe_peer, interleave, median_of, ratio
from benchmarks.postgres_server import Server, serving
from benchmarks.report import Target, judge, save, table

OURS, ELSEWHERE, DBOS, EDDA, INSERTS = "romancy", "romancy, sent by another client", "DBOS", "Edda", "pgbench"
WAITING, SENDERS = 200, 20
EDDA_WAITING = 20
"""The number of waiting workflows in Edda, which wakes only a few per second."""
DEFAULTS = {"wal": False, "poll_interval": None}
TIMES, MILLISECONDS, SHARE = 15, 5, 0.5
SHARES = {"twenty": 0.3, "ten": 0.8}
"""Targets: the ratio of workflows (or of activities, in workflows of ten) to one-row inserts by as many clients."""
COMMITS = {
    "one_activity": ("a one-activity workflow", 2),
    "wait": ("a wait", 1),
    "event": ("an event for a waiting instance", 1),
}


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of rounds and samples, and the duration of a measurement in seconds."""

    rounds: int
    warm_up: float
    seconds: float
    samples: int
    bursts: int
    peer_samples: int


FULL = Pace(rounds=5, warm_up=1.0, seconds=3.0, samples=100, bursts=5, peer_samples=15)
QUICK = Pace(rounds=1, warm_up=0.2, seconds=0.8, samples=20, bursts=1, peer_samples=6)


Process = tuple[str, dict[str, Any]]
"""A module of `benchmarks.processes`, and its arguments."""


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run all cases on one server, print the tables, save the figures."""
    pace = QUICK if quick else FULL
    rounds = rounds or pace.rounds
    pythons = _peers()
    with serving() as server:
        version = str(server.execute("SHOW server_version"))
        make_database = server.database
        loads = {
            case.name: interleave(case.label, _loads(case, server, pythons, pace), rounds, make_database=make_database)
            for case in ON_POSTGRES
        }
        bursts_found = interleave(
            f"{WAITING} wait, wakes/s", _wakeup_bursts(pythons, pace), rounds, make_database=make_database
        )
        single = interleave(
            "one waits, ms", _single_wakeup(pythons, pace), rounds, "latency", 1e3, make_database=make_database
        )
        bare = interleave("bare commits/s", _bare(server, pace), rounds, make_database=make_database)
        with make_database() as database:
            counts = run("romancy_commits", {"task": "counts", "database": database, "times": pace.samples})
    _print_rates(loads, bursts_found, rounds, version)
    _print_single_wakeup(single, rounds)
    _print_bare(bare, rounds)
    _print_counts(counts)
    targets = _targets(loads, bursts_found, single, counts) + _compare_with_inserts(loads)
    judge(targets)
    figures = {
        "server": version,
        "throughput": loads,
        "many": bursts_found,
        "alone": single,
        "bare": bare,
        "commits": counts,
    }
    save("postgres", figures, targets, quick=quick)


def _peers() -> dict[str, Path]:
    found = {DBOS: peer_env.install(peer_env.DBOS), EDDA: peer_env.install(peer_env.EDDA)}
    return {name: python for name, python in found.items() if python is not None}


# --- the measurements


def _engines(pythons: Mapping[str, Path], processes: Mapping[str, Process]) -> dict[str, Measure]:
    """Return a measurement for each engine that is installed."""
    engines: dict[str, Measure] = {}
    for name, (module, arguments) in processes.items():
        python = pythons.get(name) if name in (DBOS, EDDA) else Path(sys.executable)
        if python is not None:
            engines[name] = partial(_measure, python, module, arguments)
    return engines


def _measure(python: Path, module: str, arguments: Mapping[str, object], database: str) -> Figures:
    """Run one measurement. A peer gets a second try: Edda sometimes fails because of one of its own locks."""
    load = {"database": database, **arguments}
    try:
        return run(module, load, python)
    except ChildFailed as error:
        if python == Path(sys.executable):
            raise
        print(f"  {module} failed and is tried again: {str(error).splitlines()[-1]}")
        return run(module, load, python)


def _loads(case: Case, server: Server, pythons: Mapping[str, Path], pace: Pace) -> dict[str, Measure]:
    load = {"case": case.name, "warm_up": pace.warm_up, "seconds": pace.seconds}
    processes: dict[str, Process] = {
        OURS: ("romancy_throughput", load),
        DBOS: ("dbos_throughput", {**load, "wal": False}),
        EDDA: ("edda_throughput", {**load, "task": "throughput"}),
    }
    inserts = {INSERTS: partial(_pgbench, server, SENDERS, "simple", pace)} if case.name in SHARES else {}
    return _engines(pythons, processes) | inserts


def _wakeup_bursts(pythons: Mapping[str, Path], pace: Pace) -> dict[str, Measure]:
    load = {"task": "rate", "waiting": WAITING, "senders": SENDERS, "bursts": pace.bursts}
    processes: dict[str, Process] = {
        OURS: ("romancy_wakeups", {**load, "way": "app"}),
        DBOS: ("dbos_wakeups", {**load, **DEFAULTS}),
        EDDA: ("edda_wakeups", {**load, "waiting": EDDA_WAITING, "bursts": 1}),
    }
    return _engines(pythons, processes)


def _single_wakeup(pythons: Mapping[str, Path], pace: Pace) -> dict[str, Measure]:
    ours = {"task": "latency", "samples": pace.samples}
    processes: dict[str, Process] = {
        OURS: ("romancy_wakeups", {**ours, "way": "app"}),
        ELSEWHERE: ("romancy_wakeups", {**ours, "way": "elsewhere"}),
        DBOS: ("dbos_wakeups", {**ours, "samples": pace.peer_samples, **DEFAULTS}),
        EDDA: ("edda_wakeups", {**ours, "samples": pace.peer_samples // 3}),
    }
    return _engines(pythons, processes)


def _bare(server: Server, pace: Pace) -> dict[str, Measure]:
    load = {"task": "commits", "warm_up": pace.warm_up, "seconds": pace.seconds}
    ours: dict[str, Process] = {
        f"asyncpg, {_connections(number)}": ("bare_postgres", {**load, "connections": number}) for number in (1, SENDERS)
    }
    peers: dict[str, Measure] = {
        f"pgbench, {_connections(number)}": partial(_pgbench, server, number, "simple", pace) for number in (1, SENDERS)
    }
    prepared = partial(_pgbench, server, SENDERS, "prepared", pace)
    return _engines({}, ours) | peers | {f"pgbench, {_connections(SENDERS)}, prepared": prepared}


def _pgbench(server: Server, connections: int, protocol: str, pace: Pace, database: str) -> Figures:
    """Run PostgreSQL's own benchmark with the same rows."""
    server.execute("CREATE TABLE rows (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value BYTEA NOT NULL)", database)
    with folder() as directory:
        script = directory / "insert.sql"
        script.write_text("INSERT INTO rows (value) VALUES ('{\"number\": 1}');\n", "utf-8")
        options = [
            "--no-vacuum",
            f"--protocol={protocol}",
            f"--client={connections}",
            f"--time={max(1, round(pace.seconds))}",
        ]
        command = [str(server.programs / "pgbench"), *options, f"--file={script}", database]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"tps = ([\d.]+)", output)
    assert found is not None, output
    return {"rate": float(found[1])}


def _connections(number: int) -> str:
    return f"{number} connection{'s' if number > 1 else ''}"


# --- the tables


def _print_rates(loads: Mapping[str, Results], bursts_found: Results, rounds: int, version: str) -> None:
    names = list(bursts_found)
    rows = [_row(case.label, f"{case.unit}/s", loads[case.name], names) for case in ON_POSTGRES]
    rows.append(_row(f"{WAITING} woken by {SENDERS} senders", "wakes/s", bursts_found, names))
    notes = [
        "× is the median of each round's ratio. One private server with durable commits, a database for each measurement.",
        *(describe_peer(name, bursts_found[name][0], "") for name in names if name != OURS),
    ]
    if EDDA in names:
        notes.append(f"Edda: workflows of 100 activities instead of 500, {EDDA_WAITING} waiting instead of {WAITING}.")
    table(
        f"PostgreSQL {version}: medians of {rounds} rounds, engines interleaved",
        ["", "unit", *names, *(f"× {name}" for name in names if name != OURS)],
        rows,
        notes,
    )


def _row(label: str, unit: str, results: Results, names: Sequence[str]) -> list[object]:
    rates = [median_of(results, name) for name in names]
    return [label, unit, *rates, *(ratio(results, OURS, name) for name in names if name != OURS)]


def _print_single_wakeup(results: Results, rounds: int) -> None:
    rows: list[list[object]] = []
    for name, found in results.items():
        times = sorted(time for one in found for time in one["all"])
        worst = times[int(0.95 * len(times))]
        rows.append([name, median_of(results, name, "latency") * 1e3, worst * 1e3, ratio(results, name, OURS, "latency")])
    table(
        f"Waking one idle workflow on PostgreSQL: medians of {rounds} rounds, engines interleaved",
        ["", "median ms", "95 % within", "× romancy"],
        rows,
        ["From the call that sends the event to the line after the wait, in one process, after a pause of random length."],
    )


def _print_bare(results: Results, rounds: int) -> None:
    table(
        f"The same server without an engine, one row for each commit: medians of {rounds} rounds",
        ["", "commits/s"],
        [[name, median_of(results, name)] for name in results],
    )


def _print_counts(counts: Figures) -> None:
    table(
        "Commits, one workflow at a time, without heartbeats and notifications",
        ["", "commits"],
        [[what, counts[key]] for key, (what, _) in COMMITS.items()],
    )


def _targets(loads: Mapping[str, Results], bursts_found: Results, single: Results, counts: Figures) -> list[Target]:
    targets: list[Target] = []
    if DBOS in bursts_found:
        for case in ON_POSTGRES:
            assert case.target is not None
            targets.append(
                Target(f"{case.label}, compared with DBOS", ratio(loads[case.name], OURS, DBOS), ">=", case.target, "x")
            )
        what = f"{WAITING} woken by {SENDERS} senders, compared with DBOS"
        targets.append(Target(what, ratio(bursts_found, OURS, DBOS), ">=", TIMES, "x"))
    targets.append(Target("waking an idle workflow", median_of(single, OURS, "latency") * 1e3, "<=", MILLISECONDS, " ms"))
    if DBOS in single:
        targets.append(Target("the same, compared with DBOS", ratio(single, OURS, DBOS, "latency"), "<", SHARE, "x"))
    return targets + [Target(f"commits of {what}", counts[key], "<=", most) for key, (what, most) in COMMITS.items()]


def _compare_with_inserts(loads: Mapping[str, Results]) -> list[Target]:
    """Compare with the server's own limit: one-row commits by as many clients."""
    return [
        Target(
            f"{BY_NAME[case].label}, compared with pgbench's inserts", ratio(loads[case], OURS, INSERTS), ">=", least, "x"
        )
        for case, least in SHARES.items()
    ]
