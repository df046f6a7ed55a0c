"""Activities that wait for other work of their own app can hold every slot; the log and `doctor` report it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.admin.local import DatabaseManager
from romancy.testing import TestEnvironment, VirtualClock


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:
    return number + 1


@workflow
async def child(ctx: WorkflowContext, number: int) -> int:
    return await add_one(ctx, number)


barriers: list[asyncio.Barrier] = []
"""A barrier at which the parents wait, so that every slot is held before the first child is started."""


@activity
async def wait_for_child(ctx: ActivityContext, number: int) -> int:
    await barriers[-1].wait()
    handle = await ctx.app.start_workflow(child, number)
    return int(await handle.result())


@workflow
async def parent(ctx: WorkflowContext, number: int) -> int:
    return await wait_for_child(ctx, number)


async def test_what_holds_every_slot_is_named(database: str, caplog: pytest.LogCaptureFixture) -> None:
    barriers.append(asyncio.Barrier(2))
    clock = VirtualClock()
    options: dict[str, Any] = {"max_concurrent_activities": 2, "shutdown_timeout": 0.1}  # the attempts never end
    async with App(database, workflows=[parent, child], clock=clock, **options) as app:
        for number in range(2):
            await app.start_workflow(parent, number)
        worker, maintenance = app._worker, app._maintenance
        assert worker is not None
        assert maintenance is not None
        async with asyncio.timeout(60):
            while worker.limiter.queued < 2:
                await asyncio.sleep(0)
        maintenance.report_stall()
        clock.move_to(clock.now() + 31_000_000)
        maintenance.report_stall()
        maintenance.report_stall()
        lines = [one for one in caplog.records if one.levelno == logging.WARNING and "slot" in one.getMessage()]
        assert len(lines) == 1, "one warning for each stall"
        text = lines[0].getMessage()
        assert text.startswith(
            "2 attempts are waiting for a slot, but every slot is held by wait_for_child (2), for 31 s. If they wait"
        )

        (finding,) = [one for one in await DatabaseManager(app).doctor() if one.name == "slots"]
        assert finding.level == "warning"
        assert "held by wait_for_child (2), for 31 s" in finding.says


async def test_slots_that_are_only_busy_are_no_jam() -> None:
    async with TestEnvironment(workflows=[child], max_concurrent_activities=1) as env:
        handles = [await env.app.start_workflow(child, number) for number in range(5)]
        assert [await handle.result() for handle in handles] == [1, 2, 3, 4, 5]
        assert env.app._concurrency_stall() is None
