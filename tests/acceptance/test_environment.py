"""The test environment: what a test plans happens, or the test is told that it did not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from romancy import Status, StoreError, WorkflowContext, sleep, workflow
from romancy.store.sql.store import SqlStore
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
        ("", r"passes 99 crash points, but it passed only [1-9]\d*: "),
        ("activity.after", r"passes 'activity.after' 1 time, but it passed only 0: "),
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


async def test_a_process_may_die_while_it_starts(database: str) -> None:
    """The crash point is passed by a task of the starting process, so that the start finds a closed store."""
    save_handlers, starts, errors = SqlStore.save_handlers, list[asyncio.Task[Any]](), list[StoreError]()

    async def slow(self: SqlStore, *given: Any, **more: Any) -> None:
        if len(starts) == 1:  # the call of the second process
            env.crash_at("commit.after")
            starts.append(asyncio.ensure_future(env.app.start_workflow(nap.with_options(instance_id="beside"), 1)))
            while not env._crashed.is_set():
                await asyncio.sleep(0.001)
        try:
            await save_handlers(self, *given, **more)
        except StoreError as error:
            errors.append(error)
            raise

    async with TestEnvironment(database, workflows=[nap]) as env:
        with mock.patch.object(SqlStore, "save_handlers", slow):
            starts.append(asyncio.ensure_future(env.app.start_workflow(nap, 1)))
            handle = await starts[0]
            env.crash_at_step(1)
            assert await handle.result() == "awake"
            assert await env.app.get_handle("beside").result() == "awake"
    assert (env.crashes, len(errors)) == (2, 1)
    for one in starts:
        one.cancel()


@pytest.mark.parametrize("way", ["settle", "result"])
async def test_a_process_that_cannot_start_is_reported(way: str) -> None:
    async def refuse(*given: Any, **more: Any) -> None:
        raise StoreError("no space left")

    async def sleep_over_a_crash() -> None:
        async with TestEnvironment(workflows=[nap]) as env:
            handle = await env.app.start_workflow(nap, 1)
            with mock.patch.object(SqlStore, "save_handlers", refuse):
                env.crash_at_step(1)
                if way == "settle":
                    await env.advance(2 * 86400)
                    await env.settle()
                else:
                    await handle.result()

    with pytest.raises(StoreError, match="no space left"):
        await sleep_over_a_crash()
