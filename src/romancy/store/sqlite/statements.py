"""The named statements of the `.sql` files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from romancy.store.sql.statements import read_statements

_ROW = re.compile(r"\((?:\?, )+\?\)")


@cache
def get_statement(name: str) -> str:
    """Return the text of a named statement."""
    return _load_statements()[name]


@cache
def repeat_values(name: str, times: int) -> str:
    """Return a named statement whose VALUES take `times` rows."""
    return _ROW.sub(lambda row: ", ".join([row[0]] * times), get_statement(name), count=1)


def statement_names() -> Iterator[str]:
    """Yield the names of all statements."""
    yield from _load_statements()


@cache
def _load_statements() -> dict[str, str]:
    return read_statements("romancy.store.sqlite.queries")
