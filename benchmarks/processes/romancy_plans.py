"""Fills large tables on PostgreSQL, checks the plans for them, and compares times with those in empty tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

import asyncpg

from benchmarks import query_plans, seeded_tables
from benchmarks.processes.romancy_wakeups import PAUSE, Waiting, wakeups, watch
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import latencies
from romancy import App
from romancy.clock import MICROS, SystemClock
from romancy.model.transition import CreateInstance
from romancy.store.open import open_store
from romancy.store.port import Runnable, Store

KIND = Runnable(watch.name, "", "code")
Time = Callable[[], Awaitable[float]]
"""Makes a call and returns how long it took."""


async def fill(database: str, ended: int, waiting: int) -> dict[str, Any]:
    """Insert instances, and update the planner's statistics."""
    store = open_store(database, clock=SystemClock())
    await store.open()
    now = store.now()
    await store.close()
    connection = await asyncpg.connect(database)
    begin = perf_counter()
    await seeded_tables.fill(connection, ended=ended, waiting=waiting, now=now)
    await connection.execute("VACUUM (ANALYZE)")
    await connection.execute("CHECKPOINT")
    seconds = perf_counter() - begin
    await connection.close()
    return {"seconds": seconds, "now": now}


async def explain(database: str, now: int) -> dict[str, Any]:
    """Return the faults in the plans of each statement."""
    connection = await asyncpg.connect(database)
    found: dict[str, list[str]] = {}
    names = query_plans.statements()
    for name in names:
        for kind, plan in (await query_plans.plans(connection, name, now=now)).items():
            faults = query_plans.faults(name, plan)
            if faults:
                found[f"{name}, {kind} plan"] = faults
    await connection.close()
    return {"statements": len(names), "faults": found}


async def times(large: str, empty: str, samples: int) -> dict[str, Any]:
    """Return the seconds of each call in large tables and in empty ones, interleaved."""
    stores = {name: open_store(database, clock=SystemClock()) for name, database in (("large", large), ("empty", empty))}
    for store in stores.values():
        await store.open()
    found = {
        "claim": await _interleave({name: _Claims(store).one for name, store in stores.items()}, samples),
        "nothing due": await _interleave({name: _Claims(store).none for name, store in stores.items()}, samples),
        "next timers": await _interleave({name: _Claims(store).upcoming for name, store in stores.items()}, samples),
    }
    for store in stores.values():
        await store.close()
    for database in (large, empty):
        await _tidy(database)
    async with App(large) as one, App(empty) as other:
        found["wake"] = await _interleave({"large": _waking(one), "empty": _waking(other)}, samples)
    return found


async def _interleave(calls: dict[str, Time], samples: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples + 10):  # the first ones are a warm-up: from the sixth execution on a statement keeps its plan
        for name, time in calls.items():
            found[name].append(await time())
    return {name: median(seconds[10:]) for name, seconds in found.items()}


class _Claims:
    """The queries by which a worker finds work."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0

    async def one(self) -> float:
        """Claim the one instance that is due."""
        self._number += 1
        now = self._store.now()
        name = f"claimed-{self._number}"
        await self._store.commit([CreateInstance(name, KIND.workflow, "", b"{}", b"", now)])
        begin = perf_counter()
        claimed = await self._store.claim("bench", [KIND], now=self._store.now(), limit=20)
        seconds = perf_counter() - begin
        assert [row.instance_id for row in claimed] == [name]
        return seconds

    async def none(self) -> float:
        """Search for due timers where none is due."""
        begin = perf_counter()
        claimed = await self._store.claim("bench", [KIND], now=self._store.now(), limit=20)
        seconds = perf_counter() - begin
        assert claimed == []
        return seconds

    async def upcoming(self) -> float:
        """Search for the timers of the next minute."""
        begin = perf_counter()
        await self._store.upcoming([KIND], until=self._store.now() + 60 * MICROS, limit=1000)
        return perf_counter() - begin


async def _tidy(database: str) -> None:
    """Delete the claimed instances, so that no app resumes them."""
    connection = await asyncpg.connect(database)
    await connection.execute("DELETE FROM romancy_instances WHERE id LIKE 'claimed-%'")
    await connection.execute("VACUUM (ANALYZE) romancy_instances")
    await connection.close()


def _waking(app: App) -> Time:
    """Return the call that times a wake-up, from sending the event to the line after the wait."""

    async def send(name: str) -> None:
        await app.send_event("wakeup", "/bench", subject=name)

    async def once() -> float:
        return (await latencies(wakeups, Waiting(app), send, samples=1, pause=PAUSE))[0]

    return once


if __name__ == "__main__":
    perform(fill, explain, times)
