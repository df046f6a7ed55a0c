"""Lists of keys as every database takes them in one value: JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from romancy.store.port import Runnable

NO_LIMIT = 2**62
"""A limit that is none."""


def as_json(values: Iterable[Any]) -> str:
    """A list of keys."""
    text = json.dumps(list(values), separators=(",", ":"))
    if "\\u0000" in text:
        # Older releases of SQLite end a JSON string there and would find another instance; other databases refuse it.
        raise ValueError("an id contains the character NUL")
    return text


def kinds_as_json(runnable: Iterable[Runnable]) -> str:
    """Workflow, version and code, each workflow and version once."""
    kinds = {(kind.workflow, kind.version): kind.code for kind in runnable}
    return as_json((workflow, version, code) for (workflow, version), code in kinds.items())
