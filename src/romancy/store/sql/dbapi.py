"""Connections of synchronous drivers, as PEP 249 describes them: of psycopg, PyMySQL, and of frameworks that use such."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from romancy.store.sql.cursor import RawRow


def is_dbapi_connection(connection: Any, *drivers: str) -> bool:
    """Whether this is a connection of one of these packages, and no asynchronous one."""
    packages = {base.__module__.partition(".")[0] for base in type(connection).__mro__}
    return not packages.isdisjoint(drivers) and not iscoroutinefunction(getattr(connection, "commit", None))


def as_row(row: Any) -> RawRow:
    """A row, whatever the owner of the connection wants rows to be."""
    return tuple(row.values()) if isinstance(row, dict) else tuple(row)


class DbapiConnection:
    """Runs statements as a connection of SQLAlchemy does."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def exec_driver_sql(self, text: str, parameters: Any) -> DbapiResult:
        """Run a statement."""
        cursor = self._raw.cursor()
        cursor.execute(text, parameters)
        return DbapiResult(cursor)


class DbapiResult:
    """What a statement gave."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.rowcount: int = cursor.rowcount

    def first(self) -> RawRow | None:
        """The first row, if there is one."""
        found = self._cursor.fetchone()
        return None if found is None else as_row(found)

    def __iter__(self) -> Iterator[RawRow]:
        """Every row."""
        return map(as_row, self._cursor)
