"""Edda under one load. Its `start` returns when the workflow has ended."""

from __future__ import annotations

from typing import Any

from edda import WorkflowContext, activity, workflow

from benchmarks.cases import BY_NAME
from benchmarks.load_generator import Driven, drive
from benchmarks.processes.edda_engine import circumstances, edda
from benchmarks.processes.task_entry import perform

LONGEST = 100
"""Activities of one workflow: what is begun is finished, and that would take long."""
results: list[int] = []


@activity
async def add(ctx: WorkflowContext, number: int) -> int:
    """The cheapest activity there is."""
    return number + 1


@workflow
async def count(ctx: WorkflowContext, steps: int) -> int:
    """Add one, again and again."""
    number = 0
    for _ in range(steps):
        number = await add(ctx, number)
    results.append(number)
    return number


async def load(steps: int, at_once: int, seconds: float) -> Driven:
    """Run a load for a while."""

    async def one() -> None:
        await count.start(steps=steps)

    driven = await drive(one, at_once=at_once, seconds=seconds)
    assert results == [steps] * driven.done
    results.clear()
    return driven


async def throughput(database: str, case: str, warm_up: float, seconds: float) -> dict[str, Any]:
    """A case's rate, after a warm-up."""
    wanted = BY_NAME[case]
    steps = min(wanted.activities, LONGEST)
    weight = steps if wanted.unit == "activities" else 1
    async with edda(database):
        await load(1, 1, 0.0)  # the first of all alone: it cannot be begun for the first time twice at once
        await load(min(steps, 10), wanted.at_once, warm_up)
        driven = await load(steps, wanted.at_once, seconds)
    return {"rate": driven.rate * weight, "seconds": driven.seconds, "latency": driven.latency, **circumstances()}


if __name__ == "__main__":
    perform(throughput)
