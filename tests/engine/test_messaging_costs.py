"""What waiting and waking cost, by counting: commits, statements, and SQLite's steps (more, the more rows it visits)."""

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
async def turner(ctx: WorkflowContext, turns: int) -> int:
    await add_one(ctx, turns)
    if turns:
        await ctx.recur(turns - 1)
    return ctx.generation


WORKFLOWS: list[Workflow[..., Any]] = [waiter, other, late_waiter, matcher, listener, turner]


@asynccontextmanager
async def quiet(database: str, **options: Any) -> AsyncIterator[App]:
    """An app whose housekeeping does not fall into what is counted."""
    given: dict[str, Any] = {"heartbeat_interval": 600, "lease_timeout": 3600, "poll_interval": 600, **options}
    async with App(database, workflows=WORKFLOWS, **given) as app:
        await settle(app)
        assert app._maintenance is not None
        await app._maintenance.round()  # behind the first one, which began with the app
        yield app


def worker_of(app: App) -> Worker:
    assert app._worker is not None
    return app._worker


async def settle(app: App) -> None:
    """Until nothing is being read or written."""
    finder = app._claimer
    assert finder is not None
    while not (finder.is_idle and finder.polled_at and worker_of(app).is_idle):
        await asyncio.sleep(0.002)
    await app._store.workers()  # behind whatever the lanes still do
    await asyncio.sleep(0)  # drivers tell of their statements a little later


async def waiting(app: App, handle: WorkflowHandle[Any]) -> None:
    """The instance waits."""
    await settle(app)
    assert await handle.status() in (Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE)


async def crowd(app: App, size: int, start: Callable[[int], Any]) -> None:
    """Many who wait for something else."""
    for handle in await asyncio.gather(*(start(number) for number in range(size))):
        await waiting(app, handle)


async def tick(app: App, counter: Counter, number: int = 1, subject: str | None = None) -> Cost:
    """What it costs to wake those who wait for a tick, until they wait again or have ended."""
    await settle(app)
    counter.clear()
    accepted = await app.send_event("tick", "/test", number, subject=subject)
    assert accepted.instance_ids
    await settle(app)
    return counter.cost()


async def news(app: App, counter: Counter, channel: str = "news") -> Cost:
    """The same with a message."""
    await settle(app)
    counter.clear()
    await app.publish(channel, 1)
    await settle(app)
    return counter.cost()


def no_dearer(now: Cost, before: Cost) -> bool:
    """As many commits and statements; the steps may vary a little, as trees get deeper."""
    return now.commits <= before.commits and now.statements <= before.statements and now.steps <= before.steps * 1.5 + 50


# --- one wait


async def test_a_wait_that_is_met_is_three_commits_more(database: str, counter: Counter) -> None:
    """Waiting, the event itself, and taking it; the end is one by itself."""
    async with quiet(database) as app:
        counter.clear()
        handle = await app.start_workflow(waiter, 1)
        await settle(app)
        assert counter.cost().commits <= 2  # the start, and the wait
        assert (await tick(app, counter)).commits <= 3  # the event, taking it, the end
        assert await handle.result(timeout=20) == 1
        assert worker_of(app).replays == 0


async def test_a_wait_that_is_met_and_the_next_one_are_three_commits(database: str, counter: Counter) -> None:
    """The event, taking it, waiting again; and a handful of statements for each."""
    async with quiet(database) as app:
        await waiting(app, await app.start_workflow(waiter, 10))
        cost = await tick(app, counter)
        assert cost.commits <= 3
        assert cost.statements <= 40


async def test_events_that_are_there_already_are_taken_without_waiting(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 20)
        await waiting(app, handle)
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
        await waiting(app, await app.start_workflow(waiter, 3))
        for _ in range(3):
            await tick(app, counter)
            assert [one for one in counter.statements if one.startswith(READS_HISTORY)] == []
        assert worker_of(app).replays == 0


async def test_one_event_for_many_wakes_them_in_few_commits(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        await crowd(app, 50, lambda number: app.start_workflow(waiter, 2))
        cost = await tick(app, counter)
        assert cost.commits <= 12  # not fifty: those who are woken together are written together


# --- who else waits, and what was before


@pytest.mark.parametrize("differ", ["type", "subject"])
async def test_waking_does_not_depend_on_how_many_others_wait(database: str, counter: Counter, differ: str) -> None:
    def start(app: App) -> Callable[[int], Any]:
        if differ == "type":
            return lambda number: app.start_workflow(other, f"tock {number}")
        return lambda number: app.start_workflow(other, "tick", f"not {number}")

    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 3, "mine")
        await waiting(app, handle)
        alone = await tick(app, counter, subject="mine")
        await crowd(app, 200, start(app))
        assert no_dearer(await tick(app, counter, subject="mine"), alone)


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
        await waiting(app, handle)
        alone = await addressed(handle)
        await crowd(app, 200, lambda number: app.start_workflow(waiter, 1))
        assert no_dearer(await addressed(handle), alone)


async def test_waking_does_not_depend_on_how_many_events_were_consumed(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 300)
        await waiting(app, handle)
        few = [await tick(app, counter) for _ in range(5)][-1]
        for _ in range(200):
            await app.send_event("tick", "/test", 1)
        assert no_dearer(await tick(app, counter), few)


async def test_waking_does_not_depend_on_how_many_events_did_not_fit(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(waiter, 10, "mine")
        await waiting(app, handle)
        few = [await tick(app, counter, subject="mine") for _ in range(3)][-1]
        for number in range(300):
            await app.send_event("tick" if number % 2 else "tock", "/test", 1, subject="theirs")
        assert no_dearer(await tick(app, counter, subject="mine"), few)


@pytest.mark.parametrize("kind", ["tick", "tock"])
async def test_a_wait_does_not_look_at_events_of_other_types_and_subjects(
    database: str, counter: Counter, kind: str
) -> None:
    async def begin_to_wait(app: App, others: int) -> Cost:
        handle = await app.start_workflow(late_waiter)
        await waiting(app, handle)
        for _ in range(others):
            await app.send_event(kind, "/test", 1, subject="theirs")
        await settle(app)
        counter.clear()
        await app.send_event("begin", "/test", extensions={"romancyinstanceid": handle.instance_id})
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        few = await begin_to_wait(app, 1)
        assert no_dearer(await begin_to_wait(app, 300), few)


async def test_a_match_does_not_look_again_at_what_did_not_fit(database: str, counter: Counter) -> None:
    """It goes on where it was met, and the next wait for the same where that ended."""

    async def matched(app: App) -> Cost:
        await settle(app)
        counter.clear()
        await app.send_event("tick", "/test", {"mine": True})
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        await waiting(app, await app.start_workflow(matcher, 10))
        few = [await matched(app) for _ in range(3)][-1]
        for _ in range(300):
            await app.send_event("tick", "/test", {"mine": False})
        assert no_dearer(await matched(app), few)
        assert no_dearer(await matched(app), few)


# --- messages


async def test_a_message_does_not_cost_more_when_others_listen_elsewhere(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        handle = await app.start_workflow(listener, 300)
        await waiting(app, handle)
        alone = await news(app, counter)
        assert alone.commits <= 3  # the message, reading it, waiting for the next
        await crowd(app, 200, lambda number: app.start_workflow(listener, 1, f"news {number}"))
        for _ in range(100):
            await app.publish("news", 1)
        assert no_dearer(await news(app, counter), alone)


async def test_a_job_calls_one_of_those_who_wait_however_many_there_are(database: str, counter: Counter) -> None:
    async with quiet(database) as app:
        await crowd(app, 2, lambda number: app.start_workflow(listener, 300, "jobs", "competing"))
        few = await news(app, counter, "jobs")
        await crowd(app, 200, lambda number: app.start_workflow(listener, 300, "jobs", "competing"))
        many = await news(app, counter, "jobs")
        assert (many.commits, many.statements) == (few.commits, few.statements)
        assert no_dearer(many, few)


# --- doing nothing


async def test_looking_for_work_costs_the_same_with_a_hundred_waiting(database: str, counter: Counter) -> None:
    async def look(app: App) -> Cost:
        await settle(app)
        assert app._claimer is not None
        counter.clear()
        await app._claimer._poll()
        return counter.cost()

    async def upkeep(app: App) -> Cost:
        await settle(app)
        assert app._maintenance is not None
        counter.clear()
        await app._maintenance.round()
        return counter.cost()

    async with quiet(database) as app:
        looked, kept = await look(app), await upkeep(app)
        assert looked.commits == 0
        assert not [one for one in counter.statements if writes(one)]
        await crowd(app, 50, lambda number: app.start_workflow(other, f"never {number}"))
        await crowd(app, 50, lambda number: app.start_workflow(listener, 1, f"never {number}"))
        assert no_dearer(await look(app), looked)
        assert no_dearer(await upkeep(app), kept)
        assert not [one for one in counter.statements if writes(one)]


async def test_an_idle_app_with_a_hundred_waiting_instances_writes_its_heartbeat_only(
    database: str, counter: Counter
) -> None:
    async def idle(app: App, beats: int) -> float:
        """Statements for each beat."""
        await settle(app)
        heart = app._maintenance._heartbeat_thread if app._maintenance is not None else None
        assert heart is not None
        counter.clear()
        first = heart.heartbeats
        while heart.heartbeats < first + beats:
            await asyncio.sleep(0.01)
        statements, passed = list(counter.statements), heart.heartbeats - first + 1
        written = [one for one in statements if writes(one)]
        assert [one for one in written if not one.startswith(BEAT)] == []
        assert len(written) <= passed
        assert not [
            one for one in statements if "romancy_history" in one or "romancy_events" in one.split("romancy_events (")
        ]
        return len(statements) / passed

    async with quiet(database, heartbeat_interval=0.1, lease_timeout=10, poll_interval=0.1) as app:
        alone = await idle(app, 10)
        await crowd(app, 50, lambda number: app.start_workflow(other, f"never {number}"))
        await crowd(app, 50, lambda number: app.start_workflow(listener, 1, f"never {number}"))
        assert await idle(app, 10) <= alone * 2 + 10  # looks are as often as time passes: a hundred polls would be far more


async def test_waiting_instances_beyond_the_cache_are_not_in_memory(database: str, counter: Counter) -> None:
    async with quiet(database, cache_size=10) as app:
        handles = [await app.start_workflow(waiter, 1) for _ in range(60)]
        for handle in handles:
            await waiting(app, handle)
        worker = worker_of(app)
        assert len(worker._parked) <= 10
        assert not worker._runners
        await app.send_event("tick", "/test", 1)
        assert await asyncio.gather(*(handle.result(timeout=30) for handle in handles)) == [1] * 60


# --- recurring


async def test_a_generation_costs_the_same_for_ever(database: str, counter: Counter) -> None:
    async def turns(app: App, count: int) -> Cost:
        await settle(app)
        counter.clear()
        assert await (await app.start_workflow(turner, count)).result(timeout=30) == count + 1
        await settle(app)
        return counter.cost()

    async with quiet(database) as app:
        short, middle, long = await turns(app, 10), await turns(app, 60), await turns(app, 110)
        first = [after - before for after, before in zip(middle, short, strict=True)]
        second = [after - before for after, before in zip(long, middle, strict=True)]
        assert first[0] <= 50 * 2  # commits of a generation: the activity, and the turn
        assert all(late <= early * 1.1 for late, early in zip(second, first, strict=True))
