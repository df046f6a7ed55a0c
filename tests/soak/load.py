"""The steady load of a soak: waves of workflows of every kind at a fixed rate, and some that recur for ever.

    one_activity         runs one activity; the time from start to result is measured
    wait_and_sleep       waits for its own event and for a timer
    fail_and_compensate  fails and compensates
    recurring            receives a message, runs an activity and recurs

Some instances are cancelled while they wait. Some messages and events have no recipient and are deleted by retention.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count, islice
from typing import Any

from romancy import (
    ActivityContext,
    App,
    TerminalError,
    Workflow,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    publish,
    receive,
    sleep,
    subscribe,
    wait_event,
    workflow,
)

RECURRING = 3
"""The number of instances of `recurring`."""
_ROUND_CHANNEL, _UNREAD_CHANNEL = "rounds", "unread"


@activity
async def work(ctx: ActivityContext, number: int) -> int:
    """A small activity."""
    return number + 1


@work.compensate
async def take_back(ctx: ActivityContext, number: int) -> None:
    """Compensate `work`."""


@activity
async def fail(ctx: ActivityContext) -> None:
    """Fail without retries."""
    raise TerminalError("planned")


@workflow
async def one_activity(ctx: WorkflowContext, number: int) -> int:
    """Run one activity."""
    return await work(ctx, number)


@workflow
async def wait_and_sleep(ctx: WorkflowContext, number: int) -> Any:
    """Wait for an event and for a timer."""
    event = await wait_event(ctx, "go", subject=str(number), timeout=60)
    await sleep(ctx, 0.05)
    await publish(ctx, _UNREAD_CHANNEL, number)  # no instance receives it
    return event.data


@workflow
async def fail_and_compensate(ctx: WorkflowContext, number: int) -> None:
    """Fail and compensate."""
    await work(ctx, number)
    await fail(ctx)


@workflow
async def recurring(ctx: WorkflowContext, number: int) -> None:
    """Receive a message and recur, without an end."""
    await subscribe(ctx, _ROUND_CHANNEL, "broadcast")
    await receive(ctx, _ROUND_CHANNEL)
    await recurring.recur(ctx, await work(ctx, number))


WORKFLOWS: list[Workflow[..., Any]] = [one_activity, wait_and_sleep, fail_and_compensate, recurring]


class Load:
    """Generates the load and measures the time of `one_activity` since the last sample."""

    def __init__(self, app: App, rate: float) -> None:
        self._app = app
        self._rate = rate
        self._took: list[float] = []
        self._ended = 0
        self._numbers = count(1)

    def take_measurements(self) -> tuple[list[float], int]:
        """The seconds that instances of `one_activity` took since the last call, and the number of instances that ended."""
        took, self._took = self._took, []
        ended, self._ended = self._ended, 0
        return took, ended

    async def begin(self) -> None:
        """Start the instances that recur for ever."""
        for number in range(RECURRING):
            await self._app.start_workflow(recurring.with_options(instance_id=f"recurring-{number}"), 0)

    async def run_wave(self, size: int) -> None:
        """Start so many units at the rate of the load, and wait until all have ended."""
        async with asyncio.TaskGroup() as group:
            began = time.monotonic()
            for place, number in enumerate(islice(self._numbers, size)):
                group.create_task(self._one(number))
                await asyncio.sleep(max(0.0, began + place / self._rate - time.monotonic()))

    def _one(self, number: int) -> Coroutine[Any, Any, None]:
        match number % 10:
            case 0:
                return self._publish_round(number)
            case 1:
                return self._fail(number)
            case 2:
                return self._cancel(number)
            case 3 | 4 | 5:
                return self._send_awaited_event(number)
            case _:
                return self._run_one_activity(number)

    async def _run_one_activity(self, number: int) -> None:
        began = time.monotonic()
        handle = await self._app.start_workflow(one_activity, number)
        await handle.result()
        self._took.append(time.monotonic() - began)
        self._ended += 1

    async def _send_awaited_event(self, number: int) -> None:
        handle = await self._app.start_workflow(wait_and_sleep, number)
        await self._app.send_event("go", "soak", number, subject=str(number))
        await handle.result()
        self._ended += 1

    async def _fail(self, number: int) -> None:
        handle = await self._app.start_workflow(fail_and_compensate, number)
        with suppress(WorkflowFailedError):
            await handle.result()
        self._ended += 1

    async def _cancel(self, number: int) -> None:
        handle = await self._app.start_workflow(wait_and_sleep, number)
        await handle.cancel()
        with suppress(WorkflowCancelledError):
            await handle.result()
        self._ended += 1

    async def _publish_round(self, number: int) -> None:
        await self._app.publish(_ROUND_CHANNEL, number)
        await self._app.send_event("unmatched", "soak", number)
