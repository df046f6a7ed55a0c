"""Reads the pages of the documentation: their code, their output, their links and headings.

A page is run as one program: `python tests/docs/pages.py PAGE` executes its ```python blocks one after another in one
namespace. A block whose first line is a file's name (`# shop.py`) is written to that file instead. A ```text block is
output: its lines are printed by the page, in this order. ```py and ```go blocks are programs for other libraries: they are
shown and not run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_LINK = re.compile(r"(?<!\!)\[[^\]\[]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The name of the file to which this block is saved, if its first line names one."""
        match = _FILE.match(self.text)
        return match[1] if match else None


def pages() -> list[Path]:
    """README.md and everything under docs/."""
    return [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if page.exists()]


def name_of(page: Path) -> str:
    """The path of a page, relative to the repository."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in _FENCE.finditer(text)]


def prose_of(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links_of(page: Path) -> list[str]:
    """The addresses a page links to."""
    return _LINK.findall(prose_of(page))


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings_of(page)}


def headings_of(page: Path) -> list[str]:
    """The headings of a page, without the marks of code."""
    return [heading.replace("`", "").strip() for heading in _HEADING.findall(prose_of(page))]


def table_of(page: Path, heading: str) -> list[list[str]]:
    """The rows, without the head, of the first table under a heading."""
    text = prose_of(page)
    _, found, rest = text.partition(f"## {heading}\n")
    assert found, f"{name_of(page)} has no section {heading!r}"
    lines = rest.partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in rows[2:]]


def run(page: Path) -> None:
    """Execute the code of a page in this process."""
    namespace: dict[str, Any] = vars(sys.modules["__main__"])
    for block in blocks_of(page):
        if block.language == "python":
            if block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.text, encoding="utf-8")
            else:
                _execute(block, page, namespace)


def _execute(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + block.text  # tracebacks and `inspect` then show the line number of the page
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, namespace))
    else:
        exec(code, namespace)


if __name__ == "__main__":
    sys.path[0] = ""  # a page may import the files that it saves, but not the modules beside this file
    run(Path(sys.argv[1]))
