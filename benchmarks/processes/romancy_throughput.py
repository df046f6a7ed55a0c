"""Measures romancy under one load."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.cases import BY_NAME, Case
from benchmarks.load_generator import LoadResult, drive
from romancy import ActivityContext, App, WorkflowContext, activity, workflow


@activity
async def add(ctx: ActivityContext, number: int) -> int:
    """The cheapest possible activity."""
    return number + 1


@workflow
async def count(ctx: WorkflowContext, steps: int) -> int:
    """Run activities one after another."""
    number = 0
    for _ in range(steps):
        number = await add(ctx, number)
    return number


async def load(app: App, case: Case, seconds: float) -> LoadResult:
    """Run a case's load for a time."""

    async def one() -> None:
        handle = await app.start_workflow(count, case.activities)
        assert await handle.result() == case.activities

    return await drive(one, at_once=case.at_once, seconds=seconds)


async def measure(database: str, case: Case, warm_up: float, seconds: float) -> dict[str, Any]:
    """Return a case's rate, and the processor seconds of one workflow, after a warm-up."""
    async with App(database) as app:
        await load(app, case, warm_up)
        begin = time.process_time()
        loaded = await load(app, case, seconds)
        cost = (time.process_time() - begin) / loaded.done
    return {"rate": loaded.rate * case.weight, "seconds": loaded.seconds, "latency": loaded.latency, "cost": cost}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(measure(given["database"], BY_NAME[given["case"]], given["warm_up"], given["seconds"]))))
