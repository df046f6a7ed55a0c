"""A worker's heartbeat."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager

from romancy.errors import StoreError
from romancy.store.sqlite.connection import connect, retry_while_busy
from romancy.store.sqlite.errors import translate
from romancy.store.sqlite.file_identity import FileIdentity
from romancy.store.sqlite.statements import get_statement


class SqliteHeartbeat:
    """Records heartbeats on a connection of its own, opened at the first heartbeat, in the thread that sends them."""

    def __init__(self, path: str, worker: str, identity: FileIdentity | None = None) -> None:
        self._path = path
        self._identity = identity
        self._worker = worker
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._closed = False

    def renew(self, now: int) -> bool:
        """Record a heartbeat; waits while the database is busy. False: the worker was deregistered."""
        with self._lock:
            if self._closed:
                raise StoreError(f"The heartbeat of worker {self._worker} is closed.")
            if self._identity is not None:
                self._identity.require()  # or the next line might create a new file
            if self._connection is None:
                self._connection = connect(self._path)
            return record_heartbeat(self._connection, self._path, self._worker, now)

    def close(self) -> None:
        """Close the connection. Safe to call twice, from any thread."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class SharedHeartbeat:
    """Records heartbeats on the only connection of a database in memory, between its jobs."""

    def __init__(self, connection: sqlite3.Connection, lock: AbstractContextManager[object], worker: str) -> None:
        self._connection = connection
        self._lock = lock
        self._worker = worker

    def renew(self, now: int) -> bool:
        """Record a heartbeat. False: the worker was deregistered."""
        with self._lock:
            return record_heartbeat(self._connection, ":memory:", self._worker, now)

    def close(self) -> None:
        """Do nothing: the connection belongs to the store."""


def record_heartbeat(connection: sqlite3.Connection, path: str, worker: str, now: int) -> bool:
    """Record one heartbeat. Raises `StoreError`."""
    try:
        return retry_while_busy(
            lambda: connection.execute(get_statement("record_heartbeat"), (now, worker)).rowcount == 1, path
        )
    except sqlite3.Error as error:
        raise translate(error, path) from error
