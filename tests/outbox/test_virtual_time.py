"""The outbox on virtual time: back-off without waiting, and a crash at every step."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.outbox.fake_broker import Desk

from romancy import App, BrokerError, RetryPolicy, StoreError, WorkflowContext, send_event, sleep, workflow
from romancy.brokers import Event
from romancy.testing import TestEnvironment


@workflow
async def sending_workflow(ctx: WorkflowContext) -> str:
    await send_event(ctx, "told", "/shop", {"n": 1}, local=False)
    await sleep(ctx, 1)
    await send_event(ctx, "told", "/shop", {"n": 2})
    return "done"


async def test_a_broker_that_is_away_for_a_day_gets_it_then() -> None:
    async def away(event: Event, nth: int) -> None:
        if environment.now() < start + timedelta(days=1):
            raise BrokerError("closed")

    desk = Desk(away, retry=RetryPolicy(max_attempts=0, max_interval=300))
    async with TestEnvironment(workflows=[sending_workflow], broker=desk) as environment:
        start = environment.now()
        await environment.app.send_event("told", "/shop", event_id="e-1", local=False)
        await environment.advance(timedelta(hours=23))
        assert desk.ids == []
        assert 9 + 23 * 12 - 2 <= desk.times["e-1"] <= 9 + 23 * 12
        await environment.advance(timedelta(hours=2))
        assert desk.ids == ["e-1"]


async def test_the_first_delays_are_those_of_the_policy() -> None:
    at: list[float] = []

    async def never(event: Event, nth: int) -> None:
        at.append((environment.now() - start).total_seconds())
        raise BrokerError("closed", retry_after=60 if nth == 4 else None)

    desk = Desk(never, retry=RetryPolicy(max_attempts=6))
    async with TestEnvironment(workflows=[sending_workflow], broker=desk) as environment:
        start = environment.now()
        await environment.app.send_event("told", "/shop", event_id="e-1", local=False)
        await environment.advance(timedelta(hours=1))
        (dead,) = (await environment.app.list_outbox()).items
    assert at == [0, 1, 3, 7, 67, 83]
    assert (dead.attempts, dead.next_at) == (6, None)


async def test_retry_after_has_a_bound() -> None:
    async def for_ever(event: Event, nth: int) -> None:
        if nth == 1:
            raise BrokerError("closed", retry_after=10**9)

    desk = Desk(for_ever)
    async with TestEnvironment(workflows=[sending_workflow], broker=desk) as environment:
        await environment.app.send_event("told", "/shop", event_id="e-1", local=False)
        await environment.advance(timedelta(hours=2))
    assert desk.ids == ["e-1"]


async def test_old_dead_letters_are_deleted_if_configured() -> None:
    async def never(event: Event, nth: int) -> None:
        raise BrokerError("closed")

    async def left(app: App) -> int:
        return len((await app.list_outbox()).items)

    desk = Desk(never, retry=RetryPolicy.none())
    async with TestEnvironment(workflows=[sending_workflow], broker=desk, outbox_retention=3600) as environment:
        await environment.app.send_event("told", "/shop", event_id="old", local=False)
        await environment.advance(timedelta(minutes=59))
        assert await left(environment.app) == 1
        await environment.advance(timedelta(minutes=2))
        environment.app._relays[0].poll_soon()
        await environment.settle()
        assert await left(environment.app) == 0


@pytest.mark.parametrize("step", range(1, 16))
async def test_a_crash_at_any_step_loses_nothing(step: int) -> None:
    desk = Desk()
    async with TestEnvironment(workflows=[sending_workflow], broker=desk) as environment:
        environment.crash_at_step(step)
        handle = await environment.app.start_workflow(sending_workflow.with_options(instance_id="one")) if step > 2 else None
        if handle is None:
            return await _start_in_spite_of_a_crash(environment, desk)
        assert await handle.result() == "done"
        await environment.advance(timedelta(minutes=5))
        assert (await environment.app.list_outbox()).items == []
    _check_delivered(desk)


async def _start_in_spite_of_a_crash(environment: TestEnvironment, desk: Desk) -> None:
    """The process dies during the start of the workflow, so the caller starts it again."""
    with pytest.raises(StoreError):
        await environment.app.start_workflow(sending_workflow.with_options(instance_id="one"))
    while environment.crashes == 0:
        await environment.settle()
    assert await (await environment.app.start_workflow(sending_workflow.with_options(instance_id="one"))).result() == "done"
    await environment.advance(timedelta(minutes=5))
    _check_delivered(desk)


def _check_delivered(desk: Desk) -> None:
    assert {event.data for event in desk.kept} == {b'{"n":1}', b'{"n":2}'}
    assert len(set(desk.ids)) == 2, "the repetition has the same ids"
