"""Measures a process that starts very many waiting instances, or runs workflows on a file with them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from time import perf_counter
from typing import Any

from benchmarks.cases import BY_NAME
from benchmarks.memory import resident_mb
from benchmarks.processes.romancy_throughput import load
from benchmarks.processes.task_entry import perform
from romancy import App, WorkflowContext, sleep, workflow

WEEK = 7 * 24 * 3600
AT_ONCE = 500


@workflow
async def sleeper(ctx: WorkflowContext) -> None:
    """Wait for longer than any benchmark."""
    await sleep(ctx, WEEK)


async def fill(database: str, instances: int) -> dict[str, Any]:
    """Start all instances; return how long that takes, and how much memory they occupy."""
    left = iter(range(instances))
    async with App(database) as app:
        await _rate(app, 0.5)
        idle = resident_mb()
        begin = perf_counter()

        async def start_some() -> None:
            for _ in left:
                await app.start_workflow(sleeper)

        await asyncio.gather(*(start_some() for _ in range(AT_ONCE)))
        await _all_asleep(database, instances)
        seconds = perf_counter() - begin
        return {"seconds": seconds, "idle_mb": idle, "filled_mb": resident_mb()}


async def _all_asleep(database: str, instances: int) -> None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        query = "SELECT count(*) FROM romancy_instances WHERE status = 'waiting_for_timer'"
        while connection.execute(query).fetchone()[0] < instances:
            await asyncio.sleep(0.1)


async def measure(database: str, seconds: float) -> dict[str, Any]:
    """Open the file; return the time until the app has started, the speed of other workflows, and the memory."""
    begin = perf_counter()
    async with App(database) as app:
        started = perf_counter() - begin
        first = perf_counter()
        await _rate(app, 0.0)
        first = perf_counter() - first
        await _rate(app, 0.5)
        twenty, singly = await _rate(app, seconds), await _rate(app, seconds, "singly")
        return {
            "start": started,
            "first": first,
            "rate": twenty.rate,
            "latency": twenty.latency,
            "single_latency": singly.latency,
            "resident_mb": resident_mb(),
        }


async def _rate(app: App, seconds: float, case: str = "twenty") -> Any:
    return await load(app, BY_NAME[case], seconds)


if __name__ == "__main__":
    perform(fill, measure)
