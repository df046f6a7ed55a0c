"""The steady load of a soak: so many workflows a second, of every kind, and some that are always there.

    errand     one activity; how long it takes from start to result is measured
    meeting    waits for an event of its own, and sleeps
    trouble    fails, and takes back what it has done
    rounds     hears a message, works, begins anew: these are always there

Some are cancelled while they wait. Some messages and events are for nobody, and are deleted when they are old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
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

ROUNDS = 3
"""How many are always there."""
_BELL, _PILE = "bell", "pile"


@activity
async def work(ctx: ActivityContext, number: int) -> int:
    """Something small."""
    return number + 1


@work.compensate
async def take_back(ctx: ActivityContext, number: int) -> None:
    """The opposite."""


@activity
async def fail(ctx: ActivityContext) -> None:
    """What cannot be helped."""
    raise TerminalError("this one fails")


@workflow
async def errand(ctx: WorkflowContext, number: int) -> int:
    """One activity."""
    return await work(ctx, number)


@workflow
async def meeting(ctx: WorkflowContext, number: int) -> Any:
    """Waits, for an event and for a time."""
    met = await wait_event(ctx, "met", subject=str(number), timeout=60)
    await sleep(ctx, 0.05)
    await publish(ctx, _PILE, number)  # nobody ever takes it
    return met.data


@workflow
async def trouble(ctx: WorkflowContext, number: int) -> None:
    """Fails."""
    await work(ctx, number)
    await fail(ctx)


@workflow
async def rounds(ctx: WorkflowContext, number: int) -> None:
    """For ever."""
    await subscribe(ctx, _BELL, "broadcast")
    await receive(ctx, _BELL)
    await rounds.recur(ctx, await work(ctx, number))


WORKFLOWS: list[Workflow[..., Any]] = [errand, meeting, trouble, rounds]


class Load:
    """Keeps nothing of what it has done but the times since they were last asked for."""

    def __init__(self, app: App, rate: float) -> None:
        self._app = app
        self._rate = rate
        self._took: list[float] = []
        self._ended = 0
        self._numbers = count(1)

    def news(self) -> tuple[list[float], int]:
        """The seconds that errands took since the last time, and how many instances have ended."""
        took, self._took = self._took, []
        ended, self._ended = self._ended, 0
        return took, ended

    async def run(self, over: asyncio.Event) -> None:
        """Until it is over."""
        for number in range(ROUNDS):
            await self._app.start_workflow(rounds.with_options(instance_id=f"rounds-{number}"), 0)
        async with asyncio.TaskGroup() as group:
            began = time.monotonic()
            for number in self._numbers:
                if over.is_set():
                    return
                group.create_task(self._one(number))
                await asyncio.sleep(max(0.0, began + number / self._rate - time.monotonic()))

    def _one(self, number: int) -> Coroutine[Any, Any, None]:
        match number % 10:
            case 0:
                return self._ring(number)
            case 1:
                return self._fail(number)
            case 2:
                return self._cancel(number)
            case 3 | 4 | 5:
                return self._meet(number)
            case _:
                return self._run_errand(number)

    async def _run_errand(self, number: int) -> None:
        began = time.monotonic()
        handle = await self._app.start_workflow(errand, number)
        await handle.result()
        self._took.append(time.monotonic() - began)
        self._ended += 1

    async def _meet(self, number: int) -> None:
        handle = await self._app.start_workflow(meeting, number)
        await self._app.send_event("met", "soak", number, subject=str(number))
        await handle.result()
        self._ended += 1

    async def _fail(self, number: int) -> None:
        handle = await self._app.start_workflow(trouble, number)
        with suppress(WorkflowFailedError):
            await handle.result()
        self._ended += 1

    async def _cancel(self, number: int) -> None:
        handle = await self._app.start_workflow(meeting, number)
        await handle.cancel()
        with suppress(WorkflowCancelledError):
            await handle.result()
        self._ended += 1

    async def _ring(self, number: int) -> None:
        await self._app.publish(_BELL, number)
        await self._app.send_event("unheard", "soak", number)
