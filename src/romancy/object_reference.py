"""References to Python objects as `module:name`, for options whose environment variable cannot hold the object itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def find_named(text: str, what: str) -> Any:
    """Import and return the object at `module:name`. Raises `ValueError`; `what` is the expected object in its message."""
    module, _, name = text.strip().partition(":")
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"{text!r} cannot be imported: {error}") from error
    if found is None or isinstance(found, str):
        raise ValueError(f"give {what} as 'module:name'")
    return found
