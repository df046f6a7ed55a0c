"""Machines whose date jumps, beside one whose date is right: what was promised is kept, by the database's time."""

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

LIFE: dict[str, Any] = {"heartbeat_interval": 0.05, "poll_interval": 0.05}


@workflow
async def short(ctx: WorkflowContext) -> None:
    """Says something that its broker refuses, and ends."""
    await send_event(ctx, "said", "/test", None)


@workflow
async def nap(ctx: WorkflowContext) -> str:
    """A timer."""
    await sleep(ctx, 1200)
    return "slept"


@workflow
async def patient(ctx: WorkflowContext) -> Any:
    """A wait for an event."""
    return (await wait_event(ctx, "paid", timeout=600)).data


@workflow
async def listener(ctx: WorkflowContext) -> Any:
    """A wait for a message."""
    await subscribe(ctx, "news")
    return (await receive(ctx, "news", timeout=600)).data


@workflow
async def retrying(ctx: WorkflowContext) -> None:
    """A pause between two attempts."""
    await failing(ctx)


@activity(retry=RetryPolicy(initial_interval=900, max_interval=900))
async def failing(ctx: ActivityContext) -> None:
    """Always."""
    raise ValueError("not yet")


class Working:
    """A workflow whose activity goes on until it is let go."""

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


class Refusing:
    """A broker that takes nothing."""

    name = "refusing"

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def send(self, event: Event) -> None:
        """Not this one."""
        raise EventRejectedError("never")


async def until(app: App, handle: WorkflowHandle[Any], status: Status) -> None:
    while await handle.status() is not status:
        await asyncio.sleep(0)


async def look_again(app: App, machine: Machine | None = None) -> None:
    """Everything that a worker does now and then, is done."""
    worker, finder, maintenance = app._worker, app._claimer, app._maintenance
    assert worker is not None
    assert finder is not None
    assert maintenance is not None
    if machine is not None:
        machine.let_pass(1.5)  # the clock looks for jumps once in a second
    for _ in range(3):
        worker.timers.fire()
        worker.stopwatch.fire()
        looked_at = finder.polled_at
        finder.poll_soon()
        while finder.polled_at == looked_at or not finder.is_idle:
            await asyncio.sleep(0)
        for relay in app._relays:
            await relay._prune()
        await maintenance.round()


@asynccontextmanager
async def started(app: App, working: Working) -> AsyncIterator[list[tuple[WorkflowHandle[Any], Status]]]:
    """One of everything that waits for its time; yields what must not change."""
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
    life: dict[str, Any] = {**LIFE, "broker": Refusing(), "shutdown_timeout": 0}
    life |= dict.fromkeys(("instance_retention", "audit_retention", "outbox_retention"), 7 * DAY)
    flows = [nap, patient, listener, retrying, short]
    astray = App(database, worker_id="astray", clock=machine.clock(), workflows=[*flows, working.workflow], **life)
    right = App(database, worker_id="right", workflows=[*flows, others.workflow], **life)
    async with astray, right, started(astray, working) as here, started(right, others) as there:
        await astray.send_event("nobody.waits", "/test", event_id="kept")
        await astray.publish("nobody.listens", "kept")
        await astray._store.add_audit([AuditRow(0, astray._clock.now(), "ann", "cancel", "a", "")])
        while len(dead := (await right.list_outbox(dead=True)).items) < 3:
            await asyncio.sleep(0)
        known = {row.id for row in await right._store.workers()}
        machine.jump(jump)
        for _ in range(2):
            await look_again(astray, machine)
            await look_again(right)
        for handle, status in [*here, *there]:
            assert await handle.status() is status, handle.instance_id
            assert "lost" not in [line.kind for line in await right.get_journal(handle.instance_id)]
        assert [attempt for attempt, _ in working.attempts + others.attempts] == [1, 1]
        assert (await right.send_event("nobody.waits", "/test", event_id="kept")).duplicate
        assert len(await right._store.audit(instance_id=None, before=None, limit=9)) == 1
        assert (await right.list_outbox(dead=True)).items == dead
        assert {row.id for row in await right._store.workers()} == known
        # What it writes is dated by the database, too.
        begun = time.time_ns() // 1000
        seen = await right._store.get((await astray.start_workflow(short)).instance_id)
        assert seen is not None
        assert abs(seen.row.created_at - begun) < 600 * MICROS
        await right.send_event("paid", "/test", "now")
        working.finish.set()
        others.finish.set()
        for handles in (here, there):
            assert await handles[1][0].result(timeout=60) == "now"
            assert await handles[4][0].result(timeout=60) == "done"


class Off:
    """The clock of a worker that follows no database: of another release, or of a machine with another date."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> int:
        """Wrong."""
        return time.time_ns() // 1000 + round(self._seconds * MICROS)


async def test_a_dead_worker_whose_beats_are_dated_ahead_is_replaced(database: str) -> None:
    working = Working()
    life: dict[str, Any] = {**LIFE, "workflows": [working.workflow], "lease_timeout": 0.5}
    first = App(database, worker_id="first", clock=Off(HOUR), **life)
    async with asyncio.timeout(60):
        await first.startup()
        handle = await first.start_workflow(working.workflow)
        await working.running.wait()
        await first._die()
        working.finish.set()
        async with App(database, worker_id="second", **life) as second:
            assert await second.get_handle(handle.instance_id).result() == "done"
    assert [worker.partition("/")[0] for _, worker in working.attempts] == ["first", "second"]


class Watching:
    """An upkeep that looks at one other worker, when a test wants it to."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        assert app._maintenance is not None
        self._upkeep, self._store, self._since = app._maintenance, app._store, 1000.0
        monkeypatch.setattr(maintenance, "monotonic", lambda: self._since)
        self._pulse = self._store.heartbeat("other")
        self._beat_at = 0

    async def begin(self, beat_at: int) -> None:
        """The other worker begins."""
        await self._upkeep.stop()
        self._beat_at = beat_at
        await self._store.register_worker(WorkerRow("other", "", "", "host", 1, "3.11", "[]", beat_at, beat_at))

    async def beat(self) -> None:
        """The other worker beats."""
        self._beat_at += 1
        assert await asyncio.to_thread(self._pulse.renew, self._beat_at)

    async def sees_it_alive(self, *, after: float = 0.0) -> bool:
        """Whether the other is left alone by what is done in each round."""
        self._since += after
        await self._upkeep.sweep()
        return "other" in {row.id for row in await self._store.workers()}

    def close(self) -> None:
        """No more."""
        self._pulse.close()


@pytest.fixture
async def watching(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watching]:
    """A worker with a lease of 30 s and another beside it."""
    async with App(database, workflows=[], lease_timeout=30) as app:
        watching = Watching(app, monkeypatch)
        yield watching
        watching.close()


@pytest.mark.parametrize("off", [HOUR, 8 * DAY])
async def test_a_beat_that_is_dated_ahead_lasts_no_longer_than_a_lease(watching: Watching, off: float) -> None:
    await watching.begin(Off(off).now())
    assert await watching.sees_it_alive()
    assert await watching.sees_it_alive(after=29)
    await watching.beat()
    assert await watching.sees_it_alive(after=2)
    assert await watching.sees_it_alive(after=29)
    assert await watching.sees_it_alive(after=2)  # now it is suspected
    assert not await watching.sees_it_alive(after=1)


async def test_a_worker_that_is_seen_to_beat_is_alive_whatever_date_it_has(watching: Watching) -> None:
    await watching.begin(Off(-8 * DAY).now())
    for _ in range(3):
        assert await watching.sees_it_alive(after=20)
        await watching.beat()
    assert await watching.sees_it_alive(after=1)
    assert await watching.sees_it_alive(after=1)  # it has missed a round, and no more
    assert await watching.sees_it_alive(after=30)  # now it is suspected
    await watching.beat()
    assert await watching.sees_it_alive(after=1)
    assert await watching.sees_it_alive(after=31)
    assert not await watching.sees_it_alive(after=1)


async def test_a_worker_that_was_dead_before_is_found_at_once(watching: Watching) -> None:
    await watching.begin(Off(-60).now())
    assert await watching.sees_it_alive()
    assert not await watching.sees_it_alive(after=1)


async def test_on_a_file_a_date_that_stays_counts_after_a_minute(file: str) -> None:
    """What was planned follows the date; what takes its time takes it all the same; nothing is deleted for an hour."""
    machine, working = Machine(), Working()
    flows = [nap, patient, listener, retrying, short]
    life: dict[str, Any] = {**LIFE, "broker": Refusing(), "shutdown_timeout": 0, "instance_retention": 7 * DAY}
    app = App(file, clock=machine.clock(), workflows=[*flows, working.workflow], **life)
    async with app, started(app, working) as begun:
        await app.send_event("nobody.waits", "/test", event_id="kept")
        machine.jump(8 * DAY)
        await look_again(app, machine)
        assert await begun[0][0].status() is Status.WAITING_FOR_TIMER
        machine.let_pass(60)
        await look_again(app, machine)
        assert await begun[0][0].result(timeout=60) == "slept"
        with pytest.raises(WorkflowFailedError, match="EventTimeoutError"):
            await begun[1][0].result(timeout=60)
        await look_again(app, machine)
        assert await begun[4][0].status() is Status.RUNNING
        assert [attempt for attempt, _ in working.attempts] == [1]
        assert (await app.send_event("nobody.waits", "/test", event_id="kept")).duplicate
        with pytest.raises(StoreError, match="has jumped within the last hour") as caught:
            await DatabaseManager(app).prune(older_than=DAY)
        assert caught.value.retryable
        assert await begun[5][0].status() is Status.COMPLETED
        working.finish.set()
        assert await begun[4][0].result(timeout=60) == "done"
        machine.let_pass(HOUR)
        await look_again(app, machine)
        assert await app.get_instance(begun[5][0].instance_id) is None
        assert not (await app.send_event("nobody.waits", "/test", event_id="kept")).duplicate


async def test_a_client_whose_machine_stood_still_asks_for_the_time(database: str) -> None:
    machine = Machine()
    clock = machine.clock()
    async with Client(database, workflows=[short], clock=clock) as client:
        await client.start_workflow(short)
        if (await client._store.vitals()).skew is None:
            return  # a file has no clock that one could ask
        at = clock.elapsed()
        clock.follow_server(clock.now() - round(HOUR * MICROS), at, at)  # the server's has gone on, this one has not
        machine.jump(60)
        machine.let_pass(1.5)
        seen = await client._store.get((await client.start_workflow(short)).instance_id)
        assert seen is not None
        assert abs(seen.row.created_at - time.time_ns() // 1000) > 3000 * MICROS, "it was made before"
        seen = await client._store.get((await client.start_workflow(short)).instance_id)
        assert seen is not None
        assert abs(seen.row.created_at - time.time_ns() // 1000) < 600 * MICROS
