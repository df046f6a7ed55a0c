"""Mistakes that are easily made, and the errors and warnings that they cause."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    ActivityTimeoutError,
    App,
    ConfigurationError,
    PayloadError,
    RetryPolicy,
    Status,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment


@workflow(name="poisoned", event_handler=True)  # type: ignore[arg-type]  # without a slash `ctx` could be meant
async def takes_anything(ctx: WorkflowContext, **fields: Any) -> int:
    return len(fields)


async def test_an_event_with_a_field_that_is_named_as_the_context_fails_its_instance() -> None:
    @workflow
    async def sends(ctx: WorkflowContext) -> str:
        await send_event(ctx, "poisoned", "/test", {"ctx": 1})
        return "sent"

    async with TestEnvironment(workflows=[takes_anything, sends]) as env:
        await env.app.send_event("poisoned", "/test", {"ctx": 1, "other": 2})
        assert await (await env.app.start_workflow(sends)).result() == "sent"
        await env.app.send_event("poisoned", "/test", {"other": 2})
        await env.settle()
        ended = [await env.app.get_result(one.instance_id) for one in (await env.app.list_instances()).items]
        poisoned = [one.error for one in ended if one.status is Status.FAILED]
        assert ["ctx" in str(error) for error in poisoned] == [True, True]
        assert sorted(str(one.output) for one in ended if one.status is Status.COMPLETED) == ["1", "sent"]


async def test_nothing_is_logged_while_an_instance_leaves_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def careful(ctx: WorkflowContext) -> str:
        try:
            ctx.log.warning("waiting")
            await sleep(ctx, 60)
        finally:
            ctx.log.warning("over")
        return "done"

    async with TestEnvironment(workflows=[careful], cache_size=0) as env:
        handle = await env.app.start_workflow(careful)
        await env.settle()
        assert [one.message for one in caplog.records if one.name == "romancy.workflow"] == ["waiting"]
        assert await handle.result() == "done"
    assert [one.message for one in caplog.records if one.name == "romancy.workflow"] == ["waiting", "over"]


async def test_an_attempt_that_swallows_its_timeout_has_timed_out() -> None:
    @activity(timeout=timedelta(seconds=5), retry=RetryPolicy.none())
    async def stubborn(ctx: ActivityContext) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "too late"

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await stubborn(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        with pytest.raises(WorkflowFailedError) as failed:
            await (await env.app.start_workflow(job)).result()
    cause: BaseException | None = failed.value
    while cause is not None and not isinstance(cause, ActivityTimeoutError):
        cause = cause.__cause__
    assert cause is not None


async def test_names_that_cannot_be_stored_fail_the_instance() -> None:
    half = "\ud800"

    @workflow
    async def pauses(ctx: WorkflowContext) -> None:
        await sleep(ctx, 1, sleep_id=half)

    @activity
    async def act(ctx: ActivityContext) -> None: ...

    @workflow
    async def acts(ctx: WorkflowContext) -> None:
        await act.with_options(activity_id=half)(ctx)

    async with TestEnvironment(workflows=[pauses, acts]) as env:
        for one in (pauses, acts):
            with pytest.raises(WorkflowFailedError, match="a lone surrogate"):
                await (await env.app.start_workflow(one)).result()
    with pytest.raises(PayloadError, match="a lone surrogate"):
        act.with_options(activity_id=half)
    with pytest.raises(ConfigurationError, match="NUL"):
        act.with_options(activity_id="a\0b")


async def test_a_timer_or_a_wait_that_is_not_awaited_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def forgets(ctx: WorkflowContext) -> None:
        sleep(ctx, 60)  # type: ignore[unused-awaitable]
        wait_event(ctx, "paid")  # type: ignore[unused-awaitable]
        await asyncio.wait({sleep(ctx, 1), sleep(ctx, 3600)}, return_when=asyncio.FIRST_COMPLETED)

    async with TestEnvironment(workflows=[forgets]) as env:
        await (await env.app.start_workflow(forgets)).result()
    said = [one.message for one in caplog.records if one.levelno == logging.WARNING and "never awaited" in one.message]
    assert len(said) == 2
    assert "sleep:1" in said[0]
    assert "paid:1" in said[1]


def test_a_value_is_no_context() -> None:
    async def work(order: int) -> None: ...

    anything: Any = work
    for decorate in (activity, workflow):
        with pytest.raises(ConfigurationError, match="first parameter 'order' is annotated"):
            decorate(anything)


async def test_an_instance_id_among_the_arguments_is_pointed_at_the_option() -> None:
    anything: Any = takes_nothing
    async with App(":memory:", workflows=[takes_nothing]) as app:
        with pytest.raises(TypeError, match=r"with_options\(instance_id=...\)"):
            await app.start_workflow(anything, instance_id="order-1")


@workflow
async def takes_nothing(ctx: WorkflowContext) -> None: ...


@activity(name="charge")
async def charge_card(ctx: ActivityContext) -> str:
    return "card"


@activity(name="charge")
async def charge_account(ctx: ActivityContext) -> str:
    return "account"


async def test_two_activities_of_one_name_are_both_named() -> None:
    @workflow
    async def both(ctx: WorkflowContext) -> None:
        await charge_card(ctx)
        await charge_card.with_options(timeout=5)(ctx)
        await charge_account(ctx)

    async with TestEnvironment(workflows=[both]) as env:
        with pytest.raises(WorkflowFailedError, match=r"charge_card and .*charge_account"):
            await (await env.app.start_workflow(both)).result()
