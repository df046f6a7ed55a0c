"""SQLAlchemy on the store's file: sessions that are cancelled."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from romancy.store.sqlite.engine import file_engine

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE orders (id INTEGER)")
    return path


@pytest.fixture
def other_writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection, which holds the file's write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_write_that_is_cancelled_twice_ends(path: Path, other_writer: sqlite3.Connection) -> None:
    before = set(threading.enumerate())

    async def write() -> None:
        async with file_engine(str(path)).connect() as connection:
            await connection.execute(text("SELECT 1"))
            await connection.execute(text("INSERT INTO orders VALUES (1)"))

    async def cut_off() -> None:
        task = asyncio.create_task(write())
        await asyncio.sleep(0.2)
        for _ in range(2):  # the second time while its connection is being closed, behind the waiting write
            task.cancel()
            await asyncio.sleep(0.05)

    # An event loop that cannot end must not block the suite, so it runs in a thread of its own.
    loop = threading.Thread(target=asyncio.run, args=(cut_off(),), daemon=True)
    loop.start()
    loop.join(30)
    assert not loop.is_alive()

    other_writer.execute("ROLLBACK")
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()
    other_writer.execute("BEGIN IMMEDIATE")
    assert other_writer.execute("SELECT count(*) FROM orders").fetchone() == (0,)
