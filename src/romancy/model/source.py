"""The stored source of a workflow: its function and the helper functions that get its context, with their positions.

All functions are in one text. A line before each function names its module, the line at which it begins, and its number of
lines:

    # shop.orders:41 (3 lines)
    @workflow
    async def checkout(ctx, order):
        return await pay(ctx, order)

    # shop.money:7 (2 lines)
    async def pay(ctx, order):
        return await charge(ctx, order.total)

Call sites in a history are lines of files (`module:function:line:column`); the first line of each function maps them to the
text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

_TRIES = 20
_HEADER = re.compile(r"# (\S+):(\d+) \((\d+) lines?\)")


@dataclass(frozen=True, slots=True)
class Section:
    """One function of a stored source."""

    text: str
    module: str = ""
    line: int = 0
    """The line of its file at which the function begins; 0 if that was not stored."""


def tree_of(text: str) -> ast.Module | None:
    """Return the syntax tree of a source; None if it cannot be parsed.

    Until 3.13, Python counts the recursion depth of its parser for all threads together, and raises SystemError if another
    thread parses at the same time. The call is repeated then.
    """
    for _ in range(_TRIES):
        with suppress(SystemError):
            try:
                return ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
    return None


def join_sections(sections: Iterable[Section]) -> str:
    """Return the text to store."""
    return "\n".join(
        f"# {section.module}:{section.line} ({_line_count(section.text)})\n{_with_newline(section.text)}"
        for section in sections
    )


def split_sections(stored: str) -> list[Section]:
    """Return the functions of a stored text. A text without lines before functions counts as one function."""
    lines = _split(stored)
    found: list[Section] = []
    at = 0
    while at < len(lines):
        header = _HEADER.fullmatch(lines[at].rstrip("\r\n"))
        if header is None:
            break
        first, at = at + 1, at + 1 + int(header[3])
        found.append(Section("".join(lines[first:at]), header[1], int(header[2])))
        at += 1  # the empty line between two functions
    if not found:
        return [Section(stored)] if stored.strip() else []
    return found


def _split(text: str) -> list[str]:
    # Not splitlines(): it also splits at form feeds and other characters that do not end a line of Python code.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _with_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _line_count(text: str) -> str:
    count = len(_split(text))
    return f"{count} line" if count == 1 else f"{count} lines"
