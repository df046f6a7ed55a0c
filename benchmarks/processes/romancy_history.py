"""One workflow with a long history: what a step costs early and late in it, and what it costs to take it up cold.

The machine's speed changes within seconds, so early and late steps are not timed one after the other but in turn: when
the long workflow has come far enough it is held; then a new workflow does its first steps, the long one its next, and so
on. Wall time is mostly the disk's; processor time shows best whether a long history makes a step dearer.
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
    """Holds an activity at a step until it is opened for some more steps."""

    def __init__(self) -> None:
        self.stop_at = sys.maxsize
        self.held = asyncio.Event()
        self.opened = asyncio.Event()

    async def passes(self, step: int) -> None:
        """Called by every step of the long workflow."""
        if step >= self.stop_at:
            self.opened.clear()
            self.held.set()
            await self.opened.wait()

    async def open(self, steps: int) -> None:
        """Let the workflow do so many steps; returns when it is held again."""
        self.stop_at += steps
        self.held.clear()
        self.opened.set()
        await self.held.wait()


gate = Gate()
stamps: list[tuple[float, float]] = []
"""Wall and processor time at each step."""


@activity
async def step(ctx: ActivityContext, number: int, gated: bool) -> int:
    """Note the time, after the gate."""
    if gated:
        await gate.passes(number)
    stamps.append((perf_counter(), process_time()))
    return number + 1


@workflow
async def march(ctx: WorkflowContext, steps: int, gated: bool) -> int:
    """One step after another."""
    number = 0
    while number < steps:
        number = await step(ctx, number, gated)
    return number


def _cost() -> dict[str, float]:
    """What one of the last steps noted took: wall time (median) and processor time (mean). Those before are forgotten."""
    last = stamps[-WINDOW:]
    stamps.clear()
    wall = median(later[0] - earlier[0] for earlier, later in pairwise(last))
    return {"wall": wall, "processor": (last[-1][1] - last[0][1]) / (len(last) - 1)}


async def compare(database: str, length: int, windows: int) -> dict[str, Any]:
    """The cost of a step around step 100 and after `length` steps, in turn."""
    early, late = [], []
    gate.stop_at = length
    async with App(database) as app:
        begin = perf_counter()
        long = await app.start_workflow(march, length + windows * WINDOW + 1, True)
        await gate.held.wait()
        whole = perf_counter() - begin
        for _ in range(windows):
            short = await app.start_workflow(march, EARLY + WINDOW, False)
            await short.result()
            early.append(_cost())
            await gate.open(WINDOW)
            late.append(_cost())
        gate.stop_at = sys.maxsize
        gate.opened.set()
        await long.result()
    return {"early": early, "late": late, "whole": whole}


async def leave(database: str, length: int) -> dict[str, Any]:
    """Do so many steps, then shut down in the midst of the next."""
    gate.stop_at = length
    async with App(database, shutdown_timeout=0) as app:
        await app.start_workflow(march, length + 1, True)
        await gate.held.wait()
    return {}


async def resume(database: str) -> dict[str, Any]:
    """The time from opening the app until the next step of what was left runs."""
    gate.stop_at = 0
    begin = perf_counter()
    async with App(database) as app:
        started = perf_counter()
        await gate.held.wait()
        resumed = perf_counter()
        gate.stop_at = sys.maxsize
        gate.opened.set()
        page = await app.list_instances()
        await app.get_handle(page.items[0].instance_id).result()
    return {"start": started - begin, "resume": resumed - started}


if __name__ == "__main__":
    perform(compare, leave, resume)
