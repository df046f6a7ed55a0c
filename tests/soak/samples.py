"""Measurements of this process and of its database."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from benchmarks.memory import resident_mb
from tests.chaos import hotel_workload

_POSTGRES = """
    SELECT relname::text, pg_total_relation_size(oid)::bigint FROM pg_class
    WHERE relkind = 'r' AND relname LIKE 'romancy_%'
"""
_MYSQL = """
    SELECT table_name, CAST(data_length + index_length AS SIGNED) FROM information_schema.tables
    WHERE table_schema = database()
"""
_SQLITE = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'romancy_%'"


def of_process() -> dict[str, float]:
    """Memory after a garbage collection, threads, open files."""
    files = Path("/dev/fd") if not Path("/proc/self/fd").exists() else Path("/proc/self/fd")
    return {
        "memory_mb": resident_mb(),
        "threads": float(threading.active_count()),
        "files": float(len(os.listdir(files))),
    }


def of_times(took: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile; empty without measurements."""
    if not took:
        return {}
    ordered = sorted(took)
    return {"p50_ms": 1000 * ordered[len(ordered) // 2], "p99_ms": 1000 * ordered[len(ordered) * 99 // 100]}


async def of_database(address: str) -> dict[str, float]:
    """The rows and the size of every table; on SQLite the size of the file."""
    sizes = await _sizes(address)
    tables = [name for (name,) in await hotel_workload.rows(address, _SQLITE)] if "://" not in address else list(sizes)
    parts = [f"SELECT '{name}', count(*) FROM {name}" for name in sorted(tables)]
    rows = {f"rows:{name}": float(number) for name, number in await hotel_workload.rows(address, " UNION ALL ".join(parts))}
    return {**rows, **{f"kb:{name}": size / 1024 for name, size in sorted(sizes.items())}}


async def _sizes(address: str) -> dict[str, float]:
    if "://" not in address:
        return {"file": sum(file.stat().st_size for file in Path(address).parent.glob(f"{Path(address).name}*"))}
    found = await hotel_workload.rows(address, _MYSQL if address.startswith("mysql") else _POSTGRES)
    return {name: float(size) for name, size in found}
