"""SQLAlchemy on the same file.

Its connections are set up so that reading takes no lock, and the first statement that may write takes the file's write lock
at once and waits for it: a transaction that began by reading could not write any more after another has.
"""

from __future__ import annotations

from typing import Any

from romancy.errors import ConfigurationError
from romancy.store.sqlite.connection import MEMORY

try:
    from sqlalchemy import Connection, event
    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
except ImportError as error:
    raise ConfigurationError("ctx.session needs SQLAlchemy: pip install 'romancy[sqlalchemy]'") from error

_PATIENCE = 60.0
"""Seconds to wait for the file's write lock."""
_READS = ("SELECT", "PRAGMA", "EXPLAIN")


def file_engine(path: str) -> AsyncEngine:
    """An engine on a file."""
    if path == MEMORY:
        raise ConfigurationError(
            "ctx.session needs a database that more than one connection can open: give the app a file, not :memory:."
        )
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": _PATIENCE})
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "before_cursor_execute", _begin_to_write)
    return engine


def _prepare(connection: DBAPIConnection, record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin_to_write(
    connection: Connection, cursor: DBAPICursor, statement: str, parameters: Any, context: object, executemany: bool
) -> None:
    driver = connection.connection.driver_connection
    assert driver is not None
    if not driver.in_transaction and not statement.lstrip().upper().startswith(_READS):
        cursor.execute("BEGIN IMMEDIATE")
