"""Bringing a database's schema up to date, or checking that it is."""

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
# Who starts at the same time waits here, and then finds that there is nothing left to do. The lock is the connection's: it
# ends with it, however that comes about. Its name is the server's, so the database's is a part of it.
_LOCK = b"SELECT get_lock(concat('romancy ', md5(database())), 60)"
_UNLOCK = b"SELECT release_lock(concat('romancy ', md5(database())))"
_NO_SUCH_TABLE = 1146
_ALREADY_EXISTS = (1060, 1061)
"""A column or an index of that name is there already: a run that ended in the middle has made it."""


async def prepare(link: MySqlConnection, label: str, *, auto_migrate: bool, now: int) -> None:
    """Apply what is missing, once whoever else starts at the same time; raises `StoreError` if that cannot be."""
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
            # Each statement is committed by itself, and can be run again if this ends in the middle.
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
    """The migrations a database has."""
    try:
        return [(version, name) for version, name in (await link.execute(_SELECT_APPLIED)).rows]
    except Exception as error:
        if error_number(error) == _NO_SUCH_TABLE:
            return []
        raise


async def _lock(link: MySqlConnection, label: str) -> None:
    if (await link.execute(_LOCK)).rows[0][0] != 1:
        raise StoreError(
            f"The database {label} is being migrated by somebody else for more than a minute. Look what it does."
        )


def require_version(server: str, label: str) -> None:
    """Raise `StoreError` for a server that lacks what is needed."""
    product = "MariaDB" if "mariadb" in server.lower() else "MySQL"
    # Older MariaDBs say 5.5.5- first, for old clients.
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", server)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST[product]:
        needed = ".".join(map(str, OLDEST[product]))
        raise StoreError(f"The database {label} is {product} {server}; romancy needs {product} {needed} or newer.")
