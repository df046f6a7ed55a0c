"""For every wrong input, the error names the mistake, and no other instance is affected."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests import databases

from romancy import (
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    PayloadError,
    RetryPolicy,
    StoreError,
    WorkflowContext,
    activity,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


@workflow(name="one name")
async def one(ctx: WorkflowContext, n: int = 0) -> int:
    return n


@workflow(name="one name")
async def other(ctx: WorkflowContext, n: int = 0) -> int:
    return n


def test_two_workflows_under_one_name_are_both_named() -> None:
    with pytest.raises(ConfigurationError) as raised:
        App(":memory:", workflows=[one, other])
    for part in ("one name", "test_bad_input.one", "test_bad_input.other", "test_bad_input.py:"):
        assert part in str(raised.value)
    app = App(":memory:", workflows=[one])
    app.register(one)
    with pytest.raises(ConfigurationError, match="Two workflows"):
        app.register(other)


def test_what_cannot_be_a_workflow_or_an_activity_is_refused_when_decorated() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    async def bare() -> None: ...

    cases: list[tuple[Any, Any]] = [(plain, workflow), (bare, workflow), (bare, activity), (3, activity)]
    for wrong, decorate in cases:
        with pytest.raises(ConfigurationError):
            decorate(wrong)
    anything: Any = activity
    for option, value in (
        ("timeout", -1),
        ("timeout", 0),
        ("timeout", "soon"),
        ("retry", 3),
        ("heartbeat_timeout", True),
        ("name", ""),
    ):
        with pytest.raises(ConfigurationError, match=option):
            anything(**{option: value})(one.fn)
    for wrong_id in ("", 5):
        with pytest.raises(ConfigurationError, match="instance_id"):
            one.with_options(instance_id=wrong_id)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        App(":memory:", workflows=[one.fn])  # type: ignore[list-item]
    policies: tuple[dict[str, Any], ...] = (
        {"max_attempts": -1},
        {"initial_interval": -1},
        {"jitter": 2},
        {"retryable": "x"},
        {"multiplier": True},
    )
    for policy in policies:
        with pytest.raises(ConfigurationError):
            RetryPolicy(**policy)


async def test_arguments_of_the_wrong_type_start_nothing() -> None:
    async with TestEnvironment(workflows=[one]) as env:
        start: Any = env.app.start_workflow
        for wrong in ("x", None, object(), [1], float("nan")):
            with pytest.raises(PayloadError, match=r"'n'"):
                await start(one, wrong)
        for args in ((1, 2), ()):
            with pytest.raises(TypeError, match="one"):
                await start(one, *args, **({} if args else {"m": 1}))
        for wrong_wf in (one.fn, 5, None):
            with pytest.raises(ConfigurationError, match="not a workflow"):
                await start(wrong_wf)
        assert (await env.app.list_instances()).items == []


@pytest.mark.parametrize("instance_id", ["a\ud800b", "\0"])
async def test_an_instance_id_that_cannot_be_stored_fails_alone(instance_id: str) -> None:
    async with TestEnvironment(workflows=[one]) as env:
        with pytest.raises((ConfigurationError, StoreError, PayloadError)):
            await env.app.start_workflow(one.with_options(instance_id=instance_id), 1)
        assert await (await env.app.start_workflow(one, 2)).result() == 2


@pytest.mark.parametrize("instance_id", ["a b/c?d=é:%_'\"\n", "x" * 500])
async def test_any_other_text_is_an_instance_id(instance_id: str) -> None:
    async with TestEnvironment(workflows=[one]) as env:
        handle = await env.app.start_workflow(one.with_options(instance_id=instance_id), 1)
        assert await handle.result() == 1
        (found,) = (await env.app.list_instances(instance_id=instance_id[:50])).items
        assert found.instance_id == instance_id


async def test_an_instance_id_that_is_too_long_for_the_database_fails_alone() -> None:
    async with TestEnvironment(workflows=[one]) as env:
        with suppress(StoreError):  # some databases have no limit
            handle = await env.app.start_workflow(one.with_options(instance_id="x" * 5000), 1)
            assert await handle.result() == 1
        assert await (await env.app.start_workflow(one, 2)).result() == 2


async def test_a_database_of_a_newer_release_is_refused(bare_database: str) -> None:
    async with Client(bare_database, workflows=[one]):
        pass
    databases.execute(bare_database, "INSERT INTO romancy_migrations VALUES (9999, 'from_the_future', 0)")
    app = App(bare_database, workflows=[one])
    with pytest.raises(StoreError, match=r"newer release.*9999_from_the_future.*Upgrade"):
        await app.startup()
    await app.shutdown()


async def test_without_permission_to_migrate_an_empty_database_is_refused(bare_database: str) -> None:
    with pytest.raises(StoreError, match="auto_migrate"):
        await App(bare_database, workflows=[one], auto_migrate=False).startup()


async def test_one_poisoned_result_does_not_hurt_its_neighbours() -> None:
    class UnstorableText:
        """A value whose text no database can store."""

        def __str__(self) -> str:
            return "\ud800"

    @activity(retry=RetryPolicy.none())
    async def fail(ctx: ActivityContext, bad: bool) -> str:
        if bad:
            raise ValueError("\ud800", UnstorableText())
        return "well"

    @workflow
    async def job(ctx: WorkflowContext, bad: bool) -> str:
        return await fail(ctx, bad)

    async with TestEnvironment(workflows=[job]) as env:
        handles = [await env.app.start_workflow(job, number == 3) for number in range(6)]
        ends: list[Any] = await asyncio.wait_for(
            asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True), 20
        )
    assert [end for number, end in enumerate(ends) if number != 3] == ["well"] * 5
    assert isinstance(ends[3], Exception)
