"""Apps start and stop without leaks, and the next app continues the instances at once."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.databases import Lend

from romancy import ActivityContext, App, StoreError, Workflow, WorkflowContext, activity, sleep, workflow

pytestmark = pytest.mark.chaos


@dataclass
class ActivityState:
    """What the activities of a test have done, and whether they may finish."""

    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_begun(self, count: int) -> None:
        """Wait until this number of activities has begun."""
        async with asyncio.timeout(30):
            while len(self.begun) < count:
                self.changed.clear()
                await self.changed.wait()


activity_state = ActivityState()


@pytest.fixture(autouse=True)
def new_activity_state() -> None:
    activity_state.__init__()  # type: ignore[misc]


@activity
async def act(ctx: ActivityContext, number: int) -> int:
    activity_state.begun.append(ctx.idempotency_key)
    activity_state.changed.set()
    await activity_state.leave.wait()
    activity_state.ended.append(ctx.idempotency_key)
    return number


@activity
def act_in_thread(ctx: ActivityContext, number: int) -> int:
    return number


@workflow
async def steps(ctx: WorkflowContext, number: int) -> int:
    first = await act(ctx, number)
    await sleep(ctx, 0.01)
    return first + await act_in_thread(ctx, number) + await act(ctx, number)


@workflow
async def nap(ctx: WorkflowContext, seconds: float) -> str:
    await sleep(ctx, seconds)
    return "awake"


WORKFLOWS: list[Workflow[..., Any]] = [steps, nap]


@asynccontextmanager
async def running(database: str, **options: float) -> AsyncIterator[App]:
    """An app that never sweeps dead workers, because its lease is an hour."""
    app = App(
        database,
        workflows=WORKFLOWS,
        heartbeat_interval=0.1,
        lease_timeout=3600,
        poll_interval=0.1,
        **options,  # type: ignore[arg-type]
    )
    async with app:
        yield app


@dataclass(frozen=True)
class OpenResources:
    """The resources that this process holds."""

    threads: int
    tasks: int
    files: list[str]
    sockets: int


def open_resources() -> OpenResources:
    gc.collect()
    names = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    targets: list[str] = []
    for name in names:
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    files = sorted(target for target in targets if target.startswith("/") and ".db" in target)
    sockets = sum(target.startswith("socket:") for target in targets)
    return OpenResources(threading.active_count(), len(asyncio.all_tasks()), files, sockets)


async def test_nothing_leaks_when_apps_come_and_go(new_database: Lend) -> None:
    first, database = new_database(), new_database()
    activity_state.leave.set()
    async with running(first) as app:  # creates what is created once in a process
        await (await app.start_workflow(steps, 1)).result(timeout=30)
    before = open_resources()
    for round in range(15):
        async with running(database, cache_size=round % 3) as app:
            handles = await asyncio.gather(*(app.start_workflow(steps, number) for number in range(5)))
            await app.start_workflow(nap, 3600)
            if round % 2:
                await asyncio.gather(*(handle.result(timeout=30) for handle in handles))
    assert open_resources() == before


async def test_nothing_leaks_when_a_start_fails(new_database: Lend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, database = new_database(), new_database()
    async with running(first):
        pass
    before = open_resources()

    async def refuse(self: object, *args: object, **values: object) -> None:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr("romancy.store.sql.store.SqlStore.register_worker", refuse)
        for _ in range(5):
            with pytest.raises(StoreError):
                async with running(database):
                    pass
    (tmp_path / "folder.db").mkdir()
    for _ in range(5):
        with pytest.raises(StoreError):
            async with running(str(tmp_path / "folder.db")):
                pass
    assert open_resources() == before


async def test_shutdown_under_load_hands_everything_over(database: str) -> None:
    async with running(database) as first:
        activity_state.leave.set()
        handles = await asyncio.gather(*(first.start_workflow(steps, number) for number in range(100)))
        ids = [handle.instance_id for handle in handles]
        await activity_state.wait_until_begun(50)
    begun = len(activity_state.begun)
    async with running(database) as second:
        results = await asyncio.gather(*(second.get_handle(id).result(timeout=60) for id in ids))
    assert results == [3 * number for number in range(100)]
    assert begun < 200  # there was work to hand over
    # What had begun could finish, so nothing ran twice.
    assert sorted(activity_state.ended) == sorted(set(activity_state.ended))


async def test_running_activities_finish_before_a_shutdown_ends(database: str) -> None:
    async with running(database) as first:
        handle = await first.start_workflow(steps, 1)
        await activity_state.wait_until_begun(1)
        asyncio.get_running_loop().call_later(0.1, activity_state.leave.set)
    assert len(activity_state.ended) == 1
    async with running(database) as second:
        assert await second.get_handle(handle.instance_id).result(timeout=30) == 3
    assert len(activity_state.begun) == 2


async def test_activities_that_do_not_finish_in_time_run_again_elsewhere(database: str) -> None:
    async with running(database, shutdown_timeout=0) as first:
        handle = await first.start_workflow(steps, 1)
        await activity_state.wait_until_begun(1)
    assert activity_state.ended == []
    activity_state.leave.set()
    async with running(database) as second:
        assert await second.get_handle(handle.instance_id).result(timeout=30) == 3
    assert activity_state.begun[0] == activity_state.begun[1]
    assert len(activity_state.begun) == 3


async def test_attempts_that_wait_for_a_slot_do_not_begin_in_a_shutdown(database: str) -> None:
    async with running(database, max_concurrent_activities=1) as first:
        handles = await asyncio.gather(*(first.start_workflow(steps, number) for number in range(5)))
        await activity_state.wait_until_begun(1)
        asyncio.get_running_loop().call_later(0.1, activity_state.leave.set)
    assert len(activity_state.begun) == 1
    async with running(database) as second:
        results = [await second.get_handle(handle.instance_id).result(timeout=30) for handle in handles]
    assert results == [3 * number for number in range(5)]
    assert len(activity_state.begun) == 10


async def test_a_caller_that_waits_for_a_result_gets_an_error_at_shutdown(database: str) -> None:
    async with running(database) as app:
        handle = await app.start_workflow(nap, 3600)
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
    with pytest.raises(StoreError, match="shut down"):
        await waiting


async def test_stopping_twice_and_starting_again_is_fine(database: str) -> None:
    app = App(database, workflows=WORKFLOWS)
    activity_state.leave.set()
    for number in range(3):
        await app.startup()
        await app.startup()
        handle = await app.start_workflow(steps, number)
        assert await handle.result(timeout=30) == 3 * number
        await app.shutdown()
        await app.shutdown()
