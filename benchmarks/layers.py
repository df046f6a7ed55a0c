"""Measures where the time of a one-activity workflow goes, by layer and by function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from benchmarks.cases import BY_NAME
from benchmarks.child import folder, run
from benchmarks.report import save, table

_TOP = 30
_CASES = ("twenty", "singly")
_LAYERS = (
    ("src/romancy/core/", "core: replay loop, execution"),
    ("src/romancy/serde/", "serde: values and bytes"),
    ("src/romancy/authoring/", "authoring: what users call"),
    ("src/romancy/worker/", "worker: hosts, attempts"),
    ("src/romancy/store/committer", "store: committer"),
    ("src/romancy/store/sqlite/", "store: deciding, binding rows"),
    ("src/romancy/", "app, client, model, clock, ids"),
    ("asyncio/", "asyncio"),
    ("benchmarks/", "the benchmark itself"),
)
_STATEMENTS = "SQLite: statements"
_TRANSACTIONS = "SQLite: BEGIN and COMMIT, with the sync"


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Profile both loads, print the tables, save the figures."""
    seconds = 1.0 if quick else 4.0
    timed = {case: _profile("threads", case, seconds) for case in _CASES}
    profiled = {case: _profile("functions", case, seconds) for case in _CASES}
    for case, found in timed.items():
        _print_threads(BY_NAME[case].label, found)
    _print_layers(list(profiled.values()))
    _print_functions(profiled[_CASES[0]])
    layers = {
        case: {layer: spent / found["done"] for layer, spent in _shares(found).items()} for case, found in profiled.items()
    }
    save("profile", {"threads": timed, "layers": layers}, [], quick=quick)


def _profile(task: str, case: str, seconds: float) -> dict[str, Any]:
    with folder() as directory:
        database = str(directory / "bench.db")
        return run("romancy_profile", {"task": task, "database": database, "case": case, "seconds": seconds})


def _print_threads(label: str, timed: dict[str, Any]) -> None:
    done = timed["done"]
    used = {name: seconds for name, seconds in timed["threads"].items() if seconds > 0}
    table(
        f"Processor time of one workflow by thread ({label}; no profiler)",
        ["", "µs", "% of wall time"],
        [
            ["wall time", timed["seconds"] / done * 1e6, ""],
            *([name, seconds / done * 1e6, 100 * seconds / timed["seconds"]] for name, seconds in used.items()),
        ],
        [
            f"{done / timed['seconds']:,.0f} workflows/s; {timed['writes'] / done:.2f} writes each, "
            f"{timed['writes'] / timed['batches']:.1f} writes in a transaction."
        ],
    )


def _print_layers(profiled: Sequence[dict[str, Any]]) -> None:
    """Print each layer's own time, and its share of the time without the transactions, which depend on the disk."""
    shares = [(found["done"], _shares(found)) for found in profiled]
    totals = [sum(spent for layer, spent in found.items() if layer != _TRANSACTIONS) for _, found in shares]
    rows: list[list[object]] = []
    for layer in sorted(shares[0][1], key=lambda layer: -shares[0][1][layer]):
        row: list[object] = [layer]
        for (done, found), total in zip(shares, totals, strict=True):
            share = "" if layer == _TRANSACTIONS else f"{100 * found[layer] / total:.0f}"
            row += [found[layer] / done * 1e6, share]
        rows.append(row)
    table(
        "Own time of one workflow by layer (cProfile, the store inline; C functions count to their callers)",
        ["", *(column for case in _CASES for column in (f"{BY_NAME[case].at_once} at once, µs", "%"))],
        rows,
        [
            "%: of all but the transactions. The profiler makes Python calls about twice as slow, but not SQLite's work:",
            "compare the shares of Python with each other.",
        ],
    )


def _print_functions(profiled: dict[str, Any]) -> None:
    done = profiled["done"]
    entries = sorted(profiled["functions"], key=lambda entry: -entry["own"])[:_TOP]
    table(
        f"The {_TOP} most expensive functions (20 at once)",
        ["", "µs a workflow", "calls a workflow"],
        [[_label(entry), entry["own"] / done * 1e6, entry["calls"] / done] for entry in entries],
    )


def _shares(profiled: dict[str, Any]) -> dict[str, float]:
    shares: dict[str, float] = defaultdict(float)
    for entry in profiled["functions"]:
        shares[_layer(entry)] += entry["own"]
    return shares


def _layer(entry: dict[str, Any]) -> str:
    if "sqlite3." in entry["name"]:
        return _TRANSACTIONS if entry["caller"] == "write" else _STATEMENTS
    file = entry["file"].replace("\\", "/")
    return next((label for part, label in _LAYERS if part in file), "the rest of Python")


def _label(entry: dict[str, Any]) -> str:
    place = "/".join(entry["file"].replace("\\", "/").split("/")[-2:])
    name = entry["name"].strip("<>")
    return f"{place} {entry['caller']} → {name}" if entry["caller"] else f"{place} {name}"
