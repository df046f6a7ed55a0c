"""Lists of keys as SQLite takes and gives them in one value: JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from romancy.store.port import Runnable
from romancy.store.sqlite.statements import one

Values = Sequence[Any] | Mapping[str, Any]


def fetch(cursor: sqlite3.Cursor, name: str, values: Values) -> Any:
    """The JSON value a named statement answers with."""
    return json.loads(cursor.execute(one(name), values).fetchone()[0])


def as_json(values: Iterable[Any]) -> str:
    """A list of keys for `json_each`."""
    text = json.dumps(list(values), separators=(",", ":"))
    if "\\u0000" in text:
        # Older releases of SQLite end a JSON string there and would find another instance.
        raise ValueError("an id contains the character NUL")
    return text


def kinds_as_json(runnable: Iterable[Runnable]) -> str:
    """Workflow, version and code, each workflow and version once."""
    kinds = {(kind.workflow, kind.version): kind.code for kind in runnable}
    return as_json((workflow, version, code) for (workflow, version), code in kinds.items())
