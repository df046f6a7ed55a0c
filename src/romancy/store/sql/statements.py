"""Reads named statements from a dialect's `.sql` files. Values are bound, or on MySQL written into the text as digits."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def read_statements(package: str) -> dict[str, str]:
    """Return the statements of a package's `.sql` files by name."""
    found: dict[str, str] = {}
    for entry in files(package).iterdir():
        if not entry.name.endswith(".sql"):
            continue
        _, *parts = _NAME.split(entry.read_text("utf-8"))
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise LookupError(f"Two statements are named {name}.")
            found[name] = _without_comments(body)
    return found


def _without_comments(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
