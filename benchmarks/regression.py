"""`python -m benchmarks.regression COMMIT [--rounds N] [--cases a,b]`: the working tree in turn with an earlier commit.

Both are driven by the programs of this tree, so only what is under `src` differs; an earlier commit has to know the names
of the interface that the programs use. A ratio above one means that the working tree does more in the same time.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.child import ROOT, Figures, folder, run
from benchmarks.interleave import MakeDatabase, interleave, new_file, ratio
from benchmarks.postgres_server import serving
from benchmarks.report import table

BEFORE, NOW = "before", "now"
LOAD: dict[str, Any] = {"warm_up": 1.0, "seconds": 4.0}
BURSTS: dict[str, Any] = {"task": "rate", "waiting": 200, "senders": 20, "bursts": 10}
SINGLE: dict[str, Any] = {"task": "latency", "samples": 200}
_ON_SERVER = "postgres-"
_WAKEUPS = {
    f"{task}-{way}": {**load, "way": way}
    for task, load in (("rate", BURSTS), ("latency", SINGLE))
    for way in ("app", "http")
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: ("romancy_throughput", {"case": name, **LOAD})
        for name in ("twenty", "two_hundred", "ten", "singly", "sequence")
    },
    **{name: ("romancy_wakeups", load) for name, load in _WAKEUPS.items()},
}
"""The cases on SQLite, each with its program; with `postgres-` before the name it runs on a server."""
NAMES = [*CASES, *(_ON_SERVER + name for name in CASES)]


@contextmanager
def sources(commit: str) -> Iterator[Path]:
    """Unpack the sources of a commit; return their folder."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with folder() as directory, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
        yield directory / "src"


def compare(name: str, before: Path, make_database: MakeDatabase, rounds: int) -> list[object]:
    """Measure a case on both sides, in turn; return the line of the table."""
    program, load = CASES[name.removeprefix(_ON_SERVER)]
    sides = {BEFORE: partial(_measure, program, load, before), NOW: partial(_measure, program, load, ROOT / "src")}
    key = "latency" if load.get("task") == "latency" else "rate"
    results = interleave(name, sides, rounds, key, make_database=make_database)
    speed = ratio(results, BEFORE, NOW, key) if key == "latency" else ratio(results, NOW, BEFORE)
    cost = ratio(results, NOW, BEFORE, "cost") if "cost" in results[NOW][0] else None
    return [name, f"{speed:.3f}", "" if cost is None else f"{cost:.3f}"]


def _measure(program: str, load: dict[str, Any], path: Path, database: str) -> Figures:
    return run(program, {"database": database, **load}, path=path)


def main() -> None:
    """Run the cases that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regression", description="Compare with an earlier commit.")
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is repeated")
    parser.add_argument("--cases", default=",".join(NAMES), help="names with commas between: %(default)s")
    given = parser.parse_args()
    names = given.cases.split(",")
    if unknown := set(names) - set(NAMES):
        parser.error(f"no such cases: {', '.join(sorted(unknown))}")
    with sources(given.commit) as before, serving() as server:
        lines = [
            compare(name, before, server.database if name.startswith(_ON_SERVER) else new_file, given.rounds)
            for name in names
        ]
    head = ["case", "speed", "processor time of one workflow"]
    table(f"The working tree compared with {given.commit}, {given.rounds} rounds in turn", head, lines)


if __name__ == "__main__":
    main()
