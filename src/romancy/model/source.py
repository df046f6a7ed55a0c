"""The source of a workflow as it is stored: its function, the helpers it hands its context to, and where each stands.

One text holds them all. Before each function stands a line that says which module it is from, the line it begins at and how
many lines it has:

    # shop.orders:41 (3 lines)
    @workflow
    async def checkout(ctx, order):
        return await pay(ctx, order)

    # shop.money:7 (2 lines)
    async def pay(ctx, order):
        return await charge(ctx, order.total)

A history tells lines of files (`module:function:line:column`): with the first line of each function they are found again.
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
    """The line of its file at which it begins; 0 if that was not stored."""


def tree_of(text: str) -> ast.Module | None:
    """The syntax tree of a source; None if it cannot be read.

    Until 3.13, Python counts how deep it is in a tree for all threads together: while another parses too, it may lose count.
    """
    for _ in range(_TRIES):
        with suppress(SystemError):
            try:
                return ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
    return None


def join_sections(sections: Iterable[Section]) -> str:
    """The text to store."""
    return "\n".join(f"# {one.module}:{one.line} ({_lines(one.text)})\n{_ended(one.text)}" for one in sections)


def split_sections(stored: str) -> list[Section]:
    """The functions of a stored text. One without the lines before functions is taken as one function."""
    lines = _split(stored)
    found: list[Section] = []
    at = 0
    while at < len(lines):
        header = _HEADER.fullmatch(lines[at].rstrip("\r\n"))
        if header is None:
            break
        first, at = at + 1, at + 1 + int(header[3])
        found.append(Section("".join(lines[first:at]), header[1], int(header[2])))
        at += 1  # the empty line between two
    if not found:
        return [Section(stored)] if stored.strip() else []
    return found


def _split(text: str) -> list[str]:
    # Not splitlines(): it also breaks at form feeds and other characters that are no ends of lines in Python's eyes.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _lines(text: str) -> str:
    count = len(_split(text))
    return f"{count} line" if count == 1 else f"{count} lines"
