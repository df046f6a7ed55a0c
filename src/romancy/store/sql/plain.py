"""Connections of synchronous drivers, as PEP 249 describes them: of psycopg, PyMySQL, and of frameworks that use such."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from romancy.store.sql.cursor import Line


def is_plain(connection: Any, *drivers: str) -> bool:
    """Whether this is a connection of one of these packages, and no asynchronous one."""
    packages = {base.__module__.partition(".")[0] for base in type(connection).__mro__}
    return not packages.isdisjoint(drivers) and not iscoroutinefunction(getattr(connection, "commit", None))


def as_line(row: Any) -> Line:
    """A row, whatever the owner of the connection wants rows to be."""
    return tuple(row.values()) if isinstance(row, dict) else tuple(row)


class PlainConnection:
    """Runs statements as a connection of SQLAlchemy does."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def exec_driver_sql(self, text: str, parameters: Any) -> PlainResult:
        """Run a statement."""
        cursor = self._raw.cursor()
        cursor.execute(text, parameters)
        return PlainResult(cursor)


class PlainResult:
    """What a statement gave."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.rowcount: int = cursor.rowcount

    def first(self) -> Line | None:
        """The first row, if there is one."""
        found = self._cursor.fetchone()
        return None if found is None else as_line(found)

    def __iter__(self) -> Iterator[Line]:
        """Every row."""
        return map(as_line, self._cursor)
