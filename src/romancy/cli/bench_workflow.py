"""The workflow of `romancy bench`. Only that command imports this module, because the import registers the workflow."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from typing import Any

from romancy.app import App
from romancy.authoring.activity import activity
from romancy.authoring.context import ActivityContext, WorkflowContext
from romancy.authoring.workflow import workflow
from romancy.cli.target import check_schema
from romancy.clock import monotonic

_NAME = "romancy.bench"
_SINGLE = 20
"""The number of instances that run one after another."""


@activity(name=f"{_NAME}.step")
async def _step(ctx: ActivityContext, number: int) -> int:
    return number


@workflow(name=_NAME)
async def _run(ctx: WorkflowContext, number: int) -> int:
    return await _step(ctx, number)


async def measure_rates(database: str, number: int, at_once: int) -> dict[str, Any]:
    """Run the workflow on a database, and return the rates."""
    await check_schema(database)
    async with App(database, workflows=[_run], auto_migrate=False, service_name="romancy bench") as app:
        await _one(app, 0)  # not measured: the first run includes costs that occur only once
        singles = [await _one(app, at) for at in range(_SINGLE)]
        begun = monotonic()
        left = iter(range(number))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, number)):
                group.create_task(_many(app, left))
        took = monotonic() - begun
    median = statistics.median(singles)
    return {
        "workflows": number,
        "at_once": at_once,
        "workflows_per_second": round(number / took, 1),
        "one_after_another_per_second": round(1 / median, 1),
        "median_ms": round(median * 1000, 3),
    }


async def _many(app: App, left: Iterator[int]) -> None:
    for number in left:
        await _one(app, number)


async def _one(app: App, number: int) -> float:
    begun = monotonic()
    await (await app.start_workflow(_run, number)).result()
    return monotonic() - begun
