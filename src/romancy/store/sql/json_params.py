"""Lists of keys as JSON: every database takes such a list as one parameter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from romancy.store.port import Runnable

NO_LIMIT = 2**62
"""Passed as `limit` for no limit."""


def as_json(values: Iterable[Any]) -> str:
    """Return a list of keys as a JSON parameter."""
    text = json.dumps(list(values), separators=(",", ":"))
    if "\\u0000" in text:
        # Older releases of SQLite end a JSON string at NUL and would find another instance; other databases refuse it.
        raise ValueError("an id contains the character NUL")
    return text


def kinds_as_json(runnable: Iterable[Runnable]) -> str:
    """Return workflow, version and code as a JSON parameter, each workflow and version once."""
    kinds = {(kind.workflow, kind.version): kind.code for kind in runnable}
    return as_json((workflow, version, code) for (workflow, version), code in kinds.items())
