"""The databases that tests run on: every kind there is, and an empty one for each test.

A new kind of database is one more line in `KINDS`. `ROMANCY_TEST_DATABASES=sqlite,postgres` names those to run on; without
it, all.

Servers keep the databases they have lent, for the next test: deleting the rows takes 1 ms. (Truncating the tables took
12 ms, a copy of a template 26.)
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg
from tests import mariadb, servers

T = TypeVar("T")
_PATIENCE = 5.0
"""Seconds after which a connection that a test has left open is no longer about to close."""


class Kind(Protocol):
    """A kind of database. Its functions may be called anywhere, also while an event loop runs."""

    def missing(self) -> str | None:
        """Why there is none of this kind here; None if there is."""
        ...

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """The address of an empty database; bare: without our tables. What needs a file may put it into the folder."""
        ...

    def take_back(self, address: str) -> None:
        """A test is done with a database. Raises if it has left a connection open."""
        ...

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement, beside the store; what it selects."""
        ...


class Files:
    """SQLite: a file."""

    def __init__(self) -> None:
        self._number = count(1)

    def missing(self) -> str | None:
        """It is always there."""
        return None

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """The path of a file that does not exist yet."""
        return str(folder / f"romancy-{next(self._number)}.db")

    def take_back(self, address: str) -> None:
        """The folder is the test's."""

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""
        with closing(sqlite3.connect(address, isolation_level=None, timeout=30)) as connection:
            return connection.execute(query).fetchall()


class PostgresDatabases:
    """Databases on the PostgreSQL server of the tests, used again and again."""

    def __init__(self) -> None:
        self._free: list[str] = []
        self._bare: set[str] = set()
        self._connections: dict[str, asyncpg.Connection[Any]] = {}

    def missing(self) -> str | None:
        """Whether the server starts."""
        return _why_no_postgres()

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """One that is free, or a new one."""
        if self._free and not bare:
            return self._free.pop()
        address = _elsewhere(asyncio.to_thread(servers.new_postgres_database))
        if bare:
            self._bare.add(address)
        return address

    def take_back(self, address: str) -> None:
        """Empty it for the next test. One that is still used is given up, and bare ones are: who knows what is in there."""
        left = _elsewhere(self._left_open(address))
        if left:
            raise AssertionError(f"The test left connections open: {left}")
        if address not in self._bare:
            _elsewhere(self._empty(address))
            self._free.append(address)

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of the tests' own."""
        return [tuple(row) for row in _elsewhere(self._run(address, query))]

    async def _run(self, address: str, query: str) -> list[asyncpg.Record]:
        return await (await self._connection(address)).fetch(query)

    async def _connection(self, address: str) -> asyncpg.Connection[Any]:
        if address not in self._connections:
            self._connections[address] = connection = await asyncpg.connect(address)
            _AT_THE_END.append(partial(connection.close, timeout=2))
        return self._connections[address]

    async def _left_open(self, address: str) -> list[str]:
        connection = await self._connection(address)
        try:
            async with asyncio.timeout(_PATIENCE):
                while await connection.fetch(_OTHERS):
                    await asyncio.sleep(0.002)
        except TimeoutError:
            return [str(dict(row)) for row in await connection.fetch(_END_OTHERS)]
        return []

    async def _empty(self, address: str) -> None:
        connection = await self._connection(address)
        how = await connection.fetchval(_HOW_TO_EMPTY)
        if how is not None:  # else nobody has used it
            await connection.execute(how)


_OTHERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_END_OTHERS = """
SELECT pid, application_name, state, query, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# Tables that are not romancy's were made by a test.
_HOW_TO_EMPTY = """
SELECT string_agg(how, '; ') FROM (
    SELECT CASE WHEN tablename LIKE 'romancy_%' THEN 'DELETE FROM ' ELSE 'DROP TABLE ' END || quote_ident(tablename) AS how
    FROM pg_tables
    WHERE schemaname = current_schema() AND tablename NOT IN ('romancy_turn', 'romancy_migrations')
    UNION ALL
    SELECT 'SELECT setval(' || quote_literal(sequencename) || ', 1, false)' FROM pg_sequences
    WHERE schemaname = current_schema() AND sequencename LIKE 'romancy_%') AS parts
"""


class MariaDatabases:
    """Databases on the MariaDB server of the tests, used again and again."""

    def __init__(self) -> None:
        self._free: list[str] = []
        self._bare: set[str] = set()

    def missing(self) -> str | None:
        """Whether there is a server."""
        return mariadb.why_not() or None

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """One that is free, or a new one."""
        if self._free and not bare:
            return self._free.pop()
        address = _elsewhere(asyncio.to_thread(mariadb.new_database))
        if bare:
            self._bare.add(address)
        return address

    def take_back(self, address: str) -> None:
        """Empty it for the next test. One that is still used is given up, and bare ones are."""
        left = _elsewhere(self._left_open(address))
        if left:
            raise AssertionError(f"The test left connections open: {left}")
        if address not in self._bare:
            _elsewhere(mariadb.empty(address))
            self._free.append(address)

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""
        return _elsewhere(mariadb.execute(address, query))

    async def _left_open(self, address: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while found := await mariadb.execute(address, _OTHER_CONNECTIONS):
                    await asyncio.sleep(0.002)
        return found


_OTHER_CONNECTIONS = """
SELECT id, state, info FROM information_schema.processlist WHERE db = database() AND id <> connection_id()
"""


@cache
def _why_no_postgres() -> str | None:
    try:
        servers.postgres()
    except Exception as error:
        return f"there is no PostgreSQL: {error}"
    return None


KINDS: dict[str, Kind] = {
    "sqlite": Files(),
    "postgres": PostgresDatabases(),
    "mariadb": MariaDatabases(),
}


def names() -> Sequence[str]:
    """The kinds to run on."""
    wanted = os.environ.get("ROMANCY_TEST_DATABASES")
    return [name for name in KINDS if wanted is None or name in wanted.split(",")]


def kind_of(address: str) -> Kind:
    """The kind of a database by its address."""
    schemes = {"postgresql": "postgres", "mysql": "mariadb"}
    return KINDS[schemes.get(address.partition(":")[0], "sqlite")]


def execute(address: str, query: str) -> list[tuple[Any, ...]]:
    """Run a statement on a test's database, beside the store; what it selects."""
    return kind_of(address).execute(address, query)


# --- a thread whose event loop keeps the connections to the servers, whatever loops the tests use

_AT_THE_END: list[Callable[[], Coroutine[Any, Any, None]]] = []


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tests-databases", daemon=True).start()
    atexit.register(_leave, loop)
    return loop


def _elsewhere(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(60)


def _leave(loop: asyncio.AbstractEventLoop) -> None:
    for close in _AT_THE_END:
        _elsewhere(close())
    loop.call_soon_threadsafe(loop.stop)
