"""The statements of one transaction, by name. Values are always bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from romancy.codec import Codec

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
RawRow: TypeAlias = tuple[Any, ...]


class Cursor(Protocol):
    """Runs the statements of a dialect, one after another."""

    has_bulk_statements: bool
    """The dialect has statements that decide about many events or waits at once: where each takes a way to a server."""
    codec: Codec
    """Encodes what the deciding code itself writes of payloads, and decodes what it must look into."""

    def run(self, name: str, values: Values = ()) -> int:
        """Change something; how many rows."""
        ...

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; its number, or None if there was one already."""
        ...

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for many rows of values."""
        ...

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """The first row of a result, if there is one."""
        ...

    def only(self, name: str, values: Values = ()) -> RawRow:
        """The row of a result that always has one."""
        ...

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Every row of a result."""
        ...

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Every row of a result that holds no bytes; of a single column its values."""
        ...
