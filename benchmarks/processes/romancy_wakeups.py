"""romancy woken: from an event to the line behind the wait."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.processes.http_sender import connected, serving
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import Bells, Ring, burst, latencies
from romancy import App, Client, WorkflowContext, wait_event, workflow
from romancy.store.sqlite import connection as connections

PAUSE = (0.01, 0.05)
ALONE = {"poll_interval": 3600, "heartbeat_interval": 600, "lease_timeout": 3600}
"""Nothing is done regularly any more."""

bells = Bells()
said: Counter[str] = Counter()
"""Statements, where they are counted."""
until_woken: list[dict[str, int]] = []


@workflow
async def watch(ctx: WorkflowContext, name: str) -> None:
    """Wait for one bell."""
    await wait_event(ctx, "ring", subject=name)
    bells.woke(name)
    until_woken.append(dict(said))  # here: a moment later the writes of its end would be among them


class Waiting:
    """Starts those who wait."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, names: Sequence[str]) -> None:
        handles = [await self._app.start_workflow(watch, name) for name in names]
        for handle in handles:
            while await handle.status() != "waiting_for_event":
                await asyncio.sleep(0.002)


@asynccontextmanager
async def opened(database: str, way: str, senders: int) -> AsyncIterator[tuple[App, list[Ring]]]:
    """An app, and senders that reach it over HTTP, by a call, or from another client of the file."""
    app = App(database, cache_size=0 if way == "cold" else 1000)
    if way in ("http", "cold"):
        async with serving(app) as port, connected(port, senders) as made:
            yield app, [one.ring for one in made]
        return
    async with app, Client(database) as client:

        async def ring(name: str) -> None:
            await (client if way == "elsewhere" else app).send_event("ring", "/bench", subject=name)

        yield app, [ring] * senders


async def latency(database: str, way: str, samples: int) -> dict[str, Any]:
    """One waits at a time."""
    async with opened(database, way, 1) as (app, rings):
        wait = Waiting(app)
        await latencies(bells, wait, rings[0], samples=10, pause=PAUSE)
        found = await latencies(bells, wait, rings[0], samples=samples, pause=PAUSE)
    return {"latency": median(found), "all": sorted(found)}


async def rate(database: str, way: str, waiting: int, senders: int, bursts: int) -> dict[str, Any]:
    """Many wait."""
    async with opened(database, way, senders) as (app, rings):
        found = [await burst(bells, Waiting(app), rings, waiting=waiting, pause=PAUSE) for _ in range(bursts + 1)]
    return {"rate": median(found[1:]), "all": found[1:]}


# --- what is asked of the database meanwhile


def listen() -> None:
    """Count every statement of every connection opened from now on, heartbeats included."""
    connect = connections._connect

    def counted(path: str, read_only: bool) -> sqlite3.Connection:
        connection = connect(path, read_only)
        connection.set_trace_callback(lambda statement: said.update([statement.split("\n")[0][:60]]))
        return connection

    connections._connect = counted


async def statements(database: str, waiting: int, seconds: float) -> dict[str, Any]:
    """Statements of an idle app in which nobody or somebody waits; and of one that does nothing regularly."""
    listen()
    async with App(database) as app:
        nobody = await _silence(seconds)
        await Waiting(app)(bells.expect(waiting))
        somebody = await _silence(seconds)
    async with App(database, **ALONE) as app:  # type: ignore[arg-type]
        app._store.on_foreign_commit = None
        names = bells.expect(waiting)
        await Waiting(app)(names)
        silent = await _silence(seconds)
        said.clear()
        begin = perf_counter()
        await app.send_event("ring", "/bench", subject=names[0])
        while not until_woken:
            await asyncio.sleep(0)
        woken, waking = bells._woken[names[0]] - begin, until_woken[0]
    return {"nobody": nobody, "somebody": somebody, "silent": silent, "woken": woken, "waking": waking, "seconds": seconds}


async def _silence(seconds: float) -> dict[str, int]:
    await asyncio.sleep(0.3)
    said.clear()
    await asyncio.sleep(seconds)
    return dict(said)


if __name__ == "__main__":
    perform(latency, rate, statements)
