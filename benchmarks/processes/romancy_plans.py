"""Large tables on PostgreSQL: filled, looked at as the planner sees them, and timed beside empty ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

import asyncpg

from benchmarks import query_plans, seeded_tables
from benchmarks.processes.romancy_wakeups import PAUSE, Waiting, bells, watch
from benchmarks.processes.task_entry import perform
from benchmarks.wakeup_load import latencies
from romancy import App
from romancy.clock import MICROS, SystemClock
from romancy.model.transition import CreateInstance
from romancy.store.open import open_store
from romancy.store.port import Runnable, Store

KIND = Runnable(watch.name, "", "code")
Time = Callable[[], Awaitable[float]]
"""Does something and says how long it took."""


async def fill(database: str, ended: int, waiting: int) -> dict[str, Any]:
    """So many instances, and what the planner knows of them."""
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
    """For each statement what is wrong with its plans."""
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
    """Seconds that something takes in large tables and in empty ones, in turn."""
    stores = {name: open_store(database, clock=SystemClock()) for name, database in (("large", large), ("empty", empty))}
    for store in stores.values():
        await store.open()
    found = {
        "claim": await _in_turn({name: _Claims(store).one for name, store in stores.items()}, samples),
        "nothing due": await _in_turn({name: _Claims(store).none for name, store in stores.items()}, samples),
        "next timers": await _in_turn({name: _Claims(store).upcoming for name, store in stores.items()}, samples),
    }
    for store in stores.values():
        await store.close()
    for database in (large, empty):
        await _tidy(database)
    async with App(large) as one, App(empty) as other:
        found["wake"] = await _in_turn({"large": _waking(one), "empty": _waking(other)}, samples)
    return found


async def _in_turn(ways: dict[str, Time], samples: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(samples + 10):  # the first ones warm up: a statement has its last plan from the sixth time on
        for name, time in ways.items():
            found[name].append(await time())
    return {name: median(seconds[10:]) for name, seconds in found.items()}


class _Claims:
    """What a worker looks for."""

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
        """Look for due timers where none is due."""
        begin = perf_counter()
        claimed = await self._store.claim("bench", [KIND], now=self._store.now(), limit=20)
        seconds = perf_counter() - begin
        assert claimed == []
        return seconds

    async def upcoming(self) -> float:
        """Look for the timers of the next minute."""
        begin = perf_counter()
        await self._store.upcoming([KIND], until=self._store.now() + 60 * MICROS, limit=1000)
        return perf_counter() - begin


async def _tidy(database: str) -> None:
    """Nobody is to find what was claimed and go on with it."""
    connection = await asyncpg.connect(database)
    await connection.execute("DELETE FROM romancy_instances WHERE id LIKE 'claimed-%'")
    await connection.execute("VACUUM (ANALYZE) romancy_instances")
    await connection.close()


def _waking(app: App) -> Time:
    """From an event to the line behind the wait: it is accepted, the wait is met, the run asks and goes on."""

    async def ring(name: str) -> None:
        await app.send_event("ring", "/bench", subject=name)

    async def once() -> float:
        return (await latencies(bells, Waiting(app), ring, samples=1, pause=PAUSE))[0]

    return once


if __name__ == "__main__":
    perform(fill, explain, times)
