"""Groups: sets of instances that receive messages together."""

import asyncio
from typing import Any, cast

import pytest

from romancy import (
    ActivityContext,
    App,
    ConfigurationError,
    GroupNotJoinedError,
    InvalidWorkflowStateError,
    RetryPolicy,
    Status,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    activity,
    get_group_members,
    join_group,
    leave_group,
    receive,
    send_to_group,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


@workflow
async def member(ctx: WorkflowContext, count: int = 1) -> list[Any]:
    await join_group(ctx, "crew")
    await subscribe(ctx, "orders", "direct")
    return [(await receive(ctx, "orders")).data for _ in range(count)]


@workflow
async def captain(ctx: WorkflowContext, order: Any) -> list[str]:
    await send_to_group(ctx, "crew", "orders", order, metadata={"rank": "captain"})
    return await get_group_members(ctx, "crew")


async def start_members(env: TestEnvironment, size: int = 3) -> list[WorkflowHandle[list[Any]]]:
    """Start members that wait for messages, one after the other."""
    handles: list[WorkflowHandle[list[Any]]] = []
    for number in range(size):
        handles.append(await env.app.start_workflow(member.with_options(instance_id=f"sailor-{number}")))
        await env.advance(1)
    return handles


async def failure(handle: WorkflowHandle[Any]) -> BaseException | None:
    """The error with which the instance failed."""
    with pytest.raises(WorkflowFailedError) as failed:
        await asyncio.wait_for(handle.result(), 10)
    return failed.value.__cause__


async def test_a_message_to_a_group_reaches_each_member_and_no_other_instance() -> None:
    @workflow
    async def outsider(ctx: WorkflowContext) -> Any:
        await subscribe(ctx, "orders", "direct")
        return (await receive(ctx, "orders")).data

    async with TestEnvironment(workflows=[member, captain, outsider]) as env:
        handles = await start_members(env)
        outside = await env.app.start_workflow(outsider)
        await env.settle()
        leading = await env.app.start_workflow(captain, "set sail")
        assert await leading.result() == ["sailor-0", "sailor-1", "sailor-2"]
        assert [await handle.result() for handle in handles] == [["set sail"]] * 3
        assert await outside.status() is Status.WAITING_FOR_MESSAGE


async def test_a_message_to_a_group_says_who_sent_it() -> None:
    @workflow
    async def curious(ctx: WorkflowContext) -> list[Any]:
        await join_group(ctx, "crew")
        await subscribe(ctx, "orders")
        message = await receive(ctx, "orders")
        return [message.channel, message.data, dict(message.metadata), message.sender_instance_id]

    async with TestEnvironment(workflows=[curious, captain]) as env:
        handle = await env.app.start_workflow(curious)
        await env.settle()
        await env.app.start_workflow(captain.with_options(instance_id="ahab"), {"sail": True})
        assert await handle.result() == ["orders", {"sail": True}, {"rank": "captain"}, "ahab"]


async def test_a_message_waits_for_a_member_that_does_not_listen_yet() -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        await join_group(ctx, "crew")
        await wait_event(ctx, "awake")
        await subscribe(ctx, "orders", "direct")
        return (await receive(ctx, "orders")).data

    async with TestEnvironment(workflows=[late, captain]) as env:
        handle = await env.app.start_workflow(late)
        await env.settle()
        await (await env.app.start_workflow(captain, "wake up")).result()
        await env.app.send_event("awake", "/test")
        assert await handle.result() == "wake up"


async def test_a_message_to_a_group_without_members_is_not_received() -> None:
    async with TestEnvironment(workflows=[member, captain]) as env:
        assert await (await env.app.start_workflow(captain, "unheard")).result() == []
        (late,) = await start_members(env, 1)
        assert await late.status() is Status.WAITING_FOR_MESSAGE


async def test_the_app_knows_the_members_and_speaks_to_them() -> None:
    async with TestEnvironment(workflows=[member]) as env:
        assert await env.app.get_group_members("crew") == []
        handles = await start_members(env)
        assert await env.app.get_group_members("crew") == ["sailor-0", "sailor-1", "sailor-2"]
        assert await env.app.get_group_members("Crew") == []
        await env.app.send_to_group("crew", "orders", {"sail": True})
        assert [await handle.result() for handle in handles] == [[{"sail": True}]] * 3


async def test_joining_again_does_nothing_and_leaving_ends_the_membership() -> None:
    @workflow
    async def fickle(ctx: WorkflowContext) -> list[list[str]]:
        seen: list[list[str]] = []
        for act in (join_group, join_group, leave_group, join_group):
            await act(ctx, "crew")
            seen.append(await get_group_members(ctx, "crew"))
        return seen

    async with TestEnvironment(workflows=[fickle], replay_always=True) as env:
        handle = await env.app.start_workflow(fickle.with_options(instance_id="me"))
        assert await handle.result() == [["me"], ["me"], [], ["me"]]


async def test_who_is_no_member_cannot_leave() -> None:
    @workflow
    async def outsider(ctx: WorkflowContext) -> str:
        try:
            await leave_group(ctx, "crew")
        except GroupNotJoinedError as error:
            return str(error)
        return "left"

    async with TestEnvironment(workflows=[outsider, member], replay_always=True) as env:
        await start_members(env, 1)
        told = await (await env.app.start_workflow(outsider.with_options(instance_id="me"))).result()
        assert "'crew'" in told
        assert "me" in told
        assert await env.app.get_group_members("crew") == ["sailor-0"]


async def test_leaving_twice_is_an_error_the_second_time() -> None:
    @workflow
    async def leaver(ctx: WorkflowContext) -> None:
        await join_group(ctx, "crew")
        await leave_group(ctx, "crew")
        await leave_group(ctx, "crew")

    async with TestEnvironment(workflows=[leaver]) as env:
        assert isinstance(await failure(await env.app.start_workflow(leaver)), GroupNotJoinedError)


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "terminated"])
async def test_however_it_ends_an_instance_is_no_member_any_more(ending: str) -> None:
    @workflow
    async def mortal(ctx: WorkflowContext) -> None:
        await join_group(ctx, "crew")
        await wait_event(ctx, "end")
        if ending == "failed":
            raise ValueError("broken")

    async with TestEnvironment(workflows=[mortal]) as env:
        handle = await env.app.start_workflow(mortal)
        await env.settle()
        assert await env.app.get_group_members("crew") == [handle.instance_id]
        if ending == "cancelled":
            await handle.cancel()
        elif ending == "terminated":
            await env.app.terminate_workflow(handle.instance_id)
        else:
            await env.app.send_event("end", "/test")
        await env.settle()
        assert (await handle.status()).value == ending
        assert await env.app.get_group_members("crew") == []


async def test_a_crash_at_any_step_joins_once_and_sends_once() -> None:
    @workflow
    async def announcing(ctx: WorkflowContext) -> None:
        await join_group(ctx, "crew")
        await send_to_group(ctx, "crew", "orders", "one")
        await wait_event(ctx, "end", timeout=5)

    @workflow
    async def patient(ctx: WorkflowContext) -> list[Any]:
        await join_group(ctx, "crew")
        await subscribe(ctx, "orders", "direct")
        got: list[Any] = []
        while True:
            try:
                got.append((await receive(ctx, "orders", timeout=60)).data)
            except TimeoutError:
                return got

    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[announcing, patient]) as env:
            listening = await env.app.start_workflow(patient)
            await env.settle()
            await env.app.start_workflow(announcing)
            env.crash_at_step(step)
            assert await asyncio.wait_for(listening.result(), 10) == ["one"], f"crash at step {step}"
            crashes = env.crashes
    assert step > 4


async def test_an_activity_speaks_to_a_group_if_its_attempt_succeeds() -> None:
    @activity(retry=RetryPolicy.fixed(3, 1))
    async def announce(ctx: ActivityContext) -> None:
        await send_to_group(ctx, "crew", "orders", f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError("busy")

    @workflow
    async def announcer(ctx: WorkflowContext) -> None:
        await announce(ctx)

    async with TestEnvironment(workflows=[member, announcer]) as env:
        handles = await start_members(env, 2)
        await (await env.app.start_workflow(announcer)).result()
        assert [await handle.result() for handle in handles] == [["attempt 3"]] * 2


async def test_a_retried_instance_is_a_member_again() -> None:
    broken = [True]

    @activity(retry=RetryPolicy.none())
    async def check(ctx: ActivityContext) -> None:
        if broken:
            raise ValueError("broken")

    @workflow
    async def sailor(ctx: WorkflowContext) -> Any:
        await join_group(ctx, "crew")
        await check(ctx)
        await subscribe(ctx, "orders", "direct")
        return (await receive(ctx, "orders")).data

    async with TestEnvironment(workflows=[sailor]) as env:
        handle = await env.app.start_workflow(sailor)
        await failure(handle)
        assert await env.app.get_group_members("crew") == []
        broken.clear()
        await env.app.retry_workflow(handle.instance_id)
        await env.settle()
        assert await env.app.get_group_members("crew") == [handle.instance_id]
        await env.app.send_to_group("crew", "orders", "again")
        assert await handle.result() == "again"


async def test_the_history_tells_who_joined_left_and_asked() -> None:
    @workflow
    async def social(ctx: WorkflowContext) -> None:
        await join_group(ctx, "crew")
        await get_group_members(ctx, "crew")
        await send_to_group(ctx, "crew", "orders", 1)
        await leave_group(ctx, "crew")

    async with TestEnvironment(workflows=[social]) as env:
        handle = await env.app.start_workflow(social.with_options(instance_id="me"))
        await handle.result()
        found = [(entry.kind, entry.activity_id, entry.input, entry.result) async for entry in handle.history()]
    assert found == [
        ("join_group", "join_group:crew:1", {"group": "crew"}, None),
        ("members", "get_group_members:crew:1", {"group": "crew"}, ["me"]),
        ("send_to_group", "send_to_group:crew:1", {"channel": "orders", "group": "crew", "data": 1}, None),
        ("leave_group", "leave_group:crew:1", {"group": "crew"}, None),
    ]


@pytest.mark.parametrize("call", [join_group, leave_group, get_group_members])
async def test_a_group_needs_a_name_and_membership_a_workflow(call: Any) -> None:
    refused: list[str] = []

    @activity
    async def act(ctx: Any) -> None:
        try:
            await call(ctx, "crew")
        except InvalidWorkflowStateError as error:
            refused.append(str(error))

    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        await act(ctx)
        await call(ctx, cast(Any, ""))

    async with TestEnvironment(workflows=[wrong]) as env:
        error = await failure(await env.app.start_workflow(wrong))
    assert isinstance(error, ConfigurationError)
    assert "group" in str(error)
    assert ["inside an activity" in text for text in refused] == [True]


async def test_members_in_two_processes(database: str) -> None:
    async with App(database, workflows=[member]) as first, App(database, workflows=[member, captain]) as second:
        handles = [await app.start_workflow(member) for app in (first, second)]
        for handle in handles:
            while await handle.status() is not Status.WAITING_FOR_MESSAGE:
                await asyncio.sleep(0)
        members = await (await second.start_workflow(captain, "all hands")).result(timeout=20)
        assert sorted(members) == sorted(handle.instance_id for handle in handles)
        assert await asyncio.gather(*(handle.result(timeout=20) for handle in handles)) == [["all hands"]] * 2
