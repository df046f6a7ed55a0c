"""Workers whose clock jumps, beside a worker whose clock is right: the guarantees hold, by the database's time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.machine_clock import DAY, HOUR, Machine

from romancy import (
    ActivityContext,
    App,
    Client,
    EventRejectedError,
    RetryPolicy,
    Status,
    StoreError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    activity,
    receive,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.admin.local import DatabaseManager
from romancy.clock import MICROS
from romancy.model.admin import AuditRow
from romancy.model.instance import WorkerRow
from romancy.model.messaging import Event
from romancy.worker import maintenance

OPTIONS: dict[str, Any] = {"heartbeat_interval": 0.05, "poll_interval": 0.05}


@workflow
async def short(ctx: WorkflowContext) -> None:
    """Sends an event that its broker refuses, and ends."""
    await send_event(ctx, "said", "/test", None)


@workflow
async def nap(ctx: WorkflowContext) -> str:
    """Waits for a timer."""
    await sleep(ctx, 1200)
    return "slept"


@workflow
async def patient(ctx: WorkflowContext) -> Any:
    """Waits for an event."""
    return (await wait_event(ctx, "paid", timeout=600)).data


@workflow
async def listener(ctx: WorkflowContext) -> Any:
    """Waits for a message."""
    await subscribe(ctx, "news")
    return (await receive(ctx, "news", timeout=600)).data


@workflow
async def retrying(ctx: WorkflowContext) -> None:
    """Waits for the second attempt of an activity."""
    await failing(ctx)


@activity(retry=RetryPolicy(initial_interval=900, max_interval=900))
async def failing(ctx: ActivityContext) -> None:
    """Fails in every attempt."""
    raise ValueError("not yet")


class Working:
    """A workflow with an activity that runs until the test sets `finish`."""

    def __init__(self) -> None:
        self.running, self.finish = asyncio.Event(), asyncio.Event()
        self.attempts: list[tuple[int, str]] = []

        @activity(timeout=600, heartbeat_timeout=600)
        async def work(ctx: ActivityContext) -> str:
            self.attempts.append((ctx.attempt, ctx.worker_id))
            self.running.set()
            await self.finish.wait()
            return "done"

        @workflow
        async def working(ctx: WorkflowContext) -> str:
            return await work(ctx)

        self.workflow = working


class RejectingBroker:
    """A broker that rejects every event."""

    name = "refusing"

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(self, event: Event) -> None:
        """Reject the event."""
        raise EventRejectedError("never")


async def until(app: App, handle: WorkflowHandle[Any], status: Status) -> None:
    while await handle.status() is not status:
        await asyncio.sleep(0)


async def run_periodic_tasks(app: App, machine: Machine | None = None) -> None:
    """Run once each task that a worker repeats: timers, polling, pruning, maintenance."""
    worker, claimer, maintenance = app._worker, app._claimer, app._maintenance
    assert worker is not None
    assert claimer is not None
    assert maintenance is not None
    if machine is not None:
        machine.let_pass(1.5)  # the clock checks for jumps once in a second
    for _ in range(3):
        worker.timers.fire()
        worker.stopwatch.fire()
        polled_at = claimer.polled_at
        claimer.poll_soon()
        while claimer.polled_at == polled_at or not claimer.is_idle:
            await asyncio.sleep(0)
        for relay in app._relays:
            await relay._prune()
        await maintenance.round()


@asynccontextmanager
async def started(app: App, working: Working) -> AsyncIterator[list[tuple[WorkflowHandle[Any], Status]]]:
    """Start one instance of each kind of wait; yields the handles with the statuses that must not change."""
    waits: list[tuple[Any, Status]] = [
        (nap, Status.WAITING_FOR_TIMER),
        (patient, Status.WAITING_FOR_EVENT),
        (listener, Status.WAITING_FOR_MESSAGE),
        (retrying, Status.WAITING_FOR_TIMER),
        (working.workflow, Status.RUNNING),
        (short, Status.COMPLETED),
    ]
    begun = [(await app.start_workflow(one), status) for one, status in waits]
    async with asyncio.timeout(60):
        for handle, status in begun:
            await until(app, handle, status)
        await working.running.wait()
    yield begun


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY])
async def test_a_worker_whose_date_jumps_takes_nothing_away(database: str, jump: float) -> None:
    machine, working, others = Machine(), Working(), Working()
    options: dict[str, Any] = {**OPTIONS, "broker": RejectingBroker(), "shutdown_timeout": 0}
    options |= dict.fromkeys(("instance_retention", "audit_retention", "outbox_retention"), 7 * DAY)
    workflows = [nap, patient, listener, retrying, short]
    shifted = App(database, worker_id="shifted", clock=machine.clock(), workflows=[*workflows, working.workflow], **options)
    right = App(database, worker_id="right", workflows=[*workflows, others.workflow], **options)
    async with shifted, right, started(shifted, working) as here, started(right, others) as there:
        await shifted.send_event("not.awaited", "/test", event_id="kept")
        await shifted.publish("no.subscriber", "kept")
        await shifted._store.add_audit([AuditRow(0, shifted._clock.now(), "ann", "cancel", "a", "")])
        while len(dead := (await right.list_outbox(dead=True)).items) < 3:
            await asyncio.sleep(0)
        known = {row.id for row in await right._store.workers()}
        machine.jump(jump)
        for _ in range(2):
            await run_periodic_tasks(shifted, machine)
            await run_periodic_tasks(right)
        for handle, status in [*here, *there]:
            assert await handle.status() is status, handle.instance_id
            assert "lost" not in [line.kind for line in await right.get_journal(handle.instance_id)]
        assert [attempt for attempt, _ in working.attempts + others.attempts] == [1, 1]
        assert (await right.send_event("not.awaited", "/test", event_id="kept")).duplicate
        assert len(await right._store.audit(instance_id=None, before=None, limit=9)) == 1
        assert (await right.list_outbox(dead=True)).items == dead
        assert {row.id for row in await right._store.workers()} == known
        # Rows that the worker with the wrong clock writes carry the database's time, too.
        begun = time.time_ns() // 1000
        seen = await right._store.get((await shifted.start_workflow(short)).instance_id)
        assert seen is not None
        assert abs(seen.row.created_at - begun) < 600 * MICROS
        await right.send_event("paid", "/test", "now")
        working.finish.set()
        others.finish.set()
        for handles in (here, there):
            assert await handles[1][0].result(timeout=60) == "now"
            assert await handles[4][0].result(timeout=60) == "done"


class OffsetClock:
    """A clock that is wrong by a fixed offset and does not follow the database, as that of a worker of another release."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> int:
        """The time, with the offset."""
        return time.time_ns() // 1000 + round(self._seconds * MICROS)


async def test_a_dead_worker_whose_beats_are_dated_ahead_is_replaced(database: str) -> None:
    working = Working()
    options: dict[str, Any] = {**OPTIONS, "workflows": [working.workflow], "lease_timeout": 0.5}
    first = App(database, worker_id="first", clock=OffsetClock(HOUR), **options)
    async with asyncio.timeout(60):
        await first.startup()
        handle = await first.start_workflow(working.workflow)
        await working.running.wait()
        await first._die()
        working.finish.set()
        async with App(database, worker_id="second", **options) as second:
            assert await second.get_handle(handle.instance_id).result() == "done"
    assert [worker.partition("/")[0] for _, worker in working.attempts] == ["first", "second"]


class OtherWorker:
    """Maintenance of one app that the test runs by hand, and the row of one other worker."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        assert app._maintenance is not None
        self._maintenance, self._store, self._since = app._maintenance, app._store, 1000.0
        monkeypatch.setattr(maintenance, "monotonic", lambda: self._since)
        self._heartbeat = self._store.heartbeat("other")
        self._beat_at = 0

    async def begin(self, beat_at: int) -> None:
        """Register the other worker."""
        await self._maintenance.stop()
        self._beat_at = beat_at
        await self._store.register_worker(WorkerRow("other", "", "", "host", 1, "3.11", "[]", beat_at, beat_at))

    async def beat(self) -> None:
        """Write a heartbeat of the other worker."""
        self._beat_at += 1
        assert await asyncio.to_thread(self._heartbeat.renew, self._beat_at)

    async def survives_sweep(self, *, after: float = 0.0) -> bool:
        """Run a sweep after this time, and return whether the row of the other worker is still there."""
        self._since += after
        await self._maintenance.sweep()
        return "other" in {row.id for row in await self._store.workers()}

    def close(self) -> None:
        """Close the heartbeat connection."""
        self._heartbeat.close()


@pytest.fixture
async def other_worker(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtherWorker]:
    """A worker with a lease of 30 s, and the row of another worker."""
    async with App(database, workflows=[], lease_timeout=30) as app:
        other_worker = OtherWorker(app, monkeypatch)
        yield other_worker
        other_worker.close()


@pytest.mark.parametrize("offset", [HOUR, 8 * DAY])
async def test_a_beat_that_is_dated_ahead_lasts_no_longer_than_a_lease(other_worker: OtherWorker, offset: float) -> None:
    await other_worker.begin(OffsetClock(offset).now())
    assert await other_worker.survives_sweep()
    assert await other_worker.survives_sweep(after=29)
    await other_worker.beat()
    assert await other_worker.survives_sweep(after=2)
    assert await other_worker.survives_sweep(after=29)
    assert await other_worker.survives_sweep(after=2)  # this sweep makes it a suspect
    assert not await other_worker.survives_sweep(after=1)


async def test_a_worker_that_is_seen_to_beat_is_alive_whatever_date_it_has(other_worker: OtherWorker) -> None:
    await other_worker.begin(OffsetClock(-8 * DAY).now())
    for _ in range(3):
        assert await other_worker.survives_sweep(after=20)
        await other_worker.beat()
    assert await other_worker.survives_sweep(after=1)
    assert await other_worker.survives_sweep(after=1)  # one missed round does not make it a suspect
    assert await other_worker.survives_sweep(after=30)  # this sweep makes it a suspect
    await other_worker.beat()
    assert await other_worker.survives_sweep(after=1)
    assert await other_worker.survives_sweep(after=31)
    assert not await other_worker.survives_sweep(after=1)


async def test_a_worker_that_was_dead_before_is_found_at_once(other_worker: OtherWorker) -> None:
    await other_worker.begin(OffsetClock(-60).now())
    assert await other_worker.survives_sweep()
    assert not await other_worker.survives_sweep(after=1)


async def test_on_a_file_a_date_that_stays_counts_after_a_minute(file: str) -> None:
    """After 60 s, timers follow the new date; timeouts of attempts do not, and nothing is deleted for an hour."""
    machine, working = Machine(), Working()
    workflows = [nap, patient, listener, retrying, short]
    options: dict[str, Any] = {**OPTIONS, "broker": RejectingBroker(), "shutdown_timeout": 0, "instance_retention": 7 * DAY}
    app = App(file, clock=machine.clock(), workflows=[*workflows, working.workflow], **options)
    async with app, started(app, working) as begun:
        await app.send_event("not.awaited", "/test", event_id="kept")
        machine.jump(8 * DAY)
        await run_periodic_tasks(app, machine)
        assert await begun[0][0].status() is Status.WAITING_FOR_TIMER
        machine.let_pass(60)
        await run_periodic_tasks(app, machine)
        assert await begun[0][0].result(timeout=60) == "slept"
        with pytest.raises(WorkflowFailedError, match="EventTimeoutError"):
            await begun[1][0].result(timeout=60)
        await run_periodic_tasks(app, machine)
        assert await begun[4][0].status() is Status.RUNNING
        assert [attempt for attempt, _ in working.attempts] == [1]
        assert (await app.send_event("not.awaited", "/test", event_id="kept")).duplicate
        with pytest.raises(StoreError, match="has jumped within the last hour") as caught:
            await DatabaseManager(app).prune(older_than=DAY)
        assert caught.value.retryable
        assert await begun[5][0].status() is Status.COMPLETED
        working.finish.set()
        assert await begun[4][0].result(timeout=60) == "done"
        machine.let_pass(HOUR)
        await run_periodic_tasks(app, machine)
        assert await app.get_instance(begun[5][0].instance_id) is None
        assert not (await app.send_event("not.awaited", "/test", event_id="kept")).duplicate


async def test_a_client_whose_machine_stood_still_asks_for_the_time(database: str) -> None:
    machine = Machine()
    clock = machine.clock()
    async with Client(database, workflows=[short], clock=clock) as client:
        await client.start_workflow(short)
        if (await client._store.vitals()).skew is None:
            return  # a file has no clock of its own
        at = clock.elapsed()
        clock.follow_server(clock.now() - round(HOUR * MICROS), at, at)  # only the server's clock has gone on
        machine.jump(60)
        machine.let_pass(1.5)
        seen = await client._store.get((await client.start_workflow(short)).instance_id)
        assert seen is not None
        assert abs(seen.row.created_at - time.time_ns() // 1000) > 3000 * MICROS, "written before the correction"
        seen = await client._store.get((await client.start_workflow(short)).instance_id)
        assert seen is not None
        assert abs(seen.row.created_at - time.time_ns() // 1000) < 600 * MICROS
