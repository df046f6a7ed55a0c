"""Measures the waking of waiting workflows: latency, rate, and the statements of an idle app."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peer_env
from benchmarks.child import Figures, folder, run
from benchmarks.interleave import Measure, Results, describe_peer, interleave, median_of, ratio
from benchmarks.report import Target, judge, save, table

HTTP, CALL, COLD, ELSEWHERE = (
    "romancy, HTTP",
    "romancy",
    "romancy, HTTP, not in memory",
    "romancy, sent by another client of the file",
)
THEIRS, EAGER = "DBOS", "DBOS, WAL, polls every 10 ms"
MILLISECONDS, TIMES = 5, 20
WAITING, SENDERS = 200, 20
_WAYS = {HTTP: "http", CALL: "app", COLD: "cold", ELSEWHERE: "elsewhere"}
_SETTINGS: dict[str, dict[str, Any]] = {
    THEIRS: {"wal": False, "poll_interval": None},
    EAGER: {"wal": True, "poll_interval": 0.01},
}


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Wake one workflow and many, count statements, print the tables, save the figures."""
    rounds = rounds or (1 if quick else 5)
    python = peer_env.install()
    single = interleave("one waits, ms", _latency(python, quick=quick), rounds, "latency", 1e3)
    bursts_found = interleave(f"{WAITING} wait, wakes/s", _rate(python, quick=quick), rounds)
    counted = _statements(python)
    _print_single_wakeup(single, rounds)
    _print_bursts(bursts_found, rounds)
    _print_statements(counted)
    targets = _targets(single, bursts_found, counted)
    judge(targets)
    save("waking", {"alone": single, "many": bursts_found, "statements": counted}, targets, quick=quick)


def _latency(python: Path | None, *, quick: bool) -> dict[str, Measure]:
    samples, theirs = (40, 5) if quick else (200, 15)
    ours: dict[str, Measure] = {
        name: partial(_ours, task="latency", way=way, samples=samples) for name, way in _WAYS.items()
    }
    return ours | {name: partial(_theirs, python, name, task="latency", samples=theirs) for name in _peers(python)}


def _rate(python: Path | None, *, quick: bool) -> dict[str, Measure]:
    load: dict[str, Any] = {"task": "rate", "waiting": WAITING, "senders": SENDERS}
    bursts, theirs = (3, 1) if quick else (10, 3)
    ours: dict[str, Measure] = {name: partial(_ours, **load, way=_WAYS[name], bursts=bursts) for name in (HTTP, CALL)}
    return ours | {name: partial(_theirs, python, name, **load, bursts=theirs) for name in _peers(python)}


def _statements(python: Path | None) -> dict[str, Figures]:
    load: dict[str, Any] = {
        "task": "statements",
        "waiting": WAITING,
        "seconds": 5.0,
    }  # long enough for a heartbeat of each engine
    with folder() as directory:
        found = {CALL: _ours(str(directory / "ours.db"), **load)}
        if python is not None:
            found[THEIRS] = _theirs(python, THEIRS, str(directory / "theirs.db"), **load)
    return found


def _peers(python: Path | None) -> list[str]:
    return [] if python is None else [THEIRS, EAGER]


def _ours(file: str, **arguments: object) -> Figures:
    return run("romancy_wakeups", {"database": file, **arguments})


def _theirs(python: Path | None, name: str, file: str, **arguments: object) -> Figures:
    assert python is not None
    return run("dbos_wakeups", {"database": file, **_SETTINGS[name], **arguments}, python)


def _print_single_wakeup(results: Results, rounds: int) -> None:
    rows: list[list[object]] = []
    for name, found in results.items():
        times = sorted(time for one in found for time in one["all"])
        worst = times[int(0.95 * len(times))]
        rows.append([name, median_of(results, name, "latency") * 1e3, worst * 1e3, ratio(results, name, HTTP, "latency")])
    notes = [
        "From sending to the line after the wait, after a pause of random length. Not HTTP: app.send_event, DBOS.send.",
        "HTTP: a structured CloudEvent posted to uvicorn over loopback, with the client on the app's own event loop.",
        *(describe_peer(name, results[name][0]) for name in (THEIRS, EAGER) if name in results),
    ]
    table(
        f"Waking one idle workflow: medians of {rounds} rounds, engines interleaved",
        ["", "median ms", "95 % within", "× romancy, HTTP"],
        rows,
        notes,
    )


def _print_bursts(results: Results, rounds: int) -> None:
    peers = [name for name in (THEIRS, EAGER) if name in results]
    rows = [
        [name, median_of(results, name), *(ratio(results, name, other) for other in peers if name not in peers)]
        for name in results
    ]
    table(
        f"{WAITING} waiting workflows woken by {SENDERS} senders: medians of {rounds} rounds, engines interleaved",
        ["", "wakes/s", *(f"× {name}" for name in peers)],
        [row + [""] * (2 + len(peers) - len(row)) for row in rows],
        ["From the first sending to the last line after a wait; a sender waits for each response before it sends again."],
    )


def _print_statements(counted: dict[str, Figures]) -> None:
    rows: list[list[object]] = []
    for name, found in counted.items():
        for key, what in (
            ("none_waiting", "no workflow waits"),
            ("some_waiting", f"{WAITING} wait"),
            ("silent", f"{WAITING} wait, no regular work"),
        ):
            if key in found:
                polls = found[key].get("PRAGMA data_version", 0)
                rows.append([f"{name}: {what}", sum(found[key].values()) - polls, polls])
    seconds = next(iter(counted.values()))["seconds"]
    waking = counted[CALL]["waking"]
    table(
        f"Statements of an idle app in {seconds:g} s",
        ["", "statements", "polls for remote commits"],
        rows,
        [
            "A poll is PRAGMA data_version, which reads no table.",
            "No regular work: without polls and heartbeats. An event then wakes a workflow within "
            f"{counted[CALL]['woken'] * 1e3:.1f} ms, with {sum(waking.values())} statements.",
        ],
    )


def _targets(single: Results, bursts_found: Results, counted: dict[str, Figures]) -> list[Target]:
    targets = [
        Target(
            "HTTP event to the next line of an idle workflow",
            median_of(single, HTTP, "latency") * 1e3,
            "<=",
            MILLISECONDS,
            " ms",
        ),
        Target("statements of a waiting app without regular work", sum(counted[CALL]["silent"].values()), "<=", 0),
    ]
    if THEIRS in bursts_found:
        what = f"{WAITING} woken by {SENDERS} senders, by calls, compared with DBOS (default settings)"
        targets.append(Target(what, ratio(bursts_found, CALL, THEIRS), ">=", TIMES, "x"))
    return targets
