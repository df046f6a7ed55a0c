"""Adapters for connections of synchronous drivers (PEP 249): psycopg, PyMySQL, and frameworks on top of them."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from romancy.store.sql.cursor import RawRow


def is_dbapi_connection(connection: Any, *drivers: str) -> bool:
    """Return whether this is a synchronous connection of one of these packages."""
    packages = {base.__module__.partition(".")[0] for base in type(connection).__mro__}
    return not packages.isdisjoint(drivers) and not iscoroutinefunction(getattr(connection, "commit", None))


def as_row(row: Any) -> RawRow:
    """Return a row as a tuple, whatever row type the connection is configured for."""
    return tuple(row.values()) if isinstance(row, dict) else tuple(row)


class DbapiConnection:
    """A PEP 249 connection with the interface of an SQLAlchemy connection."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def exec_driver_sql(self, text: str, parameters: Any) -> DbapiResult:
        """Run a statement."""
        cursor = self._raw.cursor()
        cursor.execute(text, parameters)
        return DbapiResult(cursor)


class DbapiResult:
    """The result of a statement, with the interface of an SQLAlchemy result."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.rowcount: int = cursor.rowcount

    def first(self) -> RawRow | None:
        """Return the first row, or None."""
        found = self._cursor.fetchone()
        return None if found is None else as_row(found)

    def __iter__(self) -> Iterator[RawRow]:
        """Iterate over the rows."""
        return map(as_row, self._cursor)
