"""A worker that was declared dead starts a new incarnation once, even if errors follow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def heartbeat_threads() -> Callable[[], int]:
    """Return how many heartbeat threads the test has started: an app of another test may run in this process."""
    before = set(threading.enumerate())
    return lambda: sum(thread.name == "romancy-heartbeat" for thread in threading.enumerate() if thread not in before)


async def test_a_revival_that_takes_long_happens_once(
    database: str, monkeypatch: pytest.MonkeyPatch, heartbeat_threads: Callable[[], int]
) -> None:
    async with _app(database) as app:
        store, maintenance, worker = app._store, app._maintenance, app._worker
        assert maintenance is not None
        assert worker is not None
        heartbeat_thread, old_name = maintenance._heartbeat_thread, worker.id
        assert heartbeat_thread is not None
        register_worker = store.register_worker

        async def slowly(row: WorkerRow) -> None:
            beats = heartbeat_thread.heartbeats
            await until(lambda: heartbeat_thread.heartbeats > beats + 2, "the old thread sends heartbeats")
            await register_worker(row)

        monkeypatch.setattr(store, "register_worker", slowly)
        databases.execute(database, "DELETE FROM romancy_workers")
        await until(lambda: maintenance._heartbeat_thread is not heartbeat_thread, "there is a new heartbeat thread")
        await until(lambda: heartbeat_threads() == 1, "the old thread has stopped")
        assert databases.execute(database, "SELECT id FROM romancy_workers") == [(worker.id,)]
        assert worker.id != old_name
        handle = await app.start_workflow(count, 1)
        assert await handle.result(timeout=30) == 2
    assert heartbeat_threads() == 0


async def test_a_revival_that_fails_is_tried_again(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _app(database) as app:
        store, worker = app._store, app._worker
        assert worker is not None
        register_worker, failures = store.register_worker, iter(range(2))

        async def at_the_third_time(row: WorkerRow) -> None:
            if next(failures, None) is not None:
                raise StoreError("unavailable")
            await register_worker(row)

        monkeypatch.setattr(store, "register_worker", at_the_third_time)
        databases.execute(database, "DELETE FROM romancy_workers")
        await until(
            lambda: len(databases.execute(database, "SELECT id FROM romancy_workers")) == 1, "the worker is registered"
        )
        handle = await app.start_workflow(count, 1)
        assert await handle.result(timeout=30) == 2


class _SlowHeartbeatConnection:
    """A heartbeat connection whose first call is slow."""

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


async def test_a_slow_heartbeat_is_followed_by_another_at_once(database: str) -> None:
    async with App(database, workflows=[count], heartbeat_interval=0.1) as app:
        worker: Worker | None = app._worker
        assert worker is not None
        connection = _SlowHeartbeatConnection()
        connection.now = worker.clock.now
        heartbeat_thread = HeartbeatThread(worker, connection)
        await asyncio.to_thread(heartbeat_thread._heartbeat)
        assert len(connection.ages) >= 2
        assert connection.ages[0] >= 100_000
        assert connection.ages[-1] < 100_000


def test_the_heartbeat_ends_with_its_event_loop(tmp_path: Path) -> None:
    """Also if the loop was closed before it answered a ping. Otherwise no other worker takes the instances over."""

    async def leave_open() -> HeartbeatThread:
        app = _app(str(tmp_path / "left-open.db"))
        await app.__aenter__()
        assert app._maintenance is not None
        heartbeat_thread = app._maintenance._heartbeat_thread
        assert heartbeat_thread is not None
        heartbeat_thread._on_pong = lambda: None  # type: ignore[method-assign]
        beats = heartbeat_thread.heartbeats
        await until(lambda: heartbeat_thread.heartbeats > beats + 2, "a ping is not answered")
        return heartbeat_thread

    heartbeat_thread = asyncio.run(leave_open())
    heartbeat_thread._thread.join(timeout=60)
    assert not heartbeat_thread._thread.is_alive()
