"""Measures SQLite without an engine: one durable row for each commit, the upper limit without group commit."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from time import perf_counter
from typing import Any


def commit_rows(connection: sqlite3.Connection, seconds: float) -> tuple[int, float]:
    """Insert rows one after another, each in a transaction of its own; return their number and the seconds."""
    rows, begin = 0, perf_counter()
    while perf_counter() < begin + seconds:
        connection.execute("INSERT INTO rows (value) VALUES (?)", (b'{"number": 1}',))
        rows += 1
    return rows, perf_counter() - begin


def measure(database: str, warm_up: float, seconds: float) -> dict[str, Any]:
    """Return commits per second."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        commit_rows(connection, warm_up)
        rows, elapsed = commit_rows(connection, seconds)
    return {"rate": rows / elapsed, "seconds": elapsed}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(measure(given["database"], given["warm_up"], given["seconds"])))
