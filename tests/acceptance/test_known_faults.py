"""What engines of this kind have got wrong before, each as a story that must end well here."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    ActivityIDConflictError,
    App,
    Client,
    PayloadError,
    Status,
    TerminalError,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    register_compensation,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment


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
        assert worker.slots.free == worker.options.max_activities
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
        upkeep = second._upkeep
        assert upkeep is not None
        started = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < started + 0.5:  # more than twice the lease
            assert await upkeep.sweep() == 0
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


async def test_resuming_a_long_history_takes_a_handful_of_statements() -> None:
    @activity
    async def step(ctx: ActivityContext, number: int) -> int:
        return number

    @workflow
    async def long(ctx: WorkflowContext) -> int:
        total = sum([await step(ctx, number) for number in range(300)])
        await sleep(ctx, 60)
        return total

    async with TestEnvironment(workflows=[long]) as env:
        handle = await env.app.start_workflow(long)
        await env.settle()
        await env.restart()
        statements: list[str] = []
        session = env.app._store._database._session  # type: ignore[attr-defined]
        session.reader.set_trace_callback(statements.append)
        session.writer.set_trace_callback(statements.append)
        assert await handle.result() == sum(range(300))
        session.reader.set_trace_callback(None)
        assert [entry.seq async for entry in handle.history()] == list(range(1, 302))
        assert env.app._worker is not None
        assert env.app._worker.replays == 1
    assert len(statements) < 60, statements


async def test_a_workflow_of_one_activity_is_two_commits() -> None:
    @activity
    async def step(ctx: ActivityContext) -> None: ...

    @workflow
    async def short(ctx: WorkflowContext) -> None:
        await step(ctx)

    async with TestEnvironment(workflows=[short]) as env:
        before = env.reached.count("commit.after")
        handle = await env.app.start_workflow(short)
        await handle.result()
        assert env.reached.count("commit.after") - before == 2


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
        strangers = [await elsewhere.start_workflow("strange", number=number) for number in range(150)]
    async with TestEnvironment(database, workflows=[known], max_concurrent_workflows=2) as env:
        assert await asyncio.wait_for((await env.app.start_workflow(known)).result(), 10) == "ran"
        async with Client(database, workflows=[known], clock=env.clock) as client:
            handle = await client.start_workflow(known)
            await env.restart()
            assert await asyncio.wait_for(handle.result(), 10) == "ran"
        assert {await env.app.get_handle(one.instance_id).status() for one in strangers} == {Status.PENDING}
