"""Tests of waits for events and times on every database.

`edda_originals/event_waiting.txt` is the same program, written for Edda.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    EventTimeoutError,
    PayloadError,
    Status,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Signature(BaseModel):
    by: str
    kilos: float


@activity
async def hand_over(ctx: ActivityContext, parcel: str) -> dict[str, str]:
    return {"parcel": parcel, "status": "on its way"}


@activity
async def look(ctx: ActivityContext, parcel: str) -> bool:
    return parcel == "fetched"


@workflow
async def untyped(ctx: WorkflowContext, parcel: str) -> dict[str, Any]:
    await hand_over(ctx, parcel)
    event = await wait_event(ctx, "parcel.signed", timeout=300)
    return {"by": event.data["by"], "kind": event.type, "from": event.source}


@workflow
async def typed(ctx: WorkflowContext, parcel: str) -> dict[str, Any]:
    event = await wait_event(ctx, "parcel.signed", model=Signature)
    return {"by": event.data.by, "kilos": event.data.kilos, "heavy": event.data.kilos > 2}


@workflow
async def counter(ctx: WorkflowContext, parcel: str) -> str:
    await hand_over(ctx, parcel)
    await sleep(ctx, timedelta(days=7))
    return "fetched" if await look(ctx, parcel) else "returned"


@workflow
async def lost(ctx: WorkflowContext, parcel: str) -> str:
    try:
        await wait_event(ctx, "parcel.lost", timeout=60)
    except EventTimeoutError:
        return f"{parcel} is not lost"
    return "lost"


SIGNED = {"by": "Ada", "kilos": 2.5}


async def test_an_event_reaches_waits_with_and_without_a_model() -> None:
    async with TestEnvironment(workflows=[untyped, typed], replay_always=True) as env:
        plain = await env.app.start_workflow(untyped, "P-1")
        model = await env.app.start_workflow(typed, "P-2")
        await env.settle()
        assert [await plain.status(), await model.status()] == [Status.WAITING_FOR_EVENT] * 2
        await env.restart()
        await env.app.send_event("parcel.signed", "courier", SIGNED)
        assert await plain.result() == {"by": "Ada", "kind": "parcel.signed", "from": "courier"}
        assert await model.result() == {"by": "Ada", "kilos": 2.5, "heavy": True}


async def test_data_that_does_not_fit_the_model_is_refused() -> None:
    async with TestEnvironment(workflows=[typed]) as env:
        handle = await env.app.start_workflow(typed, "P-1")
        await env.app.send_event("parcel.signed", "courier", {"by": "Ada", "kilos": "many"})
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert isinstance(caught.value.__cause__, PayloadError)


async def test_a_timer_fires_and_a_wait_times_out() -> None:
    async with TestEnvironment(workflows=[counter, lost]) as env:
        waiting = await env.app.start_workflow(counter, "P-1")
        missing = await env.app.start_workflow(lost, "P-2")
        await env.settle()
        assert await waiting.status() == Status.WAITING_FOR_TIMER
        assert await missing.result() == "P-2 is not lost"
        assert await waiting.result() == "returned"
