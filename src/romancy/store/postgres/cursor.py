"""Runs named statements on a connection of asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncpg import Connection

from romancy.codec import NO_CODEC, Codec
from romancy.store.postgres.statements import get_statement
from romancy.store.sql.cursor import RawRow, Values
from romancy.store.sql.greenlet_bridge import wait


class PostgresCursor:
    """The `Cursor` of `romancy.store.sql` on PostgreSQL; only for work that the greenlet bridge runs."""

    has_bulk_statements = True

    def __init__(self, connection: Connection[Any], codec: Codec = NO_CODEC) -> None:
        self._connection = connection
        self.codec = codec

    def run(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return their number."""
        statement = get_statement(name)
        done: str = wait(self._connection.execute(statement.text, *statement.bind(values)))
        return int(done.rpartition(" ")[2])

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; return its number, or None if the row was there already."""
        found = self.first(name, values)
        return None if found is None else int(found[0])

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        if len(rows) == 1:  # executemany takes more round trips than one statement
            self.run(name, rows[0])
        else:
            wait(self._connection.executemany(get_statement(name).text, rows))

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """Return the first row of a result, or None if it is empty."""
        statement = get_statement(name)
        found = wait(self._connection.fetchrow(statement.text, *statement.bind(values)))
        return None if found is None else tuple(found)

    def only(self, name: str, values: Values = ()) -> RawRow:
        """Return the row of a result that always has one."""
        found = self.first(name, values)
        assert found is not None
        return found

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Return all rows of a result."""
        statement = get_statement(name)
        return [tuple(row) for row in wait(self._connection.fetch(statement.text, *statement.bind(values)))]

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Return all rows of a result; of a single column its values."""
        found = self.rows(name, values)
        return [row[0] for row in found] if found and len(found[0]) == 1 else found
