"""The test kit: what a test asks of it happens, or the test hears that it did not."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from romancy import Status, WorkflowContext, sleep, workflow
from romancy.testing import CrashPointNotReached, TestEnvironment


@workflow
async def nap(ctx: WorkflowContext, days: float) -> str:
    await sleep(ctx, days * 86400)
    return "awake"


@pytest.mark.parametrize("way", ["settle", "advance", "result"])
async def test_a_start_in_a_transaction_of_the_callers_is_seen_at_once(tmp_path: Path, way: str) -> None:
    path = tmp_path / "flow.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with TestEnvironment(str(path), workflows=[nap]) as env:
        await env.settle()
        async with engine.begin() as connection:
            handle = await env.app.using(connection).start_workflow(nap, 3)
        if way == "settle":
            await env.settle()
            assert await env.app.get_handle(handle.instance_id).status() is Status.WAITING_FOR_TIMER
        if way == "advance":
            await env.advance(7 * 86400)
            assert await env.app.get_handle(handle.instance_id).status() is Status.COMPLETED
        assert await env.app.get_handle(handle.instance_id).result() == "awake"
    await engine.dispose()


async def _plan_too_far(point: str) -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        handle = await env.app.start_workflow(nap, 1)
        if point:
            env.crash_at(point)
        else:
            env.crash_at_step(99)
        assert await handle.result() == "awake"


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ("", r"passed its 99\. crash point, but it has passed only [1-9]\d*: "),
        ("activity.after", r"passed 'activity.after' for the 1\. time, but it has passed only 0: "),
    ],
)
async def test_a_crash_that_never_comes_is_reported(point: str, says: str) -> None:
    with pytest.warns(CrashPointNotReached, match=says):
        await _plan_too_far(point)


@pytest.mark.filterwarnings("error")
async def test_a_crash_that_came_is_not() -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        handle = await env.app.start_workflow(nap, 1)
        env.crash_at_step(1)
        assert await handle.result() == "awake"
        assert env.crashes == 1
