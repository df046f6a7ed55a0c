"""The named statements of the `.sql` files, read once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from romancy.store.sql.statements import read_statements

_ROW = re.compile(r"\((?:\?, )+\?\)")


@cache
def get_statement(name: str) -> str:
    """The text of a named statement."""
    return _load_statements()[name]


@cache
def repeat_values(name: str, times: int) -> str:
    """A named statement for so many rows of values at once."""
    return _ROW.sub(lambda row: ", ".join([row[0]] * times), get_statement(name), count=1)


def statement_names() -> Iterator[str]:
    """Every statement."""
    yield from _load_statements()


@cache
def _load_statements() -> dict[str, str]:
    return read_statements("romancy.store.sqlite.queries")
