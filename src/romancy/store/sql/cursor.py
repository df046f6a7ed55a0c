"""`Cursor`: runs a dialect's named statements within one transaction. Values are always bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from romancy.codec import Codec

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
RawRow: TypeAlias = tuple[Any, ...]


class Cursor(Protocol):
    """Runs named statements of a dialect, one after another."""

    has_bulk_statements: bool
    """The dialect has statements for many events or waits at once: on a server each statement is a round trip."""
    codec: Codec
    """Encodes the payloads that the SQL layer itself writes, and decodes those that it must read."""

    def run(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return how many."""
        ...

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; return its id, or None if the row existed already."""
        ...

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        ...

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """Return the first row of a result, or None."""
        ...

    def only(self, name: str, values: Values = ()) -> RawRow:
        """Return the row of a result that always has one."""
        ...

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Return all rows of a result."""
        ...

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Return all rows of a result without bytes columns; for a single column, its values."""
        ...
