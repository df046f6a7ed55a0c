"""The terminal: its colours, its width, and replacements for terminals that support only ASCII."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TextIO

_NARROWEST, _WIDEST = 60, 120
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_ASCII = str.maketrans("▆░─╌◷⚑✓✗↩×│┊├┤…", "#%-.o|+x<x|:||~")


class Colour(StrEnum):
    """The parameters of an ANSI escape. The sixteen colours are the terminal's own, so they suit its background."""

    STRONG = "1"
    PALE = "2"
    OK = "32"
    FAILED = "1;31"
    WAITING = "35"
    RETRY = "33"
    ROLLBACK = "1;35"
    WORK = "36"


class Terminal:
    """The output of the demonstration."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._stream = stream
        self._ascii = not _can_write(stream)
        self.coloured = stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        self.width = min(max(shutil.get_terminal_size((80, 24)).columns, _NARROWEST), _WIDEST)

    def line(self, text: str = "") -> None:
        """Write one line."""
        text = text if self.coloured else plain(text)
        self._stream.write((text.translate(_ASCII) if self._ascii else text) + "\n")
        self._stream.flush()

    def lines(self, lines: Iterable[str]) -> None:
        """Write several lines."""
        for line in lines:
            self.line(line)

    def write_paragraph(self, text: str, indent: str = "   ") -> None:
        """Write a paragraph, wrapped to the width."""
        self.lines(textwrap.wrap(text, self.width - 1, initial_indent=indent, subsequent_indent=indent))

    def heading(self, number: int, title: str) -> None:
        """Write the heading of a step."""
        self.line()
        self.line(f"{paint(str(number), Colour.WORK)}  {paint(title, Colour.STRONG)}")


def paint(text: str, colour: Colour | None) -> str:
    """Return text in a colour."""
    return text if colour is None or not text else f"\x1b[{colour}m{text}\x1b[0m"


def plain(text: str) -> str:
    """Return text without its colours."""
    return _ESCAPE.sub("", text)


def _can_write(stream: TextIO) -> bool:
    try:
        "▆░◷⚑✓✗↩".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
