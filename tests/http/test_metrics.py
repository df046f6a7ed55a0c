"""Tests of `GET /metrics`: the metrics of a process in the text format of Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.exposition_parser import Scrape, parse
from tests.http.asgi_client import Recorder, call, serve

from romancy import (
    ActivityContext,
    App,
    Client,
    RetryPolicy,
    StoreError,
    TerminalError,
    Workflow,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    publish,
    receive,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.http import lifespan
from romancy.testing import TestEnvironment
from romancy.worker import claimer as claimer_module


@activity
async def greet(ctx: ActivityContext) -> str:
    return "hello"


@workflow
async def waiter(ctx: WorkflowContext) -> str:
    await greet(ctx)
    await wait_event(ctx, "go")
    return "gone"


async def scrape(app: App) -> Scrape:
    answer = await call(app, "/metrics", method="GET")
    assert answer.status == 200
    return parse(answer.body.decode())


async def until(app: App, holds: Callable[[Scrape], bool]) -> Scrape:
    while not holds(found := await scrape(app)):
        await asyncio.sleep(0.001)
    return found


def is_warm(read: Scrape) -> bool:
    return read("romancy_instances_warm") == 1


async def test_an_instance_from_its_start_to_its_end(database: str) -> None:
    async with App(database, workflows=[waiter]) as app:
        handle = await app.start_workflow(waiter)
        before = await until(app, is_warm)
        await app.send_event("go", "/test", event_id="1")
        await app.send_event("go", "/test", event_id="1")
        await handle.result(timeout=30)
        after = await scrape(app)
    assert (before("romancy_instances_running"), before("romancy_activities_running")) == (0, 0)
    assert before("romancy_workflows_ended_total", workflow="waiter", status="completed") == 0
    assert before("romancy_workflows_started_total", workflow="waiter") == 1
    assert after("romancy_workflows_started_total", workflow="waiter") == 1
    assert after("romancy_workflows_ended_total", workflow="waiter", status="completed") == 1
    assert after("romancy_workflow_seconds", "_count", workflow="waiter") == 1
    assert after("romancy_activities_ended_total", activity="greet", outcome="ok") == 1
    assert after("romancy_activity_seconds", "_count", activity="greet") == 1
    assert (after("romancy_events_accepted_total"), after("romancy_events_duplicate_total")) == (1, 1)
    assert after("romancy_events_received_total") == 1
    assert (after("romancy_warm_hits_total"), after("romancy_replays_total")) == (1, 0)
    assert (after("romancy_instances_running"), after("romancy_instances_warm")) == (0, 0)
    assert after("romancy_commits_total") > before("romancy_commits_total") >= 2
    assert after("romancy_writes_total") >= after("romancy_commits_total")
    assert after("romancy_commit_seconds", "_count") == after("romancy_commits_total")


async def test_metrics_are_refused_to_other_machines(database: str) -> None:
    async with App(database, workflows=[waiter]) as app:
        assert (await call(app, "/metrics", method="GET", client=("192.0.2.1", 5000))).status == 403
        assert (await call(app, "/metrics")).status == 405
        answer = await call(app, "/metrics", method="GET")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


# --- how instances and activities end


@activity(retry=RetryPolicy(max_attempts=3, initial_interval=60))
async def shaky(ctx: ActivityContext, fails: int) -> int:
    if ctx.attempt <= fails:
        raise ValueError("not yet")
    return ctx.attempt


async def release(ctx: ActivityContext) -> None:
    """Do nothing: the compensation of `reserve`."""


@activity(compensation=release)
async def reserve(ctx: ActivityContext) -> None:
    """Do nothing."""


@workflow
async def trip(ctx: WorkflowContext, fails: int) -> int:
    await reserve(ctx)
    return await shaky(ctx, fails)


@pytest.mark.usefixtures("everywhere")
class TestOutcomes:
    """Outcomes of instances and activities, on virtual time and on each database."""

    async def test_attempts_that_are_repeated(self) -> None:
        async with TestEnvironment(workflows=[trip]) as env:
            handle = await env.app.start_workflow(trip, 2)
            assert await handle.result() == 3
            read = await scrape(env.app)
        assert read("romancy_activity_retries_total", activity="shaky") == 2
        assert read("romancy_activities_ended_total", activity="shaky", outcome="ok") == 1
        assert read("romancy_activities_ended_total", activity="shaky", outcome="error") == 0
        assert read("romancy_activity_seconds", "_count", activity="shaky") == 3
        assert read("romancy_workflow_seconds", "_sum", workflow="trip") == 60 + 60

    async def test_a_failure_and_its_compensation(self) -> None:
        async with TestEnvironment(workflows=[trip]) as env:
            handle = await env.app.start_workflow(trip, 9)
            with pytest.raises(WorkflowFailedError):
                await handle.result()
            read = await scrape(env.app)
        assert read("romancy_workflows_ended_total", workflow="trip", status="failed") == 1
        assert read("romancy_workflows_ended_total", workflow="trip", status="completed") == 0
        assert read("romancy_activity_retries_total", activity="shaky") == 2
        assert read("romancy_activities_ended_total", activity="shaky", outcome="error") == 1
        assert read("romancy_activities_ended_total", activity="release", outcome="ok") == 1

    async def test_a_failed_instance_that_is_retried_ends_again_but_starts_once(self) -> None:
        broken = True

        @activity(name="mend", retry=RetryPolicy.none())
        async def mend(ctx: ActivityContext) -> None:
            if broken:
                raise TerminalError("broken")

        @workflow(name="mending")
        async def mending(ctx: WorkflowContext) -> None:
            await mend(ctx)

        async with TestEnvironment(workflows=[mending]) as env:
            handle = await env.app.start_workflow(mending)
            with pytest.raises(WorkflowFailedError):
                await handle.result()
            broken = False
            await env.app.retry_workflow(handle.instance_id)
            await handle.result()
            read = await scrape(env.app)
        assert read("romancy_workflows_started_total", workflow="mending") == 1
        assert read("romancy_workflows_ended_total", workflow="mending", status="failed") == 1
        assert read("romancy_workflows_ended_total", workflow="mending", status="completed") == 1
        assert read("romancy_requests_total", kind="retry") == 1

    async def test_actions_are_counted(self) -> None:
        async with TestEnvironment(workflows=[waiter]) as env:
            cancelled, ended = [await env.app.start_workflow(waiter) for _ in range(2)]
            await env.settle()
            await env.app.pause_workflow(ended.instance_id)
            await env.app.resume_workflow(ended.instance_id)
            await env.app.terminate_workflow(ended.instance_id)
            await cancelled.cancel()
            with pytest.raises(WorkflowCancelledError):
                await cancelled.result()
            read = await scrape(env.app)
        assert read("romancy_workflows_ended_total", workflow="waiter", status="cancelled") == 1
        assert {kind: read("romancy_requests_total", kind=kind) for kind in ("cancel", "pause", "resume", "terminate")} == {
            "cancel": 1,
            "pause": 1,
            "resume": 1,
            "terminate": 1,
        }

    async def test_a_new_generation_is_not_counted_as_a_start(self) -> None:
        @workflow(name="circle")
        async def circle(ctx: WorkflowContext, left: int) -> str:
            await sleep(ctx, 10)
            if left:
                await ctx.recur(left - 1)
            return "round"

        async with TestEnvironment(workflows=[circle]) as env:
            await (await env.app.start_workflow(circle, 3)).result()
            read = await scrape(env.app)
        assert read("romancy_workflows_started_total", workflow="circle") == 1
        assert read("romancy_workflows_recurred_total", workflow="circle") == 3
        assert read("romancy_workflows_ended_total", workflow="circle", status="completed") == 1
        assert read("romancy_workflow_seconds", "_sum", workflow="circle") == 40

    @pytest.mark.parametrize("replay_always", [False, True])
    async def test_replaying_counts_nothing_again(self, replay_always: bool) -> None:
        async with TestEnvironment(workflows=[chat], replay_always=replay_always) as env:
            handle = await env.app.start_workflow(chat)
            await env.settle()
            await env.restart()
            await env.app.send_event("go", "/test")
            await env.settle()
            await env.restart()
            await env.app.publish("news", 1)
            await handle.result()
            read = await scrape(env.app)
        assert read("romancy_replays_total") >= 2
        assert read("romancy_replay_seconds", "_count") == read("romancy_replays_total")
        assert read("romancy_workflows_started_total", workflow="chat") == 1
        assert read("romancy_workflows_ended_total", workflow="chat", status="completed") == 1
        assert read("romancy_activities_ended_total", activity="greet", outcome="ok") == 2
        assert (read("romancy_events_received_total"), read("romancy_messages_received_total")) == (1, 1)
        assert (read("romancy_events_sent_total"), read("romancy_messages_sent_total")) == (1, 2)

    async def test_code_that_does_not_fit(self, caplog: pytest.LogCaptureFixture) -> None:
        @workflow(name="changing")
        async def old(ctx: WorkflowContext) -> None:
            await greet(ctx)
            await wait_event(ctx, "go")

        @workflow(name="changing")
        async def new(ctx: WorkflowContext) -> None:
            await sleep(ctx, 1)

        async with TestEnvironment(workflows=[old]) as env:
            await env.app.start_workflow(old)
            await env.settle()
            env.app._registry = type(env.app._registry)([new])
            await env.restart()
            await env.app.send_event("go", "/test")
            await env.settle()
            read = await scrape(env.app)
        assert read("romancy_workflows_blocked_total", workflow="changing") == 1

    async def test_an_event_that_does_not_fit_its_handler_is_a_start_and_a_failure(self) -> None:
        @workflow(name="order.placed", event_handler=True)
        async def placed(ctx: WorkflowContext, number: int) -> int:
            return number

        async with TestEnvironment(workflows=[placed]) as env:
            await env.app.send_event("order.placed", "/test", {"number": "many"})
            await env.app.send_event("order.placed", "/test", {"number": 1})
            await env.settle()
            read = await scrape(env.app)
        assert read("romancy_workflows_started_total", workflow="order.placed") == 2
        assert read("romancy_workflows_ended_total", workflow="order.placed", status="failed") == 1
        assert read("romancy_workflows_ended_total", workflow="order.placed", status="completed") == 1

    async def test_a_timer_that_is_late_is_a_lag(self) -> None:
        @workflow(name="nap")
        async def nap(ctx: WorkflowContext) -> None:
            await sleep(ctx, 10)

        async with TestEnvironment(workflows=[nap]) as env:
            handle = await env.app.start_workflow(nap)
            await env.settle()
            await env.restart()
            env.clock.move_to(env.clock.now() + round(timedelta(seconds=14).total_seconds() * 1_000_000))
            await handle.result()
            read = await scrape(env.app)
        polled, fired = (read("romancy_claim_lag_seconds", "_sum", by=by) for by in ("poll", "timer"))
        assert polled + fired == 4
        assert read("romancy_workflows_started_total", workflow="nap") == 1  # its history was empty when it died
        assert read("romancy_replays_total") == 1


@workflow
async def chat(ctx: WorkflowContext) -> None:
    await subscribe(ctx, "news")
    await greet(ctx)
    await wait_event(ctx, "go")
    await send_event(ctx, "went", "/test", None)
    await publish(ctx, "others", 1)
    await receive(ctx, "news")
    await greet(ctx)


# --- names


def named(name: str) -> Workflow[[], None]:
    @workflow(name=name)
    async def flow(ctx: WorkflowContext) -> None:
        await activity(name=name)(greet.fn)(ctx)

    return flow


async def test_the_number_of_workflow_labels_is_limited(file: str) -> None:
    flows = [named(f"flow-{n}") for n in range(130)]
    async with App(file, workflows=flows) as app:
        for handle in [await app.start_workflow(flow) for flow in flows]:
            await handle.result(timeout=30)
        read = await scrape(app)
    assert len(read["romancy_workflows_started_total"].samples) == 101
    assert read("romancy_workflows_started_total", workflow="other") == 30
    assert sum(read["romancy_workflows_ended_total"].samples.values()) == 130


async def test_hostile_names(database: str) -> None:
    names = ['"} 1', "a\\", "line\nfeed", "<script>", "‮"]
    flows = [named(name) for name in names]
    async with App(database, workflows=flows) as app:
        for handle in [await app.start_workflow(flow) for flow in flows]:
            await handle.result(timeout=30)
        read = await scrape(app)
    assert read["romancy_workflows_started_total"].labels("workflow") == set(names)
    assert read["romancy_activities_ended_total"].labels("activity") == set(names)


# --- load and lag


class Busy:
    """A workflow whose activity runs until the test releases it."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

        @activity(name="stay")
        async def stay(ctx: ActivityContext) -> None:
            await self.finish.wait()

        @workflow(name="busy")
        async def busy(ctx: WorkflowContext) -> None:
            await stay(ctx)

        self.flow = busy


async def test_instances_that_wait_for_capacity_are_the_queue(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer_module, "_COUNT_EVERY", -1.0)  # count the queue at every scrape
    busy = Busy()
    async with App(database, workflows=[busy.flow], max_concurrent_workflows=1) as app:
        handles = [await app.start_workflow(busy.flow) for _ in range(4)]
        read = await until(app, lambda read: read("romancy_activities_running") == 1)
        assert (read("romancy_instances_running"), read("romancy_instances_max")) == (1, 1)
        assert read("romancy_queue_depth") == 3
        assert read("romancy_queue_oldest_seconds") > 0
        busy.finish.set()
        for handle in handles:
            await handle.result(timeout=30)
        read = await scrape(app)
    assert (read("romancy_queue_depth"), read("romancy_queue_oldest_seconds")) == (0, 0)
    assert read("romancy_claim_lag_seconds", "_count", by="poll") == 3
    assert read("romancy_workflows_started_total", workflow="busy") == 4


async def test_attempts_that_wait_for_a_slot(file: str) -> None:
    busy = Busy()
    async with App(file, workflows=[busy.flow], max_concurrent_activities=1) as app:
        handles = [await app.start_workflow(busy.flow) for _ in range(3)]
        read = await until(app, lambda read: read("romancy_activities_queued") == 2)
        assert (read("romancy_activities_running"), read("romancy_activities_max")) == (1, 1)
        busy.finish.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert (await scrape(app))("romancy_activities_queued") == 0


async def test_the_queue_is_not_counted_at_every_scrape(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(database, workflows=[waiter]) as app:
        monkeypatch.setattr(app._store, "upcoming", counted := CountingUpcoming(app._store.upcoming))
        for _ in range(5):
            await app.refresh_metrics()
        assert counted.by_scrapes <= 1


class CountingUpcoming:
    """A wrapper of the store's `upcoming` that counts the calls of scrapes, which have a larger limit."""

    def __init__(self, upcoming: Callable[..., Awaitable[Any]]) -> None:
        self._upcoming = upcoming
        self.by_scrapes = 0

    async def __call__(self, *args: Any, limit: int, **given: Any) -> Any:
        self.by_scrapes += limit == 1000
        return await self._upcoming(*args, limit=limit, **given)


async def test_the_heartbeat_and_the_loop_lag(file: str) -> None:
    async with App(file, workflows=[waiter]) as app:
        read = await until(app, lambda read: read("romancy_loop_lag_seconds", "_count") > 0)
    assert 0 <= read("romancy_heartbeat_age_seconds") < 3600


async def test_the_build_info(database: str) -> None:
    async with App(database, workflows=[waiter]) as app:
        read = await scrape(app)
    kind = {"postgresql": "postgresql", "mysql": "mysql"}.get(database.partition(":")[0], "sqlite")
    assert read["romancy_build_info"].labels("database") == {kind}
    assert read("romancy_up") == 1


# --- errors


async def test_metrics_are_available_without_the_database(tmp_path: Path) -> None:
    app = App(str(tmp_path / "missing" / "romancy.db"), workflows=[waiter])
    with pytest.raises(StoreError):
        await app.startup()
    read = await scrape(app)
    assert (read("romancy_up"), read("romancy_commits_total")) == (0, 0)


async def test_a_slow_start_does_not_block_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifespan, "_START_TIMEOUT", 0.01)
    starts = asyncio.Event()

    class Slow(Recorder):
        async def startup(self) -> None:
            await starts.wait()

    app = serve(Slow())
    assert (await call(app, "/metrics", method="GET")).status == 200
    starts.set()


async def test_a_queue_that_cannot_be_counted_is_left_out(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreError("away")

    async with App(file, workflows=[waiter]) as app:
        with monkeypatch.context() as patched:
            patched.setattr(app._store, "upcoming", away)
            read = await scrape(app)
        assert "romancy_queue_depth" in read
        assert not read["romancy_queue_depth"].samples
        assert read("romancy_store_errors_total", during="poll") >= 1


async def test_an_unresponsive_database_does_not_block_a_scrape(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer_module, "_COUNT_TIMEOUT", 0.01)
    never = asyncio.Event()

    async def silent(*_: Any, **__: Any) -> Any:
        await never.wait()

    async with App(file, workflows=[waiter]) as app:
        monkeypatch.setattr(app._store, "upcoming", silent)
        for _ in range(2):
            assert not (await scrape(app))["romancy_queue_depth"].samples


# --- counters over time


async def test_counters_never_become_less(database: str) -> None:
    seen: list[Scrape] = []
    app = App(database, workflows=[waiter, trip, chat], worker_id="w")
    for _ in range(2):  # an app that is started again keeps its counters
        async with app:
            handles: list[Any] = []
            for _ in range(5):
                handles += [await app.start_workflow(waiter), await app.start_workflow(trip, 0)]
                seen.append(await scrape(app))
            seen.append(await until(app, lambda read: read("romancy_instances_warm") == 5))
            await app.send_event("go", "/test")
            for handle in handles:
                await handle.result(timeout=30)
                seen.append(await scrape(app))
        seen.append(await scrape(app))
    for earlier, later in pairwise(seen):
        before, after = earlier.growing(), later.growing()
        assert {key: after.get(key) for key, value in before.items() if after.get(key, -1.0) < value} == {}
    assert seen[-1]("romancy_workflows_started_total", workflow="waiter") == 10
    assert seen[-1]("romancy_workflows_ended_total", workflow="trip", status="completed") == 10


async def test_what_a_client_starts_is_counted_where_it_runs(database: str) -> None:
    async with Client(database, workflows=[waiter]) as client:
        handle = await client.start_workflow(waiter)
        async with App(database, workflows=[waiter]) as app:
            await until(app, is_warm)
            await client.send_event("go", "/test")
            await handle.result(timeout=30)
            read = await until(
                app, lambda read: read("romancy_workflows_ended_total", workflow="waiter", status="completed") == 1
            )
    assert read("romancy_workflows_started_total", workflow="waiter") == 1
    assert read("romancy_claim_lag_seconds", "_count", by="poll") >= 1
    assert read("romancy_replays_total") == 0
