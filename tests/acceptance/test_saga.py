"""Sagas: completed steps are compensated after a failure."""

import asyncio
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    ConfigurationError,
    RetryPolicy,
    Status,
    StoreError,
    TerminalError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowNotCancellableError,
    activity,
    register_compensation,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Trip:
    """A workflow with three bookings that fails at the end; it records the compensations."""

    def __init__(self) -> None:
        self.undone: list[str] = []
        self.keys: list[str] = []

        @activity
        async def book(ctx: ActivityContext, what: str) -> str:
            return f"{what}-ticket"

        @book.compensate
        async def cancel(ctx: ActivityContext, result: str, what: str) -> None:
            self.undone.append(result)
            self.keys.append(ctx.idempotency_key)

        async def apologise(ctx: ActivityContext, to: str, *, politely: bool = False) -> None:
            self.undone.append(f"sorry {to}{' please' * politely}")
            self.keys.append(ctx.idempotency_key)

        @workflow
        async def trip(ctx: WorkflowContext) -> None:
            await asyncio.gather(book(ctx, "car"), book(ctx, "hotel"))
            await register_compensation(ctx, apologise, "Ann", politely=True)
            await sleep(ctx, 60)
            await book(ctx, "flight")
            raise TerminalError("no visa")

        self.workflow = trip


async def failed(handle: WorkflowHandle[Any]) -> BaseException | None:
    """The error with which the instance failed."""
    with pytest.raises(WorkflowFailedError) as raised:
        await asyncio.wait_for(handle.result(), 20)
    return raised.value.__cause__


UNDONE = ["flight-ticket", "sorry Ann please", "hotel-ticket", "car-ticket"]


async def test_the_last_completed_is_undone_first_with_the_result_and_the_same_arguments() -> None:
    trip = Trip()
    async with TestEnvironment(workflows=[trip.workflow], replay_always=True) as env:
        handle = await env.app.start_workflow(trip.workflow)
        assert isinstance(await failed(handle), TerminalError)
        kinds = [(entry.kind, entry.activity_id) async for entry in handle.history()]
        assert await handle.status() is Status.FAILED
    assert trip.undone == UNDONE
    assert kinds[-4:] == [
        ("compensation", "compensate:book:3"),
        ("compensation", "compensate:register_compensation:1"),
        ("compensation", "compensate:book:2"),
        ("compensation", "compensate:book:1"),
    ]


async def test_every_compensation_is_recorded_once_whatever_the_crash_point() -> None:
    crashes, step = 1, 0
    while crashes:
        step += 1
        trip = Trip()
        async with TestEnvironment(workflows=[trip.workflow]) as env:
            env.crash_at_step(step)
            handle = await _start_in_spite_of_a_crash(env.app, trip, env)
            await failed(handle)
            await env.settle()  # a crash may come after the end
            recorded = [entry.activity_id async for entry in handle.history() if entry.kind == "compensation"]
            crashes = env.crashes
        assert len(recorded) == len(set(recorded)) == 4, f"crash at step {step}"
        assert list(dict.fromkeys(trip.undone)) == UNDONE, f"crash at step {step}"
        assert len(trip.undone) <= 5, f"only the compensation in flight may run again: step {step}"
        assert len(set(trip.keys)) == 4, "the repetition has the same idempotency key"
    assert step > 20


async def _start_in_spite_of_a_crash(app: App, trip: Trip, env: TestEnvironment) -> WorkflowHandle[Any]:
    while True:
        try:
            return await app.start_workflow(trip.workflow.with_options(instance_id="trip"))
        except StoreError:
            await env.settle()


async def test_an_error_that_the_workflow_catches_compensates_nothing() -> None:
    undone: list[str] = []

    @activity
    async def book(ctx: ActivityContext) -> None: ...

    @book.compensate
    async def cancel(ctx: ActivityContext) -> None:
        undone.append("book")

    @activity(retry=RetryPolicy.none())
    async def fail(ctx: ActivityContext) -> None:
        raise TerminalError("no")

    @workflow
    async def forgiving(ctx: WorkflowContext) -> str:
        await book(ctx)
        try:
            await fail(ctx)
        except TerminalError:
            return "all the same"
        return "never"

    async with TestEnvironment(workflows=[forgiving]) as env:
        assert await (await env.app.start_workflow(forgiving)).result() == "all the same"
    assert undone == []


async def test_a_failed_activity_is_not_compensated() -> None:
    undone: list[str] = []

    @activity(retry=RetryPolicy.none())
    async def fail(ctx: ActivityContext) -> None:
        raise ValueError("half done")

    @fail.compensate
    async def undo(ctx: ActivityContext) -> None:
        undone.append("fail")

    @workflow
    async def short(ctx: WorkflowContext) -> None:
        await fail(ctx)

    async with TestEnvironment(workflows=[short]) as env:
        await failed(await env.app.start_workflow(short))
    assert undone == []


async def test_a_compensation_is_retried_by_its_own_policy_and_shows_as_compensating_meanwhile() -> None:
    tries: list[tuple[int, float]] = []

    @activity(retry=RetryPolicy.fixed(3, 100))
    async def release(ctx: ActivityContext, room: int) -> None:
        tries.append((ctx.attempt, env.now().timestamp() - begun))
        if ctx.attempt < 3:
            raise ConnectionError("busy")

    @activity(compensation=release)
    async def reserve(ctx: ActivityContext, room: int) -> None: ...

    @workflow
    async def stay(ctx: WorkflowContext) -> None:
        await reserve(ctx, 12)
        raise ValueError("rain")

    async with TestEnvironment(workflows=[stay]) as env:
        begun = env.now().timestamp()
        handle = await env.app.start_workflow(stay)
        await env.settle()
        assert await handle.status() is Status.COMPENSATING
        await env.restart()
        await env.settle()
        assert await handle.status() is Status.COMPENSATING
        with pytest.raises(WorkflowNotCancellableError):
            await handle.cancel()
        assert isinstance(await failed(handle), ValueError)
    assert tries == [(1, 0), (2, 100), (3, 200)]


async def test_a_compensation_that_gives_up_is_recorded_and_the_rest_still_run() -> None:
    undone: list[int] = []

    @activity(retry=RetryPolicy.fixed(2, 1))
    async def undo(ctx: ActivityContext, number: int) -> None:
        undone.append(number)
        if number == 2:
            raise ConnectionError("for ever")

    @activity(compensation=undo)
    async def do(ctx: ActivityContext, number: int) -> None: ...

    @workflow
    async def three(ctx: WorkflowContext) -> None:
        for number in (1, 2, 3):
            await do(ctx, number)
        raise ValueError("the end")

    async with TestEnvironment(workflows=[three]) as env:
        handle = await env.app.start_workflow(three)
        assert str(await failed(handle)) == "the end"
        told = [
            (entry.activity_id, entry.outcome, entry.attempt, entry.error and entry.error.type)
            async for entry in handle.history()
            if entry.kind == "compensation"
        ]
    assert undone == [3, 2, 2, 1]
    assert [line[:3] for line in told] == [
        ("compensate:do:3", "ok", 1),
        ("compensate:do:2", "error", 2),
        ("compensate:do:1", "ok", 1),
    ]


async def test_a_sync_compensation_runs_in_a_thread() -> None:
    undone: list[int] = []

    def undo(ctx: ActivityContext, number: int) -> None:
        undone.append(number)

    @activity(compensation=undo)
    def do(ctx: ActivityContext, number: int) -> None: ...

    @workflow
    async def one(ctx: WorkflowContext) -> None:
        await do(ctx, 1)
        raise ValueError("the end")

    async with TestEnvironment(workflows=[one]) as env:
        await failed(await env.app.start_workflow(one))
    assert undone == [1]


async def test_a_compensation_that_does_not_fit_its_activity_is_refused_when_decorated() -> None:
    async def unfit(ctx: ActivityContext, other: str) -> None: ...

    with pytest.raises(ConfigurationError, match=r"unfit.*cannot compensate activity 'do'"):

        @activity(compensation=unfit)
        async def do(ctx: ActivityContext, number: int) -> None: ...


async def test_a_body_that_fails_with_its_siblings_running_lets_them_be_cancelled_and_undoes_what_stands() -> None:
    undone: list[str] = []
    running = asyncio.Event()

    @activity
    async def book(ctx: ActivityContext, what: str) -> None:
        if what == "slow":
            running.set()
            await asyncio.Event().wait()

    @book.compensate
    async def cancel(ctx: ActivityContext, what: str) -> None:
        undone.append(what)

    @activity
    async def fail(ctx: ActivityContext) -> None:
        await running.wait()
        raise TerminalError("no")

    @workflow
    async def together(ctx: WorkflowContext) -> None:
        await book(ctx, "quick")
        await asyncio.gather(book(ctx, "slow"), fail(ctx))

    async with TestEnvironment(workflows=[together]) as env:
        handle = await env.app.start_workflow(together)
        assert isinstance(await failed(handle), TerminalError)
        outcomes = {entry.activity_id: entry.outcome async for entry in handle.history()}
    assert undone == ["quick"]
    assert outcomes["book:2"] == "cancelled"
