"""Named statements on a cursor of the driver."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from romancy.codec import PLAIN, Coder
from romancy.store.sql.cursor import Line, Values
from romancy.store.sqlite.statements import one


class SqliteCursor:
    """What the deciding code runs its statements with."""

    many_at_once = False

    def __init__(self, cursor: sqlite3.Cursor, coder: Coder = PLAIN) -> None:
        self.raw = cursor
        self.coder = coder

    def run(self, name: str, values: Values = ()) -> int:
        """Change something; how many rows."""
        return self.raw.execute(one(name), values).rowcount

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; its number, or None if there was one already."""
        return self.raw.lastrowid if self.raw.execute(one(name), values).rowcount == 1 else None

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for many rows of values."""
        self.raw.executemany(one(name), rows)

    def first(self, name: str, values: Values = ()) -> Line | None:
        """The first row of a result, if there is one."""
        found: Line | None = self.raw.execute(one(name), values).fetchone()
        return found

    def only(self, name: str, values: Values = ()) -> Line:
        """The row of a result that always has one."""
        found: Line = self.raw.execute(one(name), values).fetchone()
        return found

    def rows(self, name: str, values: Values = ()) -> list[Line]:
        """Every row of a result."""
        return self.raw.execute(one(name), values).fetchall()

    def lines(self, name: str, values: Values = ()) -> list[Any]:
        """A result that is one JSON value."""
        found: list[Any] = json.loads(self.raw.execute(one(name), values).fetchone()[0])
        return found
