"""Notifications make things sooner; nothing depends on them."""

from __future__ import annotations

import pytest

from romancy import App, Client, WorkflowContext, workflow
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
