"""Opens DBOS for a measurement, with commits as durable as romancy's.

On a file the journal mode is DBOS's default (it sets none, so a rollback journal), or WAL, which its users would have to set
on the file themselves. DBOS finds waiting workflows by polling: once a second by default, or every `poll_interval` seconds.

On PostgreSQL it has its defaults: LISTEN and NOTIFY, and a pool of 20 connections.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from typing import Any

from dbos import DBOS
from sqlalchemy import event
from sqlalchemy.engine import Engine

_found: dict[str, Any] = {}


@event.listens_for(Engine, "connect")
def _durable(connection: Any, record: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        _look_at_server(connection)
        return
    for setting in ("journal_mode", "synchronous"):
        _found.setdefault(setting, connection.execute(f"PRAGMA {setting}").fetchone()[0])
    connection.execute("PRAGMA synchronous = FULL")


def _look_at_server(connection: Any) -> None:
    for setting in ("fsync", "synchronous_commit"):
        _found.setdefault(setting, connection.execute(f"SHOW {setting}").fetchone()[0])
    connection.rollback()  # SHOW has begun a transaction


@contextmanager
def dbos(database: str, *, wal: bool = False, poll_interval: float | None = None) -> Iterator[None]:
    """Launch DBOS on a file or a server."""
    if wal:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # the file remembers it
    url = database if "://" in database else f"sqlite:///{database}"
    config: Any = {"name": "benchmarks", "system_database_url": url, "log_level": "ERROR"}
    if poll_interval is not None:
        config["notification_listener_polling_interval_sec"] = poll_interval
    DBOS(config=config)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


def circumstances() -> dict[str, Any]:
    """Return DBOS's version, and the settings that its connections had."""
    return {"version": version("dbos"), "settings": _found}
