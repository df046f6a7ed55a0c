"""Bugs that other engines of this kind have had; each test is one such case."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel
from tests import databases
from tests.http.asgi_client import STRUCTURED, binary, call, scope_of, structured

from romancy import (
    ActivityContext,
    ActivityIDConflictError,
    App,
    ChannelMessageTimeoutError,
    ChannelMode,
    Client,
    EventTimeoutError,
    PayloadError,
    Status,
    StoreError,
    TerminalError,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    activity,
    publish,
    receive,
    register_compensation,
    send_event,
    send_to,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.auth import Token
from romancy.http.types import Message
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Line(BaseModel):
    sku: str
    price: Decimal


@dataclass
class Order:
    id: str
    lines: list[Line]
    place: tuple[int, str]


class CardError(Exception):
    def __init__(self, card: str, *, retry_after: int) -> None:
        super().__init__(f"card {card} was declined")
        self.retry_after = retry_after


async def test_a_crash_after_a_timer_fired_does_not_leave_the_instance_waiting_for_ever() -> None:
    @activity
    async def bill(ctx: ActivityContext) -> str:
        return "billed"

    @workflow
    async def subscription(ctx: WorkflowContext) -> str:
        await sleep(ctx, 3600)
        return await bill(ctx)

    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[subscription]) as env:
            handle = await env.app.start_workflow(subscription)
            env.crash_at_step(step)
            assert await asyncio.wait_for(handle.result(), 10) == "billed", f"crash at step {step}"
            crashes = env.crashes
    assert step > 6


async def test_a_cancelled_wait_is_withdrawn_and_cannot_revive_the_workflow() -> None:
    undone: list[str] = []

    @activity
    async def reserve(ctx: ActivityContext) -> None: ...

    @reserve.compensate
    async def release(ctx: ActivityContext) -> None:
        undone.append("released")

    @workflow
    async def booking(ctx: WorkflowContext) -> str:
        await reserve(ctx)
        await sleep(ctx, 3600)
        return "booked"

    async with TestEnvironment(workflows=[booking]) as env:
        handle = await env.app.start_workflow(booking)
        await env.settle()
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        await env.advance(7200)
        await env.restart()
        await env.advance(7200)
        found = await env.app.get_instance(handle.instance_id)
    assert found is not None
    assert (found.status, found.waiting_for, undone) == (Status.CANCELLED, (), ["released"])


async def test_cancelling_during_an_activity_records_and_compensates_it() -> None:
    running, finish = asyncio.Event(), asyncio.Event()
    effects: list[str] = []

    @activity
    async def charge(ctx: ActivityContext) -> str:
        running.set()
        await finish.wait()
        effects.append("charged")
        return "receipt"

    @charge.compensate
    async def refund(ctx: ActivityContext, result: str) -> None:
        effects.append(f"refunded {result}")

    @workflow
    async def checkout(ctx: WorkflowContext) -> None:
        await charge(ctx)

    async with TestEnvironment(workflows=[checkout]) as env:
        handle = await env.app.start_workflow(checkout)
        await running.wait()
        await handle.cancel()
        finish.set()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        entries = [entry async for entry in handle.history()]
    assert effects == ["charged", "refunded receipt"]
    assert [(entry.kind, entry.outcome, entry.result) for entry in entries if entry.kind == "activity"] == [
        ("activity", "ok", "receipt")
    ]


@pytest.mark.parametrize("replay_always", [False, True])
async def test_a_compensation_registered_in_the_body_is_registered_once_however_often_it_is_replayed(
    replay_always: bool,
) -> None:
    undone: list[str] = []

    async def put_back(ctx: ActivityContext, what: str) -> None:
        undone.append(what)

    @workflow
    async def moving(ctx: WorkflowContext) -> None:
        await register_compensation(ctx, put_back, "sofa")
        await sleep(ctx, 60)
        await register_compensation(ctx, put_back, "piano")
        await sleep(ctx, 60)
        raise ValueError("the stairs are too narrow")

    async with TestEnvironment(workflows=[moving], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(moving)
        await env.advance(30)
        await env.restart()
        await env.advance(60)
        await env.restart()
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        registered = [entry async for entry in handle.history() if entry.kind == "registration"]
    assert undone == ["piano", "sofa"]
    assert len(registered) == 2


async def test_replay_gives_the_types_and_errors_that_were_seen_live() -> None:
    seen: list[Any] = []

    @activity
    async def pay(ctx: ActivityContext, card: str) -> None:
        raise TerminalError("no") from CardError(card, retry_after=7)

    @activity
    async def order(ctx: ActivityContext) -> Order:
        return Order("o1", [Line(sku="x", price=Decimal("1.10"))], (4, "b"))

    @activity
    async def lines(ctx: ActivityContext) -> list[Line]:
        return [Line(sku="x", price=Decimal("1.10"))]

    @activity
    async def pair(ctx: ActivityContext) -> tuple[int, bytes]:
        return (1, b"\xff\x00")

    @workflow
    async def shop(ctx: WorkflowContext) -> None:
        found: list[Any] = [await order(ctx), await lines(ctx), await pair(ctx)]
        try:
            await pay(ctx, "4711")
        except TerminalError as error:
            cause = error.__cause__
            assert isinstance(cause, CardError)
            found += [type(error), str(error), str(cause), cause.retry_after]
        seen.append(found)
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[shop]) as env:
        handle = await env.app.start_workflow(shop)
        await env.settle()
        await env.restart()
        await handle.result()
    live, replayed = seen
    assert live == replayed
    assert [type(one) for one in live] == [type(one) for one in replayed]
    assert (type(live[0].lines[0]), type(live[0].place), type(live[1][0])) == (Line, tuple, Line)
    assert live[2:] == [(1, b"\xff\x00"), TerminalError, "no", "card 4711 was declined", 7]


async def test_except_exception_around_a_wait_does_not_swallow_the_suspension() -> None:
    swallowed: list[Exception] = []

    @workflow
    async def cautious(ctx: WorkflowContext) -> str:
        try:
            await sleep(ctx, 3600)
        except Exception as error:
            swallowed.append(error)
        return "slept"

    async with TestEnvironment(workflows=[cautious], cache_size=0) as env:
        before = env.now()
        handle = await env.app.start_workflow(cautious)
        await env.settle()
        await env.restart()
        assert await handle.result() == "slept"
        assert (env.now() - before).total_seconds() == 3600
    assert swallowed == []


async def test_a_result_that_cannot_be_stored_is_not_tried_again() -> None:
    calls: list[int] = []

    @activity
    async def connect(ctx: ActivityContext) -> object:
        calls.append(ctx.attempt)
        return object()

    @workflow
    async def confused(ctx: WorkflowContext) -> None:
        await connect(ctx)

    async with TestEnvironment(workflows=[confused]) as env:
        handle = await env.app.start_workflow(confused)
        with pytest.raises(WorkflowFailedError) as failed:
            await handle.result()
    assert calls == [1]
    assert isinstance(failed.value.__cause__, PayloadError)
    assert "result of activity 'connect'" in str(failed.value.__cause__)


async def test_a_reused_activity_id_runs_nothing() -> None:
    effects: list[int] = []

    @activity
    async def charge(ctx: ActivityContext, amount: int) -> None:
        effects.append(amount)

    @workflow
    async def twice(ctx: WorkflowContext) -> None:
        first = charge.with_options(activity_id="charge:eu")(ctx, 1)
        second = charge.with_options(activity_id="charge:eu")(ctx, 2)
        await asyncio.gather(first, second)

    async with TestEnvironment(workflows=[twice]) as env:
        handle = await env.app.start_workflow(twice)
        with pytest.raises(WorkflowFailedError) as failed:
            await handle.result()
    assert isinstance(failed.value.__cause__, ActivityIDConflictError)
    assert "charge:eu" in str(failed.value.__cause__)
    assert effects == []


async def test_a_timeout_around_an_activity_leaves_nothing_open() -> None:
    @activity
    async def hang(ctx: ActivityContext) -> None:
        await asyncio.Event().wait()

    @activity
    async def after(ctx: ActivityContext) -> str:
        return "after"

    @workflow
    async def impatient(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(5):
                await hang(ctx)
        except TimeoutError:
            return await after(ctx)
        return "never"

    async with TestEnvironment(workflows=[impatient]) as env:
        handle = await env.app.start_workflow(impatient)
        assert await asyncio.wait_for(handle.result(), 10) == "after"
        worker = env.app._worker
        assert worker is not None
        assert worker.attempts == set()
        assert worker.limiter.free == worker.options.max_activities
        other = await env.app.start_workflow(impatient)
        assert await asyncio.wait_for(other.result(), 10) == "after"


async def test_a_plain_function_compensates_after_a_restart() -> None:
    undone: list[str] = []

    async def release(ctx: ActivityContext, room: str) -> None:
        undone.append(f"released {room}")

    async def tell(ctx: ActivityContext) -> None:
        undone.append("told")

    @activity(compensation=release)
    async def reserve(ctx: ActivityContext, room: str) -> None: ...

    @workflow
    async def trip(ctx: WorkflowContext) -> None:
        await reserve(ctx, "12")
        await register_compensation(ctx, tell)
        await sleep(ctx, 60)
        raise ValueError("rain")

    async with TestEnvironment(workflows=[trip]) as env:
        handle = await env.app.start_workflow(trip)
        await env.settle()
        await env.restart()
        with pytest.raises(WorkflowFailedError):
            await handle.result()
    assert undone == ["told", "released 12"]


async def test_an_activity_longer_than_the_lease_runs_once(database: str) -> None:
    running, finish = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @activity
    async def long(ctx: ActivityContext) -> str:
        runs.append(ctx.worker_id)
        running.set()
        await finish.wait()
        return "done"

    @workflow
    async def patient(ctx: WorkflowContext) -> str:
        return await long(ctx)

    first = App(database, workflows=[patient], heartbeat_interval=0.02, lease_timeout=0.2)
    second = App(database, workflows=[patient], heartbeat_interval=0.02, lease_timeout=0.2)
    async with first, second:
        handle = await first.start_workflow(patient)
        await running.wait()
        maintenance = second._maintenance
        assert maintenance is not None
        started = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < started + 0.5:  # more than twice the lease
            assert await maintenance.sweep() == 0
        finish.set()
        assert await handle.result(timeout=10) == "done"
    assert len(runs) == 1


async def test_two_workers_run_each_workflow_once(database: str) -> None:
    runs: Counter[int] = Counter()

    @activity
    async def count(ctx: ActivityContext, number: int) -> None:
        runs[number] += 1

    @workflow
    async def counted(ctx: WorkflowContext, number: int) -> None:
        await count(ctx, number)
        await sleep(ctx, 0.01)

    async with Client(database, workflows=[counted]) as client:
        handles = [await client.start_workflow(counted, number) for number in range(60)]
        async with App(database, workflows=[counted]), App(database, workflows=[counted]):
            await asyncio.gather(*(handle.result(timeout=20) for handle in handles))
    assert runs == Counter(range(60))


async def test_a_worker_without_the_code_does_not_keep_another_services_timer_from_firing(database: str) -> None:
    @workflow
    async def ours(ctx: WorkflowContext) -> str:
        await sleep(ctx, 0.2)
        return "ours"

    @workflow
    async def theirs(ctx: WorkflowContext) -> str:
        await sleep(ctx, 0.2)
        return "theirs"

    async with App(database, workflows=[theirs]), App(database, workflows=[ours]) as app:
        async with Client(database, workflows=[ours, theirs]) as client:
            handles = [await client.start_workflow(ours), await client.start_workflow(theirs)]
            assert await asyncio.gather(*(one.result(timeout=5) for one in handles)) == ["ours", "theirs"]
        assert app is not None


async def test_a_workflow_of_one_activity_is_two_commits() -> None:
    @activity
    async def step(ctx: ActivityContext) -> None: ...

    @workflow
    async def short(ctx: WorkflowContext) -> None:
        await step(ctx)

    async with TestEnvironment(workflows=[short]) as env:
        assert env.app._committer is not None
        handle = await env.app.start_workflow(short)
        await handle.result()
        assert env.app._committer.batches == 2


async def test_inputs_are_found_by_boolean_and_by_index_and_keyword_arguments_arrive() -> None:
    @workflow
    async def ship(ctx: WorkflowContext, items: list[dict[str, str]], express: bool) -> None: ...

    @workflow
    async def free_form(ctx: WorkflowContext, /, **fields: int) -> dict[str, int]:
        return fields

    async with TestEnvironment(workflows=[ship, free_form]) as env:
        await env.app.start_workflow(ship.with_options(instance_id="fast"), [{"sku": "x"}], True)
        await env.app.start_workflow(ship.with_options(instance_id="slow"), [{"sku": "y"}], False)
        for wanted, found in (
            ({"express": True}, ["fast"]),
            ({"express": False}, ["slow"]),
            ({"express": 1}, []),
            ({"items.0.sku": "y"}, ["slow"]),
        ):
            page = await env.app.find_instances(wanted)
            assert [one.instance_id for one in page.items] == found
        handle = await env.app.start_workflow(free_form, a=1, b=2)
        assert await handle.result() == {"a": 1, "b": 2}
        assert [one.instance_id for one in (await env.app.find_instances({"a": 1})).items] == [handle.instance_id]


async def test_instances_of_unknown_workflows_at_the_head_of_the_queue_do_not_starve_the_others(database: str) -> None:
    @workflow
    async def known(ctx: WorkflowContext) -> str:
        return "ran"

    async with Client(database, workflows=[]) as elsewhere:
        foreign = [await elsewhere.start_workflow("strange", number=number) for number in range(150)]
    async with TestEnvironment(database, workflows=[known], max_concurrent_workflows=2) as env:
        assert await asyncio.wait_for((await env.app.start_workflow(known)).result(), 10) == "ran"
        async with Client(database, workflows=[known], clock=env.clock) as client:
            handle = await client.start_workflow(known)
            await env.restart()
            assert await asyncio.wait_for(handle.result(), 10) == "ran"
        assert {await env.app.get_handle(one.instance_id).status() for one in foreign} == {Status.PENDING}


# --- messaging


async def run_event_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("mode", [ChannelMode.BROADCAST, ChannelMode.COMPETING])
async def test_a_message_that_comes_while_the_receiver_is_about_to_wait_is_not_lost(mode: ChannelMode) -> None:
    @workflow
    async def listener(ctx: WorkflowContext, channel: str) -> list[int]:
        await subscribe(ctx, channel, mode)
        return [(await receive(ctx, channel)).data for _ in range(3)]

    async with TestEnvironment(workflows=[listener]) as env:
        for iterations in range(30):  # covers every moment between a read and a wait
            channel = f"news {iterations}"
            handle = await env.app.start_workflow(listener, channel)
            await env.settle()
            for number in (1, 2, 3):
                await env.app.publish(channel, number)
                await run_event_loop(iterations)
            assert await asyncio.wait_for(handle.result(), 10) == [1, 2, 3], f"{iterations} iterations"


async def test_an_event_that_comes_while_the_workflow_is_about_to_wait_is_not_lost() -> None:
    @activity
    async def prepare(ctx: ActivityContext) -> None: ...

    @workflow
    async def listener(ctx: WorkflowContext) -> list[int]:
        found: list[int] = []
        for _ in range(2):
            await prepare(ctx)
            found.append((await wait_event(ctx, "paid")).data)
        return found

    async with TestEnvironment(workflows=[listener]) as env:
        for iterations in range(60):
            handle = await env.app.start_workflow(listener)
            for number in (1, 2):
                await run_event_loop(iterations)
                await env.app.send_event("paid", "/test", number)
            assert await asyncio.wait_for(handle.result(), 10) == [1, 2], f"{iterations} iterations"


@pytest.mark.parametrize("cache_size", [0, 1000])
async def test_what_another_process_sends_while_the_instance_is_in_hand_is_not_lost(database: str, cache_size: int) -> None:
    """No notification tells the worker of an arrival while an activity of the waiting instance runs."""

    @activity
    async def elsewhere(ctx: ActivityContext, what: str) -> None:
        async with Client(database, workflows=[]) as other:
            await (other.send_event("paid", "/test", 1) if what == "event" else other.publish("news", 1))

    @workflow
    async def listener(ctx: WorkflowContext, what: str) -> Any:
        await subscribe(ctx, "news")
        waiting = wait_event(ctx, "paid") if what == "event" else receive(ctx, "news")
        await elsewhere(ctx, what)
        return (await waiting).data

    async with TestEnvironment(database, workflows=[listener], poll_interval=600, cache_size=cache_size) as env:
        for what in ("event", "message"):
            handle = await env.app.start_workflow(listener, what)
            assert await asyncio.wait_for(handle.result(), 10) == 1


async def test_an_event_does_not_revive_a_cancelled_workflow_that_waited_for_it() -> None:
    undone: list[str] = []

    @activity
    async def reserve(ctx: ActivityContext) -> None: ...

    @reserve.compensate
    async def release(ctx: ActivityContext) -> None:
        undone.append("released")

    @workflow
    async def booking(ctx: WorkflowContext) -> str:
        await reserve(ctx)
        await subscribe(ctx, "news")
        await asyncio.gather(wait_event(ctx, "paid"), receive(ctx, "news"))
        return "booked"

    async with TestEnvironment(workflows=[booking]) as env:
        handle = await env.app.start_workflow(booking)
        await env.settle()
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        for _ in range(2):
            assert (await env.app.send_event("paid", "/test")).instance_ids == ()
            await env.app.publish("news", 1)
            await env.settle()
            await env.restart()
        found = await env.app.get_instance(handle.instance_id)
    assert found is not None
    assert (found.status, found.waiting_for, undone) == (Status.CANCELLED, (), ["released"])


async def test_recurring_is_one_commit_and_drops_no_message() -> None:
    @workflow
    async def consumer(ctx: WorkflowContext, got: list[int]) -> list[int]:
        if not got:
            await subscribe(ctx, "jobs")
        got = [*got, (await receive(ctx, "jobs")).data]
        if len(got) < 3:
            await ctx.recur(got)
        return got

    @activity
    async def produce(ctx: ActivityContext) -> None:
        for number in range(3):
            await publish(ctx, "jobs", number)

    @workflow
    async def producer(ctx: WorkflowContext) -> None:
        await produce(ctx)

    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[consumer, producer]) as env:
            handle = await env.app.start_workflow(consumer, [])
            await env.settle()
            await env.app.start_workflow(producer)
            env.crash_at_step(step)
            assert await asyncio.wait_for(handle.result(), 10) == [0, 1, 2], f"crash at step {step}"
            await env.settle()  # a crash may come after the end
            crashes = env.crashes
            found = await env.app.get_instance(handle.instance_id)
            assert found is not None
            assert found.generation == 3
    assert step > 5


@pytest.mark.parametrize("replay_always", [False, True])
async def test_what_a_body_says_is_said_once_however_often_it_is_replayed(replay_always: bool) -> None:
    @workflow
    async def listener(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "news")
        await wait_event(ctx, "end")
        heard: list[Any] = []
        try:
            while True:
                heard.append((await wait_event(ctx, "told", timeout=1)).data)
        except EventTimeoutError:
            heard.append("and")
        try:
            while True:
                heard.append((await receive(ctx, "news", timeout=1)).data)
        except ChannelMessageTimeoutError:
            return heard

    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await send_event(ctx, "told", "/test", "event")
        await publish(ctx, "news", "message")
        for _ in range(3):
            await sleep(ctx, 60)
        await send_event(ctx, "end", "/test")

    async with TestEnvironment(workflows=[listener, speaker], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(listener)
        await env.settle()
        await env.app.start_workflow(speaker)
        for _ in range(3):
            await env.advance(30)
            await env.restart()
        assert await handle.result() == ["event", "and", "message"]


async def test_except_exception_around_any_wait_does_not_swallow_the_suspension() -> None:
    swallowed: list[Exception] = []

    @workflow
    async def cautious(ctx: WorkflowContext) -> list[Any]:
        found: list[Any] = []
        try:
            await subscribe(ctx, "news")
            found.append((await wait_event(ctx, "paid")).data)
            found.append((await receive(ctx, "news")).data)
        except Exception as error:
            swallowed.append(error)
        return found

    async with TestEnvironment(workflows=[cautious], cache_size=0) as env:
        handle = await env.app.start_workflow(cautious)
        await env.settle()
        await env.restart()
        await env.app.send_event("paid", "/test", 1)
        await env.settle()
        await env.restart()
        await env.app.publish("news", 2)
        assert await handle.result() == [1, 2]
    assert swallowed == []


async def test_binary_messages_arrive_on_every_path() -> None:
    blob = bytes(range(256))

    @workflow
    async def receiver(ctx: WorkflowContext) -> list[bytes]:
        await subscribe(ctx, "blobs")
        found = [(await receive(ctx, "blobs", model=bytes)).data for _ in range(4)]
        return [*found, (await wait_event(ctx, "blob", model=bytes)).data]

    @workflow
    async def sender(ctx: WorkflowContext, target: str) -> None:
        await publish(ctx, "blobs", blob)
        await send_to(ctx, target, "blobs", blob)
        await send_event(ctx, "blob", "/test", blob)

    async with TestEnvironment(workflows=[receiver, sender], replay_always=True) as env:
        handle = await env.app.start_workflow(receiver)
        await env.settle()
        await env.app.publish("blobs", blob)
        await env.app.send_to(handle.instance_id, "blobs", blob)
        await env.app.start_workflow(sender, handle.instance_id)
        assert await handle.result() == [blob] * 5


async def test_an_event_addressed_to_one_instance_reaches_no_other() -> None:
    @workflow
    async def listener(ctx: WorkflowContext, delay: int) -> str:
        await sleep(ctx, delay)
        return (await wait_event(ctx, "paid")).id

    async with TestEnvironment(workflows=[listener]) as env:
        handles = [await env.app.start_workflow(listener, delay) for delay in (1, 1, 60, 60)]
        await env.advance(10)  # two wait already, two will
        for handle in handles[::2]:
            to_one = {"romancyinstanceid": handle.instance_id}
            await env.app.send_event("paid", "/test", event_id=handle.instance_id, extensions=to_one)
        await env.advance(60)
        assert [await handle.result() for handle in handles[::2]] == [handle.instance_id for handle in handles[::2]]
        assert [await handle.status() for handle in handles[1::2]] == [Status.WAITING_FOR_EVENT] * 2


async def _waiting(handle: WorkflowHandle[Any]) -> None:
    async with asyncio.timeout(20):
        while await handle.status() is not Status.WAITING_FOR_EVENT:
            await asyncio.sleep(0)


async def test_waking_needs_no_poll_and_no_worker_that_knows_the_workflow(database: str) -> None:
    """Polls are ten minutes apart, and the sender does not have the code of the waiting workflow."""

    @workflow
    async def ours(ctx: WorkflowContext) -> list[Any]:
        return [(await wait_event(ctx, "paid")).data for _ in range(3)]

    @workflow
    async def theirs(ctx: WorkflowContext) -> None:
        await send_event(ctx, "paid", "/theirs", "by a workflow of theirs")

    async with (
        App(database, workflows=[theirs], poll_interval=600) as there,
        App(database, workflows=[ours], poll_interval=600) as here,
    ):
        handle = await here.start_workflow(ours)
        await _waiting(handle)
        await here.send_event("paid", "/test", "by the same process")
        await there.send_event("paid", "/test", "by another")
        await there.start_workflow(theirs)
        assert await handle.result(timeout=20) == ["by the same process", "by another", "by a workflow of theirs"]


async def test_a_dead_subscriber_does_not_lock_the_mode_of_a_channel() -> None:
    @workflow
    async def holder(ctx: WorkflowContext) -> None:
        await subscribe(ctx, "news", "competing")
        await sleep(ctx, 60)
        raise ValueError("broken")

    @workflow
    async def listener(ctx: WorkflowContext) -> Any:
        await subscribe(ctx, "news", "broadcast")
        return (await receive(ctx, "news")).data

    async with TestEnvironment(workflows=[holder, listener]) as env:
        dead = await env.app.start_workflow(holder)
        await env.settle()
        await env.restart()
        with pytest.raises(WorkflowFailedError):
            await dead.result()
        handle = await env.app.start_workflow(listener)
        await env.settle()
        await env.app.publish("news", "free")
        assert await asyncio.wait_for(handle.result(), 10) == "free"


async def test_a_handler_with_keyword_arguments_gets_the_fields_of_the_event() -> None:
    @workflow(name="order.placed", event_handler=True)
    async def handler(ctx: WorkflowContext, /, id: str, **fields: Any) -> dict[str, Any]:
        return {"id": id, **fields}

    async with TestEnvironment(workflows=[handler]) as env:
        accepted = await env.app.send_event("order.placed", "/test", {"id": "1", "express": True, "items": [1]})
        handle = env.app.get_handle(accepted.instance_ids[0])
        assert await handle.result() == {"id": "1", "express": True, "items": [1]}


# --- HTTP


async def test_the_answer_to_an_event_comes_after_it_is_stored(database: str) -> None:
    stored: list[list[tuple[str, ...]]] = []

    @workflow
    async def listener(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "paid")).data

    async with App(database, workflows=[listener]) as app:
        handle = await app.start_workflow(listener)
        await _waiting(handle)

        async def receive_body() -> Message:
            return {"type": "http.request", "body": structured(id="e1")}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 202
                stored.append(databases.execute(database, "SELECT id FROM romancy_events"))

        await app(scope_of("/", headers=STRUCTURED), receive_body, send)
        assert await handle.result(timeout=20) == {"amount": 99.99}
    assert stored == [[("e1",)]]


async def test_an_event_that_could_not_be_stored_is_not_answered_as_accepted() -> None:
    async with TestEnvironment(workflows=[]) as env:
        app = env.app
        env.crash_at("commit.before")
        asking = asyncio.ensure_future(call(app, "/", structured(), headers=STRUCTURED))
        async with asyncio.timeout(10):
            while not env.crashes:
                await asyncio.sleep(0.001)
        answered = await asyncio.wait({asking}, timeout=0.05)
        if asking in answered[0]:
            assert (await asking).status == 503
        asking.cancel()
        await env.settle()
        again = await call(app, "/", structured(), headers=STRUCTURED)
        assert (again.status, (await call(app, "/", structured(), headers=STRUCTURED)).status) == (202, 202)


async def test_events_in_binary_mode_are_accepted_and_half_events_are_not() -> None:
    @workflow
    async def listener(ctx: WorkflowContext) -> list[Any]:
        found = [await wait_event(ctx, "paid") for _ in range(3)]
        return [[event.id, event.data if event.id != "3" else event.data.decode(), event.subject] for event in found]

    async with TestEnvironment(workflows=[listener]) as env:
        handle = await env.app.start_workflow(listener)
        await env.settle()
        json_type = {"content-type": "application/json"}
        posts = [
            (binary(id="1", subject="42") | json_type, b'{"n": 1}'),
            (STRUCTURED, structured(id="2", data={"n": 2})),
            (binary(id="3") | {"content-type": "application/octet-stream"}, b"bytes"),
        ]
        for headers, body in posts:
            answer = await call(env.app, "/", body, headers=headers)
            assert (answer.status, answer.json["status"]) == (202, "accepted")
        for missing in ("id", "source", "type", "specversion"):
            answer = await call(env.app, "/", structured(**{missing: None}), headers=STRUCTURED)
            assert (answer.status, answer.json["retryable"]) == (400, False), missing
            headers = {name: value for name, value in binary().items() if name != f"ce-{missing}"}
            assert (await call(env.app, "/", b"{}", headers=headers | json_type)).status in (400, 415), missing
        bare = await call(env.app, "/", json.dumps({"type": "paid"}).encode(), headers=STRUCTURED)
        assert bare.status == 400
        assert await handle.result() == [["1", {"n": 1}, "42"], ["2", {"n": 2}, None], ["3", "bytes", None]]


async def test_a_request_without_a_token_is_refused_where_one_is_asked_for(database: str) -> None:
    async with App(database, workflows=[], auth=[Token("secret", role="events")]) as app:
        assert (await call(app, "/", structured(), headers=STRUCTURED)).status == 401
        for wrong in ("Bearer wrong", "Bearer ", "secret"):
            answer = await call(app, "/", structured(), headers=STRUCTURED | {"authorization": wrong})
            assert answer.status == 401, wrong
        answer = await call(app, "/", structured(), headers=STRUCTURED | {"authorization": "Bearer secret"})
        assert (answer.status, answer.json["status"]) == (202, "accepted")


async def test_who_asks_for_a_result_outlives_a_crash_in_the_middle_of_the_look(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> int:
        return 7

    async with TestEnvironment(database, workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        assert await handle.result() == 7
        results = env.app._results
        while results is not None and results._task is not None and not results._task.done():
            await asyncio.sleep(0.001)  # a query that is under way would find the result

        async def die(ids: Sequence[str]) -> NoReturn:
            env._crashed.set()
            raise StoreError("the store of a process that is gone is not open")

        monkeypatch.setattr(env.app._store, "endings", die)
        assert await asyncio.wait_for(env.app.get_handle(handle.instance_id).result(), 20) == 7
        async with asyncio.timeout(20):
            while env.crashes == 0:
                await asyncio.sleep(0.001)
