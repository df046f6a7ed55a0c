"""Apps and clients on one database: start, takeover, shutdown."""

import asyncio
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import databases

from romancy import (
    ActivityContext,
    App,
    Client,
    InstanceConflictError,
    InvalidWorkflowStateError,
    LeaseLostError,
    RetryPolicy,
    Status,
    StoreError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowRef,
    WorkflowTerminatedError,
    activity,
    sleep,
    workflow,
)
from romancy.clock import MICROS
from romancy.errors import RomancyError
from romancy.model.admin import AuditRow
from romancy.testing import TestEnvironment
from romancy.worker import maintenance

ELSEWHERE = """
import asyncio, sys
from romancy import App, Client, WorkflowContext, WorkflowFailedError, activity, ActivityContext, workflow

class DeclinedError(Exception):
    pass

@activity
async def double(ctx: ActivityContext, n: int) -> int:
    return 2 * n

@workflow
async def doubled(ctx: WorkflowContext, n: int) -> int:
    if n < 0:
        raise DeclinedError("negative")
    return await double(ctx, n)

async def start(path):
    async with Client(path, workflows=[doubled]) as client:
        handle = await client.start_workflow(doubled.with_options(instance_id="from-elsewhere"), 21)
        print(await handle.result(timeout=20), flush=True)

async def serve(path):
    async with App(path, workflows=[doubled]):
        print("serving", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(globals()[sys.argv[1]](sys.argv[2]))
"""


async def elsewhere(tmp_path: Path, action: str, database: str) -> asyncio.subprocess.Process:
    """Run one action of `ELSEWHERE` in another process."""
    script = tmp_path / "elsewhere.py"
    script.write_text(ELSEWHERE)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, str(script), action, database, stdin=pipe, stdout=pipe)


async def test_a_client_in_another_process_starts_what_this_app_runs(tmp_path: Path, database: str) -> None:
    @activity
    async def double(ctx: ActivityContext, n: int) -> int:
        return 2 * n

    @workflow
    async def doubled(ctx: WorkflowContext, n: int) -> int:
        return await double(ctx, n)

    async with App(database, workflows=[doubled]) as app:
        other = await elsewhere(tmp_path, "start", database)
        told, _ = await other.communicate()
        assert told.strip() == b"42"
        assert await app.get_handle("from-elsewhere").result() == 42


async def test_an_app_in_another_process_runs_what_this_client_starts(tmp_path: Path, database: str) -> None:
    other = await elsewhere(tmp_path, "serve", database)
    assert other.stdout is not None
    assert await other.stdout.readline() == b"serving\n"
    async with Client(database, workflows=[]) as client:
        handle = await client.start_workflow("doubled", n=4)
        assert await handle.result(timeout=20) == 8
        chosen = WorkflowRef("doubled").with_options(instance_id="order-42")
        handle = await client.start_workflow(chosen, n=5)
        assert (handle.instance_id, await handle.result(timeout=20)) == ("order-42", 10)
        assert (await client.start_workflow(chosen, n=5)).instance_id == "order-42"
        with pytest.raises(InstanceConflictError, match="order-42"):
            await client.start_workflow(chosen, n=6)
        failing = await client.start_workflow("doubled", n=-1)
        with pytest.raises(WorkflowFailedError, match="negative") as failed:
            await failing.result(timeout=20)
        assert "DeclinedError" in str(failed.value.__cause__)
    await other.communicate(b"\n")
    assert other.returncode == 0


@workflow
async def nap(ctx: WorkflowContext) -> str:
    await sleep(ctx, 3600)
    return "rested"


class Blocked:
    """A workflow with one activity, which waits until the test sets `finish`."""

    def __init__(self, **options: Any) -> None:
        self.running, self.finish = asyncio.Event(), asyncio.Event()
        self.began: list[str] = []

        @activity(**options)
        async def work(ctx: ActivityContext, name: str) -> str:
            self.began.append(name)
            self.running.set()
            await self.finish.wait()
            return f"{name} done"

        @workflow
        async def job(ctx: WorkflowContext, name: str = "it") -> str:
            return await work(ctx, name)

        self.workflow = job


async def test_result_times_out_and_the_instance_goes_on(database: str) -> None:
    blocked = Blocked()
    async with App(database, workflows=[blocked.workflow]) as app:
        handle = await app.start_workflow(blocked.workflow)
        await blocked.running.wait()
        with pytest.raises(TimeoutError, match=r"did not end within 0\.01 s; it continues"):
            await handle.result(timeout=0.01)
        with pytest.raises(RomancyError):
            await handle.result(timeout=-1)
        blocked.finish.set()
        assert await handle.result(timeout=10) == "it done"


async def test_shutdown_waits_for_running_activities(database: str) -> None:
    blocked = Blocked()
    app = App(database, workflows=[blocked.workflow])
    await app.startup()
    handle = await app.start_workflow(blocked.workflow)
    await blocked.running.wait()
    ending = asyncio.create_task(app.shutdown())
    await asyncio.sleep(0)
    blocked.finish.set()
    await ending
    async with Client(database, workflows=[]) as client:
        assert await client.get_handle(handle.instance_id).result() == "it done"


@pytest.mark.timeout(20)
async def test_shutdown_waits_for_running_activities_also_while_back_offs_run_out(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that comes due during the shutdown is left to the next owner; its timer must not fire again and again."""
    failed = asyncio.Event()

    @activity
    async def slow(ctx: ActivityContext) -> int:
        await failed.wait()
        await asyncio.sleep(0.2)  # longer than the back-off
        return 7

    @activity(retry=RetryPolicy.fixed(1000, 0.05))
    async def fails(ctx: ActivityContext) -> None:
        asyncio.get_running_loop().call_later(0.02, failed.set)  # after the failure was recorded
        raise ConnectionError("busy")

    @workflow
    async def finishing(ctx: WorkflowContext) -> int:
        return await slow(ctx)

    @workflow
    async def failing(ctx: WorkflowContext) -> None:
        await fails(ctx)

    app = App(database, workflows=[finishing, failing], shutdown_timeout=20, block_warning=5)
    await app.startup()
    first = await app.start_workflow(finishing)
    second = await app.start_workflow(failing)
    await failed.wait()
    await app.shutdown()

    async with Client(database, workflows=[finishing, failing]) as client:
        assert (await client.get_result(first.instance_id)).output == 7
        left = await client.get_instance(second.instance_id)
    assert left is not None
    assert left.worker_id is None
    assert "the event loop has been blocked" not in caplog.text


async def test_shutdown_starts_no_activity_that_waits_for_a_slot(database: str) -> None:
    blocked = Blocked()
    async with App(database, workflows=[blocked.workflow], max_concurrent_activities=1) as app:
        await app.start_workflow(blocked.workflow, "first")
        await blocked.running.wait()
        second = await app.start_workflow(blocked.workflow, "second")
        assert app._worker is not None
        while not app._worker.limiter.has_waiters:
            await asyncio.sleep(0)
        ending = asyncio.create_task(app.shutdown())
        await asyncio.sleep(0)
        blocked.finish.set()
        await ending
    assert blocked.began == ["first"]
    async with App(database, workflows=[blocked.workflow]) as app:
        assert await app.get_handle(second.instance_id).result(timeout=10) == "second done"


async def test_shutdown_hands_over_at_once(database: str) -> None:
    blocked = Blocked()
    first = App(database, workflows=[blocked.workflow], shutdown_timeout=0, lease_timeout=3600)
    async with App(database, workflows=[blocked.workflow], lease_timeout=3600) as second:
        await first.startup()
        handle = await first.start_workflow(blocked.workflow)
        await blocked.running.wait()
        await first.shutdown()
        blocked.finish.set()
        assert await second.get_handle(handle.instance_id).result(timeout=10) == "it done"
        lines = await second._store.journal(handle.instance_id)
        assert [line.note.kind for line in lines][:2] == ["released", "claimed"]
    assert blocked.began == ["it", "it"]


async def test_who_waits_for_a_result_is_told_when_the_app_shuts_down(database: str) -> None:
    app = App(database, workflows=[nap])
    await app.startup()
    handle = await app.start_workflow(nap)
    waiting = asyncio.create_task(handle.result())
    while app._results is not None and not app._results.has_waiters:
        await asyncio.sleep(0)
    await app.shutdown()
    with pytest.raises(StoreError, match="shut down"):
        await waiting


async def test_starting_and_stopping_twice_and_again(database: str) -> None:
    others = set(threading.enumerate())
    app = App(database, workflows=[nap])
    await asyncio.gather(app.startup(), app.startup())
    await app.startup()
    await asyncio.gather(app.shutdown(), app.shutdown())
    await app.shutdown()
    async with app:
        handle = await app.start_workflow(nap)
        assert await handle.status() in (Status.RUNNING, Status.WAITING_FOR_TIMER)
    assert not [one for one in threading.enumerate() if one.name.startswith("romancy") and one not in others]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [App, Client])
async def test_use_without_a_start_says_what_to_do(database: str, kind: type[Client], when: str) -> None:
    one = kind(database, workflows=[nap])
    if when == "after":
        async with one:
            pass
    handle = one.get_handle("x")
    for call in (
        one.start_workflow(nap),
        one.get_instance("x"),
        one.list_instances(),
        one.cancel_workflow("x"),
        handle.result(),
    ):
        with pytest.raises(InvalidWorkflowStateError, match=f"This {kind.__name__} is not running: use `async with"):
            await call


async def test_no_more_instances_run_than_allowed_and_all_of_them_get_their_turn() -> None:
    running, most = 0, 0

    @activity
    async def work(ctx: ActivityContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await work(ctx)
        await sleep(ctx, 60)  # all of them are due together
        await work(ctx)

    async with TestEnvironment(workflows=[job], max_concurrent_workflows=2) as env:
        handles = [await env.app.start_workflow(job) for _ in range(12)]
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 20)
    assert most <= 2


async def test_what_found_no_room_is_run_as_soon_as_there_is_some(database: str) -> None:
    @activity
    async def work(ctx: ActivityContext) -> None:
        await asyncio.sleep(0)

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await work(ctx)

    async with App(database, workflows=[job], max_concurrent_workflows=1, poll_interval=3600) as app:
        handles = [await app.start_workflow(job) for _ in range(10)]
        await asyncio.gather(*(handle.result(timeout=10) for handle in handles))


async def test_no_more_attempts_run_than_allowed(database: str) -> None:
    lock = threading.Lock()
    running, most = 0, 0

    @activity
    def work(ctx: ActivityContext, n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1
        return n

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(work(ctx, n) for n in range(20))))

    async with App(database, workflows=[job], max_concurrent_activities=3) as app:
        assert await (await app.start_workflow(job)).result(timeout=20) == sum(range(20))
    assert most == 3


async def test_a_worker_that_was_declared_dead_starts_over_and_its_instance_is_finished_by_another(database: str) -> None:
    blocked = Blocked(retry=RetryPolicy.none())
    async with App(database, workflows=[blocked.workflow], heartbeat_interval=0.02) as first:
        handle = await first.start_workflow(blocked.workflow)
        await blocked.running.wait()
        async with App(database, workflows=[blocked.workflow]) as second:
            assert first._worker is not None
            old = first._worker.id
            freed = 0
            while not freed:  # a heartbeat between the two calls spares the worker
                (row,) = [row for row in await second._store.workers() if row.id == old]
                freed = (await second._store.sweep([(old, row.heartbeat_at)], now=second._clock.now(), limit=10)).freed
            while first._worker.id == old:
                await asyncio.sleep(0)
            blocked.finish.set()
            assert await handle.result(timeout=10) == "it done"
            entries = [entry async for entry in handle.history()]
    assert len(entries) == 1
    assert entries[0].worker_id != old
    assert entries[0].epoch > 1


async def test_a_heartbeat_tells_an_attempt_that_its_instance_was_taken_over(database: str) -> None:
    beating, told = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    @activity
    def work(ctx: ActivityContext) -> str:
        if beating.is_set():
            return "by another"
        beating.set()
        number = 0
        while not told.wait(0.01):
            number += 1
            try:
                ctx.heartbeat(number)
            except BaseException as error:
                raised.append(error)
                told.set()
        return "by the first"

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await work(ctx)

    async with App(database, workflows=[job]) as first, Client(database, workflows=[]) as other:
        handle = await first.start_workflow(job)
        try:
            await asyncio.to_thread(beating.wait, 10)
            assert first._worker is not None
            old = first._worker.id
            (row,) = await other._store.workers()
            assert (await other._store.sweep([(old, row.heartbeat_at)], now=other._clock.now(), limit=10)).freed == 1
            await asyncio.to_thread(told.wait, 10)
        finally:
            told.set()
        assert await handle.result(timeout=10) == "by another"
    assert [type(error) for error in raised] == [LeaseLostError]


async def test_a_blocked_event_loop_is_warned_about_with_the_culprits_stack(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    @activity
    async def blocking(ctx: ActivityContext) -> None:
        time.sleep(0.5)  # noqa: ASYNC251 - the fault itself

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await blocking(ctx)

    async with App(database, workflows=[job], block_warning=0.1) as app:
        await (await app.start_workflow(job)).result(timeout=10)
    (record,) = [record for record in caplog.records if "blocked for" in record.getMessage()]
    assert "time.sleep(0.5)" in record.getMessage()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
async def test_a_loop_that_starts_tasks_eagerly(database: str) -> None:
    @activity
    async def double(ctx: ActivityContext, number: int) -> int:
        return 2 * number

    @workflow
    async def twice_doubled(ctx: WorkflowContext, number: int) -> int:
        return await double(ctx, await double(ctx, number))

    eagerly: Any = vars(asyncio)["eager_task_factory"]
    asyncio.get_running_loop().set_task_factory(eagerly)
    async with App(database, workflows=[twice_doubled]) as app:
        assert await (await app.start_workflow(twice_doubled, 1)).result(timeout=20) == 4


async def test_in_memory_everything_works_but_the_end_of_the_process() -> None:
    @activity
    async def add(ctx: ActivityContext, n: int) -> int:
        return n + 1

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        n = await add(ctx, 1)
        await sleep(ctx, 0.01)
        return await add(ctx, n)

    async with App(":memory:", workflows=[job], cache_size=0) as app:
        handles = [await app.start_workflow(job) for _ in range(10)]
        assert await asyncio.gather(*(handle.result(timeout=10) for handle in handles)) == [3] * 10
        assert len((await app.list_instances(status="completed")).items) == 10


async def test_ended_instances_are_deleted_after_their_retention(database: str) -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> None: ...

    async with App(database, workflows=[job, nap], instance_retention=0, heartbeat_interval=0.02) as app:
        for _ in range(5):
            await app.start_workflow(job)
        staying = await app.start_workflow(nap)
        async with asyncio.timeout(10):
            while len((await app.list_instances()).items) > 1:
                await asyncio.sleep(0)
        assert [one.instance_id for one in (await app.list_instances()).items] == [staying.instance_id]


async def test_who_did_what_is_forgotten_after_its_retention(database: str) -> None:
    async with App(database, workflows=[nap], audit_retention=3600, heartbeat_interval=0.02) as app:
        store, now = app._store, app._clock.now()
        old, young = (AuditRow(0, at, "ann", "cancel", "a", "") for at in (now - 3601 * MICROS, now - 60 * MICROS))
        await store.add_audit([old, young])
        async with asyncio.timeout(10):
            while len(await store.audit(instance_id=None, before=None, limit=9)) > 1:
                await asyncio.sleep(0)
        assert [line.at for line in await store.audit(instance_id=None, before=None, limit=9)] == [young.at]


async def test_what_is_old_is_deleted_a_little_at_a_time_until_it_is_gone(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PRUNE_LIMIT", "_TRIM_LIMIT", "_ROLL_UP_LIMIT"):
        monkeypatch.setattr(maintenance, name, 2)
    monkeypatch.setattr(maintenance, "_ROLL_UP_STEPS", 3)

    @workflow
    async def recurring(ctx: WorkflowContext, left: int) -> None:
        if left == 0:
            await sleep(ctx, timedelta(days=9))
        await ctx.recur(left - 1)

    @workflow
    async def job(ctx: WorkflowContext) -> None: ...

    day = timedelta(days=1)
    settings = ("instance_retention", "archive_retention", "audit_retention", "event_retention")
    retention: dict[str, Any] = dict.fromkeys(settings, day)
    async with TestEnvironment(database, workflows=[recurring, job], **retention) as env:
        app = env.app
        for n in range(5):
            await (await app.start_workflow(job)).result()
            await app.send_event("not.awaited", "/test", n)
            await app._store.add_audit([AuditRow(0, app._clock.now(), "ann", "cancel", f"a{n}", "")])
        recurred = await app.start_workflow(recurring, 5)
        await env.settle()

        async def left() -> list[int]:
            assert app._maintenance is not None
            await app._maintenance.round()
            ended = len((await app.list_instances(status="completed")).items)
            past = [await app.get_instance(recurred.instance_id, generation=n) for n in range(1, 6)]
            actions = await app._store.audit(instance_id=None, before=None, limit=9)
            events = databases.execute(database, "SELECT count(*) FROM romancy_events")
            return [ended, sum(one is not None for one in past), len(actions), events[0][0]]

        await env.advance(60)
        assert await left() == [5, 5, 5, 5]
        await env.advance(2 * day)
        assert await left() == [0, 0, 0, 0]
        minutes = await app._store.minutes(since=0)
        assert sum(one.ended for one in minutes) == 5
        assert await recurred.status() is Status.WAITING_FOR_TIMER


async def test_who_waits_for_an_instance_that_was_deleted_is_told(database: str) -> None:
    async with Client(database, workflows=[nap]) as client, App(database, workflows=[]) as app:
        handle = await client.start_workflow(nap)
        waiting = asyncio.create_task(handle.result(timeout=10))
        while client._results is not None and not client._results.has_waiters:
            await asyncio.sleep(0)
        await app.terminate_workflow(handle.instance_id)
        await app._store.prune_instances(ended_before=app._clock.now() + 1, limit=10)
        with pytest.raises((WorkflowNotFoundError, WorkflowTerminatedError)):
            await waiting


async def test_a_worker_that_cannot_start_over_tries_again(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(row: object) -> None:
        raise StoreError("away")

    async with App(database, workflows=[nap]) as app:
        assert app._worker is not None
        assert app._maintenance is not None
        with monkeypatch.context() as outage:
            outage.setattr(app._store, "register_worker", away)
            await app._maintenance.revive()
        assert "could not start over, will try again: away" in caplog.text
        await app._maintenance.revive()
        assert app._worker.id in [row.id for row in await app._store.workers()]


async def test_a_worker_that_was_declared_dead_sets_nothing_aside_that_it_knows(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App(database, workflows=[nap], poll_interval=60) as app, Client(database, workflows=[nap]) as client:
        assert app._maintenance is not None

        async def no_workers() -> list[Any]:
            return []

        async def due() -> list[tuple[str, str]]:
            return [(nap.name, nap.version)]

        monkeypatch.setattr(app._store, "workers", no_workers)  # as if its own row had been swept too
        monkeypatch.setattr(app._store, "kinds_waiting", due)
        monkeypatch.setattr(app._worker, "options", replace(app._worker.options, lease_timeout=0))  # type: ignore[union-attr]
        monkeypatch.setattr(app._claimer, "poll_soon", lambda: None)
        handle = await client.start_workflow(nap)
        assert await app._maintenance.mark_unrunnable() == 0
        assert await handle.status() != "blocked"
