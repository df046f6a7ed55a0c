"""Measures one workflow with a long history: the cost of a step early and late, and of a cold resume.

The machine's speed changes within seconds, so early and late steps are interleaved: when the long workflow has come far
enough, a gate stops it; then a new workflow does its first steps, the long one its next, and so on. Wall time is mostly the
disk's; processor time shows best whether a long history makes a step more expensive.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.processes.task_entry import perform
from romancy import ActivityContext, App, WorkflowContext, activity, workflow

EARLY = 50
"""Steps of a new workflow that are not timed: around step 100 means from here to 100 steps on."""
WINDOW = 100


class Gate:
    """Stops an activity at a step until it is opened for some more steps."""

    def __init__(self) -> None:
        self.stop_at = sys.maxsize
        self.stopped = asyncio.Event()
        self.opened = asyncio.Event()

    async def passes(self, step: int) -> None:
        """Wait if the gate is closed at this step. Every step of the long workflow calls this."""
        if step >= self.stop_at:
            self.opened.clear()
            self.stopped.set()
            await self.opened.wait()

    async def open(self, steps: int) -> None:
        """Let the workflow do `steps` steps; return when it is stopped again."""
        self.stop_at += steps
        self.stopped.clear()
        self.opened.set()
        await self.stopped.wait()


gate = Gate()
stamps: list[tuple[float, float]] = []
"""Wall and processor time at each step."""


@activity
async def step(ctx: ActivityContext, number: int, gated: bool) -> int:
    """Record the time, after the gate."""
    if gated:
        await gate.passes(number)
    stamps.append((perf_counter(), process_time()))
    return number + 1


@workflow
async def run_steps(ctx: WorkflowContext, steps: int, gated: bool) -> int:
    """Run steps one after another."""
    number = 0
    while number < steps:
        number = await step(ctx, number, gated)
    return number


def _cost() -> dict[str, float]:
    """Return the cost of a step in the last window: wall time (median) and processor time (mean). Clears the records."""
    last = stamps[-WINDOW:]
    stamps.clear()
    wall = median(later[0] - earlier[0] for earlier, later in pairwise(last))
    return {"wall": wall, "processor": (last[-1][1] - last[0][1]) / (len(last) - 1)}


async def compare(database: str, length: int, windows: int) -> dict[str, Any]:
    """Return the cost of a step around step 100 and after `length` steps, interleaved."""
    early, late = [], []
    gate.stop_at = length
    async with App(database) as app:
        begin = perf_counter()
        long = await app.start_workflow(run_steps, length + windows * WINDOW + 1, True)
        await gate.stopped.wait()
        whole = perf_counter() - begin
        for _ in range(windows):
            short = await app.start_workflow(run_steps, EARLY + WINDOW, False)
            await short.result()
            early.append(_cost())
            await gate.open(WINDOW)
            late.append(_cost())
        gate.stop_at = sys.maxsize
        gate.opened.set()
        await long.result()
    return {"early": early, "late": late, "whole": whole}


async def interrupt(database: str, length: int) -> dict[str, Any]:
    """Do `length` steps, then shut down in the middle of the next."""
    gate.stop_at = length
    async with App(database, shutdown_timeout=0) as app:
        await app.start_workflow(run_steps, length + 1, True)
        await gate.stopped.wait()
    return {}


async def resume(database: str) -> dict[str, Any]:
    """Return the time from opening the app until the next step of the interrupted workflow runs."""
    gate.stop_at = 0
    begin = perf_counter()
    async with App(database) as app:
        started = perf_counter()
        await gate.stopped.wait()
        resumed = perf_counter()
        gate.stop_at = sys.maxsize
        gate.opened.set()
        page = await app.list_instances()
        await app.get_handle(page.items[0].instance_id).result()
    return {"start": started - begin, "resume": resumed - started}


if __name__ == "__main__":
    perform(compare, interrupt, resume)
