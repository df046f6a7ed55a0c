"""The output of commands: tables for people, JSON for programs, ids as the input of other commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from romancy.cli.json_output import to_json
from romancy.cli.terminal_text import escape, escape_lines
from romancy.errors import RomancyError

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T")


class Format(StrEnum):
    """An output format."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    IDS = "ids"


class MissingPackageError(RomancyError):
    """An optional package that the command needs is not installed."""


@dataclass(frozen=True)  # with slots, `Column[T](...)` fails on Python 3.11
class Column(Generic[T]):
    """One column of a table."""

    title: str
    value: Callable[[T], str]
    right: bool = False
    status: bool = False
    """The text is a status, a level or a verdict, and has its colour."""


class Output:
    """Prints results in the selected format."""

    def __init__(self, format: Format, title: str = "") -> None:
        self.format = format
        self._title = title
        self._tables: ModuleType | None = _load_tables() if format is Format.TABLE else None

    @property
    def is_table(self) -> bool:
        """Whether the format is a table."""
        return self.format is Format.TABLE

    def table(
        self,
        document: Any,
        items: Sequence[T],
        columns: Sequence[Column[T]],
        *,
        name: Callable[[T], str],
        empty: str = "Nothing to show.",
    ) -> None:
        """Print rows. `document` is the response of the HTTP API; `name` returns the text of a row for `-o ids`."""
        if self.format is Format.JSON:
            write(to_json(document, indent=2))
        elif not self.is_table:
            self.stream(items, name)
        elif items:
            self._rich.table(self._title, columns, items)
        else:
            note(empty)

    def stream(self, items: Sequence[T], name: Callable[[T], str]) -> None:
        """Print rows as one line each. The list may be a part of a longer one."""
        for item in items:
            write(to_json(item) if self.format is Format.JSONL else one_line(name(item)))

    def record(self, document: Any, sections: Callable[[], Sequence[RecordSection]], *, name: str) -> None:
        """Print one record with its sections."""
        if self.format is Format.IDS:
            write(one_line(name))
        elif self.is_table:
            self._rich.record(sections())
        else:
            write(to_json(document, indent=2 if self.format is Format.JSON else None))

    @property
    def _rich(self) -> ModuleType:
        assert self._tables is not None
        return self._tables


@dataclass(frozen=True, slots=True)
class RecordSection:
    """A section of a printed record: named values, or a text."""

    title: str
    fields: Sequence[tuple[str, str]] = ()
    text: str = ""


def one_line(name: str) -> str:
    """Return an id as one line: as JSON if `read_line` could not restore it otherwise, for example with line breaks."""
    return name if escape(name) == name and name == name.strip() and not name.startswith(('"', "-")) else to_json(name)


def read_line(line: str) -> str:
    """Return the id in a line that `one_line` wrote."""
    text = line.strip("\r\n ")
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        import json

        try:
            value = json.loads(text)
        except ValueError:
            return text
        return value if isinstance(value, str) else text
    return text


def write(text: str) -> None:
    """Print a line of the result to standard output."""
    print(text, flush=True)


def note(text: str) -> None:
    """Print a line for people to standard error. Characters that could control the terminal are escaped."""
    print(escape_lines(text), file=sys.stderr, flush=True)


def _load_tables() -> ModuleType:
    try:
        return importlib.import_module("romancy.cli.tables")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise MissingPackageError(
            "Tables need rich, which is not installed: pip install 'romancy[cli]'. Without it, use `--json`."
        ) from error
