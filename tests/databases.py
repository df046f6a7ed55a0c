"""The databases that tests run on: every kind there is, and an empty one for each test.

A new kind of database is one more line in `KINDS`. `ROMANCY_TEST_DATABASES=sqlite,postgres` names those to run on; without
it, all but `pgbouncer`, which is PostgreSQL with a pooler in between: only the integration tests are run on it every time.

Servers keep the databases they have lent, for the next test: deleting the rows takes 1 ms. (Truncating the tables took
12 ms, a copy of a template 26.)
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

    def empty(self, address: str) -> None:
        """Delete every row of ours."""
        ...

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement, beside the store; what it selects."""
        ...


class Lend(Protocol):
    """Gives out the addresses of empty databases."""

    def __call__(self, *, bare: bool = False) -> str:
        """Another one; bare: without our tables."""
        ...


_KEPT = ("romancy_migrations", "sqlite_sequence")


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

    def empty(self, address: str) -> None:
        """Delete every row."""
        with closing(sqlite3.connect(address, isolation_level=None, timeout=30)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            connection.executescript(
                "BEGIN;" + "".join(f"DELETE FROM {name};" for name in names if name not in _KEPT) + "COMMIT;"
            )

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""
        with closing(sqlite3.connect(address, isolation_level=None, timeout=30)) as connection:
            return connection.execute(query).fetchall()


class Line(Protocol):
    """A connection to a server, kept for the tests themselves."""

    async def run(self, query: str) -> list[tuple[Any, ...]]:
        """What a statement selects."""
        ...

    async def run_all(self, statements: str) -> None:
        """Run several."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Server(Protocol):
    """What is to be known of a kind of server."""

    others: str
    """Selects the other connections to a database that somebody uses."""
    how_to_empty: str
    """Selects the statements that empty a database. Tables that are not romancy's were made by a test."""

    def missing(self) -> str | None:
        """Why there is none here; None if there is."""
        ...

    def new(self) -> str:
        """A new database on it."""
        ...

    async def connect(self, address: str) -> Line:
        """A connection to one of its databases."""
        ...


class Databases:
    """Databases on a server, used again and again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[str] = []
        self._bare: set[str] = set()
        self._lines: dict[str, Line] = {}

    def missing(self) -> str | None:
        """Whether the server starts."""
        return self._server.missing()

    def lend(self, folder: Path, *, bare: bool = False) -> str:
        """One that is free, or a new one."""
        if self._free and not bare:
            return self._free.pop()
        address = _elsewhere(asyncio.to_thread(self._server.new))
        if bare:
            self._bare.add(address)
        return address

    def take_back(self, address: str) -> None:
        """Empty it for the next test. One that is still used is given up, and bare ones are: who knows what is in there."""
        left = _elsewhere(self._left_open(address))
        if left:
            raise AssertionError(f"The test left connections open: {left}")
        if address not in self._bare:
            self.empty(address)
            self._free.append(address)

    def empty(self, address: str) -> None:
        """Delete everything."""
        _elsewhere(self._empty(address))

    def execute(self, address: str, query: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of the tests' own."""
        return _elsewhere(self._run(address, query))

    async def _line(self, address: str) -> Line:
        if address not in self._lines:
            self._lines[address] = line = await self._server.connect(address)
            _AT_THE_END.append(line.close)
        return self._lines[address]

    async def _run(self, address: str, query: str) -> list[tuple[Any, ...]]:
        return await (await self._line(address)).run(query)

    async def _left_open(self, address: str) -> list[tuple[Any, ...]]:
        left: list[tuple[Any, ...]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while left := await self._run(address, self._server.others):
                    await asyncio.sleep(0.002)
        return left

    async def _empty(self, address: str) -> None:
        ((how,),) = await self._run(address, self._server.how_to_empty)
        if how:  # else nobody has used it
            await (await self._line(address)).run_all(how)


class PostgresServer:
    """PostgreSQL, from the wheel."""

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
        """Whether it starts."""
        return _why_not("PostgreSQL", servers.postgres)

    def new(self) -> str:
        """A new database."""
        return servers.new_postgres_database()

    async def connect(self, address: str) -> Line:
        """With asyncpg."""
        return _PostgresLine(await asyncpg.connect(address, statement_cache_size=0))


class PooledServer(PostgresServer):
    """PostgreSQL behind PgBouncer, which gives out connections by the transaction."""

    others = "SELECT 1 WHERE false"  # the pooler keeps what it has opened

    def missing(self) -> str | None:
        """Whether both start."""
        if servers.bouncer_program() is None:
            return "there is no PgBouncer: apt-get install pgbouncer"
        return super().missing()

    def new(self) -> str:
        """A new database, by way of the pooler."""
        return servers.bouncer().over(super().new())


class _PostgresLine:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def run(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(query)]

    async def run_all(self, statements: str) -> None:
        await self._connection.execute(statements)

    async def close(self) -> None:
        await self._connection.close(timeout=2)


class MariaServer:
    """MariaDB, from the system's package."""

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
        """Whether it is installed and starts."""
        return mariadb.why_not() or _why_not("MariaDB", mariadb.mysql)

    def new(self) -> str:
        """A new database."""
        return mariadb.new_database()

    async def connect(self, address: str) -> Line:
        """For each statement another."""
        return _MariaLine(address)


class _MariaLine:
    def __init__(self, address: str) -> None:
        self._address = address

    async def run(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(_as_text(value) for value in row) for row in await mariadb.execute(self._address, query)]

    async def run_all(self, statements: str) -> None:
        await mariadb.execute(self._address, statements)

    async def close(self) -> None:
        """Nothing is open."""


def _as_text(value: Any) -> Any:
    """Texts are kept as bytes, so that they are compared as such."""
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
    """Run a statement on a test's database, beside the store; what it selects."""
    return kind_of(address).execute(address, query)


def blob(address: str, digits: str) -> str:
    """Bytes as they are written in a statement, given in hexadecimal digits."""
    return f"'\\x{digits}'::bytea" if address.startswith("postgres") else f"X'{digits}'"


@contextmanager
def lending(name: str, folder: Path) -> Iterator[Lend]:
    """Databases of one kind for a test; the test is skipped if there are none."""
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
