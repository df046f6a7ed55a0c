"""Migrates a database's schema, or checks that it is up to date."""

from __future__ import annotations

import re

from romancy.errors import StoreError
from romancy.store.migrator import pending, read_migrations, schema_behind_error
from romancy.store.mysql.errors import error_number
from romancy.store.mysql.pool import MySqlConnection
from romancy.store.mysql.statements import literal

MIGRATIONS = "romancy.store.mysql.migrations"
OLDEST = {"MySQL": (8, 0), "MariaDB": (10, 6)}

_CREATE_MIGRATIONS_TABLE = b"""
CREATE TABLE IF NOT EXISTS romancy_migrations (
    version INTEGER NOT NULL PRIMARY KEY, name VARBINARY(255) NOT NULL, applied_at BIGINT NOT NULL) ENGINE = InnoDB
"""
_SELECT_APPLIED = b"SELECT version, name FROM romancy_migrations ORDER BY version"
_INSERT_APPLIED = b"INSERT IGNORE INTO romancy_migrations (version, name, applied_at) VALUES (%s, %s, %s)"
# A process that starts at the same time waits here, and then finds that no migration is missing. The lock belongs to the
# connection and ends with it. Lock names are shared by all databases of the server, so the database's name is a part of it.
_LOCK = b"SELECT get_lock(concat('romancy ', md5(database())), 60)"
_UNLOCK = b"SELECT release_lock(concat('romancy ', md5(database())))"
_NO_SUCH_TABLE = 1146
_ALREADY_EXISTS = (1060, 1061)
"""A column or an index of that name exists: an earlier migration that was interrupted has made it."""


async def prepare(link: MySqlConnection, label: str, *, auto_migrate: bool, now: int) -> None:
    """Apply the missing migrations, each once however many processes start at the same time. Raises `StoreError`."""
    require_version(link.server, label)
    known = read_migrations(MIGRATIONS)
    missing = pending(known, await read_applied(link), label)
    if not missing:
        return
    if not auto_migrate:
        raise schema_behind_error(missing, label)
    await _lock(link, label)
    try:
        await link.execute(_CREATE_MIGRATIONS_TABLE)
        for migration in pending(known, await read_applied(link), label):
            # Each statement is committed by itself, and can be run again after an interruption.
            for statement in migration.statements:
                await _apply(link, statement)
            await link.execute(_INSERT_APPLIED % (literal(migration.version), literal(migration.name), literal(now)))
    finally:
        await link.execute(_UNLOCK)


async def _apply(link: MySqlConnection, statement: str) -> None:
    try:
        await link.execute(statement.encode())
    except Exception as error:
        if error_number(error) not in _ALREADY_EXISTS:  # there is no CREATE INDEX IF NOT EXISTS
            raise


async def read_applied(link: MySqlConnection) -> list[tuple[int, str]]:
    """Return the migrations that are applied to a database."""
    try:
        return [(version, name) for version, name in (await link.execute(_SELECT_APPLIED)).rows]
    except Exception as error:
        if error_number(error) == _NO_SUCH_TABLE:
            return []
        raise


async def _lock(link: MySqlConnection, label: str) -> None:
    if (await link.execute(_LOCK)).rows[0][0] != 1:
        raise StoreError(
            f"Another process has been migrating the database {label} for more than a minute. Check that process."
        )


def require_version(server: str, label: str) -> None:
    """Raise `StoreError` for a server that is too old."""
    product = "MariaDB" if "mariadb" in server.lower() else "MySQL"
    # Older MariaDBs prefix their version with 5.5.5-, for old clients.
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", server)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST[product]:
        needed = ".".join(map(str, OLDEST[product]))
        raise StoreError(f"The database {label} is {product} {server}; romancy needs {product} {needed} or newer.")
