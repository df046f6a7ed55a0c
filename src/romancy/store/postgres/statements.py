"""The named statements of the `.sql` files, with numbered parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from romancy.store.sql.cursor import Values
from romancy.store.sql.statements import read_statements

_PARAMETER = re.compile(r"\?|(?<!:):([a-z_]+)")
_NUMBER = re.compile(r"\$(\d+)")


class PostgresStatement(NamedTuple):
    """A statement, and the names of its parameters in order."""

    text: str
    names: tuple[str, ...]

    def bind(self, values: Values) -> list[Any]:
        """Return the values in the order of the parameters."""
        if isinstance(values, Mapping):
            return [values[name] for name in self.names]
        return list(values)

    def format(self, values: Values) -> tuple[str, tuple[Any, ...]]:
        """Return text and parameters for drivers that write parameters as `%s`."""
        arguments = self.bind(values)
        found = [arguments[int(number) - 1] for number in _NUMBER.findall(self.text)]
        return _NUMBER.sub("%s", self.text.replace("%", "%%")), tuple(found)


@cache
def get_statement(name: str) -> PostgresStatement:
    """Return a named statement."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        label = found[1] or f"?{len(names)}"
        if label not in names:
            names.append(label)
        return f"${names.index(label) + 1}"

    text = _PARAMETER.sub(number, _load_statements()[name])
    return PostgresStatement(text, tuple(names))


def statement_names() -> Iterator[str]:
    """Yield the names of all statements."""
    yield from _load_statements()


@cache
def _load_statements() -> dict[str, str]:
    return read_statements("romancy.store.postgres.queries")
