"""A process that gets no more threads: a call that cannot begin waits or fails, and is never made later."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.thread_pool import ThreadPool
from romancy.worker.maintenance import HeartbeatThread


class Shortage:
    """While it lasts, no thread with this prefix in its name can be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.lasts = True
        self.refused = asyncio.Event()
        self._name = name
        start = threading.Thread.start

        def start_unless_short(thread: threading.Thread) -> None:
            if self.lasts and thread.name.startswith(name):
                self.refused.set()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_unless_short)


def occupied(threads: ThreadPool) -> Callable[[], None]:
    """Keep one thread of the pool busy until the returned function is called."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait()

    threads.submit(work)
    begun.wait()
    return over.set


def test_a_call_that_could_not_be_begun_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    with ThreadPool(2, "pool") as threads:
        let_go = occupied(threads)
        shortage = Shortage(monkeypatch, "pool")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.submit(made.append, "refused")
        let_go()
        shortage.lasts = False
        threads.submit(made.append, "taken").result()
    assert made == ["taken"]


def test_what_was_prepared_for_is_taken_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPool(2, "pool") as threads:
        let_go = occupied(threads)
        threads.prepare()
        Shortage(monkeypatch, "pool")
        assert threads.submit(str, 1).result() == "1"
        let_go()


def test_a_call_that_is_cancelled_before_its_turn_is_never_made() -> None:
    made: list[str] = []
    with ThreadPool(1, "pool") as threads:
        let_go = occupied(threads)
        early, late = threads.submit(made.append, "cancelled"), threads.submit(made.append, "made")
        early.cancel()
        let_go()
        late.result()
        assert threads.submit(str, 2).result() == "2"
    assert made == ["made"]


def test_what_waits_when_the_pool_is_closed_is_made_or_cancelled() -> None:
    for cancel in (False, True):
        made: list[str] = []
        threads = ThreadPool(1, "pool")
        let_go = occupied(threads)
        waiting = threads.submit(made.append, "waited")
        threads.shutdown(wait=False, cancel_futures=cancel)
        let_go()
        threads.shutdown()
        assert (waiting.cancelled(), made) == (cancel, [] if cancel else ["waited"])
        with pytest.raises(RuntimeError, match="closed"):
            threads.submit(made.append, "late")


def test_a_process_ends_when_its_calls_have_ended() -> None:
    """This holds for a pool that was not closed; its idle threads do not keep the process alive."""
    end = "import sys, threading\nfrom romancy.thread_pool import ThreadPool\n"
    end += "pool, go_on = ThreadPool(2, 'pool'), threading.Event()\n"
    work = "pool.submit(str).result()\npool.submit(lambda: (go_on.wait(), print('made')))\nprint('over')\n"
    late = "threading.Thread(target=lambda: (threading.main_thread().join(), go_on.set())).start()\n"
    done = subprocess.run([sys.executable, "-c", end + work + late], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "over\nmade\n"


async def test_an_activity_waits_for_a_thread_and_has_not_begun(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, int]] = []
    busy, over = asyncio.Event(), threading.Event()

    @activity
    def first(ctx: ActivityContext) -> None:
        begun.append(("first", ctx.attempt))
        loop.call_soon_threadsafe(busy.set)
        over.wait()

    @activity
    def second(ctx: ActivityContext) -> None:
        begun.append(("second", ctx.attempt))

    @workflow
    async def one(ctx: WorkflowContext) -> None:
        await first(ctx)

    @workflow
    async def two(ctx: WorkflowContext) -> None:
        await second(ctx)

    loop = asyncio.get_running_loop()
    async with App(file, workflows=[one, two]) as app:
        before = await app.start_workflow(one)
        await busy.wait()
        shortage = Shortage(monkeypatch, "romancy-activity")
        after = await app.start_workflow(two)
        await shortage.refused.wait()
        assert begun == [("first", 1)]
        over.set()  # frees the only thread; no other can be started
        await before.result()
        await after.result()
        assert await app.get_attempts(after.instance_id) == []
    assert begun == [("first", 1), ("second", 1)]


async def test_an_activity_that_waits_for_a_thread_can_be_cancelled(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    @activity
    def work(ctx: ActivityContext) -> None:
        begun.append("work")

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        pending = asyncio.ensure_future(work(ctx))
        try:
            await asyncio.wait_for(pending, 0.01)
        except TimeoutError:
            return "gave up"
        return "done"

    async with App(file, workflows=[job], max_concurrent_activities=1) as app:
        shortage = Shortage(monkeypatch, "romancy-activity")
        assert await (await app.start_workflow(job)).result() == "gave up"
        shortage.lasts = False
        assert app._worker is not None
        assert app._worker.limiter.free == 1
    assert begun == []


async def test_an_app_that_gets_no_thread_says_so_and_leaves_nothing_open(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("romancy-heartbeat", "romancy-sqlite-reader"):
        shortage = Shortage(monkeypatch, name)
        before = threading.active_count()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await App(file, workflows=[]).startup()
        assert threading.active_count() <= before
        shortage.lasts = False
    async with App(file, workflows=[]):
        pass


async def test_a_worker_that_gets_no_thread_for_its_new_heart_asks_again(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(file, workflows=[], heartbeat_interval=0.05, lease_timeout=1) as app:
        assert app._maintenance is not None
        assert app._worker is not None
        old: HeartbeatThread | None = app._maintenance._heartbeat_thread
        shortage = Shortage(monkeypatch, "romancy-heartbeat")
        await app._store.release(app._worker.id, now=app._store.now())  # deletes the worker's row
        await shortage.refused.wait()
        assert app._maintenance._heartbeat_thread is old
        shortage.lasts = False
        while app._maintenance._heartbeat_thread is old:
            await asyncio.sleep(0)
        assert app._worker.id in [row.id for row in await app._store.workers()]
