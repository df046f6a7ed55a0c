"""From a database address to a store. The only module that knows the dialects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Literal

from romancy.clock import Clock
from romancy.errors import ConfigurationError
from romancy.store.port import Store
from romancy.store.sqlite.store import SqliteStore

_SCHEME = re.compile(r"([a-z][a-z0-9.-]*)(?:\+[a-z0-9_.-]+)?:", re.IGNORECASE)
_MEMORY = ":memory:"
_OTHERS = frozenset({"postgres", "postgresql", "cockroachdb", "mysql", "mariadb"})
_ACCEPTED = "Accepted are a path (orders.db), sqlite:///relative.db, sqlite:////absolute/path.db, file:path.db and :memory:."


def open_store(
    database: str,
    *,
    clock: Clock,
    auto_migrate: bool = True,
    threads: Literal["threads", "inline"] = "threads",
    crash: Callable[[str], None] | None = None,
) -> Store:
    """The store for an address, not opened yet. Raises `ConfigurationError`, never with what may be a password in it.

    `threads="inline"` does all work in the caller's thread, in order; `crash` is a hook of tests around each commit.

    >>> from romancy.clock import SystemClock
    >>> store = open_store("sqlite:///orders.db", clock=SystemClock())
    """
    path = sqlite_path(database)
    return SqliteStore(path, clock=clock, auto_migrate=auto_migrate, threads=threads, crash=crash)


def sqlite_path(database: str) -> str:
    """The path a SQLite address names, or `:memory:`. It is absolute: the working folder may change later."""
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
    if scheme in _OTHERS:
        raise ConfigurationError(f"A {scheme} database is not supported by this version of romancy. {_ACCEPTED}")
    raise ConfigurationError(f"{scheme!r} is no kind of database romancy knows. {_ACCEPTED}")


def _after_slashes(rest: str) -> str:
    if not rest.startswith("///"):
        raise ConfigurationError(f"A sqlite address has three slashes before a relative path. {_ACCEPTED}")
    return _without_options(rest[3:])


def _without_options(path: str) -> str:
    if "?" in path:
        raise ConfigurationError(f"Options after '?' are not supported in a SQLite address. {_ACCEPTED}")
    return path
