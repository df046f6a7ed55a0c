"""Measures PostgreSQL without an engine: one row for each commit, the upper limit of a store without group commit."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import asyncpg

from benchmarks.processes.task_entry import perform


async def commits(database: str, connections: int, warm_up: float, seconds: float) -> dict[str, Any]:
    """Return commits per second, over `connections` connections."""
    opened = [await asyncpg.connect(database) for _ in range(connections)]
    await opened[0].execute("CREATE TABLE rows (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value BYTEA NOT NULL)")
    await _commit_rows(opened, warm_up)
    begin = perf_counter()
    rows = await _commit_rows(opened, seconds)
    elapsed = perf_counter() - begin
    for connection in opened:
        await connection.close()
    return {"rate": rows / elapsed, "seconds": elapsed}


async def _commit_rows(opened: list[Any], seconds: float) -> int:
    end = perf_counter() + seconds
    return sum(await asyncio.gather(*(_commit(connection, end) for connection in opened)))


async def _commit(connection: Any, end: float) -> int:
    rows = 0
    while perf_counter() < end:
        await connection.execute("INSERT INTO rows (value) VALUES ($1)", b'{"number": 1}')
        rows += 1
    return rows


if __name__ == "__main__":
    perform(commits)
