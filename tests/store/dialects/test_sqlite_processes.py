"""Several processes on one file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.conformance.builders import create, write

from romancy.clock import SystemClock
from romancy.model.status import Status
from romancy.store.migrator import read_migrations
from romancy.store.open import open_store
from romancy.store.sqlite.schema import MIGRATIONS

STRESS_WORKER = Path(__file__).with_name("stress_worker.py")
OPEN = """
import asyncio, sys
from romancy.clock import SystemClock
from romancy.store.open import open_store

async def main():
    store = open_store(sys.argv[1], clock=SystemClock())
    sys.stdin.readline()
    await store.open()
    await store.close()

asyncio.run(main())
"""


async def run(*args: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, *args, stdin=pipe, stdout=pipe, stderr=pipe)


async def finish(*processes: asyncio.subprocess.Process) -> list[str]:
    """Let all processes begin at once, and return their outputs."""
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors.decode()
    return [reports.decode() for reports, _ in outputs]


async def test_four_processes_race_to_migrate(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await finish(*[await run("-W", "error", "-c", OPEN, str(path)) for _ in range(4)])
    with closing(sqlite3.connect(path)) as connection:
        versions = connection.execute("SELECT version FROM romancy_migrations").fetchall()
    assert versions == [(one.version,) for one in read_migrations(MIGRATIONS)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_two_processes_hammer_one_file(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.db"
    ids = [f"i{n:03}" for n in range(40)]
    store = open_store(str(path), clock=SystemClock())
    await store.open()
    kinds = ("order", "mail")
    await write(store, *(create(one, now=1, owner=None, workflow=kinds[n % 2]) for n, one in enumerate(ids)))
    processes = [
        await run(str(STRESS_WORKER), str(path), me, rival, "30", str(seed)) for me, rival in (("x", "y"), ("y", "x"))
    ]
    reports = [json.loads(line) for line in await finish(*processes)]
    assert await store.statuses(ids) == dict.fromkeys(ids, Status.COMPLETED)
    histories = {one: await store.history(one, 1, after=0, limit=99) for one in ids}
    await store.close()
    assert sum(map(len, histories.values())) == sum(one["acknowledged"] for one in reports), (
        "no entry was lost or written twice"
    )
    for history in histories.values():
        assert [entry.seq for entry in history] == list(range(1, len(history) + 1))
        writers: dict[int, set[str]] = defaultdict(set)
        for entry in history:
            writers[entry.epoch].add(entry.worker)
        assert all(len(workers) == 1 for workers in writers.values()), "each epoch has one owner"
    assert sum(one["refused"] for one in reports) > 0, "no write was fenced, so the test shows nothing"
