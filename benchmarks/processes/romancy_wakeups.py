"""Measures how romancy wakes a workflow: from an event to the line after the wait."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.processes.http_sender import connected, serving
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import Send, WakeupLog, burst, latencies
from romancy import App, Client, WorkflowContext, wait_event, workflow
from romancy.store.sqlite import connection as connections

PAUSE = (0.01, 0.05)
IDLE_OPTIONS = {"poll_interval": 3600, "heartbeat_interval": 600, "lease_timeout": 3600}
"""Options of an app without regular work."""

wakeups = WakeupLog()
executed: Counter[str] = Counter()
"""The executed statements, if they are counted."""
until_woken: list[dict[str, int]] = []


@workflow
async def watch(ctx: WorkflowContext, name: str) -> None:
    """Wait for one event."""
    await wait_event(ctx, "wakeup", subject=name)
    wakeups.woke(name)
    until_woken.append(dict(executed))  # here: a little later the writes of the workflow's end would be counted too


class Waiting:
    """Starts workflows, and returns when all of them wait."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, names: Sequence[str]) -> None:
        handles = [await self._app.start_workflow(watch, name) for name in names]
        for handle in handles:
            while await handle.status() != "waiting_for_event":
                await asyncio.sleep(0.002)


@asynccontextmanager
async def opened(database: str, way: str, senders: int) -> AsyncIterator[tuple[App, list[Send]]]:
    """Run an app, with senders that reach it over HTTP, by a call, or from another client of the file."""
    app = App(database, cache_size=0 if way == "cold" else 1000)
    if way in ("http", "cold"):
        async with serving(app) as port, connected(port, senders) as made:
            yield app, [sender.send for sender in made]
        return
    async with app, Client(database) as client:

        async def send(name: str) -> None:
            await (client if way == "elsewhere" else app).send_event("wakeup", "/bench", subject=name)

        yield app, [send] * senders


async def latency(database: str, way: str, samples: int) -> dict[str, Any]:
    """Measure with one waiting workflow at a time."""
    async with opened(database, way, 1) as (app, sends):
        wait = Waiting(app)
        await latencies(wakeups, wait, sends[0], samples=10, pause=PAUSE)
        found = await latencies(wakeups, wait, sends[0], samples=samples, pause=PAUSE)
    return {"latency": median(found), "all": sorted(found)}


async def rate(database: str, way: str, waiting: int, senders: int, bursts: int) -> dict[str, Any]:
    """Measure with many waiting workflows."""
    async with opened(database, way, senders) as (app, sends):
        begin = process_time()
        found = [await burst(wakeups, Waiting(app), sends, waiting=waiting, pause=PAUSE) for _ in range(bursts + 1)]
        cost = (process_time() - begin) / len(found) / waiting
    return {"rate": median(found[1:]), "all": found[1:], "cost": cost}


# --- statements of an idle app


def count_statements() -> None:
    """Count every statement of all connections that are opened from now on, heartbeats included."""
    connect = connections._connect

    def counted(path: str, read_only: bool) -> sqlite3.Connection:
        connection = connect(path, read_only)
        connection.set_trace_callback(lambda statement: executed.update([statement.split("\n")[0][:60]]))
        return connection

    connections._connect = counted


async def statements(database: str, waiting: int, seconds: float) -> dict[str, Any]:
    """Count the statements of an idle app, without and with waiting workflows, and of one without regular work."""
    count_statements()
    async with App(database) as app:
        without_waits = await _count_while_idle(seconds)
        await Waiting(app)(wakeups.expect(waiting))
        with_waits = await _count_while_idle(seconds)
    async with App(database, **IDLE_OPTIONS) as app:  # type: ignore[arg-type]
        app._store.on_remote_commit = None
        names = wakeups.expect(waiting)
        await Waiting(app)(names)
        silent = await _count_while_idle(seconds)
        executed.clear()
        begin = perf_counter()
        await app.send_event("wakeup", "/bench", subject=names[0])
        while not until_woken:
            await asyncio.sleep(0)
        woken, waking = wakeups._woken[names[0]] - begin, until_woken[0]
    return {
        "none_waiting": without_waits,
        "some_waiting": with_waits,
        "silent": silent,
        "woken": woken,
        "waking": waking,
        "seconds": seconds,
    }


async def _count_while_idle(seconds: float) -> dict[str, int]:
    await asyncio.sleep(0.3)
    executed.clear()
    await asyncio.sleep(seconds)
    return dict(executed)


if __name__ == "__main__":
    perform(latency, rate, statements)
