"""Workflow code that recurs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.instance_driver import BEGIN, SECOND, Body, Drive, InstanceDriver, charge, replay_anew

import romancy
from romancy import (
    InvalidWorkflowStateError,
    PayloadError,
    Workflow,
    WorkflowContext,
    recur,
    sleep,
    wait_event,
)
from romancy.core.commands import Cancelled, Fail, Resolution
from romancy.core.execution import Phase
from romancy.core.futures import Recurring
from romancy.model.history import Kind

# --- recur


def phase_of(driver: InstanceDriver) -> Phase:
    return driver.execution.phase


async def count(ctx: WorkflowContext, number: int, *, step: int = 1) -> str:
    await charge(ctx, number)
    await ctx.recur(number + step, step=step)


def test_a_body_that_recurs_ends_with_its_next_input(drive: Drive) -> None:
    driver = drive(count, 1)
    driver.start()
    driver.ok("charge:1")
    assert driver.recurrence == ((2,), {"step": 1})
    assert phase_of(driver) is Phase.ENDED
    assert replay_anew(drive, driver).recurrence == ((2,), {"step": 1})


def test_all_ways_to_say_it_are_the_same(drive: Drive) -> None:
    own: list[Workflow[..., Any]] = []

    async def body(ctx: WorkflowContext, way: str, number: int = 0) -> None:
        if way == "function":
            await recur(ctx, "x", number=2)
        if way == "own":
            await own[0].recur(ctx, "x", number=2)
        await ctx.recur("x", 2)

    for way in ("method", "function", "own"):
        driver = drive(body, way)
        own[:] = [driver.workflow.with_options(instance_id="x")]
        driver.start()
        assert driver.recurrence == (("x", 2), {})


def test_the_wrong_arguments_end_nothing(drive: Drive) -> None:
    async def body(ctx: WorkflowContext, number: int = 0) -> str:
        with pytest.raises(PayloadError, match="argument 'number'"):
            await ctx.recur("three")
        with pytest.raises(TypeError, match="unexpected keyword"):
            await ctx.recur(nmuber=3)
        return "still here"

    driver = drive(body)
    driver.start()
    assert driver.result == "still here"


async def swallowing(ctx: WorkflowContext) -> None:
    try:
        await ctx.recur()
    except BaseException:
        await charge(ctx, 1)


async def returning(ctx: WorkflowContext) -> str:
    try:
        await ctx.recur()
    finally:
        await charge(ctx, 1)
        return "never mind"  # noqa: B012  wrong on purpose


async def failing(ctx: WorkflowContext) -> None:
    try:
        await ctx.recur()
    finally:
        await charge(ctx, 1)
        raise ValueError("too late")


async def in_a_group(ctx: WorkflowContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        try:
            await ctx.recur()
        finally:
            await charge(ctx, 1)


async def under_a_timeout(ctx: WorkflowContext) -> None:
    async with asyncio.timeout(5):
        try:
            await ctx.recur()
        finally:
            await charge(ctx, 1)


UNDETERRED = [swallowing, returning, failing, in_a_group, under_a_timeout]


@pytest.mark.parametrize("body", UNDETERRED)
def test_whatever_the_body_does_afterwards_it_recurs(body: Body, drive: Drive) -> None:
    driver = drive(body)
    assert driver.start() == ["charge:1"]
    assert phase_of(driver) is Phase.BODY
    driver.ok("charge:1")
    assert driver.recurrence == ((), {})
    assert phase_of(driver) is Phase.ENDED
    assert driver.run.pending == {}
    lost = ["the body failed while it was recurring: ValueError('too late')"] if body is failing else []
    assert driver.run.problems == lost
    assert replay_anew(drive, driver).recurrence == ((), {})


@pytest.mark.parametrize("body", UNDETERRED)
@pytest.mark.parametrize("kind", [Kind.CANCEL, Kind.TIMEOUT])
def test_a_cancellation_before_the_end_wins(body: Body, kind: Kind, drive: Drive) -> None:
    driver = drive(body)
    driver.start()
    driver.cancel(kind)
    assert isinstance(driver.execution.body_outcome, Cancelled if kind is Kind.CANCEL else Fail)


def test_it_is_not_an_exception(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.recur()
        except Exception:
            return "swallowed"

    driver = drive(body)
    driver.start()
    assert driver.recurrence == ((), {})
    assert not issubclass(Recurring, Exception)


def test_what_waits_in_the_background_is_withdrawn(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        task = asyncio.create_task(asyncio.wait_for(wait_event(ctx, "paid"), 60))
        await sleep(ctx, 1)
        assert not task.done()
        await ctx.recur()

    driver = drive(body)
    driver.start()
    driver.execution.feed(Resolution(Kind.TIMER, "sleep:1", BEGIN + SECOND))
    assert driver.recurrence == ((), {})
    assert "paid:1" in driver.execution.take_withdrawn()
    assert driver.run.due == {}


def test_not_beside_the_main_line(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> str:
        with pytest.raises(InvalidWorkflowStateError, match="other than the main task"):
            await asyncio.gather(ctx.recur())
        return "still here"

    driver = drive(body)
    driver.start()
    assert driver.result == "still here"


def test_not_with_an_activity_in_flight(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> str:
        task = asyncio.create_task(charge(ctx, 1))
        await asyncio.sleep(0)
        with pytest.raises(InvalidWorkflowStateError, match="while charge:1 had not ended"):
            await ctx.recur()
        await task
        await ctx.recur()

    driver = drive(body)
    assert driver.start() == ["charge:1"]
    assert driver.execution.body_outcome is None
    driver.ok("charge:1")
    assert driver.recurrence == ((), {})


def test_a_compensation_does_not_hold_it_up(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        await romancy.register_compensation(ctx, charge, 1)
        await ctx.recur()

    driver = drive(body)
    driver.start()
    assert driver.execution.next_compensation() is not None
    assert phase_of(driver) is Phase.ENDED
    driver.execution.finishing.add("charge:1")
    assert phase_of(driver) is Phase.FINISHING


def test_inside_an_inline_workflow_the_instance_itself_recurs(drive: Drive) -> None:
    async def part(ctx: WorkflowContext, name: str) -> None:
        await ctx.recur(7)

    inner: Workflow[..., Any] = Workflow(part, name="part")

    async def whole(ctx: WorkflowContext, number: int) -> None:
        with pytest.raises(InvalidWorkflowStateError, match=r"part\.recur\(\) was called in order-1, .* of driven"):
            await inner.recur(ctx, "x")
        await inner(ctx, "x")

    driver = drive(whole, 1)
    driver.start()
    assert driver.recurrence == ((7,), {})


def test_a_body_that_recurs_and_then_can_never_go_on_fails(drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.recur()
        finally:
            await asyncio.Event().wait()

    driver = drive(body)
    driver.start()
    assert isinstance(driver.failure, romancy.WorkflowStuckError)
