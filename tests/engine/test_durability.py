"""Neither an activity nor a workflow starts before the commit that led to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.model.transition import Transition, Write
from romancy.store.sql.store import SqlStore


async def test_what_led_to_an_activity_is_durable_before_it_starts(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    writing, go_on = asyncio.Event(), asyncio.Event()
    commit = SqlStore.commit

    async def held_up(self: SqlStore, batch: Sequence[Write]) -> Any:
        if any(entry.op == "reserve:1" for write in batch if isinstance(write, Transition) for entry in write.history):
            writing.set()
            await go_on.wait()
        return await commit(self, batch)

    @activity
    async def reserve(ctx: ActivityContext) -> str:
        return "reserved"

    @activity
    async def charge(ctx: ActivityContext) -> None:
        begun.append("charge")

    @workflow
    async def order(ctx: WorkflowContext) -> None:
        await reserve(ctx)
        await charge(ctx)

    monkeypatch.setattr(SqlStore, "commit", held_up)
    async with App(database, workflows=[order]) as app:
        handle = await app.start_workflow(order)
        await writing.wait()
        for _ in range(100):  # lets every other task run until it waits
            await asyncio.sleep(0)
        early = list(begun)
        go_on.set()
        await handle.result()
    assert (early, begun) == ([], ["charge"])
