"""Measures what an activity adds to the file: its rows, and the cost of writing them with and without operators' columns."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

from benchmarks.processes.romancy_throughput import count
from romancy import App

STEPS = 50
AT_ONCE = 20
REPLAYED = {"instance_id", "generation", "seq", "kind", "op", "outcome", "at", "name", "role", "digest", "value"}
"""The columns that a replay needs. `name` is among them: it is the activity of a recorded result."""


async def run_workflows(database: str, workflows: int) -> float:
    """Run workflows; return the seconds of wall time."""
    left = iter(range(workflows))
    async with App(database) as app:

        async def some() -> None:
            for _ in left:
                await (await app.start_workflow(count, STEPS)).result()

        begin = perf_counter()
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        return perf_counter() - begin


def measure(database: str, workflows: int, repetitions: int) -> dict[str, Any]:
    """Return the bytes and seconds of each activity."""
    asyncio.run(run_workflows(database, 1))
    before = _size(database)
    seconds = asyncio.run(run_workflows(database, workflows))
    activities = workflows * STEPS
    with closing(sqlite3.connect(database)) as connection:
        columns = [line[1] for line in connection.execute("PRAGMA table_info(romancy_history)")]
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM romancy_history").fetchall()
        journal = connection.execute("SELECT count(*) FROM romancy_journal").fetchone()[0]
    extra = [name for name in columns if name not in REPLAYED]
    whole, slim = _write_costs(Path(database).parent, columns, rows, repetitions)
    return {
        "bytes": (_size(database) - before) / activities,
        "data": {name: _length(rows, columns.index(name)) for name in columns},
        "extra": extra,
        "journal_lines": journal / workflows,
        "seconds": seconds / activities,
        "write_whole": whole,
        "write_slim": slim,
    }


def _size(database: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        pages, page_size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return int((pages - free) * page_size)


def _length(rows: list[tuple[Any, ...]], column: int) -> float:
    """Return the mean bytes of a column; a number counts as SQLite stores it."""
    return sum(_bytes(row[column]) for row in rows) / len(rows)


def _bytes(value: Any) -> int:
    match value:
        case None:
            return 0
        case int():
            return next(size for size, limit in ((0, 1), (1, 7), (2, 15), (3, 23), (4, 31), (6, 47), (8, 63)) if
                        (value in (0, 1) if size == 0 else value < 1 << limit))  # fmt: skip
        case str():
            return len(value.encode())
        case _:
            return len(value)


def _write_costs(directory: Path, columns: list[str], rows: list[tuple[Any, ...]], repetitions: int) -> tuple[float, float]:
    """Return the processor seconds for each row, with all columns and with those a replay needs, interleaved."""
    needed = [index for index, name in enumerate(columns) if name in REPLAYED]
    slim = [tuple(row[index] for index in needed) for row in rows]
    costs: dict[str, list[float]] = {"whole": [], "slim": []}
    for number in range(repetitions):
        for name, lines in (("whole", rows), ("slim", slim)):
            costs[name].append(_write_cost(directory / f"{name}{number}.db", lines))
    return median(costs["whole"]), median(costs["slim"])


def _write_cost(file: Path, rows: list[tuple[Any, ...]]) -> float:
    """Write the rows, twenty in a transaction as in a batch of the engine; return processor seconds for each row."""
    names = [f"c{index}" for index in range(len(rows[0]))]
    statement = f"INSERT INTO history VALUES ({', '.join('?' * len(names))})"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"CREATE TABLE history ({', '.join(names)}, PRIMARY KEY (c0, c1, c2)) WITHOUT ROWID")
        begin = thread_time()
        for start in range(0, len(rows), AT_ONCE):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows[start : start + AT_ONCE])
            connection.execute("COMMIT")
        return (thread_time() - begin) / len(rows)


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
