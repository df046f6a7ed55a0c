"""Notifications make things sooner; nothing depends on them."""

from __future__ import annotations

from typing import Any

import pytest

from romancy import App, Client, WorkflowContext, workflow
from romancy.model.instance import Row
from romancy.worker.finder import Finder


@workflow
async def job(ctx: WorkflowContext, number: int) -> int:
    return number


async def test_work_is_found_although_every_hint_of_it_is_lost(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(database, workflows=[job], poll_interval=0.05) as app, Client(database, workflows=[job]) as client:

        def deaf(finder: Finder) -> None:
            """Whoever says that there is something to look for."""

        monkeypatch.setattr(Finder, "look", deaf)
        handle = await client.start_workflow(job, 7)
        assert await app.get_handle(handle.instance_id).result(timeout=8) == 7


async def test_what_somebody_else_holds_for_a_moment_is_looked_for_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App(database, workflows=[job], poll_interval=60) as app, Client(database, workflows=[job]) as client:
        claim = app._store.claim
        left_out: list[Any] = []

        async def with_a_rival(*args: Any, **options: Any) -> list[Row]:
            if len(left_out) < 2 and (ids := options.get("ids")):
                left_out.append(ids)
                return []
            return await claim(*args, **options)

        monkeypatch.setattr(app._store, "claim", with_a_rival)
        handle = await client.start_workflow(job, 7)
        assert app._finder is not None
        app._finder.look()
        assert await app.get_handle(handle.instance_id).result(timeout=8) == 7
        assert left_out == [[handle.instance_id], [handle.instance_id]]
