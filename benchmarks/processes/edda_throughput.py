"""Measures Edda under one load. Its `start` returns when the workflow has ended."""

from __future__ import annotations

from typing import Any

from edda import WorkflowContext, activity, workflow

from benchmarks.cases import BY_NAME
from benchmarks.load_generator import LoadResult, drive
from benchmarks.processes.edda_engine import circumstances, edda
from benchmarks.processes.task_entry import perform

LONGEST = 100
"""Most activities of one workflow: workflows that have begun are finished, and longer ones would take too long."""
results: list[int] = []


@activity
async def add(ctx: WorkflowContext, number: int) -> int:
    """The cheapest possible activity."""
    return number + 1


@workflow
async def count(ctx: WorkflowContext, steps: int) -> int:
    """Run activities one after another."""
    number = 0
    for _ in range(steps):
        number = await add(ctx, number)
    results.append(number)
    return number


async def load(steps: int, at_once: int, seconds: float) -> LoadResult:
    """Run a load for a time."""

    async def one() -> None:
        await count.start(steps=steps)

    loaded = await drive(one, at_once=at_once, seconds=seconds)
    assert results == [steps] * loaded.done
    results.clear()
    return loaded


async def throughput(database: str, case: str, warm_up: float, seconds: float) -> dict[str, Any]:
    """Return a case's rate, after a warm-up."""
    wanted = BY_NAME[case]
    steps = min(wanted.activities, LONGEST)
    weight = steps if wanted.unit == "activities" else 1
    async with edda(database):
        await load(1, 1, 0.0)  # the very first run by itself: two first runs at the same time fail
        await load(min(steps, 10), wanted.at_once, warm_up)
        loaded = await load(steps, wanted.at_once, seconds)
    return {"rate": loaded.rate * weight, "seconds": loaded.seconds, "latency": loaded.latency, **circumstances()}


if __name__ == "__main__":
    perform(throughput)
