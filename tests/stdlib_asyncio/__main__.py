"""Runs Python's own tests of asyncio as workflow bodies: `python -m tests.stdlib_asyncio [--quick] [PATTERN ...]`.

Each test runs live, every prefix of its history is replayed, and another process with another hash seed replays it again.
The run fails on a difference, on a failure that `exceptions.toml` does not list, and on a listed test that passes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections import Counter
from fnmatch import fnmatch
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from romancy.model.history import Entry, Kind, Outcome, Role

HERE = Path(__file__).parent
SKIPPED = "SKIPPED: asyncio's own tests: this Python was installed without its package `test`"
QUICK = (
    "test_eager_task_factory.",
    "test_tasks.Py",
    "test_tasks.CTask_Py",
    "test_tasks.CTaskSubclass",
    "test_tasks.CTask_CFuture_Sub",
)
"""Tests that `--quick` leaves out: the same tests with other implementations of tasks."""


def main() -> int:
    options = _arguments()
    try:
        importlib.import_module("test.test_asyncio")
    except ImportError:
        print(SKIPPED)
        return 0
    _silence_asyncio()
    if options.replay:
        return _replay(Path(options.replay))
    began = time.monotonic()
    results, histories = _run_cases(options)
    for name, difference in _replay_elsewhere(histories).items():
        results[name] = f"in another process: {difference}"
    unexpected = _unexpected(results, complete=not options.patterns)
    counts = Counter(
        "passed" if one == "passed" else "skipped" if one == "skipped" else "differ" for one in results.values()
    )
    print("\n".join(unexpected))
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"asyncio's own tests on Python {version}: {len(results)} run in {time.monotonic() - began:.0f} s, "
        f"{counts['passed']} pass, {counts['differ']} differ, {counts['skipped']} skipped by Python; "
        f"{len(unexpected)} not as listed in {Path('tests/stdlib_asyncio/exceptions.toml')}"
    )
    return 1 if unexpected or not counts["passed"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stdlib_asyncio", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("patterns", nargs="*", help="only tests whose names match")
    parser.add_argument("--quick", action="store_true", help="each test with one implementation of tasks only")
    parser.add_argument("--all", action="store_true", help="print the outcome of each test")
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    return parser.parse_args()


def _silence_asyncio() -> None:
    """Suppress the warnings of asyncio that the tests provoke."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: None


def _run_cases(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, Any]]:
    from tests.stdlib_asyncio.bodies import body_of, cases, check_replays

    results: dict[str, str] = {}
    histories: dict[str, Any] = {}
    for name, case in cases():
        if (options.quick and name.startswith(QUICK)) or _is_listed(name, "left_out"):
            continue
        if options.patterns and not any(fnmatch(name, pattern) for pattern in options.patterns):
            continue
        outcome, result = check_replays(body_of(case))
        results[name] = outcome
        if options.all:
            print(f"{name}: {outcome}", flush=True)
        if outcome == "passed":
            entries = [[entry.seq, entry.op, entry.at, entry.digest.hex()] for entry in result.history]
            histories[name] = [entries, _digest(result.trace)]
    return results, histories


def _digest(trace: list[str]) -> str:
    return blake2b("\n".join(trace).encode(), digest_size=8).hexdigest()


def _replay_elsewhere(histories: dict[str, Any]) -> dict[str, str]:
    """Replay the histories in another process, with other hashes and addresses."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "histories.json"
        file.write_text(json.dumps(histories))
        seed = str(1 + os.getpid() % 4_000_000)
        command = [sys.executable, "-m", "tests.stdlib_asyncio", "--replay", str(file)]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise SystemExit(f"the process that replays ended with {done.returncode}")
        found: dict[str, str] = json.loads(file.with_suffix(".found").read_text())
        return found


def _replay(file: Path) -> int:
    from tests.stdlib_asyncio.bodies import body_of, cases, replayed

    found: dict[str, str] = {}
    histories: dict[str, Any] = json.loads(file.read_text())
    for name, case in cases():
        if name not in histories:
            continue
        recorded, trace = histories[name]
        entries = [
            Entry(seq, Kind.TIMER, op, Outcome.OK, at, role=Role.FED, digest=bytes.fromhex(digest))
            for seq, op, at, digest in recorded
        ]
        again = replayed(body_of(case), entries)
        if again.outcome != "passed":
            found[name] = again.outcome
        elif _digest(again.trace) != trace:
            found[name] = "another order of callbacks"
    file.with_suffix(".found").write_text(json.dumps(found))
    return 0


@cache
def _exceptions(kind: str) -> list[tuple[str, str]]:
    """The patterns of one kind that apply to this Python, with their reasons."""
    version = ".".join(map(str, sys.version_info[:2]))
    tables: list[dict[str, Any]] = tomllib.loads((HERE / "exceptions.toml").read_text()).get(kind, [])
    return [(test, one["reason"]) for one in tables if version in one.get("only", [version]) for test in one["tests"]]


def _is_listed(name: str, kind: str) -> bool:
    return any(fnmatch(name, pattern) for pattern, _ in _exceptions(kind))


def _unexpected(results: dict[str, str], *, complete: bool) -> list[str]:
    unexpected = [
        f"FAILED {name}: {one}"
        for name, one in results.items()
        if one not in ("passed", "skipped") and not _is_listed(name, "differs")
    ]
    unexpected += [
        f"PASSED although listed in exceptions.toml: {name}"
        for name, one in results.items()
        if one == "passed" and _is_listed(name, "differs")
    ]
    if complete:
        unexpected += [
            f"NO SUCH TEST: {pattern}"
            for pattern, _ in _exceptions("differs")
            if not any(fnmatch(name, pattern) for name in results)
        ]
    return unexpected


if __name__ == "__main__":
    sys.exit(main())
