"""Named statements on a connection of asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncpg import Connection

from romancy.codec import NO_CODEC, Codec
from romancy.store.postgres.statements import get_statement
from romancy.store.sql.cursor import RawRow, Values
from romancy.store.sql.greenlet_bridge import wait


class PostgresCursor:
    """What the deciding code runs its statements with; only in work that the bridge does."""

    has_bulk_statements = True

    def __init__(self, connection: Connection[Any], codec: Codec = NO_CODEC) -> None:
        self._connection = connection
        self.codec = codec

    def run(self, name: str, values: Values = ()) -> int:
        """Change something; how many rows."""
        statement = get_statement(name)
        done: str = wait(self._connection.execute(statement.text, *statement.bind(values)))
        return int(done.rpartition(" ")[2])

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; its number, or None if there was one already."""
        found = self.first(name, values)
        return None if found is None else int(found[0])

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for many rows of values."""
        if len(rows) == 1:  # a batch of one takes more round trips than a statement
            self.run(name, rows[0])
        else:
            wait(self._connection.executemany(get_statement(name).text, rows))

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """The first row of a result, if there is one."""
        statement = get_statement(name)
        found = wait(self._connection.fetchrow(statement.text, *statement.bind(values)))
        return None if found is None else tuple(found)

    def only(self, name: str, values: Values = ()) -> RawRow:
        """The row of a result that always has one."""
        found = self.first(name, values)
        assert found is not None
        return found

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Every row of a result."""
        statement = get_statement(name)
        return [tuple(row) for row in wait(self._connection.fetch(statement.text, *statement.bind(values)))]

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Every row of a result; of a single column its values."""
        found = self.rows(name, values)
        return [row[0] for row in found] if found and len(found[0]) == 1 else found
