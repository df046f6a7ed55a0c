"""Migrates a database's schema, or checks that it is up to date."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg
from asyncpg import Connection

from romancy.errors import StoreError
from romancy.store.migrator import pending, read_migrations, schema_behind_error

MIGRATIONS = "romancy.store.postgres.migrations"
OLDEST = 14

_CREATE_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS romancy_migrations (
    version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)
"""
_HAS_MIGRATIONS_TABLE = "SELECT to_regclass('romancy_migrations') IS NOT NULL"
_SELECT_APPLIED = "SELECT version, name FROM romancy_migrations ORDER BY version"
_INSERT_APPLIED = "INSERT INTO romancy_migrations (version, name, applied_at) VALUES ($1, $2, $3)"
# A process that starts at the same time waits here, and then finds that no migration is missing. Readers do not wait.
_LOCK = "LOCK TABLE romancy_migrations IN SHARE ROW EXCLUSIVE MODE"


async def prepare(connection: Connection[Any], label: str, *, auto_migrate: bool, now: int) -> None:
    """Apply the missing migrations, each once however many processes start at the same time. Raises `StoreError`."""
    _require_version(connection, label)
    known = read_migrations(MIGRATIONS)
    missing = pending(known, await read_applied(connection), label)
    if not missing:
        return
    if not auto_migrate:
        raise schema_behind_error(missing, label)
    # Two processes that create the table at the same time may both find that it does not exist.
    with suppress(asyncpg.UniqueViolationError, asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError):
        await connection.execute(_CREATE_MIGRATIONS_TABLE)
    async with connection.transaction():
        await connection.execute(_LOCK)
        for migration in pending(known, await read_applied(connection), label):
            for statement in migration.statements:
                await connection.execute(statement)
            await connection.execute(_INSERT_APPLIED, migration.version, migration.name, now)


async def read_applied(connection: Connection[Any]) -> list[tuple[int, str]]:
    """Return the migrations that are applied to a database."""
    if not await connection.fetchval(_HAS_MIGRATIONS_TABLE):
        return []
    return [tuple(row) for row in await connection.fetch(_SELECT_APPLIED)]


def _require_version(connection: Connection[Any], label: str) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST:
        raise StoreError(f"The database {label} is PostgreSQL {version.major}; romancy needs {OLDEST} or newer.")
