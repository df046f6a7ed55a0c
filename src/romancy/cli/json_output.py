"""Records as JSON, in the same form as in the HTTP API."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python


def to_jsonable(value: Any) -> Any:
    """Convert a record, or several, to values that JSON can represent, in the same way as the HTTP API."""
    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a record as JSON text. The text is ASCII, so it contains no characters that could control a terminal."""
    return json.dumps(to_jsonable(value), indent=indent)
