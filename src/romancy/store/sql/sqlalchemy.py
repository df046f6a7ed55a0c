"""A cursor for named statements on an SQLAlchemy connection, in transactions that do not belong to the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from romancy.codec import Codec
from romancy.store.sql.cursor import RawRow, Values
from romancy.store.sql.dbapi import DbapiConnection

if TYPE_CHECKING:
    from sqlalchemy import Connection

Bind = Callable[[str, Values], tuple[str, Any]]
"""Returns a statement's text and parameters, as the dialect's driver takes them."""


class AlchemyCursor:
    """Runs statements on a synchronous connection; inside `run_sync` if the driver is asynchronous."""

    has_bulk_statements = False

    def __init__(
        self,
        connection: Connection | DbapiConnection,
        bind: Bind,
        codec: Codec,
        *,
        json_rows: bool = False,
        returning: bool = False,
    ) -> None:
        self._connection = connection
        self.codec = codec
        self._bind = bind
        self._json_rows = json_rows
        self._returning = returning

    def run(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return how many."""
        changed: int = self._execute(name, values).rowcount
        return changed

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; return its id, or None if the row existed already."""
        result = self._execute(name, values)
        if self._returning:
            found = result.first()
            return None if found is None else int(found[0])
        return int(result.lastrowid) if result.rowcount == 1 else None

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        for row in rows:
            self._execute(name, row)

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """Return the first row of a result, or None."""
        found = self._execute(name, values).first()
        return None if found is None else tuple(found)

    def only(self, name: str, values: Values = ()) -> RawRow:
        """Return the row of a result that always has one."""
        found = self.first(name, values)
        assert found is not None
        return found

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Return all rows of a result."""
        return [tuple(row) for row in self._execute(name, values)]

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Return all rows of a result without bytes columns; for a single column, its values."""
        found = self.rows(name, values)
        if self._json_rows:
            rows: list[Any] = json.loads(found[0][0])
            return rows
        return [row[0] for row in found] if found and len(found[0]) == 1 else found

    def _execute(self, name: str, values: Values) -> Any:
        text, parameters = self._bind(name, values)
        return self._connection.exec_driver_sql(text, parameters or None)
