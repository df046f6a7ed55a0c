"""Measures a channel whose messages several workflows compete for."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from benchmarks.processes.task_entry import perform
from romancy import App, WorkflowContext, receive, subscribe, workflow

CHANNEL = "work"
AT_A_TIME = 100
"""Messages in one generation of a workflow: its history stays short."""


class Progress:
    """Counts the received messages."""

    def __init__(self) -> None:
        self._left = 0
        self._all = asyncio.Event()

    def expect(self, messages: int) -> None:
        """Expect `messages` messages."""
        self._left = messages
        self._all.clear()

    def received(self) -> None:
        """Count a message: the workflow calls this in the line after `receive`."""
        self._left -= 1
        if not self._left:
            self._all.set()

    async def all(self) -> float:
        """Wait for all expected messages; return when the last one came."""
        await self._all.wait()
        return perf_counter()


progress = Progress()


@workflow
async def work(ctx: WorkflowContext) -> None:
    """Receive messages forever."""
    await subscribe(ctx, CHANNEL, "competing")
    for _ in range(AT_A_TIME):
        await receive(ctx, CHANNEL)
        progress.received()
    await ctx.recur()


async def compete(database: str, messages: int, workers: int, senders: int) -> dict[str, Any]:
    """Return messages per second: published without subscribers, received from the pool, and both at once."""
    async with App(database) as app:
        published = await _publish(app, messages, senders)
        progress.expect(messages)
        begin = perf_counter()
        for _ in range(workers):
            await app.start_workflow(work)
        received = await progress.all() - begin
        progress.expect(messages)
        begin = perf_counter()
        _, ended = await asyncio.gather(_publish(app, messages, senders), progress.all())
        both = ended - begin
    return {"publish": messages / published, "receive": messages / received, "both": messages / both}


async def _publish(app: App, messages: int, senders: int) -> float:
    left = iter(range(messages))

    async def some() -> None:
        for number in left:
            await app.publish(CHANNEL, {"number": number})

    begin = perf_counter()
    await asyncio.gather(*(some() for _ in range(senders)))
    return perf_counter() - begin


if __name__ == "__main__":
    perform(compete)
