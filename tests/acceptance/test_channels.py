"""Channels: the receivers of a message, the order of messages, and their retention."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pydantic import BaseModel, Field
from tests import databases

from romancy import (
    ActivityContext,
    App,
    ChannelMessageTimeoutError,
    ChannelMode,
    ChannelModeConflictError,
    ChannelNotSubscribedError,
    Client,
    ConfigurationError,
    HistoryEntry,
    Instance,
    InvalidWorkflowStateError,
    PayloadError,
    ReceivedMessage,
    RetryPolicy,
    Status,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowNotFoundError,
    activity,
    join_group,
    publish,
    receive,
    register_compensation,
    send_to,
    sleep,
    subscribe,
    unsubscribe,
    wait_event,
    workflow,
)
from romancy.authoring.channels import Mode
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Job(BaseModel):
    id: int = Field(alias="jobId")


@workflow
async def listener(ctx: WorkflowContext, count: int, mode: ChannelMode = ChannelMode.BROADCAST) -> list[Any]:
    await subscribe(ctx, "news", mode)
    return [(await receive(ctx, "news")).data for _ in range(count)]


@workflow
async def worker(ctx: WorkflowContext) -> list[Any]:
    """Receives jobs until none has arrived for a minute."""
    await subscribe(ctx, "jobs", "competing")
    done: list[Any] = []
    while True:
        try:
            done.append((await receive(ctx, "jobs", timeout=60)).data)
        except ChannelMessageTimeoutError:
            return done


@workflow
async def nap(ctx: WorkflowContext) -> str:
    await sleep(ctx, 3600)
    return "rested"


@activity
async def note(ctx: ActivityContext, what: str = "") -> str:
    return what


async def settled_instance(env: TestEnvironment, handle: WorkflowHandle[Any]) -> Instance:
    """The instance, after everything has settled."""
    await env.settle()
    found = await env.app.get_instance(handle.instance_id)
    assert found is not None
    return found


async def entries(handle: WorkflowHandle[Any], kind: str) -> list[HistoryEntry]:
    return [entry async for entry in handle.history() if entry.kind == kind]


async def failure(handle: WorkflowHandle[Any]) -> BaseException | None:
    """The error with which the instance failed."""
    with pytest.raises(WorkflowFailedError) as failed:
        await asyncio.wait_for(handle.result(), 10)
    return failed.value.__cause__


# --- received messages


async def test_a_message_with_everything_it_says_about_itself() -> None:
    got: list[ReceivedMessage[Any]] = []

    @workflow
    async def curious(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news")
        got.append(await receive(ctx, "news"))
        got.append(await receive(ctx, "news"))

    @workflow
    async def reporter(ctx: WorkflowContext) -> None:
        await publish(ctx, "news", {"n": 2})

    async with TestEnvironment(workflows=[curious, reporter], start=datetime(2031, 5, 1, 12, tzinfo=UTC)) as env:
        handle = await env.app.start_workflow(curious)
        await env.settle()
        message_id = await env.app.publish("news", {"n": 1}, metadata={"lang": "en", "tags": ["a", 1, None]})
        await env.advance(60)
        speaker = await env.app.start_workflow(reporter)
        await handle.result()
    first, second = got
    assert (first.id, first.channel, first.data, first.sender_instance_id) == (message_id, "news", {"n": 1}, None)
    assert first.metadata == {"lang": "en", "tags": ["a", 1, None]}
    assert first.created_at == datetime(2031, 5, 1, 12, tzinfo=UTC)
    assert (second.sender_instance_id, second.metadata, second.data) == (speaker.instance_id, {}, {"n": 2})
    assert second.created_at == datetime(2031, 5, 1, 12, 1, tzinfo=UTC)
    assert second.id != first.id


@pytest.mark.parametrize(
    "data",
    [None, "text", 7, 1.5, True, [1, [2]], {"a": {"b": None}}, b"", b"\x00\xff", "☃ \x00", "x" * 200_000],
    ids=lambda d: repr(d)[:20],
)
async def test_data_arrives_as_it_was_sent_live_and_replayed(data: Any) -> None:
    seen: list[Any] = []

    @workflow
    async def keeper(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "things")
        seen.append((await receive(ctx, "things")).data)
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[keeper]) as env:
        handle = await env.app.start_workflow(keeper)
        await env.settle()
        await env.app.publish("things", data)
        await env.settle()
        await env.restart()
        await handle.result()
    live, replayed = seen
    assert live == replayed == data
    assert type(live) is type(replayed) is type(data)


async def test_a_model_reads_the_data_and_what_does_not_fit_is_consumed() -> None:
    @workflow
    async def typed(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "jobs")
        found: list[Any] = [(await receive(ctx, "jobs", model=Job)).data.id]
        try:
            await receive(ctx, "jobs", model=Job)
        except PayloadError as error:
            found.append(str(error))
        found.append((await receive(ctx, "jobs", model=bytes)).data.decode())
        return found

    async with TestEnvironment(workflows=[typed], replay_always=True) as env:
        handle = await env.app.start_workflow(typed)
        await env.settle()
        for data in ({"jobId": 7}, {"jobId": "seven"}, b"seven"):
            await env.app.publish("jobs", data)
        number, misfit, text = await handle.result()
    assert (number, text) == (7, "seven")
    assert "'jobs'" in misfit
    assert "Job" in misfit


# --- broadcast


async def test_each_subscriber_gets_each_message_once() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        handles = [await env.app.start_workflow(listener, 3) for _ in range(4)]
        await env.settle()
        for number in range(3):
            await env.app.publish("news", number)
        assert [await handle.result() for handle in handles] == [[0, 1, 2]] * 4


async def test_a_message_is_for_those_who_had_subscribed_when_it_was_committed() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        await env.app.publish("news", "before the subscription")
        first = await env.app.start_workflow(listener, 2)
        await env.settle()
        await env.app.publish("news", 1)
        second = await env.app.start_workflow(listener, 1)
        await env.settle()
        await env.app.publish("news", 2)
        assert await first.result() == [1, 2]
        assert await second.result() == [2]


async def test_what_comes_between_two_receives_waits() -> None:
    running, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def work(ctx: ActivityContext) -> None:
        running.set()
        await finish.wait()

    @workflow
    async def busy(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        await work(ctx)
        return [(await receive(ctx, "news")).data for _ in range(3)]

    async with TestEnvironment(workflows=[busy]) as env:
        handle = await env.app.start_workflow(busy)
        await running.wait()
        for number in range(3):
            await env.app.publish("news", number)
        finish.set()
        assert await handle.result() == [0, 1, 2]


async def test_nothing_is_published_to_the_other_channel() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        handle = await env.app.start_workflow(listener, 1)
        await env.settle()
        for channel in ("News", "news ", "new", "news.sport"):
            await env.app.publish(channel, channel)
        assert (await settled_instance(env, handle)).status is Status.WAITING_FOR_MESSAGE
        await env.app.publish("news", "right")
        assert await handle.result() == ["right"]


async def test_who_unsubscribes_gets_no_more_and_what_was_unread_is_gone() -> None:
    @workflow
    async def fickle(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        await wait_event(ctx, "go on")
        await unsubscribe(ctx, "news")
        found: list[Any] = []
        try:
            await receive(ctx, "news")
        except ChannelNotSubscribedError:
            found.append("not subscribed")
        await subscribe(ctx, "news")
        return [*found, (await receive(ctx, "news")).data]

    async with TestEnvironment(workflows=[fickle], replay_always=True) as env:
        handle = await env.app.start_workflow(fickle)
        await env.settle()
        await env.app.publish("news", "unread")
        await env.app.send_event("go on", "/test")
        await env.settle()
        await env.app.publish("news", "fresh")
        assert await handle.result() == ["not subscribed", "fresh"]


async def test_unsubscribing_ends_a_receive_of_the_same_instance() -> None:
    @workflow
    async def confused(ctx: WorkflowContext) -> str:
        await subscribe(ctx, "news")
        task = asyncio.ensure_future(receive(ctx, "news"))
        await sleep(ctx, 1)
        await unsubscribe(ctx, "news")
        try:
            await task
        except ChannelNotSubscribedError as error:
            return str(error)
        return "received"

    async with TestEnvironment(workflows=[confused], replay_always=True) as env:
        handle = await env.app.start_workflow(confused)
        assert "'news'" in await asyncio.wait_for(handle.result(), 10)


# --- competing


async def test_each_job_goes_to_exactly_one_worker() -> None:
    async with TestEnvironment(workflows=[worker]) as env:
        handles = [await env.app.start_workflow(worker) for _ in range(3)]
        await env.settle()
        for number in range(30):
            await env.app.publish("jobs", number)
        done = [await handle.result() for handle in handles]
    assert Counter(number for one in done for number in one) == Counter(range(30))
    assert all(one == sorted(one) for one in done)


async def test_jobs_wait_for_a_worker_that_comes_later() -> None:
    async with TestEnvironment(workflows=[worker]) as env:
        for number in range(3):
            await env.app.publish("jobs", number)
        await env.advance(timedelta(days=6))
        handle = await env.app.start_workflow(worker)
        assert await handle.result() == [0, 1, 2]
        await env.app.publish("jobs", 3)
        again = await env.app.start_workflow(worker)
        assert await again.result() == [3]


async def test_jobs_that_are_not_received_are_deleted_after_the_retention() -> None:
    async with TestEnvironment(workflows=[worker], message_retention=3600) as env:
        await env.app.publish("jobs", "old")
        await env.advance(1800)
        await env.app.publish("jobs", "young")
        await env.advance(1801)
        assert env.app._maintenance is not None
        await env.app._maintenance.round()
        handle = await env.app.start_workflow(worker)
        assert await handle.result() == ["young"]


async def test_unread_messages_of_a_living_subscriber_are_not_forgotten() -> None:
    @workflow
    async def slow(ctx: WorkflowContext) -> Any:
        await subscribe(ctx, "news")
        await sleep(ctx, timedelta(days=30))
        return (await receive(ctx, "news")).data

    async with TestEnvironment(workflows=[slow]) as env:
        handle = await env.app.start_workflow(slow)
        await env.settle()
        await env.app.publish("news", "kept")
        await env.advance(timedelta(days=20))
        assert env.app._maintenance is not None
        await env.app._maintenance.round()
        assert await handle.result() == "kept"


async def test_a_crash_at_any_step_gives_each_job_to_one_worker_once() -> None:
    @workflow
    async def boss(ctx: WorkflowContext) -> None:
        for number in range(4):
            await publish(ctx, "jobs", number)
            if number % 2:
                await note(ctx)

    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[worker, boss]) as env:
            workers = [await env.app.start_workflow(worker) for _ in range(2)]
            handle = await env.app.start_workflow(boss)
            env.crash_at_step(step)
            results = asyncio.gather(*(one.result() for one in workers), handle.result())
            *done, _ = await asyncio.wait_for(results, 10)
            taken = Counter(number for one in done for number in cast(list[int], one))
            assert taken == Counter(range(4)), f"crash at step {step}"
            crashes = env.crashes
    assert step > 8


async def test_a_worker_that_is_stopped_leaves_its_job_to_another() -> None:
    """The first worker was assigned the job, and had not received it."""
    for stop in ("cancel", "terminate", "pause"):
        async with TestEnvironment(workflows=[worker]) as env:
            first = await env.app.start_workflow(worker)
            await env.settle()
            second = await env.app.start_workflow(worker)
            await env.settle()
            sending = asyncio.ensure_future(env.app.publish("jobs", "job"))
            await getattr(env.app, f"{stop}_workflow")(first.instance_id)
            await sending
            done = await second.result()
            if not done:  # the first had received it before it was stopped
                assert [entry.outcome for entry in await entries(first, "message")][:1] == ["ok"], stop
            else:
                assert done == ["job"]


async def test_a_competing_wait_that_is_withdrawn_leaves_the_job_to_another() -> None:
    @workflow
    async def fickle(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "jobs", "competing")
        task = asyncio.ensure_future(receive(ctx, "jobs"))
        await wait_event(ctx, "enough")
        task.cancel()
        await sleep(ctx, 3600)
        return []

    async with TestEnvironment(workflows=[worker, fickle]) as env:
        idle = await env.app.start_workflow(fickle)
        await env.settle()
        await env.app.send_event("enough", "/test")
        await env.settle()
        other = await env.app.start_workflow(worker)
        await env.settle()
        await env.app.publish("jobs", "job")
        assert await other.result() == ["job"]
        assert await entries(idle, "message") == []


# --- direct


async def test_a_direct_message_is_for_one_instance_and_waits_until_it_subscribes() -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> list[Any]:
        await wait_event(ctx, "go on")
        await subscribe(ctx, "mail", "direct")
        return [(await receive(ctx, "mail")).data for _ in range(2)]

    async with TestEnvironment(workflows=[late]) as env:
        first = await env.app.start_workflow(late.with_options(instance_id="first"))
        await env.app.start_workflow(late.with_options(instance_id="second"))
        await env.settle()
        await env.app.send_to("first", "mail", 1)
        await env.app.send_to("first", "mail", 2)
        await env.app.send_to("first", "other", 3)
        await env.app.send_event("go on", "/test")
        assert await first.result() == [1, 2]
        other = await settled_instance(env, env.app.get_handle("second"))
        assert other.status is Status.WAITING_FOR_MESSAGE


@pytest.mark.parametrize("mode", list(ChannelMode))
async def test_direct_messages_reach_subscribers_of_every_mode(mode: ChannelMode) -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        mine = await env.app.start_workflow(listener, 1, mode)
        other = await env.app.start_workflow(listener, 1, mode)
        await env.settle()
        await env.app.send_to(mine.instance_id, "news", "for you")
        assert await mine.result() == ["for you"]
        assert (await settled_instance(env, other)).status is Status.WAITING_FOR_MESSAGE


async def test_direct_and_published_messages_come_in_the_order_they_were_sent() -> None:
    for mode in (ChannelMode.BROADCAST, ChannelMode.COMPETING):
        async with TestEnvironment(workflows=[listener]) as env:
            handle = await env.app.start_workflow(listener, 4, mode)
            await env.settle()
            await env.app.pause_workflow(handle.instance_id)
            for number in range(4):
                if number % 2:
                    await env.app.publish("news", number)
                else:
                    await env.app.send_to(handle.instance_id, "news", number)
            await env.app.resume_workflow(handle.instance_id)
            assert await handle.result() == [0, 1, 2, 3], mode


async def test_a_direct_subscriber_hears_nothing_that_is_published() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        handle = await env.app.start_workflow(listener, 1, ChannelMode.DIRECT)
        await env.settle()
        await env.app.publish("news", "for all")
        assert (await settled_instance(env, handle)).status is Status.WAITING_FOR_MESSAGE
        await env.app.send_to(handle.instance_id, "news", "for you")
        assert await handle.result() == ["for you"]


async def test_a_target_that_is_unknown_or_has_ended_is_an_error() -> None:
    @workflow
    async def sender(ctx: WorkflowContext, target: str) -> str:
        try:
            await send_to(ctx, target, "mail", 1)
        except (WorkflowNotFoundError, InvalidWorkflowStateError) as error:
            return f"{type(error).__name__}: {error}"
        return "sent"

    async with TestEnvironment(workflows=[sender, nap], replay_always=True) as env:
        sleeper = await env.app.start_workflow(nap)
        ended = await env.app.start_workflow(sender, sleeper.instance_id)
        assert await ended.result() == "sent"
        for target, kind in (("unknown", WorkflowNotFoundError), (ended.instance_id, InvalidWorkflowStateError)):
            with pytest.raises(kind, match=target):
                await env.app.send_to(target, "mail", 1)
            told = await (await env.app.start_workflow(sender, target)).result()
            assert told.startswith(kind.__name__)
            assert target in told


# --- the mode of a channel


async def test_a_channel_has_one_mode_while_it_has_a_subscription() -> None:
    @workflow
    async def other(ctx: WorkflowContext, mode: ChannelMode) -> str:
        try:
            await subscribe(ctx, "news", mode)
        except ChannelModeConflictError as error:
            return str(error)
        return "subscribed"

    async with TestEnvironment(workflows=[listener, other], replay_always=True) as env:
        first = await env.app.start_workflow(listener, 1)
        await env.settle()
        told = await (await env.app.start_workflow(other, ChannelMode.COMPETING)).result()
        assert "'news'" in told
        assert "'broadcast'" in told
        assert "'competing'" in told
        assert await (await env.app.start_workflow(other, ChannelMode.BROADCAST)).result() == "subscribed"
        assert await (await env.app.start_workflow(other, ChannelMode.DIRECT)).result() == "subscribed"
        await env.app.publish("news", "the end")
        await first.result()
        # The mode is free again, because no subscription is left.
        assert await (await env.app.start_workflow(other, ChannelMode.COMPETING)).result() == "subscribed"


async def test_direct_subscribers_do_not_fix_the_mode() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        await env.app.start_workflow(listener, 1, ChannelMode.DIRECT)
        handle = await env.app.start_workflow(listener, 1, ChannelMode.COMPETING)
        await env.settle()
        await env.app.publish("news", 1)
        assert await handle.result() == [1]


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "terminated"])
async def test_however_it_ends_an_instance_lets_go_of_its_channels(ending: str) -> None:
    @workflow
    async def holder(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news", "competing")
        await wait_event(ctx, "end")
        if ending == "failed":
            raise ValueError("broken")

    async with TestEnvironment(workflows=[holder, listener]) as env:
        handle = await env.app.start_workflow(holder)
        await env.settle()
        if ending == "cancelled":
            await handle.cancel()
        elif ending == "terminated":
            await env.app.terminate_workflow(handle.instance_id)
        else:
            await env.app.send_event("end", "/test")
        found = await settled_instance(env, handle)
        assert (found.status.value, found.waiting_for) == (ending, ())
        after = await env.app.start_workflow(listener, 1)
        await env.settle()
        await env.app.publish("news", "free again")
        assert await after.result() == ["free again"]


async def test_instances_that_ended_leave_nothing_behind(database: str) -> None:
    @workflow
    async def mortal(ctx: WorkflowContext, mode: ChannelMode) -> None:
        await subscribe(ctx, mode.value, mode)
        await join_group(ctx, "all")
        await wait_event(ctx, "end")

    async with TestEnvironment(database, workflows=[mortal]) as env:
        handles = [await env.app.start_workflow(mortal, mode) for mode in ChannelMode]
        await env.settle()
        await env.app.publish("broadcast", "unread")
        await env.app.send_to_group("all", "letters", "unread")
        for handle in handles:
            await env.app.send_to(handle.instance_id, "letters", "unread")
        await handles[0].cancel()
        await env.app.terminate_workflow(handles[1].instance_id)
        await env.app.send_event("end", "/test")
        await env.settle()
        assert all([(await handle.status()).ended for handle in handles])
    for table in ("waits", "subscriptions", "messages", "deliveries", "group_members", "inbox"):
        assert databases.execute(database, f"SELECT * FROM romancy_{table}") == [], table


async def test_subscribing_again_does_nothing_and_in_another_mode_is_a_conflict() -> None:
    @workflow
    async def twice(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        await wait_event(ctx, "go on")
        await subscribe(ctx, "news")
        await subscribe(ctx, "news", ChannelMode.BROADCAST)
        found: list[Any] = [(await receive(ctx, "news")).data]
        try:
            await subscribe(ctx, "news", "direct")
        except ChannelModeConflictError:
            found.append("conflict")
        return [*found, (await receive(ctx, "news")).data]

    async with TestEnvironment(workflows=[twice], replay_always=True) as env:
        handle = await env.app.start_workflow(twice)
        await env.settle()
        await env.app.publish("news", 1)  # kept over the second subscription
        await env.app.send_event("go on", "/test")
        await env.settle()
        await env.app.publish("news", 2)  # and delivered once
        assert await handle.result() == [1, "conflict", 2]


async def test_after_unsubscribing_another_mode_is_free() -> None:
    @workflow
    async def changes(ctx: WorkflowContext) -> list[Any]:
        found: list[Any] = []
        modes: list[Mode] = ["broadcast", "competing", "direct"]
        for mode in modes:
            await subscribe(ctx, "news", mode)
            await send_to(ctx, ctx.instance_id, "news", mode)
            found.append((await receive(ctx, "news")).data)
            await unsubscribe(ctx, "news")
        return found

    async with TestEnvironment(workflows=[changes], replay_always=True) as env:
        assert await (await env.app.start_workflow(changes)).result() == ["broadcast", "competing", "direct"]


async def test_receiving_without_a_subscription_is_an_error() -> None:
    @workflow
    async def ignoring(ctx: WorkflowContext) -> Any:
        return (await receive(ctx, "news")).data

    async with TestEnvironment(workflows=[ignoring]) as env:
        error = await failure(await env.app.start_workflow(ignoring))
    assert isinstance(error, ChannelNotSubscribedError)
    assert "'news'" in str(error)
    assert "subscribe" in str(error)


# --- order


@pytest.mark.parametrize("replay_always", [False, True])
async def test_messages_come_in_the_order_in_which_they_were_acknowledged(replay_always: bool) -> None:
    count = 30
    async with TestEnvironment(workflows=[listener], replay_always=replay_always) as env:
        handles = [await env.app.start_workflow(listener, count) for _ in range(3)]
        await env.settle()
        for number in range(count):
            await env.app.publish("news", number)
            if number % 7 == 0:
                await env.settle()
        assert [await handle.result() for handle in handles] == [list(range(count))] * 3


async def test_messages_of_one_workflow_keep_their_order_awaited_or_not() -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        first, second = publish(ctx, "news", 1), publish(ctx, "news", 2)
        await publish(ctx, "news", 3)
        await asyncio.gather(first, second)
        await sleep(ctx, 1)
        await publish(ctx, "news", 4)

    async with TestEnvironment(workflows=[listener, speaker], replay_always=True) as env:
        handle = await env.app.start_workflow(listener, 4)
        await env.settle()
        await (await env.app.start_workflow(speaker)).result()
        assert await handle.result() == [1, 2, 3, 4]


async def test_messages_of_different_processes_come_in_the_order_of_their_acknowledgement(database: str) -> None:
    async with App(database, workflows=[listener]) as here, App(database, workflows=[]) as there:
        handle = await here.start_workflow(listener, 20)
        while await handle.status() is not Status.WAITING_FOR_MESSAGE:
            await asyncio.sleep(0)
        for number in range(20):
            await (here if number % 2 else there).publish("news", number)
        assert await handle.result(timeout=20) == list(range(20))


# --- timeouts


async def test_a_receive_that_is_over_raises_and_the_message_stays() -> None:
    @workflow
    async def patient(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append((await receive(ctx, "news", timeout=timedelta(minutes=1))).data)
            except TimeoutError as error:
                found.append(f"{type(error).__name__}: {error}")
        return found

    async with TestEnvironment(workflows=[patient], replay_always=True) as env:
        handle = await env.app.start_workflow(patient)
        await env.advance(60)
        await env.app.publish("news", "late")
        over, late = await handle.result()
    assert over.startswith("ChannelMessageTimeoutError")
    assert "'news'" in over
    assert late == "late"


@pytest.mark.parametrize("mode", list(ChannelMode))
@pytest.mark.parametrize(("at", "in_time"), [(59, True), (60, False), (61, False)])
async def test_what_counts_is_when_the_message_was_sent(database: str, mode: ChannelMode, at: int, in_time: bool) -> None:
    @workflow
    async def patient(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news", mode)
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append((await receive(ctx, "news", timeout=60)).data)
            except ChannelMessageTimeoutError:
                found.append("nothing")
        return found

    async with TestEnvironment(database, workflows=[patient]) as env:
        handle = await env.app.start_workflow(patient)
        await env.settle()
    env.clock.move_to(env.clock.now() + at * 1_000_000)
    async with Client(database, workflows=[], clock=env.clock) as sender:
        if mode is ChannelMode.DIRECT:
            await sender.send_to(handle.instance_id, "news", "came")
        else:
            await sender.publish("news", "came")
    async with TestEnvironment(database, workflows=[patient], start=env.now() + timedelta(seconds=30)) as later:
        found = await later.app.get_handle(handle.instance_id).result()
    assert found == (["came", "nothing"] if in_time else ["nothing", "came"])


# --- several waits, and their statuses


async def test_the_first_of_a_message_an_event_and_a_timer() -> None:
    @workflow
    async def race(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        waits = {"message": receive(ctx, "news"), "event": wait_event(ctx, "paid"), "timer": sleep(ctx, 60)}
        done, losers = await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        winner = [name for name, wait in waits.items() if wait in done]
        return [*winner, (await receive(ctx, "news")).data]

    for first, expected in (("message", ["message", 2]), ("event", ["event", 1]), ("timer", ["timer", 1])):
        async with TestEnvironment(workflows=[race], replay_always=True) as env:
            handle = await env.app.start_workflow(race)
            await env.settle()
            if first == "event":
                await env.app.send_event("paid", "/test")
            elif first == "timer":
                await env.advance(61)
            await env.settle()
            for number in (1, 2):
                await env.app.publish("news", number)
                await env.settle()
            assert await handle.result() == expected


@pytest.mark.parametrize("replay_always", [False, True])
async def test_of_two_messages_that_are_there_the_loser_stays(replay_always: bool) -> None:
    @workflow
    async def fickle(ctx: WorkflowContext) -> list[str]:
        await subscribe(ctx, "a")
        await subscribe(ctx, "b", "competing")
        await sleep(ctx, 10)
        waits = [receive(ctx, "a"), receive(ctx, "b")]
        done, losers = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        (won,) = [wait.result().channel for wait in done]
        return [won, (await receive(ctx, "b" if won == "a" else "a", timeout=60)).channel]

    async with TestEnvironment(workflows=[fickle], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(fickle)
        await env.settle()
        await env.app.publish("a", 1)
        await env.app.publish("b", 1)
        assert sorted(await handle.result()) == ["a", "b"]


async def test_concurrent_receives_never_share_a_message() -> None:
    @workflow
    async def hungry(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        return [message.data for message in await asyncio.gather(*(receive(ctx, "news") for _ in range(4)))]

    async with TestEnvironment(workflows=[hungry], replay_always=True) as env:
        handle = await env.app.start_workflow(hungry)
        await env.settle()
        for number in range(4):
            await env.app.publish("news", number)
        assert sorted(await handle.result()) == [0, 1, 2, 3]


async def test_statuses_of_several_waits() -> None:
    @workflow
    async def message_and_timer(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news")
        await asyncio.gather(sleep(ctx, 3600), receive(ctx, "news"))

    @workflow
    async def all_three(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news")
        await asyncio.gather(sleep(ctx, 3600), receive(ctx, "news"), wait_event(ctx, "paid"))

    @workflow
    async def message_with_timeout(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news")
        await receive(ctx, "news", timeout=3600)

    async with TestEnvironment(workflows=[message_and_timer, all_three, message_with_timeout, nap]) as env:
        for flow, status in (
            (message_and_timer, Status.WAITING_FOR_MESSAGE),
            (message_with_timeout, Status.WAITING_FOR_MESSAGE),
            (all_three, Status.WAITING_FOR_EVENT),
            (nap, Status.WAITING_FOR_TIMER),
        ):
            handle = await env.app.start_workflow(flow.name)
            assert (await settled_instance(env, handle)).status is status, flow.name


async def test_what_an_instance_waits_for_can_be_read() -> None:
    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news")
        await receive(ctx, "news", timeout=60)

    async with TestEnvironment(workflows=[waiter]) as env:
        begun = env.now()
        handle = await env.app.start_workflow(waiter)
        (wait,) = (await settled_instance(env, handle)).waiting_for
    assert (wait.kind, wait.key, wait.activity_id) == ("message", "news", "receive:news:1")
    assert (wait.since, wait.due) == (begun, begun + timedelta(seconds=60))
    assert (wait.subject, wait.match) == (None, None)


async def test_the_history_tells_what_was_said_and_heard() -> None:
    @workflow
    async def chatty(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news")
        await publish(ctx, "news", {"n": 1}, metadata={"m": 2})
        await receive(ctx, "news")
        await send_to(ctx, ctx.instance_id, "news", b"\xff")
        await receive(ctx, "news")
        await unsubscribe(ctx, "news")

    async with TestEnvironment(workflows=[chatty], replay_always=True) as env:
        handle = await env.app.start_workflow(chatty.with_options(instance_id="me"))
        await handle.result()
        found = [entry async for entry in handle.history()]
    assert [(entry.kind, entry.activity_id, entry.input) for entry in found] == [
        ("subscribe", "subscribe:news:1", {"channel": "news", "mode": "broadcast"}),
        ("publish", "publish:news:1", {"channel": "news", "metadata": {"m": 2}, "data": {"n": 1}}),
        ("message", "receive:news:1", {"channel": "news"}),
        ("send_to", "send_to:news:1", {"channel": "news", "to": "me", "data_base64": "/w=="}),
        ("message", "receive:news:2", {"channel": "news"}),
        ("unsubscribe", "unsubscribe:news:1", {"channel": "news"}),
    ]
    assert found[2].result["data"] == {"n": 1}
    assert found[2].result["sender"] == "me"
    assert [entry.seq for entry in found] == [1, 2, 3, 4, 5, 6]


# --- control


async def test_a_cancelled_receive_is_gone_and_a_message_does_not_revive_it() -> None:
    undone: list[str] = []

    async def put_back(ctx: ActivityContext) -> None:
        undone.append("put back")

    @workflow
    async def booking(ctx: WorkflowContext) -> str:
        await register_compensation(ctx, put_back)
        await subscribe(ctx, "news")
        try:
            await receive(ctx, "news")
        except Exception:
            return "swallowed"
        return "received"

    async with TestEnvironment(workflows=[booking]) as env:
        handle = await env.app.start_workflow(booking)
        await env.settle()
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        await env.app.publish("news", 1)
        await env.restart()
        found = await settled_instance(env, handle)
    assert (found.status, found.waiting_for, undone) == (Status.CANCELLED, (), ["put back"])


async def test_a_paused_subscriber_gets_what_came_when_it_goes_on() -> None:
    async with TestEnvironment(workflows=[listener]) as env:
        handle = await env.app.start_workflow(listener, 3)
        await env.settle()
        await env.app.pause_workflow(handle.instance_id)
        for number in range(3):
            await env.app.publish("news", number)
        assert (await settled_instance(env, handle)).status is Status.PAUSED
        await env.restart()
        await env.app.resume_workflow(handle.instance_id)
        assert await handle.result() == [0, 1, 2]


async def test_a_paused_competitor_leaves_the_jobs_to_the_others_and_takes_what_is_left() -> None:
    async with TestEnvironment(workflows=[worker]) as env:
        paused = await env.app.start_workflow(worker)
        await env.settle()
        await env.app.pause_workflow(paused.instance_id)
        other = await env.app.start_workflow(worker)
        await env.settle()
        await env.app.publish("jobs", 1)
        await env.app.publish("jobs", 2)
        assert await other.result() == [1, 2]
        await env.app.resume_workflow(paused.instance_id)
        assert await paused.result() == []


async def test_a_retried_instance_is_subscribed_again_and_hears_what_comes() -> None:
    attempts: list[int] = []

    @activity(retry=RetryPolicy.none())
    async def fail_once(ctx: ActivityContext) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("broken")

    @workflow
    async def waiter(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        first = (await receive(ctx, "news")).data
        await fail_once(ctx)
        return [first, (await receive(ctx, "news")).data]

    async with TestEnvironment(workflows=[waiter]) as env:
        handle = await env.app.start_workflow(waiter)
        await env.settle()
        await env.app.publish("news", 1)
        await failure(handle)
        await env.app.publish("news", "not received")
        await env.app.retry_workflow(handle.instance_id)
        await env.settle()
        await env.app.publish("news", 2)
        assert await handle.result() == [1, 2]


# --- misuse


@pytest.mark.parametrize(
    ("channel", "mode", "says"), [("", "broadcast", "channel"), (7, "broadcast", "channel"), ("news", "loud", "loud")]
)
async def test_a_subscription_that_makes_no_sense_says_so(channel: Any, mode: Any, says: str) -> None:
    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        await subscribe(ctx, channel, mode)

    async with TestEnvironment(workflows=[wrong]) as env:
        error = await failure(await env.app.start_workflow(wrong))
    assert isinstance(error, ConfigurationError)
    assert says in str(error)


async def test_subscribing_and_receiving_belong_into_a_workflow() -> None:
    refused: list[str] = []

    @activity
    async def act(ctx: Any) -> None:
        for call in (subscribe, unsubscribe, receive):
            try:
                await cast(Any, call)(ctx, "news")
            except InvalidWorkflowStateError as error:
                refused.append(str(error))

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await act(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        await (await env.app.start_workflow(job)).result()
    assert len(refused) == 3
    assert all("inside an activity" in text for text in refused)


# --- two processes on one database


async def test_two_processes_share_the_jobs(database: str) -> None:
    taken: Counter[int] = Counter()

    @activity
    async def do(ctx: ActivityContext, number: int) -> None:
        taken[number] += 1

    @workflow
    async def laborer(ctx: WorkflowContext) -> int:
        await subscribe(ctx, "jobs", "competing")
        count = 0
        while (number := (await receive(ctx, "jobs")).data) is not None:
            await do(ctx, number)
            count += 1
        return count

    async with App(database, workflows=[laborer]) as first, App(database, workflows=[laborer]) as second:
        handles = [await app.start_workflow(laborer) for app in (first, second) for _ in range(3)]
        for number in range(60):
            await (first if number % 2 else second).publish("jobs", number)
        for _ in handles:
            await first.publish("jobs", None)
        counts = await asyncio.gather(*(handle.result(timeout=30) for handle in handles))
    assert taken == Counter(range(60))
    assert sum(counts) == 60
