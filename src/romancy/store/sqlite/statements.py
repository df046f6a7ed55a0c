"""The named statements of the `.sql` files, read once. Values are always bound."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

_ROW = re.compile(r"\((?:\?, )+\?\)")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def one(name: str) -> str:
    """The text of a named statement."""
    return _all()[name]


@cache
def repeated(name: str, times: int) -> str:
    """A named statement for so many rows of values at once."""
    return _ROW.sub(lambda row: ", ".join([row[0]] * times), one(name), count=1)


def names() -> Iterator[str]:
    """Every statement."""
    yield from _all()


@cache
def _all() -> dict[str, str]:
    found: dict[str, str] = {}
    for text in _files():
        _, *parts = _NAME.split(text)
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise LookupError(f"Two statements are named {name}.")
            found[name] = _without_comments(body)
    return found


def _files() -> Iterable[str]:
    folder = files("romancy.store.sqlite")
    return [entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")]


def _without_comments(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
