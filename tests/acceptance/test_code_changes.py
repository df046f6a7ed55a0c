"""Deployments: an instance that the new code does not fit is blocked, and resumes with code that fits."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    Client,
    Status,
    Workflow,
    WorkflowContext,
    WorkflowNotFoundError,
    activity,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")

ran: list[str] = []
START = datetime(2020, 1, 1, tzinfo=UTC)


@activity
async def charge(ctx: ActivityContext, amount: int) -> int:
    ran.append(f"charge {amount}")
    return amount


@charge.compensate
async def refund(ctx: ActivityContext, amount: int) -> None:
    ran.append(f"refund {amount}")


@activity
async def ship(ctx: ActivityContext) -> str:
    ran.append("ship")
    return "shipped"


@workflow(name="order")
async def as_started(ctx: WorkflowContext) -> str:
    await charge(ctx, 5)
    await sleep(ctx, 3600)
    return await ship(ctx)


@workflow(name="order")
async def with_another_amount(ctx: WorkflowContext) -> str:
    await charge(ctx, 6)
    await sleep(ctx, 3600)
    return await ship(ctx)


@workflow(name="order")
async def without_the_charge(ctx: WorkflowContext) -> str:
    await sleep(ctx, 3600)
    return await ship(ctx)


@workflow(name="order")
async def already_ended(ctx: WorkflowContext) -> str:
    return "at once"


@workflow(name="order")
async def with_more_at_the_end(ctx: WorkflowContext) -> str:
    await charge(ctx, 5)
    await sleep(ctx, 3600)
    await charge(ctx, 1)
    return await ship(ctx)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def started(database: str) -> None:
    """Start an order that has charged and waits."""
    async with TestEnvironment(database, workflows=[as_started], start=START) as env:
        await env.app.start_workflow(as_started.with_options(instance_id="o1"))
        await env.settle()


@pytest.mark.parametrize("changed", [with_another_amount, without_the_charge, already_ended])
async def test_a_changed_workflow_blocks_the_instance_and_fitting_code_goes_on(
    database: str, changed: Workflow[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await started(database)
    async with TestEnvironment(database, workflows=[changed]) as env:
        await env.advance(7200)
        found = await env.app.get_instance("o1")
        assert found is not None
        assert (found.status, found.worker_id) == (Status.BLOCKED, None)
        assert found.error is not None
        assert "recorded: activity charge:1" in found.error.message
        assert "test_code_changes:as_started:" in found.error.message
        (listed,) = (await env.app.list_instances(status="blocked")).items
        assert listed.error is not None
        assert env.app._worker is not None
        replays = env.app._worker.replays
        assert replays == 1
        await env.restart()
        await env.advance(7200)
        assert env.app._claimer is not None
        for _ in range(3):
            await env.app._claimer.claim_blocked()
            await env.settle()
        assert env.app._worker.replays == 1, "a new worker tries once"
    async with TestEnvironment(database, workflows=[as_started]) as env:
        assert await asyncio.wait_for(env.app.get_handle("o1").result(), 10) == "shipped"
    assert ran == ["charge 5", "ship"]


async def test_input_that_no_longer_fits_blocks_the_instance(database: str) -> None:
    @workflow(name="parcel")
    async def by_weight(ctx: WorkflowContext, grams: int) -> int:
        return grams

    @workflow(name="parcel")
    async def by_address(ctx: WorkflowContext, address: dict[str, str]) -> str:
        return address["city"]

    async with Client(database, workflows=[by_weight]) as client:
        await client.start_workflow(by_weight.with_options(instance_id="p1"), 5)
    async with TestEnvironment(database, workflows=[by_address]) as env:
        await env.settle()
        found = await env.app.get_instance("p1")
        assert found is not None
        assert found.status is Status.BLOCKED
        assert found.error is not None
        assert "its input no longer matches" in found.error.message
    async with App(database, workflows=[by_weight]) as app:
        assert await app.get_handle("p1").result(timeout=20) == 5


async def test_more_at_the_end_fits(database: str) -> None:
    await started(database)
    async with TestEnvironment(database, workflows=[with_more_at_the_end]) as env:
        assert await env.app.get_handle("o1").result() == "shipped"
    assert ran == ["charge 5", "charge 1", "ship"]


async def test_a_blocked_instance_is_tried_again_when_resumed_and_can_be_cancelled_when_code_fits(database: str) -> None:
    await started(database)
    async with TestEnvironment(database, workflows=[without_the_charge]) as env:
        await env.advance(7200)
        handle = env.app.get_handle("o1")
        assert env.app._worker is not None
        await env.app.resume_workflow("o1")
        await env.settle()
        assert await handle.status() is Status.BLOCKED
        assert env.app._worker.replays == 2
        await handle.cancel("never mind")
        await env.settle()
        assert await handle.status() is Status.BLOCKED
    async with TestEnvironment(database, workflows=[as_started]) as env:
        await env.advance(1)
        assert await env.app.get_handle("o1").status() is Status.CANCELLED
    assert ran == ["charge 5", "refund 5"]


async def test_something_that_arrives_while_an_instance_is_being_blocked_does_not_leave_it_without_a_wake_source(
    database: str,
) -> None:
    await started(database)
    async with TestEnvironment(database, workflows=[without_the_charge]) as env:
        store = env.app._store
        load = store.load

        async def load_and_cancel(instance_id: str) -> Any:
            loaded = await load(instance_id)
            store.load = load  # type: ignore[method-assign]
            await env.app.cancel_workflow(instance_id)
            return loaded

        store.load = load_and_cancel  # type: ignore[method-assign]
        await env.advance(7200)
        found = await env.app.get_instance("o1")
        assert found is not None
        assert (found.status, found.worker_id) == (Status.BLOCKED, None)


async def test_a_real_app_takes_over_what_other_code_could_not_run(database: str) -> None:
    await started(database)
    async with TestEnvironment(database, workflows=[without_the_charge], start=START) as env:
        await env.advance(7200)
        assert await env.app.get_handle("o1").status() is Status.BLOCKED
    async with App(database, workflows=[as_started]) as app:
        assert await app.get_handle("o1").result(timeout=10) == "shipped"


async def test_an_unknown_workflow_or_version_waits_for_its_code(database: str) -> None:
    @workflow(name="v", version="1")
    async def first(ctx: WorkflowContext) -> str:
        await sleep(ctx, 60)
        return "one"

    @workflow(name="v", version="2")
    async def second(ctx: WorkflowContext) -> str:
        await sleep(ctx, 60)
        return "two"

    async with TestEnvironment(database, workflows=[first]) as env:
        await env.app.start_workflow(first.with_options(instance_id="one"))
        await env.settle()
    async with TestEnvironment(database, workflows=[second]) as env:
        await env.app.start_workflow(second.with_options(instance_id="two"))
        assert await env.app.get_handle("two").result() == "two"
        await env.advance(3600)
        assert not (await env.app.get_handle("one").status()).ended
        with pytest.raises(WorkflowNotFoundError, match="not registered"):
            await env.app.start_workflow(first)
        with pytest.raises(WorkflowNotFoundError, match="'w'"):
            await env.app.start_workflow("w")
    async with TestEnvironment(database, workflows=[first, second]) as env:
        assert await env.app.get_handle("one").result() == "one"
        handles = [await env.app.start_workflow(first), await env.app.start_workflow(second)]
        assert [await handle.result() for handle in handles] == ["one", "two"]
        versions = {one.instance_id: one.version for one in (await env.app.list_instances()).items}
        assert (versions["one"], versions["two"]) == ("1", "2")


async def test_a_client_starts_what_it_does_not_know(database: str) -> None:
    async with Client(database, workflows=[]) as client:
        handle = await client.start_workflow("order")
        async with TestEnvironment(database, workflows=[already_ended]) as env:
            assert await env.app.get_handle(handle.instance_id).result() == "at once"
        assert await handle.result(timeout=5) == "at once"


async def test_a_change_outside_of_the_package_is_found_by_the_next_worker(database: str) -> None:
    settings = {"amount": 5}

    @workflow(name="order")
    async def by_settings(ctx: WorkflowContext) -> str:
        await charge(ctx, settings["amount"])
        await sleep(ctx, 3600)
        return await ship(ctx)

    async with TestEnvironment(database, workflows=[by_settings], start=START) as env:
        await env.app.start_workflow(by_settings.with_options(instance_id="o1"))
        await env.settle()
        settings["amount"] = 6
        await env.restart()
        await env.advance(7200)
        assert await env.app.get_handle("o1").status() is Status.BLOCKED
        settings["amount"] = 5
        await env.restart()
        await env.settle()
        assert (await env.app.get_result("o1")).output == "shipped"
    assert ran == ["charge 5", "ship"]
