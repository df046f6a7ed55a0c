"""Measures a workflow that recurs again and again."""

from __future__ import annotations

from time import perf_counter, process_time
from typing import Any

from benchmarks.memory import resident_mb
from benchmarks.processes.task_entry import perform
from romancy import ActivityContext, App, WorkflowContext, activity, workflow

Stamp = tuple[float, float]
marks: dict[int, tuple[Stamp, float, Stamp]] = {}
"""By round: the time, the memory, and the time after the memory was measured."""


@activity
async def tick(ctx: ActivityContext, number: int, window: int) -> int:
    """Record time and memory once in each window."""
    if number % window == 0:
        marks[number] = (_stamp(), resident_mb(), _stamp())
    return number + 1


@workflow
async def recurring(ctx: WorkflowContext, number: int, rounds: int, window: int) -> int:
    """Run one activity in each generation."""
    number = await tick(ctx, number, window)
    if number <= rounds:
        await ctx.recur(number, rounds, window)
    return number


async def recur(database: str, rounds: int, window: int, archive: bool) -> dict[str, Any]:
    """Return wall and processor seconds of a round in the second window and in the last, and the memory at their ends."""
    async with App(database, archive_history=archive) as app:
        handle = await app.start_workflow(recurring, 1, rounds, window)
        await handle.result()
    return {"early": _cost(2 * window, window), "late": _cost(rounds, window)}


def _stamp() -> Stamp:
    return perf_counter(), process_time()


def _cost(end: int, window: int) -> dict[str, float]:
    (wall, processor), resident, _ = marks[end]
    _, _, (wall_before, processor_before) = marks[end - window]
    used = {"wall": (wall - wall_before) / window, "processor": (processor - processor_before) / window}
    return {**used, "resident_mb": resident}


if __name__ == "__main__":
    perform(recur)
