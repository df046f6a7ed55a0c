"""Opens the store for a database address. This is the only module that knows the dialects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from romancy.clock import Clock
from romancy.codec import NO_CODEC, Codec
from romancy.errors import ConfigurationError
from romancy.store.encoding.store import EncodingStore
from romancy.store.port import Store
from romancy.store.sql.store import SqlStore
from romancy.store.sqlite.store import SqliteStore

_SCHEME = re.compile(r"([a-z][a-z0-9.-]*)(?:\+([a-z0-9_.-]+))?:", re.IGNORECASE)
_MEMORY = ":memory:"
_POSTGRES = frozenset({"postgres", "postgresql"})
_MYSQL = frozenset({"mysql", "mariadb"})
_UNSUPPORTED_SCHEMES = frozenset({"cockroachdb"})
_ACCEPTED = (
    "Accepted are a path (orders.db), sqlite:///relative.db, sqlite:////absolute/path.db, file:path.db, :memory:, "
    "postgresql://user:password@host:port/database and mysql://user:password@host:port/database."
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options for a database that is a server."""

    pool_size: int = 8
    listen_notify: bool | None = None
    listen_dsn: str | None = None
    is_resumed_here: Callable[[str], bool] | None = None
    """Whether this process itself resumes an instance that was woken: then other processes are notified later."""


def open_store(
    database: str,
    *,
    clock: Clock,
    auto_migrate: bool = True,
    threads: Literal["threads", "inline"] = "threads",
    crash: Callable[[str], None] | None = None,
    server: ServerOptions | None = None,
    codec: Codec = NO_CODEC,
) -> Store:
    """Return the store for an address, not opened yet. Raises `ConfigurationError`, never with a possible password in it.

    With `threads="inline"` all work on a SQLite file runs in the caller's thread, in order. `crash` is a hook of tests,
    called before and after commits. With a codec that has layers, payloads are encoded.

    >>> from romancy.clock import SystemClock
    >>> store = open_store("sqlite:///orders.db", clock=SystemClock())
    """
    store: SqlStore
    if scheme_of(database) in _POSTGRES:
        store = _postgres_store(database, clock, auto_migrate, crash, server or ServerOptions())
    elif scheme_of(database) in _MYSQL:
        store = _mysql_store(database, clock, auto_migrate, crash, server or ServerOptions())
    else:
        path = sqlite_path(database)
        store = SqliteStore(path, clock=clock, auto_migrate=auto_migrate, threads=threads, crash=crash)
    if not codec:
        return store
    store.encode_with(codec)
    return cast(Store, EncodingStore(store, codec))


def scheme_of(database: str) -> str:
    """Return the scheme of a database address; empty for a path."""
    match = None if database == _MEMORY else _SCHEME.match(database)
    return "" if match is None else match[1].lower()


def kind_of(database: str) -> str:
    """Return the kind of database that an address names, for display."""
    scheme = scheme_of(database)
    return "postgresql" if scheme in _POSTGRES else "mysql" if scheme in _MYSQL else "sqlite"


def _postgres_store(
    database: str, clock: Clock, auto_migrate: bool, crash: Callable[[str], None] | None, server: ServerOptions
) -> SqlStore:
    match = _SCHEME.match(database)
    assert match is not None
    if match[2] not in (None, "asyncpg"):
        raise ConfigurationError(f"romancy connects to PostgreSQL with asyncpg, not with {match[2]}: write postgresql://...")
    try:
        from romancy.store.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigurationError("A PostgreSQL database needs asyncpg: pip install 'romancy[postgres]'") from error
    return PostgresStore(
        "postgresql:" + database[match.end() :],
        clock=clock,
        auto_migrate=auto_migrate,
        pool_size=server.pool_size,
        listen_notify=server.listen_notify,
        listen_dsn=server.listen_dsn,
        crash=crash,
        is_resumed_here=server.is_resumed_here,
    )


def _mysql_store(
    database: str, clock: Clock, auto_migrate: bool, crash: Callable[[str], None] | None, server: ServerOptions
) -> SqlStore:
    match = _SCHEME.match(database)
    assert match is not None
    try:
        from romancy.store.mysql.store import MySqlStore
    except ImportError as error:
        raise ConfigurationError("A MySQL or MariaDB database needs asyncmy: pip install 'romancy[mysql]'") from error
    # A driver in the address is ignored: addresses that were written for other libraries work unchanged.
    dsn = "mysql:" + database[match.end() :]
    return MySqlStore(dsn, clock=clock, auto_migrate=auto_migrate, pool_size=server.pool_size, crash=crash)


def sqlite_path(database: str) -> str:
    """Return the path of a SQLite address, or `:memory:`. It is absolute: the working directory may change later."""
    path = _path(database)
    if not path:
        raise ConfigurationError(f"The database address names no file. {_ACCEPTED}")
    return path if path == _MEMORY else os.path.abspath(path)


def _path(database: str) -> str:
    match = None if database == _MEMORY else _SCHEME.match(database)
    if match is None:
        return database
    scheme, rest = match[1].lower(), database[match.end() :]
    if scheme == "sqlite":
        return _after_slashes(rest)
    if scheme == "file":
        return _without_options(rest.removeprefix("//"))
    if scheme in _UNSUPPORTED_SCHEMES:
        raise ConfigurationError(f"A {scheme} database is not supported by this version of romancy. {_ACCEPTED}")
    raise ConfigurationError(f"{scheme!r} is not a kind of database that romancy knows. {_ACCEPTED}")


def _after_slashes(rest: str) -> str:
    if not rest.startswith("///"):
        raise ConfigurationError(f"A sqlite address has three slashes before a relative path. {_ACCEPTED}")
    return _without_options(rest[3:])


def _without_options(path: str) -> str:
    if "?" in path:
        raise ConfigurationError(f"Options after '?' are not supported in a SQLite address. {_ACCEPTED}")
    return path
