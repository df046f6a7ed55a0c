"""DBOS under one load, each of its ways chosen in its favour.

- Workflows and steps are `async def`, as on our side.
- `start_workflow_async` with `get_result()`: measured faster than awaiting the workflow directly, and the nearest to what
  our side does. The pool of 20 connections is its default; smaller ones were slower, or no faster under WAL.
- Commits are durable, as ours are: `synchronous` is FULL. That is also what it gets when nothing is said.
- The journal is as it comes, or WAL, which makes it about twice as fast. Both are measured (`dbos_engine`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from dbos import DBOS

from benchmarks.cases import BY_NAME, Case
from benchmarks.load_generator import Driven, drive
from benchmarks.processes.dbos_engine import circumstances, dbos


@DBOS.step()
async def add(number: int) -> int:
    """The cheapest step there is."""
    return number + 1


@DBOS.workflow()
async def count(steps: int) -> int:
    """Add one, again and again."""
    number = 0
    for _ in range(steps):
        number = await add(number)
    return number


async def load(case: Case, seconds: float) -> Driven:
    """Run a case's load for a while."""

    async def one() -> None:
        handle = await DBOS.start_workflow_async(count, case.activities)
        assert await handle.get_result() == case.activities

    return await drive(one, at_once=case.at_once, seconds=seconds)


async def measure(database: str, wal: bool, case: Case, warm_up: float, seconds: float) -> dict[str, Any]:
    """A case's rate, after a warm-up."""
    with dbos(database, wal=wal):
        await load(case, warm_up)
        driven = await load(case, seconds)
    return {"rate": driven.rate * case.weight, "seconds": driven.seconds, "latency": driven.latency, **circumstances()}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    case = BY_NAME[given["case"]]
    print(json.dumps(asyncio.run(measure(given["database"], given["wal"], case, given["warm_up"], given["seconds"]))))
