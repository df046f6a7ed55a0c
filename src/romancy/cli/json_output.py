"""Records as JSON: the shapes of the HTTP interface."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python


def to_jsonable(value: Any) -> Any:
    """A record, or records, as what JSON knows: as the HTTP interface answers it."""
    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """As text. Only ASCII: it can be read everywhere, and steers no terminal."""
    return json.dumps(to_jsonable(value), indent=indent)
