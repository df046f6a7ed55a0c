"""The guard in an app and in the test environment."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import time
from pathlib import Path
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    DeterminismViolationError,
    Workflow,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment, record_history, replay_history


@activity
async def read(ctx: ActivityContext) -> float:
    return time.time()


@workflow
async def asks_an_activity(ctx: WorkflowContext) -> bool:
    return await read(ctx) > 0 and ctx.random().random() < 1 and ctx.uuid4().version == 4 and ctx.now().year > 2000


@workflow
async def draws(ctx: WorkflowContext) -> bool:
    await sleep(ctx, 0.01)
    return random.random() < 2


async def test_the_test_kit_refuses_unless_told_otherwise() -> None:
    async with TestEnvironment(workflows=[draws, asks_an_activity], replay_always=True) as env:
        assert await (await env.app.start_workflow(asks_an_activity)).result()
        with pytest.raises(
            WorkflowFailedError, match=r"random\.random\(\) was used in draws .* Use ctx\.random\(\) instead"
        ):
            await (await env.app.start_workflow(draws)).result()
    async with TestEnvironment(workflows=[draws], guard="off") as env:
        assert await (await env.app.start_workflow(draws)).result()


async def test_an_app_warns_or_refuses_where_it_is_told_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = f"sqlite:///{tmp_path / 'guard.db'}"

    async def ran(guard: str | None) -> bool:
        async with App(database, workflows=[draws], guard=guard) as app:  # type: ignore[arg-type]
            return await (await app.start_workflow(draws)).result()

    with caplog.at_level(logging.WARNING, "romancy.worker"):
        assert await ran(None)
        assert await ran("off")
        assert "random.random()" not in caplog.text
        assert await ran("warn")
        assert "random.random() was used in draws" in caplog.text
    with pytest.raises(WorkflowFailedError, match="WorkflowIOError"):
        await ran("raise")


async def test_a_recorded_history_is_replayed_under_the_guard() -> None:
    async with TestEnvironment(workflows=[draws], guard="off") as env:
        handle = await env.app.start_workflow(draws)
        assert await handle.result()
        history = await record_history(env.app, handle.instance_id)
    replayed = replay_history(draws, history)
    assert "random.random()" in str(getattr(replayed.verdict, "error", ""))


# --- from the last record to the end

drawn = itertools.count()


@activity
async def take(ctx: ActivityContext, number: float) -> float:
    return number


@workflow
async def returns_another(ctx: WorkflowContext) -> int:
    await take(ctx, 1)
    return next(drawn)


@workflow
async def raises_another(ctx: WorkflowContext) -> None:
    await take(ctx, 1)
    raise ValueError(f"number {next(drawn)}")


@workflow
async def asks_with_another(ctx: WorkflowContext) -> float:
    return await take(ctx, next(drawn))


@workflow
async def ends_the_same(ctx: WorkflowContext, how: str) -> object:
    await take(ctx, 1)
    if how == "raise":
        raise ValueError(f"of {object()}")
    if how == "unstorable":
        return object()
    if how == "recur":
        return await ends_the_same.recur(ctx, "return")
    if how == "cancel":
        await sleep(ctx, 1000)
    return {"a": [1, {2, 3}]}


@pytest.mark.parametrize("wobbly", [returns_another, raises_another, asks_with_another], ids=lambda one: one.name)
async def test_the_end_is_replayed_too(wobbly: Workflow[[], Any]) -> None:
    async def run() -> None:
        async with TestEnvironment(workflows=[wobbly], replay_always=True) as env:
            with contextlib.suppress(WorkflowFailedError):
                await (await env.app.start_workflow(wobbly)).result()

    with pytest.raises(DeterminismViolationError, match=r"returned|raised ValueError: number|other arguments"):
        await run()


@pytest.mark.parametrize("how", ["return", "raise", "unstorable", "recur", "cancel"])
async def test_an_end_that_is_the_same_is_no_violation(how: str) -> None:
    async with TestEnvironment(workflows=[ends_the_same], replay_always=True) as env:
        handle = await env.app.start_workflow(ends_the_same, how)
        if how == "cancel":
            await env.settle()
            await handle.cancel()
        with contextlib.suppress(WorkflowFailedError, WorkflowCancelledError):
            await handle.result()
        await env.settle()
        assert env.violations == []
