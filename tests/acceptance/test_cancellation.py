"""Cancellation of instances from outside, and of single operations from workflow code."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    Client,
    RetryPolicy,
    Status,
    StoreError,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowHandle,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
    activity,
    sleep,
    workflow,
)
from romancy.model.history import Kind
from romancy.model.instance import Inbox
from romancy.model.transition import Write, WriteResult
from romancy.store.sql.store import SqlStore
from romancy.testing import TestEnvironment
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.runner.state import ItemArrived

pytestmark = pytest.mark.usefixtures("everywhere")


async def cancelled(handle: WorkflowHandle[Any]) -> str:
    """Check that the instance ends as cancelled, and return the message."""
    with pytest.raises(WorkflowCancelledError) as raised:
        await asyncio.wait_for(handle.result(), 60)
    assert await handle.status() is Status.CANCELLED
    return str(raised.value)


@activity
async def tidy(ctx: ActivityContext) -> str:
    return "tidied"


@workflow
async def nap(ctx: WorkflowContext) -> str:
    await sleep(ctx, 3600)
    return "rested"


async def _is_recorded(store: SqlStore, instance_id: str) -> bool:
    loaded = await store.load(instance_id)
    return loaded is not None and any(entry.kind is Kind.CANCEL for entry in loaded.history)


async def test_a_cancellation_that_is_read_twice_cancels_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, read, commit = InstanceRunner._apply_inbox, SqlStore.inbox, SqlStore.commit
    begun, second_read, came_late, end = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    def apply_and_reread(self: InstanceRunner, inbox: Inbox) -> None:
        apply(self, inbox)
        if inbox.items and not second_read.is_set():
            self.inbox.must_reread = False
            monkeypatch.setattr(SqlStore, "inbox", read_late)
            monkeypatch.setattr(SqlStore, "commit", commit_then)
            self.handle(ItemArrived())  # as if another inbox item had arrived

    async def commit_then(self: SqlStore, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        await second_read.wait()
        return await commit(self, batch)

    async def read_late(self: SqlStore, instance_id: str) -> Inbox:
        inbox = await read(self, instance_id)
        if second_read.is_set():
            return inbox
        assert [item.kind for item in inbox.items] == ["cancel"]
        second_read.set()
        while not await _is_recorded(self, instance_id):
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(0.1, came_late.set)
        return inbox

    @activity
    async def stay(ctx: ActivityContext) -> None:
        begun.set()
        await end.wait()

    @activity
    async def sweep(ctx: ActivityContext) -> str:
        await end.wait()
        return "swept"

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        try:
            await stay(ctx)
        finally:
            await sweep(ctx)

    async with App(database, workflows=[job]) as app:
        handle = await app.start_workflow(job)
        await begun.wait()
        monkeypatch.setattr(InstanceRunner, "_apply_inbox", apply_and_reread)
        await handle.cancel()
        await asyncio.wait_for(came_late.wait(), 60)
        end.set()
        await cancelled(handle)
        assert sorted([entry.activity_id async for entry in handle.history()]) == ["cancel", "stay:1", "sweep:1"]


async def test_a_pending_instance_never_begins(database: str) -> None:
    begun: list[str] = []

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        begun.append(ctx.instance_id)
        await tidy(ctx)

    async with Client(database, workflows=[job]) as client:
        handle = await client.start_workflow(job)
        await handle.cancel("changed my mind")
        assert await handle.status() is Status.PENDING
    async with TestEnvironment(database, workflows=[job]) as env:
        handle = env.app.get_handle(handle.instance_id)
        assert "changed my mind" in await cancelled(handle)
        assert [entry.kind async for entry in handle.history() if entry.kind == "activity"] == []


async def test_a_sleeping_instance_is_cancelled_at_once() -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        before = env.now()
        handle = await env.app.start_workflow(nap)
        await env.settle()
        await handle.cancel("enough")
        assert (await cancelled(handle)).endswith("was cancelled: enough.")
        assert env.now() == before
        found = await env.app.get_result(handle.instance_id)
        assert found.error is not None
        assert found.error.message == "enough"


async def test_a_sleeping_instance_is_cancelled_by_another_process(database: str) -> None:
    async with App(database, workflows=[nap]) as app, Client(database, workflows=[]) as other:
        handle = await app.start_workflow(nap)
        while await handle.status() is not Status.WAITING_FOR_TIMER:
            await asyncio.sleep(0)
        await other.cancel_workflow(handle.instance_id)
        await cancelled(handle)


async def test_a_running_instance_is_cancelled_by_another_process(database: str) -> None:
    running, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def work(ctx: ActivityContext) -> None:
        running.set()
        await finish.wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await work(ctx)
        await sleep(ctx, 3600)

    async with App(database, workflows=[job]) as app, Client(database, workflows=[]) as other:
        handle = await app.start_workflow(job)
        await running.wait()
        await other.cancel_workflow(handle.instance_id)
        finish.set()
        await cancelled(handle)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_body_that_ends_before_it_knows_is_cancelled_all_the_same(database: str, fails: bool) -> None:
    undone: list[str] = []

    @activity
    async def do(ctx: ActivityContext) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext) -> None:
        undone.append(ctx.instance_id)

    async with Client(database, workflows=[]) as elsewhere:

        @activity
        async def be_cancelled(ctx: ActivityContext) -> None:
            await elsewhere.cancel_workflow(ctx.instance_id, "at the last moment")

        @workflow
        async def job(ctx: WorkflowContext) -> str:
            await do(ctx)
            await be_cancelled(ctx)
            if fails:
                raise ValueError("its own end")
            return "its own end"

        async with App(database, workflows=[job]) as app:
            handle = await app.start_workflow(job)
            assert "at the last moment" in await cancelled(handle)
            assert undone == [handle.instance_id]


async def test_a_body_that_has_timed_out_is_cancelled_all_the_same() -> None:
    tidying = asyncio.Event()

    @activity
    async def tidy_slowly(ctx: ActivityContext) -> None:
        tidying.set()
        await asyncio.sleep(0.1)

    @workflow(timeout=0.05)
    async def job(ctx: WorkflowContext) -> None:
        try:
            await sleep(ctx, 3600)
        finally:
            await tidy_slowly(ctx)

    async with App(":memory:", workflows=[job]) as app:
        handle = await app.start_workflow(job)
        await asyncio.wait_for(tidying.wait(), 10)
        await handle.cancel("too late for both")
        assert "too late for both" in await cancelled(handle)


async def test_during_a_backoff_no_attempt_starts_anew() -> None:
    attempts: list[int] = []

    @activity(retry=RetryPolicy.fixed(5, 100))
    async def flaky(ctx: ActivityContext) -> None:
        attempts.append(ctx.attempt)
        raise ConnectionError("busy")

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await flaky(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.advance(150)
        await handle.cancel()
        await cancelled(handle)
        await env.advance(1000)
    assert attempts == [1, 2]


async def test_an_attempt_that_waits_for_a_slot_does_not_start_any_more() -> None:
    started: list[str] = []
    running, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def work(ctx: ActivityContext, name: str) -> None:
        started.append(name)
        running.set()
        await finish.wait()

    @workflow
    async def job(ctx: WorkflowContext, name: str) -> None:
        await work(ctx, name)

    async with TestEnvironment(workflows=[job], max_concurrent_activities=1) as env:
        first = await env.app.start_workflow(job, "first")
        await running.wait()
        second = await env.app.start_workflow(job, "second")
        await env.settle()
        await second.cancel()
        await cancelled(second)
        finish.set()
        await first.result()
    assert started == ["first"]


async def test_a_failing_attempt_is_not_retried_after_the_request() -> None:
    running, finish = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @activity
    async def work(ctx: ActivityContext) -> None:
        attempts.append(ctx.attempt)
        running.set()
        await finish.wait()
        raise ConnectionError("busy")

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await work(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await running.wait()
        await handle.cancel()
        await env.settle()  # the run has received the cancellation
        finish.set()
        await cancelled(handle)
        assert [entry.outcome async for entry in handle.history() if entry.kind == "activity"] == ["error"]
    assert attempts == [1]


async def test_a_running_attempt_is_bounded_by_its_timeout_after_the_request() -> None:
    running = asyncio.Event()

    @activity(timeout=60)
    async def work(ctx: ActivityContext) -> None:
        running.set()
        await asyncio.Event().wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await work(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await running.wait()
        await handle.cancel()
        await cancelled(handle)


async def test_finally_blocks_run_activities_and_whatever_the_body_does_it_ends_cancelled() -> None:
    @workflow
    async def stubborn(ctx: WorkflowContext) -> str:
        try:
            await sleep(ctx, 3600)
        except asyncio.CancelledError:
            pass
        finally:
            await tidy(ctx)
            await sleep(ctx, 10)
        return "I do not care"

    async with TestEnvironment(workflows=[stubborn], replay_always=True) as env:
        handle = await env.app.start_workflow(stubborn)
        await env.settle()
        await handle.cancel()
        await env.settle()
        assert await handle.status() is Status.WAITING_FOR_TIMER
        await handle.cancel()  # once more, during the cancellation
        await env.restart()
        await handle.cancel()
        await cancelled(handle)
        assert [entry.name async for entry in handle.history()] == ["cancel", "tidy", "sleep"]


async def test_a_body_that_raises_another_error_when_cancelled_is_cancelled_all_the_same() -> None:
    @workflow
    async def rude(ctx: WorkflowContext) -> None:
        try:
            await sleep(ctx, 3600)
        finally:
            raise ValueError("rude")

    async with TestEnvironment(workflows=[rude]) as env:
        handle = await env.app.start_workflow(rude)
        await env.settle()
        await handle.cancel()
        await cancelled(handle)


async def test_it_may_be_asked_again_while_compensating_and_is_refused_after_the_end() -> None:
    undoing, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def do(ctx: ActivityContext) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext) -> None:
        undoing.set()
        await finish.wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await do(ctx)
        await sleep(ctx, 3600)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.settle()
        await handle.cancel()
        await undoing.wait()
        assert await handle.status() is Status.COMPENSATING
        await handle.cancel()
        finish.set()
        await cancelled(handle)
        with pytest.raises(WorkflowNotCancellableError, match="cancelled"):
            await handle.cancel()
        done = await env.app.start_workflow(job)
        await done.result()
        with pytest.raises(WorkflowNotCancellableError, match="completed"):
            await done.cancel()
        with pytest.raises(WorkflowNotFoundError, match="unknown"):
            await env.app.cancel_workflow("unknown")


async def test_a_request_survives_any_crash() -> None:
    undone: list[str] = []

    @activity
    async def do(ctx: ActivityContext) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext) -> None:
        undone.append(ctx.idempotency_key)

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await do(ctx)
        try:
            await sleep(ctx, 3600)
        finally:
            await tidy(ctx)

    crashes, step = 1, 0
    while crashes:
        step += 1
        undone.clear()
        async with TestEnvironment(workflows=[job]) as env:
            handle = await env.app.start_workflow(job)
            await env.settle()
            env.crash_at_step(step + 2)  # the request takes the first two steps
            await handle.cancel()
            with pytest.raises(WorkflowCancelledError):
                await handle.result()
            await env.settle()  # after a crash behind the end, another process starts
            await cancelled(handle)
            crashes = env.crashes
        assert len(set(undone)) == 1, f"crash at step {step}"
    assert step > 6


async def test_inside_asyncio_timeout_cancels_the_activity_which_is_neither_retried_nor_compensated() -> None:
    seen: list[str] = []

    @activity
    async def hang(ctx: ActivityContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(f"cancelled in attempt {ctx.attempt}")
            raise

    @hang.compensate
    async def undo(ctx: ActivityContext) -> None:
        seen.append("undone")

    @workflow
    async def impatient(ctx: WorkflowContext) -> None:
        try:
            async with asyncio.timeout(5):
                await hang(ctx)
        except TimeoutError:
            await tidy(ctx)
        await sleep(ctx, 100)
        raise asyncio.CancelledError

    async with TestEnvironment(workflows=[impatient]) as env:
        handle = await env.app.start_workflow(impatient)
        await env.advance(50)
        await env.restart()
        await env.advance(100)
        assert await handle.status() is Status.FAILED
        entries = [(entry.activity_id, entry.outcome) async for entry in handle.history()]
    assert seen == ["cancelled in attempt 1"]
    assert ("hang:1", "cancelled") in entries
    assert ("tidy:1", "ok") in entries


async def test_a_completion_that_came_before_the_inner_cancellation_stands() -> None:
    undone: list[str] = []
    running = asyncio.Event()

    @activity
    async def stubborn(ctx: ActivityContext) -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    @stubborn.compensate
    async def undo(ctx: ActivityContext, result: str) -> None:
        undone.append(result)

    @workflow
    async def impatient(ctx: WorkflowContext) -> None:
        try:
            async with asyncio.timeout(5):
                await stubborn(ctx)
        except TimeoutError:
            await sleep(ctx, 10)
        raise ValueError("no")

    async with TestEnvironment(workflows=[impatient]) as env:
        handle = await env.app.start_workflow(impatient)
        await running.wait()
        await env.advance(6)
        await env.restart()
        await env.advance(60)
        assert await handle.status() is Status.FAILED
    assert undone == ["done all the same"]


async def test_a_heartbeat_raises_in_an_activity_that_was_cancelled_from_inside() -> None:
    beating, told = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    @activity
    def work(ctx: ActivityContext) -> None:
        beating.set()
        while not told.wait(0.002):
            try:
                ctx.heartbeat()
            except BaseException as error:
                raised.append(error)
                told.set()
                raise

    @workflow
    async def impatient(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(5):
                await work(ctx)
        except TimeoutError:
            return "went on"
        return "never"

    async with TestEnvironment(workflows=[impatient]) as env:
        handle = await env.app.start_workflow(impatient)
        try:
            assert await asyncio.wait_for(handle.result(), 60) == "went on"
            await asyncio.to_thread(told.wait, 10)
        finally:
            told.set()
    assert [type(error) for error in raised] == [asyncio.CancelledError]
