"""Retries, timeouts, and the errors that a workflow sees, on a virtual clock."""

import asyncio
import threading
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    ActivityError,
    ActivityTimeoutError,
    PayloadError,
    RetryExhaustedError,
    RetryPolicy,
    Status,
    TerminalError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class OddError(Exception):
    """An error whose `__init__` does not accept its `args`."""

    def __init__(self, *, order: int, codes: tuple[int, ...]) -> None:
        super().__init__(f"order {order} was refused")
        self.order = order
        self.codes = codes


class HoldingError(Exception):
    """An error with an attribute that cannot be stored."""


class Tries:
    """An activity that fails, and the times of its attempts."""

    def __init__(self, *, times: int = 1000, error: Exception | None = None, **options: Any) -> None:
        self.at: list[float] = []
        self.env: TestEnvironment | None = None
        error = error or ConnectionError("busy")

        @activity(**options)
        async def flaky(ctx: ActivityContext) -> int:
            assert self.env is not None
            self.at.append(self.env.now().timestamp())
            if len(self.at) > times:
                return ctx.attempt
            raise error

        @workflow
        async def job(ctx: WorkflowContext) -> int:
            return await flaky(ctx)

        self.workflow = job

    async def run(self, **options: Any) -> BaseException | int | None:
        """The outcome of the activity: its result, or the error that the workflow saw."""
        async with TestEnvironment(workflows=[self.workflow], **options) as self.env:
            handle = await self.env.app.start_workflow(self.workflow)
            try:
                return await asyncio.wait_for(handle.result(), 20)
            except WorkflowFailedError as error:
                return error.__cause__

    @property
    def delays(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


async def test_the_default_is_five_attempts_1_2_4_and_8_seconds_apart() -> None:
    tries = Tries()
    error = await tries.run()
    assert tries.delays == [1, 2, 4, 8]
    assert isinstance(error, RetryExhaustedError)
    assert error.attempts == 5
    assert isinstance(error.__cause__, ConnectionError)
    assert str(error.__cause__) == "busy"


async def test_no_retry_is_one_attempt_and_exhausted_all_the_same() -> None:
    tries = Tries(retry=RetryPolicy.none())
    error = await tries.run()
    assert isinstance(error, RetryExhaustedError)
    assert (len(tries.at), error.attempts, str(error.__cause__)) == (1, 1, "busy")


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (RetryPolicy.fixed(4, 7), [7, 7, 7]),
        (RetryPolicy.exponential(6, 10, 60), [10, 20, 40, 60, 60]),
        (RetryPolicy(max_attempts=0, initial_interval=1, multiplier=1, max_duration=3), [1, 1, 1]),
        (RetryPolicy(non_retryable=(OSError,)), []),
        (RetryPolicy(retryable=(ValueError,)), []),
    ],
)
async def test_policies(policy: RetryPolicy, delays: list[float]) -> None:
    tries = Tries(retry=policy)
    error = await tries.run()
    assert tries.delays == delays
    assert isinstance(error, RetryExhaustedError if delays else ConnectionError)


async def test_the_apps_policy_is_for_activities_that_say_nothing() -> None:
    silent, outspoken = Tries(), Tries(retry=RetryPolicy.fixed(3, 5))
    await silent.run(default_retry=RetryPolicy.fixed(2, 9))
    await outspoken.run(default_retry=RetryPolicy.fixed(2, 9))
    assert (silent.delays, outspoken.delays) == ([9], [5, 5])


async def test_without_a_limit_it_goes_on_until_it_works() -> None:
    tries = Tries(times=40, retry=RetryPolicy(max_attempts=0, max_interval=3600))
    assert await tries.run() == 41


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_terminal_error_is_never_retried(wrapped: bool) -> None:
    error: Exception = TerminalError("never")
    if wrapped:
        error = RuntimeError("outside")
        error.__cause__ = TerminalError("never")
    tries = Tries(error=error)
    seen = await tries.run()
    assert len(tries.at) == 1
    assert isinstance(seen, TerminalError)
    assert str(seen) == ("outside" if wrapped else "never")


async def test_a_long_backoff_survives_a_restart_with_its_attempt_number_and_holds_no_worker() -> None:
    attempts: list[tuple[int, str]] = []

    @activity(retry=RetryPolicy.fixed(5, 3600))
    async def flaky(ctx: ActivityContext) -> int:
        attempts.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt < 4:
            raise ConnectionError("busy")
        return ctx.attempt

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        return await flaky(ctx)

    @workflow
    async def other(ctx: WorkflowContext) -> str:
        return "ran"

    async with TestEnvironment(workflows=[job, other], max_concurrent_workflows=1) as env:
        before = env.now()
        handle = await env.app.start_workflow(job)
        await env.settle()
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert (found.status, found.worker_id) == (Status.WAITING_FOR_TIMER, None)
        assert [(one.kind, one.activity_id, one.due) for one in found.waiting_for] == [
            ("retry", "flaky:1", before.replace(hour=before.hour + 1))
        ]
        assert await env.app.get_handle((await env.app.start_workflow(other)).instance_id).result() == "ran"
        await env.restart()
        await env.advance(3600)
        await env.restart()
        assert await handle.result() == 4
        assert (env.now() - before).total_seconds() == 3 * 3600
    assert [number for number, _ in attempts] == [1, 2, 3, 4]
    assert len({key for _, key in attempts}) == 1


async def test_an_attempt_over_its_timeout_is_cancelled_and_retried() -> None:
    seen: list[str] = []

    @activity(timeout=30, retry=RetryPolicy.fixed(2, 1))
    async def hang(ctx: ActivityContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(f"attempt {ctx.attempt} at {env.now().timestamp() - begun:g}")
            raise

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await hang(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        begun = env.now().timestamp()
        handle = await env.app.start_workflow(job)
        with pytest.raises(WorkflowFailedError) as failed:
            await handle.result()
    error = failed.value.__cause__
    assert isinstance(error, RetryExhaustedError)
    assert isinstance(error.__cause__, ActivityTimeoutError)
    assert isinstance(error.__cause__, TimeoutError)
    assert seen == ["attempt 1 at 30", "attempt 2 at 61"]


async def test_an_attempt_that_falls_silent_times_out_and_one_that_beats_does_not() -> None:
    beats = 0

    @activity(heartbeat_timeout=10, retry=RetryPolicy.none())
    async def work(ctx: ActivityContext, silent: bool) -> str:
        nonlocal beats
        if silent:
            await asyncio.Event().wait()
        for number in range(5):
            ctx.heartbeat(number)
            beats += 1
            ticked = asyncio.Event()
            assert env.app._worker is not None
            env.app._worker.timers.schedule(env.clock.now() + 8_000_000, ticked.set)
            await ticked.wait()
        return "done"

    @workflow
    async def job(ctx: WorkflowContext, silent: bool) -> str:
        return await work(ctx, silent)

    async with TestEnvironment(workflows=[job]) as env:
        assert await (await env.app.start_workflow(job, False)).result() == "done"
        with pytest.raises(WorkflowFailedError) as failed:
            await (await env.app.start_workflow(job, True)).result()
    error = failed.value.__cause__
    assert isinstance(error, RetryExhaustedError)
    assert isinstance(error.__cause__, ActivityTimeoutError)
    assert beats == 5


async def test_the_last_heartbeat_reaches_the_next_attempt_after_a_failure_and_after_a_crash() -> None:
    seen: list[Any] = []
    beaten = asyncio.Event()

    @activity
    async def copy(ctx: ActivityContext) -> None:
        seen.append((ctx.attempt, ctx.last_heartbeat))
        if len(seen) == 1:
            ctx.heartbeat({"row": 100})
            raise ConnectionError("busy")
        if len(seen) == 2:
            ctx.heartbeat({"row": (200, b"\xff")})
            beaten.set()
            await asyncio.Event().wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await copy(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.advance(1)
        await beaten.wait()
        await env.settle()
        await env.restart()
        await handle.result()
    assert [last for _, last in seen] == [None, {"row": 100}, {"row": (200, b"\xff")}]


async def test_errors_are_the_same_live_and_on_replay() -> None:
    class Local(Exception): ...

    seen: list[list[Any]] = []

    @activity(retry=RetryPolicy.none())
    async def fail(ctx: ActivityContext, how: str) -> None:
        if how == "odd":
            raise OddError(order=7, codes=(1, 2)) from KeyError("k")
        if how == "local":
            raise Local("here only")
        if how == "holding":
            raise HoldingError("the lock", threading.Lock())
        raise ExceptionGroup("both", [ValueError("a"), OSError(2, "no such file", "x.txt")])

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        told: list[Any] = []
        for how in ("odd", "local", "group", "holding"):
            try:
                await fail(ctx, how)
            except RetryExhaustedError as error:
                cause = error.__cause__
                told += [
                    str(error),
                    error.attempts,
                    type(cause),
                    str(cause),
                    vars(cause),
                    repr(cause.__cause__ if cause else 0),
                ]
        seen.append(told)
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.settle()
        await env.restart()
        await handle.result()
    live, replayed = seen
    assert live == replayed
    assert live[1:6] == [1, OddError, "order 7 was refused", {"order": 7, "codes": (1, 2)}, "KeyError('k')"]
    assert live[8] is ActivityError
    assert "Local" in live[9]
    assert "here only" in live[9]
    assert live[20] is HoldingError
    assert live[21].startswith("('the lock', <unlocked _thread.lock object at ")
    assert live[22]["__notes__"] == ["not recorded: args[1], kept as text (a _thread.lock is not plain data)"]
    assert live[14] is ExceptionGroup


async def test_a_sync_activity_that_times_out_keeps_its_slot_and_the_next_attempt_waits_for_its_thread() -> None:
    release = threading.Event()
    log: list[str] = []

    @activity(timeout=5, retry=RetryPolicy.fixed(2, 1))
    def block(ctx: ActivityContext) -> str:
        log.append(f"begin {ctx.attempt}")
        if ctx.attempt == 1:
            release.wait(20)
        log.append(f"end {ctx.attempt}")
        return f"result of {ctx.attempt}"

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await block(ctx)

    async with TestEnvironment(workflows=[job], max_concurrent_activities=2) as env:
        try:
            handle = await env.app.start_workflow(job)
            await env.advance(4)
            assert log == ["begin 1"]
            await env.advance(10)
            assert log == ["begin 1"]
            assert env.app._worker is not None
            assert env.app._worker.limiter.free == 0  # held by the thread and by the waiting attempt
        finally:
            release.set()
        assert await handle.result() == "result of 2"
        await env.settle()
        assert env.app._worker.limiter.free == 2
    assert log == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_an_argument_that_cannot_be_stored_fails_at_once_and_is_named() -> None:
    ran: list[int] = []

    @activity
    async def send(ctx: ActivityContext, to: str, body: Any) -> None:
        ran.append(1)

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await send(ctx, "Ann", {"x": object()})

    async with TestEnvironment(workflows=[job]) as env:
        with pytest.raises(WorkflowFailedError) as failed:
            await (await env.app.start_workflow(job)).result()
    assert isinstance(failed.value.__cause__, PayloadError)
    assert "body" in str(failed.value.__cause__)
    assert "'send'" in str(failed.value.__cause__)
    assert ran == []


async def test_a_heartbeat_in_the_last_moment_does_not_overwrite_how_the_attempt_ended() -> None:
    @activity(retry=RetryPolicy.fixed(3, 3600))
    async def copy(ctx: ActivityContext) -> None:
        ctx.heartbeat({"row": 100})
        raise ConnectionError("busy")

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await copy(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.settle()
        (row,) = await env.app._store.attempts(handle.instance_id, 1)
    assert (row.attempt, row.open) == (1, False)
    assert row.error is not None
    assert row.next_at is not None


@pytest.mark.parametrize("text", ["lone \ud800 surrogate"])
async def test_a_lone_surrogate_is_refused_by_name_wherever_it_comes_from(text: str) -> None:
    ran: list[int] = []

    @activity
    async def echo(ctx: ActivityContext) -> str:
        ran.append(ctx.attempt)
        return text

    @workflow
    async def job(ctx: WorkflowContext, name: str) -> None:
        await echo(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        with pytest.raises(PayloadError, match="name"):
            await env.app.start_workflow(job, text)
        with pytest.raises(WorkflowFailedError) as failed:
            await (await env.app.start_workflow(job, "Ann")).result()
    assert isinstance(failed.value.__cause__, PayloadError)
    assert ran == [1]


async def test_an_activity_that_raises_system_exit_or_cancels_itself_fails_like_any_other() -> None:
    @activity(retry=RetryPolicy.none())
    async def odd(ctx: ActivityContext, how: str) -> None:
        raise SystemExit(3) if how == "exit" else asyncio.CancelledError()

    @workflow
    async def job(ctx: WorkflowContext, how: str) -> str:
        try:
            await odd(ctx, how)
        except RetryExhaustedError as error:
            return type(error.__cause__).__name__
        return "never"

    async with TestEnvironment(workflows=[job], replay_always=True) as env:
        for how in ("exit", "cancel"):
            handle = await env.app.start_workflow(job, how)
            assert await asyncio.wait_for(handle.result(), 10) == "ActivityError"


async def test_a_sync_activity_that_raises_stop_iteration_fails_like_any_other() -> None:
    @activity(retry=RetryPolicy.none())
    def empty(ctx: ActivityContext) -> int:
        nothing: list[int] = []
        return next(iter(nothing))

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        return await empty(ctx)

    async with TestEnvironment(workflows=[job], shutdown_timeout=0) as env:
        with pytest.raises(WorkflowFailedError, match="StopIteration"):
            await asyncio.wait_for((await env.app.start_workflow(job)).result(), 10)


async def test_a_back_off_that_is_due_while_the_worker_goes_is_left_to_the_next_one() -> None:
    running, finish, tried = asyncio.Event(), asyncio.Event(), list[int]()

    @activity
    async def slow(ctx: ActivityContext) -> None:
        running.set()
        await finish.wait()

    @activity(retry=RetryPolicy(initial_interval=0.5))
    async def flaky(ctx: ActivityContext) -> int:
        tried.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("busy")
        return ctx.attempt

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        number, _ = await asyncio.gather(flaky(ctx), slow(ctx))
        return number

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await running.wait()
        await env.settle()
        worker = env.app._worker
        assert worker is not None
        ending = asyncio.create_task(env.app.shutdown())
        while not worker.stopping:
            await asyncio.sleep(0)
        env.clock.move_to(worker.timers.next_due() or 0)
        worker.timers.fire()  # must end although the timer is due again at once
        finish.set()
        await ending
        assert tried == [1]
        await env.app.startup()
        assert await env.app.get_handle(handle.instance_id).result() == 2
