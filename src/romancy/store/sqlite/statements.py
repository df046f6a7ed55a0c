"""The named statements of the `.sql` files, read once.

A statement marked `(many)` has one group of placeholders; `Many` runs it for any number of rows in few executions, by
repeating that group. Values are always bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from sqlite3 import Cursor
from typing import Any

_NAME = re.compile(r"^-- name: (\w+)( \(many\))?$", re.MULTILINE)
_GROUP = re.compile(r"VALUES (\([^()]*\?[^()]*\))")
_WIDEST = 64
"""Rows in one execution. 64 rows of 19 columns stay far below SQLite's 32,766 variables."""


@dataclass(frozen=True, slots=True)
class Many:
    """A statement for many rows: one text for each power of two, so that few are prepared and few executions needed."""

    texts: tuple[str, ...]

    def run(self, cursor: Cursor, rows: Sequence[Sequence[Any]]) -> None:
        """Execute it for all rows, in order."""
        start, left = 0, len(rows)
        while left:
            power = min(left, _WIDEST).bit_length() - 1
            end = start + (1 << power)
            cursor.execute(self.texts[power], list(chain.from_iterable(rows[start:end])))
            start, left = end, len(rows) - end


@cache
def one(name: str) -> str:
    """The text of a named statement."""
    return _all()[name]


@cache
def many(name: str) -> Many:
    """A named statement for many rows."""
    text = _all()[name]
    match = _GROUP.search(text)
    if match is None:
        raise LookupError(f"The statement {name} has no group of placeholders.")
    before, group, after = text[: match.start(1)], match[1], text[match.end(1) :]
    return Many(tuple(before + ", ".join([group] * (1 << power)) + after for power in range(_WIDEST.bit_length())))


def names() -> Iterator[tuple[str, bool]]:
    """Every statement, and whether it is for many rows."""
    for text in _files():
        for match in _NAME.finditer(text):
            yield match[1], match[2] is not None


@cache
def _all() -> dict[str, str]:
    found: dict[str, str] = {}
    for text in _files():
        _, *parts = _NAME.split(text)
        for name, body in zip(parts[::3], parts[2::3], strict=True):
            if name in found:
                raise LookupError(f"Two statements are named {name}.")
            found[name] = _without_comments(body)
    return found


def _files() -> Iterable[str]:
    folder = files("romancy.store.sqlite")
    return [entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")]


def _without_comments(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
