"""A worker that was declared dead starts over once, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from tests import databases
from tests.chaos.worker_processes import until

from romancy import ActivityContext, App, StoreError, WorkflowContext, activity, workflow
from romancy.model.instance import WorkerRow
from romancy.worker.maintenance import HeartbeatThread
from romancy.worker.worker import Worker

pytestmark = pytest.mark.chaos


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:
    return number + 1


@workflow
async def count(ctx: WorkflowContext, number: int) -> int:
    return await add_one(ctx, number)


def _app(database: str) -> App:
    return App(database, workflows=[count], heartbeat_interval=0.05, lease_timeout=0.5, poll_interval=0.05)


def _hearts() -> int:
    return sum(thread.name == "romancy-heartbeat" for thread in threading.enumerate())


async def test_a_revival_that_takes_long_happens_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _app(database) as app:
        store, upkeep, worker = app._store, app._maintenance, app._worker
        assert upkeep is not None
        assert worker is not None
        heart, old_name = upkeep._heartbeat_thread, worker.id
        assert heart is not None
        enlist = store.register_worker

        async def slowly(row: WorkerRow) -> None:
            beats = heart.heartbeats
            await until(lambda: heart.heartbeats > beats + 2, "the old heart beats on")
            await enlist(row)

        monkeypatch.setattr(store, "register_worker", slowly)
        databases.execute(database, "DELETE FROM romancy_workers")
        await until(lambda: upkeep._heartbeat_thread is not heart, "there is a new heart")
        await until(lambda: _hearts() == 1, "the old one has stopped")
        assert databases.execute(database, "SELECT id FROM romancy_workers") == [(worker.id,)]
        assert worker.id != old_name
        handle = await app.start_workflow(count, 1)
        assert await handle.result(timeout=30) == 2
    assert _hearts() == 0


async def test_a_revival_that_fails_is_tried_again(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _app(database) as app:
        store, worker = app._store, app._worker
        assert worker is not None
        enlist, failures = store.register_worker, iter(range(2))

        async def at_the_third_time(row: WorkerRow) -> None:
            if next(failures, None) is not None:
                raise StoreError("away")
            await enlist(row)

        monkeypatch.setattr(store, "register_worker", at_the_third_time)
        databases.execute(database, "DELETE FROM romancy_workers")
        await until(
            lambda: len(databases.execute(database, "SELECT id FROM romancy_workers")) == 1, "it is enlisted at last"
        )
        handle = await app.start_workflow(count, 1)
        assert await handle.result(timeout=30) == 2


class _SlowPulse:
    """A database that lets the first beat wait."""

    def __init__(self) -> None:
        self.ages: list[int] = []
        self.now: Callable[[], int] = lambda: 0

    def renew(self, now: int) -> bool:
        if not self.ages:
            time.sleep(0.2)
        self.ages.append(self.now() - now)
        return True

    def close(self) -> None:
        pass


async def test_a_beat_that_had_to_wait_is_followed_by_another_at_once(database: str) -> None:
    async with App(database, workflows=[count], heartbeat_interval=0.1) as app:
        worker: Worker | None = app._worker
        assert worker is not None
        pulse = _SlowPulse()
        pulse.now = worker.clock.now
        heart = HeartbeatThread(worker, pulse)
        await asyncio.to_thread(heart._heartbeat)
        assert len(pulse.ages) >= 2
        assert pulse.ages[0] >= 100_000
        assert pulse.ages[-1] < 100_000
