"""Objects that an option names, as `module:name`: where a variable cannot hold the object itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def find_named(text: str, what: str) -> Any:
    """The object at `module:name`. Raises `ValueError`, which says `what` should have been named."""
    module, _, name = text.strip().partition(":")
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"{text!r} cannot be imported: {error}") from error
    if found is None or isinstance(found, str):
        raise ValueError(f"name {what} as 'module:name'")
    return found
