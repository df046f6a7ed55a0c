"""The databases that tests run on: every kind that is available, and an empty one for each test.

A new kind of database is one more entry in `KINDS`. `ROMANCY_TEST_DATABASES=sqlite,postgres` selects kinds. By default all
run but `pgbouncer`, PostgreSQL behind a pooler, which only a few tests use every time.

A database on a server is used again by the next test: deleting the rows takes 1 ms. (Truncating the tables took 12 ms, a
copy of a template 26 ms.)
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg
import pytest
from tests import mariadb, servers

T = TypeVar("T")
_CLOSE_TIMEOUT = 5.0
"""Seconds to wait for connections that a test is still closing."""


class Kind(Protocol):
    """A kind of database. Its functions may be called anywhere, also while an event loop runs."""

    def missing(self) -> str | None:
        """Why this kind is not available here; None if it is."""
        ...

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """The address of an empty database, with `bare` without tables of romancy. A file is created in the folder."""
        ...

    def take_back(self, address: str) -> None:
        """Take a database back after a test. Raises if the test has left a connection open."""
        ...

    def empty(self, address: str) -> None:
        """Delete all rows of romancy's tables."""
        ...

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement without the store; returns the rows it selects."""
        ...


class Lend(Protocol):
    """Lends empty databases."""

    def __call__(self, *, bare: bool = False) -> str:
        """The address of another empty database, with `bare` without tables of romancy."""
        ...


_KEPT = ("romancy_migrations", "sqlite_sequence")


class Files:
    """SQLite files."""

    def __init__(self) -> None:
        self._number = count(1)

    def missing(self) -> str | None:
        """Always None: SQLite is part of Python."""
        return None

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """The path of a file that does not exist yet."""
        return str(folder / f"romancy-{next(self._number)}.db")

    def take_back(self, address: str) -> None:
        """Nothing to do: the folder belongs to the test."""

    def empty(self, address: str) -> None:
        """Delete all rows."""
        with closing(sqlite3.connect(address, isolation_level=None, timeout=30)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            connection.executescript(
                "BEGIN;" + "".join(f"DELETE FROM {name};" for name in names if name not in _KEPT) + "COMMIT;"
            )

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on a separate connection."""
        with closing(sqlite3.connect(address, isolation_level=None, timeout=30)) as connection:
            return connection.execute(query).fetchall()


class Connection(Protocol):
    """A connection to a server that the tests themselves use."""

    async def run(self, query: str) -> list[tuple[Any, ...]]:
        """The rows that a statement selects."""
        ...

    async def run_all(self, statements: str) -> None:
        """Run several statements."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Server(Protocol):
    """The differences between the kinds of servers."""

    others: str
    """A query that selects the other connections to the database."""
    how_to_empty: str
    """A query that selects the statements that empty a database. Tables that are not romancy's were created by a test."""

    def missing(self) -> str | None:
        """Why the server is not available; None if it is."""
        ...

    def new(self) -> str:
        """Create a database; returns its address."""
        ...

    async def connect(self, address: str) -> Connection:
        """Connect to one of its databases."""
        ...


class Databases:
    """Databases on a server, which are used again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[str] = []
        self._bare: set[str] = set()
        self._connections: dict[str, Connection] = {}

    def missing(self) -> str | None:
        """Why the server is not available; None if it is."""
        return self._server.missing()

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """A free database, or a new one."""
        if self._free and not bare:
            return self._free.pop()
        address = _run_on_loop(asyncio.to_thread(self._server.new))
        if bare:
            self._bare.add(address)
        return address

    def take_back(self, address: str) -> None:
        """Empty a database for the next test. Databases that are still in use and bare ones are not used again."""
        left = _run_on_loop(self._left_open(address))
        if left:
            raise AssertionError(f"The test left connections open: {left}")
        if address not in self._bare:
            self.empty(address)
            self._free.append(address)

    def empty(self, address: str) -> None:
        """Delete all rows."""
        _run_on_loop(self._empty(address))

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on the tests' own connection."""
        return _run_on_loop(self._run(address, query))

    async def _connection(self, address: str) -> Connection:
        if address not in self._connections:
            self._connections[address] = connection = await self._server.connect(address)
            _CLOSERS.append(connection.close)
        return self._connections[address]

    async def _run(self, address: str, query: str) -> list[tuple[Any, ...]]:
        return await (await self._connection(address)).run(query)

    async def _left_open(self, address: str) -> list[tuple[Any, ...]]:
        left: list[tuple[Any, ...]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                while left := await self._run(address, self._server.others):
                    await asyncio.sleep(0.002)
        return left

    async def _empty(self, address: str) -> None:
        ((how,),) = await self._run(address, self._server.how_to_empty)
        if how:  # otherwise the database was not used
            await (await self._connection(address)).run_all(how)


class PostgresServer:
    """PostgreSQL from the wheel."""

    others = """
        SELECT pid, application_name, state, query FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
    how_to_empty = """
        SELECT string_agg(how, '; ') FROM (
            SELECT CASE WHEN tablename LIKE 'romancy_%' THEN 'DELETE FROM ' ELSE 'DROP TABLE ' END || quote_ident(tablename)
                AS how
            FROM pg_tables
            WHERE schemaname = current_schema() AND tablename NOT IN ('romancy_messaging_lock', 'romancy_migrations')
            UNION ALL
            SELECT 'SELECT setval(' || quote_literal(sequencename) || ', 1, false)' FROM pg_sequences
            WHERE schemaname = current_schema() AND sequencename LIKE 'romancy_%') AS parts"""

    def missing(self) -> str | None:
        """Why the server cannot start; None if it can."""
        return _why_not("PostgreSQL", servers.postgres)

    def new(self) -> str:
        """Create a database."""
        return servers.new_postgres_database()

    async def connect(self, address: str) -> Connection:
        """Connect with asyncpg."""
        return _PostgresConnection(await asyncpg.connect(address, statement_cache_size=0))


class PooledServer(PostgresServer):
    """PostgreSQL behind PgBouncer in transaction mode."""

    others = "SELECT 1 WHERE false"  # the pooler keeps its connections open

    def missing(self) -> str | None:
        """Why the pooler or the server cannot start; None if both can."""
        if servers.bouncer_program() is None:
            return "there is no PgBouncer: apt-get install pgbouncer"
        return super().missing()

    def new(self) -> str:
        """Create a database, with an address through the pooler."""
        return servers.bouncer().over(super().new())


class _PostgresConnection:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def run(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(query)]

    async def run_all(self, statements: str) -> None:
        await self._connection.execute(statements)

    async def close(self) -> None:
        await self._connection.close(timeout=2)


class MariaServer:
    """MariaDB from the system's package."""

    others = """
        SELECT id, command, time, state, info FROM information_schema.processlist
        WHERE db = database() AND id <> connection_id()"""
    how_to_empty = """
        SELECT group_concat(CASE WHEN table_name LIKE 'romancy_%' THEN 'DELETE FROM ' ELSE 'DROP TABLE ' END, table_name
            SEPARATOR '; ')
        FROM information_schema.tables
        WHERE table_schema = database() AND
            table_name NOT IN ('romancy_messaging_lock', 'romancy_notifications', 'romancy_migrations')"""

    def missing(self) -> str | None:
        """Why the server is not installed or cannot start; None if it can."""
        return mariadb.why_not() or _why_not("MariaDB", mariadb.mysql)

    def new(self) -> str:
        """Create a database."""
        return mariadb.new_database()

    async def connect(self, address: str) -> Connection:
        """A connection that opens a new one for each statement."""
        return _MariaConnection(address)


class _MariaConnection:
    def __init__(self, address: str) -> None:
        self._address = address

    async def run(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(_as_text(value) for value in row) for row in await mariadb.execute(self._address, query)]

    async def run_all(self, statements: str) -> None:
        await mariadb.execute(self._address, statements)

    async def close(self) -> None:
        """Nothing to do: nothing is open."""


def _as_text(value: Any) -> Any:
    """Decode texts, which MariaDB returns as bytes because they are stored with a binary collation."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


@cache
def _why_not(name: str, start: Callable[[], str]) -> str | None:
    try:
        start()
    except Exception as error:
        return f"there is no {name}: {error}"
    return None


KINDS: dict[str, Kind] = {
    "sqlite": Files(),
    "postgres": Databases(PostgresServer()),
    "mariadb": Databases(MariaServer()),
    "pgbouncer": Databases(PooledServer()),
}


_SCHEMES = {"postgresql": "postgres", "mysql": "mariadb"}


def names(*more: str) -> Sequence[str]:
    """The kinds to run on."""
    wanted = os.environ.get("ROMANCY_TEST_DATABASES", ",".join(("sqlite", "postgres", "mariadb", *more)))
    return [name for name in KINDS if name in wanted.split(",")]


def kind_of(address: str) -> Kind:
    """The kind of a database by its address."""
    return KINDS[_SCHEMES.get(address.partition(":")[0], "sqlite")]


def execute(address: str, query: str) -> list[tuple[Any, ...]]:
    """Run a statement on a test's database without the store; returns the rows it selects."""
    return kind_of(address).execute(address, query)


def blob(address: str, digits: str) -> str:
    """A literal for bytes given in hexadecimal digits."""
    return f"'\\x{digits}'::bytea" if address.startswith("postgres") else f"X'{digits}'"


@contextmanager
def lending(name: str, folder: Path) -> Iterator[Lend]:
    """Lend databases of one kind to a test; the test is skipped if the kind is not available."""
    kind = KINDS[name]
    if why_not := kind.missing():
        pytest.skip(why_not)
    lent: list[str] = []

    def lend(*, bare: bool = False) -> str:
        lent.append(kind.lend(folder, bare=bare))
        return lent[-1]

    yield lend
    for address in lent:
        kind.take_back(address)


# --- the event loop of the connections to the servers, in a thread of its own

_CLOSERS: list[Callable[[], Coroutine[Any, Any, None]]] = []


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tests-databases", daemon=True).start()
    atexit.register(_close_all, loop)
    return loop


def _run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(60)


def _close_all(loop: asyncio.AbstractEventLoop) -> None:
    for close in _CLOSERS:
        _run_on_loop(close())
    loop.call_soon_threadsafe(loop.stop)
