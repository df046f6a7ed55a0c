"""Values in arguments: JSON text, or the name of a file that contains it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from romancy.cli.exit_codes import UsageError
from romancy.cli.terminal_text import escape, shorten


def read_text(part: str) -> str:
    """Return the argument or, if it begins with `@`, the content of that file; `@-` is standard input."""
    if not part.startswith("@"):
        return part
    name = part[1:]
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"The file {escape(name)!r} cannot be read: {error}.") from error


def read_json(part: str, what: str) -> Any:
    """Parse an argument, or the file that it names, as JSON."""
    try:
        return json.loads(read_text(part))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{what} {escape(shorten(part, 80))} is not valid JSON: {error}. A string needs quotes: '\"like this\"'."
        ) from error


def read_loosely(text: str) -> Any:
    """Parse a text as JSON; return the text itself if it is not valid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
