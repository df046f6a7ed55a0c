"""Measures DBOS under one load, with each choice made in its favour.

- Workflows and steps are `async def`, as in romancy's measurement.
- `start_workflow_async` with `get_result()`: measured faster than awaiting the workflow directly, and the nearest to
  romancy's measurement. The pool of 20 connections is the default; smaller ones were slower, or no faster under WAL.
- Commits are durable, as romancy's are: `synchronous` is FULL, which is also SQLite's default.
- The journal mode is DBOS's default, or WAL, which makes it about twice as fast. Both are measured (`dbos_engine`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from dbos import DBOS

from benchmarks.cases import BY_NAME, Case
from benchmarks.load_generator import LoadResult, drive
from benchmarks.processes.dbos_engine import circumstances, dbos


@DBOS.step()
async def add(number: int) -> int:
    """The cheapest possible step."""
    return number + 1


@DBOS.workflow()
async def count(steps: int) -> int:
    """Run steps one after another."""
    number = 0
    for _ in range(steps):
        number = await add(number)
    return number


async def load(case: Case, seconds: float) -> LoadResult:
    """Run a case's load for a time."""

    async def one() -> None:
        handle = await DBOS.start_workflow_async(count, case.activities)
        assert await handle.get_result() == case.activities

    return await drive(one, at_once=case.at_once, seconds=seconds)


async def measure(database: str, wal: bool, case: Case, warm_up: float, seconds: float) -> dict[str, Any]:
    """Return a case's rate, after a warm-up."""
    with dbos(database, wal=wal):
        await load(case, warm_up)
        loaded = await load(case, seconds)
    return {"rate": loaded.rate * case.weight, "seconds": loaded.seconds, "latency": loaded.latency, **circumstances()}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    case = BY_NAME[given["case"]]
    print(json.dumps(asyncio.run(measure(given["database"], given["wal"], case, given["warm_up"], given["seconds"]))))
