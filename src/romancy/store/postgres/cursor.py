"""Named statements on a connection of asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncpg import Connection

from romancy.codec import PLAIN, Coder
from romancy.store.postgres.statements import one
from romancy.store.sql.bridge import wait
from romancy.store.sql.cursor import Line, Values


class PostgresCursor:
    """What the deciding code runs its statements with; only in work that the bridge does."""

    many_at_once = True

    def __init__(self, connection: Connection[Any], coder: Coder = PLAIN) -> None:
        self._connection = connection
        self.coder = coder

    def run(self, name: str, values: Values = ()) -> int:
        """Change something; how many rows."""
        statement = one(name)
        done: str = wait(self._connection.execute(statement.text, *statement.arguments(values)))
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
            wait(self._connection.executemany(one(name).text, rows))

    def first(self, name: str, values: Values = ()) -> Line | None:
        """The first row of a result, if there is one."""
        statement = one(name)
        found = wait(self._connection.fetchrow(statement.text, *statement.arguments(values)))
        return None if found is None else tuple(found)

    def only(self, name: str, values: Values = ()) -> Line:
        """The row of a result that always has one."""
        found = self.first(name, values)
        assert found is not None
        return found

    def rows(self, name: str, values: Values = ()) -> list[Line]:
        """Every row of a result."""
        statement = one(name)
        return [tuple(row) for row in wait(self._connection.fetch(statement.text, *statement.arguments(values)))]

    def lines(self, name: str, values: Values = ()) -> list[Any]:
        """Every row of a result; of a single column its values."""
        found = self.rows(name, values)
        return [row[0] for row in found] if found and len(found[0]) == 1 else found
