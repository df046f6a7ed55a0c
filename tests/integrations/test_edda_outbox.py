"""Tests of Edda's outbox with one process that writes and another that delivers."""

from __future__ import annotations

import logging

import pytest

from romancy.integrations.edda import EddaApp, WorkflowContext, activity, send_event_transactional, workflow


@activity
async def tell(ctx: WorkflowContext, number: int) -> None:
    await send_event_transactional(ctx, "told", "writer", {"number": number})


@workflow
async def telling(ctx: WorkflowContext, number: int) -> None:
    await tell(ctx, number)


async def test_a_process_that_does_not_relay_leaves_its_events_in_the_outbox(file: str) -> None:
    async with EddaApp("writer", file, broker_url="http://127.0.0.1:9/", workflows=[telling]) as app:
        await telling.start(number=1)
        (row,) = await app.storage.get_pending_outbox_events()
    assert (row["event_type"], row["event_data"], row["retry_count"]) == ("told", {"number": 1}, 0)


async def test_an_app_without_a_broker_warns_once(file: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "romancy.edda"):
        async with EddaApp("writer", file, workflows=[telling]) as app:
            await telling.start(number=1)
            await telling.start(number=2)
            assert await app.storage.get_pending_outbox_events() == []
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "romancy.edda"]
    assert "'told'" in warning
    assert "broker_url" in warning
