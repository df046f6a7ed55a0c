"""The costs of workflows: commits, statements, replays, instances in memory."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.engine.query_counter import BEAT, READS_HISTORY, Counter, writes

from romancy import ActivityContext, App, Client, Status, Workflow, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.testing import TestEnvironment
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.worker import Worker


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:
    return number + 1


@workflow
async def one_step(ctx: WorkflowContext, number: int) -> int:
    return await add_one(ctx, number)


@workflow
async def sleeper(ctx: WorkflowContext, naps: int) -> int:
    number = await add_one(ctx, 0)
    for _ in range(naps):
        await sleep(ctx, 0.01)
    return number


@workflow
async def many_steps(ctx: WorkflowContext, steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(ctx, number)
    return number


@workflow
async def steps_then_nap(ctx: WorkflowContext, steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(ctx, number)
    await sleep(ctx, 0.01)
    return await add_one(ctx, number)


@workflow
async def event_waiter(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "ring")


WORKFLOWS: list[Workflow[..., Any]] = [one_step, sleeper, many_steps, steps_then_nap, event_waiter]


@pytest.fixture
def quiet(database: str) -> App:
    """An app whose maintenance and polling do not run while the test counts."""
    return App(database, workflows=WORKFLOWS, heartbeat_interval=600, lease_timeout=3600, poll_interval=600)


def worker_of(app: App) -> Worker:
    assert app._worker is not None
    return app._worker


async def settle(app: App) -> None:
    """Wait until the maintenance of the start is over."""
    claimer = app._claimer
    assert claimer is not None
    while not (claimer.is_idle and claimer.polled_at and worker_of(app).is_idle):
        await asyncio.sleep(0.005)
    assert app._maintenance is not None
    await app._maintenance.round()  # waits for the round of the start, and for the queued writes
    await asyncio.sleep(0)  # drivers report statements with a delay


async def commits_of(app: App, counter: Counter, name: str, argument: int) -> int:
    await settle(app)
    counter.clear()
    handle = await app.start_workflow(name, argument)
    await handle.result(timeout=30)
    return counter.commits


async def test_one_activity_is_two_commits(quiet: App, counter: Counter) -> None:
    async with quiet as app:
        assert await commits_of(app, counter, "one_step", 1) == 2


async def test_a_start_a_wait_and_an_event_are_one_commit_each(quiet: App, database: str, counter: Counter) -> None:
    async with quiet as app:
        await settle(app)
        counter.clear()
        handle = await app.start_workflow(event_waiter)
        while await handle.status() != Status.WAITING_FOR_EVENT:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)  # drivers report statements with a delay
        assert counter.commits == 2  # the start, and the wait
    async with Client(database, workflows=[]) as client:  # no worker that would resume the instance and commit too
        counter.clear()
        accepted = await client.send_event("ring", "/test")
        assert accepted.instance_ids == (handle.instance_id,)
        await asyncio.sleep(0)
        assert counter.commits == 1


async def test_a_sleep_is_one_commit_more(quiet: App, counter: Counter) -> None:
    async with quiet as app:
        assert await commits_of(app, counter, "sleeper", 1) <= 3
        assert await commits_of(app, counter, "sleeper", 5) <= 7
        assert worker_of(app).replays == 0


async def test_a_warm_run_is_not_replayed_and_reads_nothing(quiet: App, counter: Counter) -> None:
    async with quiet as app:
        await commits_of(app, counter, "sleeper", 10)
        assert worker_of(app).replays == 0
        assert counter.count(READS_HISTORY) == 0


async def test_a_cold_run_reads_its_history_with_one_query(database: str, counter: Counter) -> None:
    app = App(database, workflows=WORKFLOWS, cache_size=0, heartbeat_interval=600, lease_timeout=3600)
    async with app:
        assert await commits_of(app, counter, "steps_then_nap", 100) <= 104  # the start, each result, a claim, the end
        assert worker_of(app).replays == 1
        assert counter.count(READS_HISTORY) == 1


async def test_resuming_a_long_history_takes_a_handful_of_statements(database: str, counter: Counter) -> None:
    @activity
    async def step(ctx: ActivityContext, number: int) -> int:
        return number

    @workflow
    async def long(ctx: WorkflowContext) -> int:
        total = sum([await step(ctx, number) for number in range(300)])
        await sleep(ctx, 60)
        return total

    async with TestEnvironment(database, workflows=[long]) as env:
        handle = await env.app.start_workflow(long)
        await env.settle()
        await env.restart()
        counter.clear()
        assert await handle.result() == sum(range(300))
        assert len(counter.statements) < 60, counter.statements
        assert [entry.seq async for entry in handle.history()] == list(range(1, 302))
        assert env.app._worker is not None
        assert env.app._worker.replays == 1


async def test_the_cost_of_a_step_does_not_grow(quiet: App, counter: Counter) -> None:
    async with quiet as app:
        await commits_of(app, counter, "many_steps", 20)
        few = len(counter.statements)
        await commits_of(app, counter, "many_steps", 220)
        many = len(counter.statements)
        await commits_of(app, counter, "many_steps", 420)
        assert len(counter.statements) - many <= (many - few) * 1.1
        assert (many - few) / 200 <= 8


async def test_a_step_is_one_statement(quiet: App, counter: Counter) -> None:
    async with quiet as app:
        await commits_of(app, counter, "many_steps", 220)
        assert counter.count("INSERT INTO romancy_history") in (220, 221)  # some dialects write starts and steps together
        assert counter.count("BEGIN I") <= 2  # the start and the end; reads have none


async def test_concurrent_starts_share_commits(quiet: App, counter: Counter) -> None:
    async with quiet as app:
        await settle(app)
        counter.clear()
        handles = await asyncio.gather(*(app.start_workflow(one_step, number) for number in range(200)))
        assert sorted(await asyncio.gather(*(handle.result(timeout=30) for handle in handles))) == list(range(1, 201))
        assert counter.commits <= 40


async def test_an_idle_app_looks_and_beats_and_nothing_else(database: str, counter: Counter) -> None:
    async with App(database, workflows=WORKFLOWS, heartbeat_interval=0.1, lease_timeout=10, poll_interval=0.1) as app:
        handle = await app.start_workflow(sleeper, 1)
        await handle.result(timeout=30)
        await settle(app)
        heartbeat_thread = app._maintenance._heartbeat_thread if app._maintenance is not None else None
        assert heartbeat_thread is not None
        counter.clear()
        first = heartbeat_thread.heartbeats
        while heartbeat_thread.heartbeats < first + 10:
            await asyncio.sleep(0.02)
        statements, beats = list(counter.statements), heartbeat_thread.heartbeats - first + 1
    written = [statement for statement in statements if writes(statement)]
    assert [statement for statement in written if not statement.startswith(BEAT)] == []
    assert len(written) <= beats
    assert not [statement for statement in statements if "romancy_history" in statement or "romancy_payloads" in statement]
    # A heartbeat, a sweep, a query for blocked instances, polls: one each interval, and a poll after each foreign commit.
    assert len(statements) <= 40 * beats


async def test_the_cache_is_bounded_and_the_evicted_go_on(database: str) -> None:
    app = App(database, workflows=WORKFLOWS, cache_size=10, poll_interval=0.1)
    parked: list[int] = []
    async with app:
        worker = worker_of(app)
        worker.on_committed = lambda host: parked.append(len(worker._parked))
        handles = await asyncio.gather(*(app.start_workflow(sleeper, 3) for _ in range(60)))
        assert await asyncio.gather(*(handle.result(timeout=60) for handle in handles)) == [1] * 60
        assert max(parked) <= 10
        assert worker.replays > 0
        assert not worker._runners
        assert not worker._parked


async def test_ended_and_evicted_instances_leave_nothing_in_memory(database: str) -> None:
    async with App(database, workflows=WORKFLOWS, cache_size=5, poll_interval=0.1) as app:
        handles = await asyncio.gather(*(app.start_workflow(sleeper, 2) for _ in range(40)))
        await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
        worker = worker_of(app)
        await settle(app)
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one) is InstanceRunner and one.worker is worker]
        assert len(worker.timers._heap) <= 200
