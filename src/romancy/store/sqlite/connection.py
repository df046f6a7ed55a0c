"""Opens connections, runs transactions on them, and repeats an attempt while the database is busy."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from urllib.parse import quote

from romancy.clock import monotonic
from romancy.codec import NO_CODEC, Codec
from romancy.errors import StoreError
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.errors import is_busy, translate

T = TypeVar("T")
Crash = Callable[[str], None]
"""A hook of tests: called before and after each COMMIT; raises to simulate a crash of the process there."""

MEMORY = ":memory:"
OLDEST = (3, 33, 0)
_BUSY_LIMIT = 60.0
"""Seconds until a busy database is an error."""
_BUSY_TIMEOUT = 1_000
"""Milliseconds that SQLite itself waits for a lock; the attempt is then repeated until `_BUSY_LIMIT`."""

_PRAGMAS = (
    f"PRAGMA busy_timeout = {_BUSY_TIMEOUT}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -32768",
    # A checkpoint copies the log into the file and syncs both: every 8 MB instead of every 4. A log that grew larger (while
    # a long read kept it from being reused) is truncated to 64 MB.
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA journal_size_limit = 67108864",
)
_EFFECTIVE_IDS = os.access in os.supports_effective_ids
_READ_ONLY_PRAGMAS = (_PRAGMAS[0], "PRAGMA temp_store = MEMORY", "PRAGMA cache_size = -32768")


def connect(path: str, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection with the settings this store needs. Raises `StoreError`."""
    _require_version()
    try:
        return retry_while_busy(lambda: _connect(path, read_only), path)
    except sqlite3.Error as error:
        raise translate(error, path) from error


def retry_while_busy(attempt: Callable[[], T], path: str) -> T:
    """Repeat an attempt while the database is busy; after a minute, raise `StoreError`. Other errors of the driver pass."""
    deadline = monotonic() + _BUSY_LIMIT
    pause = 0.001
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if monotonic() > deadline:
                raise translate(error, path) from error
        # SQLite does not wait for every kind of lock (a change of journal mode, a recovery of the log).
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def write(
    connection: sqlite3.Connection,
    work: Callable[[SqliteCursor], T],
    crash: Crash | None,
    point: str,
    codec: Codec = NO_CODEC,
) -> T:
    """Run `work` in a transaction: all of it is committed, or nothing. Errors of the driver pass."""
    cursor = connection.cursor()
    cursor.execute("BEGIN IMMEDIATE")
    try:
        result = work(SqliteCursor(cursor, codec))
        if crash is not None:
            crash(f"{point}.before")
        cursor.execute("COMMIT")
    except BaseException:
        # After some errors (a full disk, an I/O error) SQLite has rolled back already.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                cursor.execute("ROLLBACK")
        raise
    finally:
        cursor.close()
    if crash is not None:
        crash(f"{point}.after")
    return result


def read(connection: sqlite3.Connection, work: Callable[[SqliteCursor], T]) -> T:
    """Run `work` on one snapshot."""
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    try:
        return work(SqliteCursor(cursor))
    finally:
        cursor.close()
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has committed."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _connect(path: str, read_only: bool) -> sqlite3.Connection:
    address, pragmas = (path, _PRAGMAS) if _may_write(path) else (_read_only_uri(path), _READ_ONLY_PRAGMAS)
    # Several threads use a connection (one opens it, another closes it), but never two at the same time.
    connection = sqlite3.connect(
        address, uri=address != path, isolation_level=None, check_same_thread=False, cached_statements=512
    )
    try:
        for pragma in pragmas:
            connection.execute(pragma).fetchall()
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _may_write(path: str) -> bool:
    """Whether this process may write the file. For a file that does not exist, True: SQLite then tries to create it."""
    if path == MEMORY or not os.path.exists(path):
        return True
    return all(os.access(item, os.W_OK, effective_ids=_EFFECTIVE_IDS) for item in (path, os.path.dirname(path)))


def _read_only_uri(path: str) -> str:
    """Return the URI of a file that this process may read but not write.

    To read a file in WAL mode, SQLite needs the log and the index beside it, and would create them. If there is no log, no
    process has the file open: it does not change, and SQLite may open it as immutable.
    """
    unchanging = "" if os.path.exists(f"{path}-wal") else "&immutable=1"
    return f"file:{quote(path)}?mode=ro{unchanging}"


def _require_version() -> None:
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise StoreError(f"This Python has SQLite {sqlite3.sqlite_version}; romancy needs {needed} or newer.")
