"""The costs of waiting and waking: commits, statements, and SQLite's steps, which grow with the rows that it visits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.engine.query_counter import BEAT, READS_HISTORY, Cost, Counter, writes

from romancy import (
    ActivityContext,
    App,
    Status,
    Workflow,
    WorkflowContext,
    WorkflowHandle,
    activity,
    receive,
    subscribe,
    wait_event,
    workflow,
)
from romancy.worker.worker import Worker


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:
    return number + 1


@workflow
async def waiter(ctx: WorkflowContext, count: int, subject: str | None = None) -> int:
    total = 0
    for _ in range(count):
        total += (await wait_event(ctx, "tick", subject=subject)).data
    return total


@workflow
async def other(ctx: WorkflowContext, kind: str, subject: str | None = None) -> None:
    await wait_event(ctx, kind, subject=subject)


@workflow
async def late_waiter(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "begin")
    await wait_event(ctx, "tick", subject="mine")


@workflow
async def matcher(ctx: WorkflowContext, count: int) -> None:
    for _ in range(count):
        await wait_event(ctx, "tick", match={"mine": True})


@workflow
async def listener(ctx: WorkflowContext, count: int, channel: str = "news", mode: Any = "broadcast") -> int:
    await subscribe(ctx, channel, mode)
    total = 0
    for _ in range(count):
        total += (await receive(ctx, channel)).data
    return total


@workflow
async def recurring(ctx: WorkflowContext, generations: int) -> int:
    await add_one(ctx, generations)
    if generations:
        await ctx.recur(generations - 1)
    return ctx.generation


WORKFLOWS: list[Workflow[..., Any]] = [waiter, other, late_waiter, matcher, listener, recurring]


@asynccontextmanager
async def quiet(database: str, **options: Any) -> AsyncIterator[App]:
    """An app whose maintenance and polling do not run while the test counts."""
    given: dict[str, Any] = {"heartbeat_interval": 600, "lease_timeout": 3600, "poll_interval": 600, **options}
    async with App(database, workflows=WORKFLOWS, **given) as app:
        await settle(app)
        assert app._maintenance is not None
        await app._maintenance.round()  # waits for the round of the start
        yield app


def worker_of(app: App) -> Worker:
    assert app._worker is not None
    return app._worker


async def settle(app: App) -> None:
    """Wait until no read and no write is outstanding."""
    claimer = app._claimer
    assert claimer is not None
    while not (claimer.is_idle and claimer.polled_at and worker_of(app).is_idle):
        await asyncio.sleep(0.002)
    await app._store.workers()  # waits for the queued writes
    await asyncio.sleep(0)  # drivers report statements with a delay


async def wait_until_waiting(app: App, handle: WorkflowHandle[Any]) -> None:
    """Wait until the instance waits for an event or a message."""
    await settle(app)
    assert await handle.status() in (Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE)


async def start_waiters(app: App, size: int, start: Callable[[int], Any]) -> None:
    """Start this many instances and wait until each of them waits."""
    for handle in await asyncio.gather(*(start(number) for number in range(size))):
        await wait_until_waiting(app, handle)


async def tick_cost(app: App, counter: Counter, number: int = 1, subject: str | None = None) -> Cost:
    """The cost of an event `tick` that wakes instances, until they wait again or have ended."""
    await settle(app)
    counter.clear()
    accepted = await app.send_event("tick", "/test", number, subject=subject)
    assert accepted.instance_ids
    await settle(app)
    return counter.cost()


async def message_cost(app: App, counter: Counter, channel: str = "news") -> Cost:
    """The cost of a message that wakes its subscribers."""
    await settle(app)
    counter.clear()
    await app.publish(channel, 1)
    await settle(app)
    return counter.cost()


def costs_no_more(now: Cost, before: Cost) -> bool:
    """Whether it took no more commits and statements. The steps may vary a little, because B-trees get deeper."""
    return now.commits <= before.commits and now.statements <= before.statements and now.steps <= before.steps * 1.5 + 50


# --- one wait


async def test_a_wait_that_is_met_is_three_commits_more(database: str, counter: Counter) -> None:
    """The commits are: waiting, accepting the event, consuming it together with the end."""
    async with quiet(database) as app:
        counter.clear()
        handle = await app.start_workflow(waiter, 1)
        await settle(app)
        assert counter.cost().commits <= 2  # the start, and the wait
        assert (await tick_cost(app, counter)).commits <= 3  # the event, its consumption, the end
        assert await handle.result(timeout=20) == 1
        assert worker_of(app).replays == 0


async def test_a_wait_that_is_met_and_the_next_one_are_three_commits(database: str, counter: Counter) -> None:
    """The commits are: accepting the event, consuming it, waiting again; with a handful of statements each."""
    async with quiet(database) as app:
        await wait_until_waiting(app, await app.start_workflow(waiter, 10))
        cost = await tick_cost(app, counter)
        assert cost.commits <= 3
        assert cost.statements <= 40


async def test_events_that_are_there_already_are_taken_without_waiting(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 20)
        await wait_until_waiting(app, handle)
        await app.pause_workflow(handle.instance_id)
        for number in range(20):
            await app.send_event("tick", "/test", number)
        await settle(app)
        counter.clear()
        await app.resume_workflow(handle.instance_id)
        assert await handle.result(timeout=20) == sum(range(20))
        await settle(app)
        assert counter.cost().commits <= 25  # the request, the claim, one for each event, the end
        assert not [one for one in counter.statements if writes(one) and "INTO romancy_waits" in one]


async def test_waking_a_warm_run_reads_no_history(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        await wait_until_waiting(app, await app.start_workflow(waiter, 3))
        for _ in range(3):
            await tick_cost(app, counter)
            assert [one for one in counter.statements if one.startswith(READS_HISTORY)] == []
        assert worker_of(app).replays == 0


async def test_one_event_for_many_wakes_them_in_few_commits(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        await start_waiters(app, 50, lambda number: app.start_workflow(waiter, 2))
        cost = await tick_cost(app, counter)
        assert cost.commits <= 12  # not fifty: instances that are woken together are written together


# --- other waits, and earlier events


@pytest.mark.parametrize("differ", ["type", "subject"])
async def test_waking_does_not_depend_on_how_many_others_wait(database: str, counter: Counter, differ: str) -> None:
    def start(app: App) -> Callable[[int], Any]:
        if differ == "type":
            return lambda number: app.start_workflow(other, f"tock {number}")
        return lambda number: app.start_workflow(other, "tick", f"not {number}")

    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 3, "mine")
        await wait_until_waiting(app, handle)
        alone = await tick_cost(app, counter, subject="mine")
        await start_waiters(app, 200, start(app))
        assert costs_no_more(await tick_cost(app, counter, subject="mine"), alone)


async def test_waking_by_an_addressed_event_does_not_depend_on_how_many_others_wait_for_the_same(
    database: str, counter: Counter
) -> None:
    async def addressed(handle: WorkflowHandle[int]) -> Cost:
        await settle(app)
        counter.clear()
        await app.send_event("tick", "/test", 1, extensions={"romancyinstanceid": handle.instance_id})
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 3)
        await wait_until_waiting(app, handle)
        alone = await addressed(handle)
        await start_waiters(app, 200, lambda number: app.start_workflow(waiter, 1))
        assert costs_no_more(await addressed(handle), alone)


async def test_waking_does_not_depend_on_how_many_events_were_consumed(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 300)
        await wait_until_waiting(app, handle)
        few = [await tick_cost(app, counter) for _ in range(5)][-1]
        for _ in range(200):
            await app.send_event("tick", "/test", 1)
        assert costs_no_more(await tick_cost(app, counter), few)


async def test_waking_does_not_depend_on_how_many_events_did_not_fit(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 10, "mine")
        await wait_until_waiting(app, handle)
        few = [await tick_cost(app, counter, subject="mine") for _ in range(3)][-1]
        for number in range(300):
            await app.send_event("tick" if number % 2 else "tock", "/test", 1, subject="theirs")
        assert costs_no_more(await tick_cost(app, counter, subject="mine"), few)


@pytest.mark.parametrize("kind", ["tick", "tock"])
async def test_a_wait_does_not_look_at_events_of_other_types_and_subjects(
    database: str, counter: Counter, kind: str
) -> None:
    async def begin_to_wait(app: App, others: int) -> Cost:
        handle = await app.start_workflow(late_waiter)
        await wait_until_waiting(app, handle)
        for _ in range(others):
            await app.send_event(kind, "/test", 1, subject="theirs")
        await settle(app)
        counter.clear()
        await app.send_event("begin", "/test", extensions={"romancyinstanceid": handle.instance_id})
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        few = await begin_to_wait(app, 1)
        assert costs_no_more(await begin_to_wait(app, 300), few)


async def test_a_match_does_not_look_again_at_what_did_not_fit(database: str, counter: Counter) -> None:
    """The search resumes behind the last match, also for the next wait with the same selector."""

    async def matched(app: App) -> Cost:
        await settle(app)
        counter.clear()
        await app.send_event("tick", "/test", {"mine": True})
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        await wait_until_waiting(app, await app.start_workflow(matcher, 10))
        few = [await matched(app) for _ in range(3)][-1]
        for _ in range(300):
            await app.send_event("tick", "/test", {"mine": False})
        assert costs_no_more(await matched(app), few)
        assert costs_no_more(await matched(app), few)


# --- messages


async def test_a_message_does_not_cost_more_when_others_listen_elsewhere(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(listener, 300)
        await wait_until_waiting(app, handle)
        alone = await message_cost(app, counter)
        assert alone.commits <= 3  # the message, its receipt, the next wait
        await start_waiters(app, 200, lambda number: app.start_workflow(listener, 1, f"news {number}"))
        for _ in range(100):
            await app.publish("news", 1)
        assert costs_no_more(await message_cost(app, counter), alone)


async def test_a_job_calls_one_of_those_who_wait_however_many_there_are(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        await start_waiters(app, 2, lambda number: app.start_workflow(listener, 300, "jobs", "competing"))
        few = await message_cost(app, counter, "jobs")
        await start_waiters(app, 200, lambda number: app.start_workflow(listener, 300, "jobs", "competing"))
        many = await message_cost(app, counter, "jobs")
        assert (many.commits, many.statements) == (few.commits, few.statements)
        assert costs_no_more(many, few)


# --- idle apps


async def test_looking_for_work_costs_the_same_with_a_hundred_waiting(database: str, counter: Counter) -> None:
    async def poll(app: App) -> Cost:
        await settle(app)
        assert app._claimer is not None
        counter.clear()
        await app._claimer._poll()
        return counter.cost()

    async def maintain(app: App) -> Cost:
        await settle(app)
        assert app._maintenance is not None
        counter.clear()
        await app._maintenance.round()
        return counter.cost()

    async with quiet(database) as app:
        polled, maintained = await poll(app), await maintain(app)
        assert polled.commits == 0
        assert not [one for one in counter.statements if writes(one)]
        await start_waiters(app, 50, lambda number: app.start_workflow(other, f"never {number}"))
        await start_waiters(app, 50, lambda number: app.start_workflow(listener, 1, f"never {number}"))
        assert costs_no_more(await poll(app), polled)
        assert costs_no_more(await maintain(app), maintained)
        assert not [one for one in counter.statements if writes(one)]


async def test_an_idle_app_with_a_hundred_waiting_instances_writes_its_heartbeat_only(
    database: str, counter: Counter
) -> None:
    async def idle(app: App, beats: int) -> float:
        """The statements for each heartbeat."""
        await settle(app)
        heartbeat_thread = app._maintenance._heartbeat_thread if app._maintenance is not None else None
        assert heartbeat_thread is not None
        counter.clear()
        first = heartbeat_thread.heartbeats
        while heartbeat_thread.heartbeats < first + beats:
            await asyncio.sleep(0.01)
        statements, passed = list(counter.statements), heartbeat_thread.heartbeats - first + 1
        written = [one for one in statements if writes(one)]
        assert [one for one in written if not one.startswith(BEAT)] == []
        assert len(written) <= passed
        assert not [
            one for one in statements if "romancy_history" in one or "romancy_events" in one.split("romancy_events (")
        ]
        return len(statements) / passed

    async with quiet(database, heartbeat_interval=0.1, lease_timeout=10, poll_interval=0.1) as app:
        alone = await idle(app, 10)
        await start_waiters(app, 50, lambda number: app.start_workflow(other, f"never {number}"))
        await start_waiters(app, 50, lambda number: app.start_workflow(listener, 1, f"never {number}"))
        assert await idle(app, 10) <= alone * 2 + 10  # polls follow the interval, not the number of instances


async def test_waiting_instances_beyond_the_cache_are_not_in_memory(database: str, counter: Counter) -> None:
    async with quiet(database, cache_size=10) as app:
        handles = [await app.start_workflow(waiter, 1) for _ in range(60)]
        for handle in handles:
            await wait_until_waiting(app, handle)
        worker = worker_of(app)
        assert len(worker._parked) <= 10
        assert not worker._runners
        await app.send_event("tick", "/test", 1)
        assert await asyncio.gather(*(handle.result(timeout=30) for handle in handles)) == [1] * 60


# --- recur


async def test_a_generation_costs_the_same_for_ever(database: str, counter: Counter) -> None:
    async def generations(app: App, count: int) -> Cost:
        await settle(app)
        counter.clear()
        assert await (await app.start_workflow(recurring, count)).result(timeout=30) == count + 1
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        short, middle, long = await generations(app, 10), await generations(app, 60), await generations(app, 110)
        first = [after - before for after, before in zip(middle, short, strict=True)]
        second = [after - before for after, before in zip(long, middle, strict=True)]
        assert first[0] <= 50 * 2  # commits of a generation: the activity, and the recur
        assert all(late <= early * 1.1 for late, early in zip(second, first, strict=True))
