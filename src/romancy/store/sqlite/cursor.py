"""Runs named statements on a cursor of the driver."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from romancy.codec import NO_CODEC, Codec
from romancy.store.sql.cursor import RawRow, Values
from romancy.store.sqlite.statements import get_statement


class SqliteCursor:
    """The `Cursor` of `romancy.store.sql` on SQLite."""

    has_bulk_statements = False

    def __init__(self, cursor: sqlite3.Cursor, codec: Codec = NO_CODEC) -> None:
        self.raw = cursor
        self.codec = codec

    def run(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return their number."""
        return self.raw.execute(get_statement(name), values).rowcount

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; return its number, or None if the row was there already."""
        return self.raw.lastrowid if self.raw.execute(get_statement(name), values).rowcount == 1 else None

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        self.raw.executemany(get_statement(name), rows)

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """Return the first row of a result, or None if it is empty."""
        found: RawRow | None = self.raw.execute(get_statement(name), values).fetchone()
        return found

    def only(self, name: str, values: Values = ()) -> RawRow:
        """Return the row of a result that always has one."""
        found: RawRow = self.raw.execute(get_statement(name), values).fetchone()
        return found

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Return all rows of a result."""
        return self.raw.execute(get_statement(name), values).fetchall()

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Return the rows of a result that is one JSON value."""
        found: list[Any] = json.loads(self.raw.execute(get_statement(name), values).fetchone()[0])
        return found
