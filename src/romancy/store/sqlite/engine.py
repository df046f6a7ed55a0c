"""A SQLAlchemy engine on the store's file.

Its transactions begin so that reading takes no lock, and the first statement that may write takes the file's write lock at
once and waits for it: a transaction that began with a read could not write any more once another has committed.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from romancy.errors import ConfigurationError
from romancy.store.sqlite.connection import MEMORY
from romancy.store.sqlite.executor import run_job

try:
    import aiosqlite
    from sqlalchemy import Connection, event
    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
except ImportError as error:
    raise ConfigurationError("ctx.session needs SQLAlchemy: pip install 'romancy[sqlalchemy]'") from error

_LOCK_TIMEOUT = 60.0
"""Seconds to wait for the file's write lock."""
_READS = ("SELECT", "PRAGMA", "EXPLAIN")


def file_engine(path: str) -> AsyncEngine:
    """Return an engine on a file. Raises `ConfigurationError` for a database in memory."""
    if path == MEMORY:
        raise ConfigurationError(
            "ctx.session needs a database that more than one connection can open: give the app a file, not :memory:."
        )
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", async_creator=partial(_connect, path))
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "before_cursor_execute", _begin_immediate)
    return engine


async def _connect(path: str) -> aiosqlite.Connection:
    return await _SessionConnection(path)


class _SessionConnection(aiosqlite.Connection):
    """A connection whose thread is a daemon: the interpreter's exit does not wait for it.

    A session may be cancelled, and its event loop closed, while the thread waits for the file's write lock. The thread then
    finishes its jobs, and their results are discarded. `stop` may be called twice, by the close and by a caller that gave up
    waiting for the close; the thread ends at the first.
    """

    def __init__(self, path: str) -> None:
        super().__init__(partial(sqlite3.connect, path, timeout=_LOCK_TIMEOUT), iter_chunk_size=64)
        self._thread = threading.Thread(target=_run_jobs, args=(self._tx,), name="romancy-session", daemon=True)

    def stop(self) -> None:
        """Close after the queued jobs, and end the thread."""
        super().stop()
        self._tx.put_nowait(_END)


_Job = tuple[asyncio.Future[Any] | None, Callable[[], Any]]
_END: _Job = (None, lambda: None)


def _run_jobs(jobs: SimpleQueue[_Job]) -> None:
    for future, job in iter(jobs.get, _END):
        run_job(job, future)
        del future, job  # or their objects would live until the next job comes


def _prepare(connection: DBAPIConnection, record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin_immediate(
    connection: Connection, cursor: DBAPICursor, statement: str, parameters: Any, context: object, executemany: bool
) -> None:
    driver = connection.connection.driver_connection
    assert driver is not None
    if not driver.in_transaction and not statement.lstrip().upper().startswith(_READS):
        cursor.execute("BEGIN IMMEDIATE")
