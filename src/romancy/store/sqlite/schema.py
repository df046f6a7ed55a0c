"""Migrates a file's schema, or checks that it is up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from romancy.store.migrator import Migration, pending, read_migrations, schema_behind_error, state_of
from romancy.store.sqlite.connection import MEMORY, connect, retry_while_busy, write
from romancy.store.sqlite.cursor import SqliteCursor

MIGRATIONS = "romancy.store.sqlite.migrations"

_CREATE_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS romancy_migrations (
    version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)
"""
_HAS_MIGRATIONS_TABLE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'romancy_migrations'"
_SELECT_APPLIED = "SELECT version, name FROM romancy_migrations ORDER BY version"
_INSERT_APPLIED = "INSERT INTO romancy_migrations (version, name, applied_at) VALUES (?, ?, ?)"


def prepare(connection: sqlite3.Connection, path: str, *, auto_migrate: bool, now: int) -> None:
    """Apply the missing migrations, each once however many processes start at the same time. Raises `StoreError`."""
    known = read_migrations(MIGRATIONS)
    missing = pending(known, retry_while_busy(lambda: _read_applied(connection), path), path)
    if not missing:
        return
    if not auto_migrate:
        raise schema_behind_error(missing, path)

    def migrate(cursor: SqliteCursor) -> None:
        # Read again under the lock: another process may have been faster.
        for migration in pending(known, _read_applied(connection), path):
            _apply(cursor, migration, now)

    retry_while_busy(lambda: write(connection, migrate, None, "migrate"), path)


def migrations_state(path: str) -> list[tuple[str, bool]]:
    """Return each migration, and whether it is applied to a file. A file that does not exist is not created."""
    known = read_migrations(MIGRATIONS)
    if path == MEMORY or not Path(path).exists():
        return state_of(known, [])
    with closing(connect(path, read_only=True)) as connection:
        return state_of(known, retry_while_busy(lambda: _read_applied(connection), path))


def _read_applied(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    if not connection.execute(_HAS_MIGRATIONS_TABLE).fetchone()[0]:
        return []
    return connection.execute(_SELECT_APPLIED).fetchall()


def _apply(cursor: SqliteCursor, migration: Migration, now: int) -> None:
    cursor.raw.execute(_CREATE_MIGRATIONS_TABLE)
    for statement in migration.statements:
        cursor.raw.execute(statement)
    cursor.raw.execute(_INSERT_APPLIED, (migration.version, migration.name, now))
