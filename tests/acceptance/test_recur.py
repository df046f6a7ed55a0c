"""Recur: one instance with many generations, each with a history of its own."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    EventTimeoutError,
    InvalidWorkflowStateError,
    PayloadError,
    RetryExhaustedError,
    RetryPolicy,
    Status,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowTimeoutError,
    activity,
    get_group_members,
    join_group,
    publish,
    receive,
    recur,
    register_compensation,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


@activity
async def step(ctx: ActivityContext, number: int) -> str:
    return ctx.idempotency_key


@workflow
async def countdown(ctx: WorkflowContext, number: int, seen: list[str] | None = None) -> list[str]:
    seen = [*(seen or []), f"{ctx.generation}: {number}"]
    await step(ctx, number)
    if number:
        await ctx.recur(number - 1, seen=seen)
    return seen


async def failure(handle: WorkflowHandle[Any]) -> BaseException | None:
    """The error with which the instance failed."""
    with pytest.raises(WorkflowFailedError) as failed:
        await asyncio.wait_for(handle.result(), 10)
    return failed.value.__cause__


@pytest.mark.parametrize("replay_always", [False, True])
async def test_a_chain_of_generations_is_one_instance_with_one_result(replay_always: bool) -> None:
    async with TestEnvironment(workflows=[countdown], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(countdown, 3)
        assert await handle.result() == ["1: 3", "2: 2", "3: 1", "4: 0"]
        assert len((await env.app.list_instances()).items) == 1
        now = await env.app.get_instance(handle.instance_id)
        assert now is not None
        assert (now.generation, now.continued_from, now.status) == (4, 3, Status.COMPLETED)
        assert now.input == {"number": 0, "seen": ["1: 3", "2: 2", "3: 1"]}


async def test_three_spellings_of_one_thing() -> None:
    @workflow
    async def speller(ctx: WorkflowContext, how: str, *, done: bool = False) -> str:
        if not done:
            if how == "ctx":
                await ctx.recur(how, done=True)
            elif how == "function":
                await recur(ctx, how, done=True)
            else:
                await speller.recur(ctx, how, done=True)
        return f"{how} in {ctx.generation}"

    async with TestEnvironment(workflows=[speller], replay_always=True) as env:
        for how in ("ctx", "function", "workflow"):
            assert await (await env.app.start_workflow(speller, how)).result() == f"{how} in 2"


async def test_what_was_is_archived_and_readable() -> None:
    async with TestEnvironment(workflows=[countdown]) as env:
        begun = env.now()
        handle = await env.app.start_workflow(countdown, 2)
        await handle.result()
        for generation in (1, 2):
            then = await env.app.get_instance(handle.instance_id, generation=generation)
            assert then is not None
            assert (then.status.value, then.generation) == ("recurred", generation)
            assert then.continued_from == (generation - 1 or None)
            assert then.input["number"] == 3 - generation
            assert (then.output, then.error, then.waiting_for) == (None, None, ())
            assert then.created_at == begun
            assert then.ended_at == begun
            entries = [entry async for entry in env.app.history(handle.instance_id, generation=generation)]
            assert [(entry.seq, entry.kind, entry.activity_id) for entry in entries] == [(1, "activity", "step:1")]
            assert entries[0].input == {"number": 3 - generation}
        assert await env.app.get_instance(handle.instance_id, generation=4) is None
        assert [entry async for entry in env.app.history(handle.instance_id, generation=4)] == []
        assert len([entry async for entry in handle.history()]) == 1  # the history of the current generation


async def test_an_archive_that_is_turned_off_keeps_nothing() -> None:
    async with TestEnvironment(workflows=[countdown], archive_history=False) as env:
        handle = await env.app.start_workflow(countdown, 2)
        assert await handle.result() == ["1: 2", "2: 1", "3: 0"]
        for generation in (1, 2):
            assert await env.app.get_instance(handle.instance_id, generation=generation) is None
            assert [entry async for entry in env.app.history(handle.instance_id, generation=generation)] == []
        now = await env.app.get_instance(handle.instance_id)
        assert now is not None
        assert (now.generation, now.continued_from) == (3, 2)


@pytest.mark.parametrize("archive", [True, False])
async def test_a_crash_at_any_step_does_not_end_the_chain(archive: bool) -> None:
    crashes, at = 1, 0
    while crashes:
        at += 1
        async with TestEnvironment(workflows=[countdown], archive_history=archive) as env:
            handle = await env.app.start_workflow(countdown, 2)
            env.crash_at_step(at)
            assert await asyncio.wait_for(handle.result(), 10) == ["1: 2", "2: 1", "3: 0"], f"crash at step {at}"
            crashes = env.crashes
    assert at > 6


async def test_recurring_is_one_commit() -> None:
    @workflow
    async def spin(ctx: WorkflowContext, number: int) -> int:
        if number:
            await ctx.recur(number - 1)
        return ctx.generation

    async with TestEnvironment(workflows=[spin]) as env:
        assert env.app._committer is not None
        assert await (await env.app.start_workflow(spin, 5)).result() == 6
        assert env.app._committer.batches <= 7  # the start, five generations, the end


async def test_activities_are_counted_anew_and_have_keys_of_their_own() -> None:
    keys: list[str] = []

    @workflow
    async def keeper(ctx: WorkflowContext, number: int) -> None:
        keys.append(await step(ctx, 7))
        if number:
            await ctx.recur(number - 1)

    async with TestEnvironment(workflows=[keeper]) as env:
        await (await env.app.start_workflow(keeper, 2)).result()
    assert len(set(keys)) == 3


async def test_chance_differs_between_generations_and_time_goes_on() -> None:
    @workflow
    async def diary(ctx: WorkflowContext, days: list[str]) -> list[str]:
        days = [*days, f"{ctx.now():%d} {ctx.uuid4()}"]
        await sleep(ctx, timedelta(days=1))
        if len(days) < 3:
            await ctx.recur(days)
        return days

    async with TestEnvironment(workflows=[diary], replay_always=True) as env:
        days = await (await env.app.start_workflow(diary, [])).result()
    assert [day[:2] for day in days] == ["01", "02", "03"]
    assert len({day[3:] for day in days}) == 3


# --- what the next generation keeps


@pytest.mark.parametrize("replay_always", [False, True])
async def test_unread_messages_and_events_carry_over(replay_always: bool) -> None:
    @workflow
    async def reader(ctx: WorkflowContext, got: list[Any]) -> list[Any]:
        if ctx.generation == 1:
            await subscribe(ctx, "news")
            await wait_event(ctx, "begin")
        got = [*got, (await receive(ctx, "news")).data, (await wait_event(ctx, "paid")).data]
        if len(got) < 6:
            await ctx.recur(got)
        return got

    async with TestEnvironment(workflows=[reader], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(reader, [])
        await env.settle()
        for number in range(3):
            await env.app.publish("news", f"news {number}")
            await env.app.send_event("paid", "/test", f"paid {number}")
        await env.app.send_event("begin", "/test")
        assert await handle.result() == ["news 0", "paid 0", "news 1", "paid 1", "news 2", "paid 2"]


async def test_a_crash_at_any_step_carries_everything_over() -> None:
    @workflow
    async def reader(ctx: WorkflowContext, got: list[int]) -> list[int]:
        if ctx.generation == 1:
            await subscribe(ctx, "news")
        got = [*got, (await receive(ctx, "news")).data]
        if len(got) < 3:
            await ctx.recur(got)
        return got

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        for number in range(3):
            await publish(ctx, "news", number)
            await step(ctx, number)

    crashes, at = 1, 0
    while crashes:
        at += 1
        async with TestEnvironment(workflows=[reader, speaker]) as env:
            handle = await env.app.start_workflow(reader, [])
            await env.settle()
            await env.app.start_workflow(speaker)
            env.crash_at_step(at)
            assert await asyncio.wait_for(handle.result(), 10) == [0, 1, 2], f"crash at step {at}"
            crashes = env.crashes
    assert at > 10


async def test_subscriptions_and_memberships_carry_over_and_end_with_the_instance() -> None:
    @workflow
    async def member(ctx: WorkflowContext) -> Any:
        if ctx.generation == 1:
            await subscribe(ctx, "news", "competing")
            await join_group(ctx, "crew")
            await ctx.recur()
        return [await get_group_members(ctx, "crew"), (await receive(ctx, "news")).data]

    async with TestEnvironment(workflows=[member]) as env:
        handle = await env.app.start_workflow(member)
        await env.settle()
        assert await env.app.get_group_members("crew") == [handle.instance_id]
        await env.app.publish("news", "still here")
        assert await handle.result() == [[handle.instance_id], "still here"]
        assert await env.app.get_group_members("crew") == []


async def test_an_event_consumed_in_one_generation_is_consumed_in_the_next() -> None:
    @workflow
    async def reader(ctx: WorkflowContext, first: str | None = None) -> list[str | None]:
        if first is None:
            await ctx.recur((await wait_event(ctx, "paid")).id)
        try:
            return [first, (await wait_event(ctx, "paid", timeout=60)).id]
        except EventTimeoutError:
            return [first, None]

    async with TestEnvironment(workflows=[reader], replay_always=True) as env:
        handle = await env.app.start_workflow(reader)
        await env.app.send_event("paid", "/test", event_id="only")
        assert await handle.result() == ["only", None]


async def test_waits_that_are_open_end_with_their_generation() -> None:
    @workflow
    async def listener(ctx: WorkflowContext) -> Any:
        if ctx.generation == 1:
            background = asyncio.ensure_future(wait_event(ctx, "paid"))
            await sleep(ctx, 1)
            assert not background.done()
            await ctx.recur()
        await sleep(ctx, 60)
        return (await wait_event(ctx, "paid", timeout=1)).data

    async with TestEnvironment(workflows=[listener]) as env:
        handle = await env.app.start_workflow(listener)
        await env.advance(30)
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert [one.kind for one in found.waiting_for] == ["timer"]
        assert (await env.app.send_event("paid", "/test", "for the next wait")).instance_ids == ()
        assert await handle.result() == "for the next wait"


async def test_compensations_do_not_carry_over() -> None:
    undone: list[int] = []

    async def put_back(ctx: ActivityContext, generation: int) -> None:
        undone.append(generation)

    @workflow
    async def saga(ctx: WorkflowContext) -> None:
        await register_compensation(ctx, put_back, ctx.generation)
        if ctx.generation < 3:
            await ctx.recur()
        raise ValueError("broken")

    async with TestEnvironment(workflows=[saga], replay_always=True) as env:
        assert isinstance(await failure(await env.app.start_workflow(saga)), ValueError)
    assert undone == [3]


# --- control


@pytest.mark.parametrize("replay_always", [False, True])
async def test_the_timeout_of_a_workflow_runs_over_generations(replay_always: bool) -> None:
    @workflow(timeout=3600)
    async def endless(ctx: WorkflowContext) -> None:
        await sleep(ctx, 600)
        await ctx.recur()

    async with TestEnvironment(workflows=[endless], replay_always=replay_always) as env:
        begun = env.now()
        handle = await env.app.start_workflow(endless)
        with pytest.raises(WorkflowTimeoutError):
            await asyncio.wait_for(handle.result(), 10)
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert found.ended_at == begun + timedelta(hours=1)
        assert found.generation in (6, 7)  # the sixth generation ends at the timeout


async def test_cancelling_between_generations() -> None:
    @workflow
    async def endless(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)
        await ctx.recur()

    async with TestEnvironment(workflows=[endless]) as env:
        handle = await env.app.start_workflow(endless)
        await env.advance(150)
        await handle.cancel("enough")
        with pytest.raises(WorkflowCancelledError, match="enough"):
            await handle.result()
        await env.advance(600)
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert (found.status, found.generation) == (Status.CANCELLED, 3)


async def test_a_cancellation_that_meets_the_recurring_commit_is_not_lost() -> None:
    """A cancellation during the last activity of a generation must also cancel the next one."""
    running, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def work(ctx: ActivityContext) -> None:
        running.set()
        await finish.wait()

    @workflow
    async def endless(ctx: WorkflowContext) -> None:
        try:
            await work(ctx)
        except asyncio.CancelledError:
            await ctx.recur()  # recurs in spite of the cancellation
        await ctx.recur()

    async with TestEnvironment(workflows=[endless]) as env:
        handle = await env.app.start_workflow(endless)
        await running.wait()
        await handle.cancel()
        finish.set()
        with pytest.raises(WorkflowCancelledError):
            await asyncio.wait_for(handle.result(), 10)


async def test_a_workflow_without_a_wait_can_be_cancelled() -> None:
    """A workflow that recurs without ever waiting."""

    @workflow
    async def endless(ctx: WorkflowContext, number: int) -> None:
        await step(ctx, number)
        await ctx.recur(number + 1)

    async with TestEnvironment(workflows=[endless]) as env:
        handle = await env.app.start_workflow(endless, 0)
        while (found := await env.app.get_instance(handle.instance_id)) is None or found.generation < 3:
            await asyncio.sleep(0)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await asyncio.wait_for(handle.result(), 10)


async def test_a_workflow_without_a_wait_can_be_paused() -> None:
    @workflow
    async def endless(ctx: WorkflowContext, number: int) -> None:
        await step(ctx, number)
        await ctx.recur(number + 1)

    async with TestEnvironment(workflows=[endless]) as env:
        handle = await env.app.start_workflow(endless, 0)
        while (found := await env.app.get_instance(handle.instance_id)) is None or found.generation < 3:
            await asyncio.sleep(0)
        await env.app.pause_workflow(handle.instance_id)
        async with asyncio.timeout(10):
            while await handle.status() is not Status.PAUSED:
                await asyncio.sleep(0)
        await env.app.terminate_workflow(handle.instance_id)


async def test_pausing_terminating_and_retrying_a_later_generation() -> None:
    broken = [True]

    @activity(retry=RetryPolicy.none())
    async def check(ctx: ActivityContext) -> None:
        if broken:
            raise ValueError("broken")

    @workflow
    async def loop(ctx: WorkflowContext) -> int:
        if ctx.generation == 3:
            await check(ctx)
            return ctx.generation
        await sleep(ctx, 60)
        await ctx.recur()

    async with TestEnvironment(workflows=[loop]) as env:
        handle = await env.app.start_workflow(loop)
        await env.advance(90)
        await env.app.pause_workflow(handle.instance_id)
        await env.advance(600)
        await env.restart()
        assert await handle.status() is Status.PAUSED
        await env.app.resume_workflow(handle.instance_id)
        assert isinstance(await failure(handle), RetryExhaustedError)
        broken.clear()
        await env.app.retry_workflow(handle.instance_id)
        assert await handle.result() == 3
        other = await env.app.start_workflow(loop)
        await env.advance(90)
        await env.app.terminate_workflow(other.instance_id)
        await env.advance(600)
        found = await env.app.get_instance(other.instance_id)
        assert found is not None
        assert (found.status, found.generation) == (Status.TERMINATED, 2)


async def test_the_same_start_again_gives_the_same_instance_whatever_its_generation() -> None:
    async with TestEnvironment(workflows=[countdown]) as env:
        first = await env.app.start_workflow(countdown.with_options(instance_id="once"), 1)
        result = await first.result()
        again = await env.app.start_workflow(countdown.with_options(instance_id="once"), 1)
        assert await again.result() == result


async def test_searching_finds_an_instance_by_its_present_input() -> None:
    async with TestEnvironment(workflows=[countdown]) as env:
        handle = await env.app.start_workflow(countdown, 1)
        await handle.result()
        assert [one.instance_id for one in (await env.app.find_instances({"number": 0})).items] == [handle.instance_id]
        assert (await env.app.find_instances({"number": 1})).items == []


# --- only from the workflow function itself, with no operation pending


async def test_from_a_task_beside_the_main_line_it_is_refused() -> None:
    @workflow
    async def sneaky(ctx: WorkflowContext) -> str:
        async def beside() -> None:
            await ctx.recur()

        try:
            await asyncio.create_task(beside())
        except InvalidWorkflowStateError as error:
            return f"{ctx.generation}: {error}"
        return "recurred"

    async with TestEnvironment(workflows=[sneaky], replay_always=True) as env:
        told = await (await env.app.start_workflow(sneaky)).result()
    assert told.startswith("1: recur() was called in a task")


async def test_with_an_activity_in_flight_it_is_refused_and_the_body_goes_on() -> None:
    finish = asyncio.Event()

    @activity
    async def work(ctx: ActivityContext) -> str:
        await finish.wait()
        return "worked"

    @workflow
    async def hasty(ctx: WorkflowContext) -> list[str]:
        if ctx.generation == 2:
            return ["second"]
        working = work(ctx)
        await sleep(ctx, 1)
        try:
            await ctx.recur()
        except InvalidWorkflowStateError as error:
            finish.set()
            return [str(error), await working]

    async with TestEnvironment(workflows=[hasty]) as env:
        told, worked = await (await env.app.start_workflow(hasty)).result()
    assert "work:1" in told
    assert worked == "worked"


async def test_after_the_activity_was_awaited_or_cancelled_it_is_allowed() -> None:
    @activity
    async def hang(ctx: ActivityContext) -> None:
        await asyncio.Event().wait()

    @workflow
    async def tidy(ctx: WorkflowContext) -> int:
        if ctx.generation == 2:
            return ctx.generation
        try:
            async with asyncio.timeout(1):
                await hang(ctx)
        except TimeoutError:
            await ctx.recur()
        return 0

    async with TestEnvironment(workflows=[tidy]) as env:
        assert await asyncio.wait_for((await env.app.start_workflow(tidy)).result(), 10) == 2


async def test_arguments_that_do_not_fit_are_an_error_in_the_body() -> None:
    @workflow
    async def typed(ctx: WorkflowContext, number: int) -> list[str]:
        told: list[str] = []
        for args in ((), ("many", 2), (object(),)):
            try:
                await ctx.recur(*args)
            except (TypeError, PayloadError) as error:
                told.append(str(error))
        return told

    async with TestEnvironment(workflows=[typed], replay_always=True) as env:
        told = await (await env.app.start_workflow(typed, 1)).result()
    assert len(told) == 3
    assert all("number" in text or "typed" in text for text in told)


async def test_recurring_as_another_workflow_is_refused() -> None:
    @workflow
    async def inner(ctx: WorkflowContext, number: int) -> str:
        if number == 1:
            try:
                await inner.recur(ctx, 2)
            except InvalidWorkflowStateError as error:
                return str(error)
        return f"inner in {ctx.generation}"

    @workflow
    async def outer(ctx: WorkflowContext, number: int) -> str:
        return await inner(ctx, number)

    async with TestEnvironment(workflows=[inner, outer]) as env:
        told = await (await env.app.start_workflow(outer, 1)).result()
        assert "outer" in told
        assert "inner" in told
        assert await (await env.app.start_workflow(inner, 1)).result() == "inner in 2"


async def test_it_cannot_be_swallowed_and_finally_blocks_run() -> None:
    tidied: list[int] = []

    @workflow
    async def cautious(ctx: WorkflowContext) -> int:
        if ctx.generation == 2:
            return ctx.generation
        try:
            await ctx.recur()
        except Exception:
            return -1
        finally:
            tidied.append(ctx.generation)
        return -2

    async with TestEnvironment(workflows=[cautious]) as env:
        assert await (await env.app.start_workflow(cautious)).result() == 2
    assert tidied[0] == 1


async def test_outside_a_workflow_it_says_where_it_belongs() -> None:
    @activity(retry=RetryPolicy.none())
    async def act(ctx: Any) -> None:
        await recur(ctx)

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await act(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        error = await failure(await env.app.start_workflow(job))
    assert error is not None
    assert isinstance(error.__cause__, InvalidWorkflowStateError)


async def test_a_hundred_generations_on_a_real_app_with_another_beside_it(database: str) -> None:
    async with App(database, workflows=[countdown]) as app, App(database, workflows=[countdown]):
        handle = await app.start_workflow(countdown, 100)
        assert len(await handle.result(timeout=30)) == 101
        found = await app.get_instance(handle.instance_id)
        assert found is not None
        assert found.generation == 101
        first = await app.get_instance(handle.instance_id, generation=1)
        assert first is not None
        assert first.input["number"] == 100
