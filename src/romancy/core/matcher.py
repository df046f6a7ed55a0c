"""Matches JSON data against values at paths: `{"customer.id": "c1", "items.0.sku": "x"}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_MISSING = object()


def matches(data: Any, expected: Mapping[str, Any]) -> bool:
    """The data has the expected value at every path."""
    return all(is_same_json(find(data, path), value) for path, value in expected.items())


def input_matches(data: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """As `matches`, for the arguments of a workflow: by parameter name, or inside its only argument if that is an object."""
    values: list[Any] = list(data.values())
    sole: Any = values[0] if len(values) == 1 else None
    for path, value in expected.items():
        found = find(data, path)
        if found is _MISSING and isinstance(sole, dict):
            found = find(sole, path)
        if not is_same_json(found, value):
            return False
    return True


def find(data: Any, path: str) -> Any:
    """The value at a dotted path; a number is an index in a list. A key that contains dots is found as a whole too."""
    if isinstance(data, Mapping) and path in data:
        return cast(Mapping[str, Any], data)[path]
    head, dot, rest = path.partition(".")
    while True:
        step = _step(data, head)
        if step is not _MISSING:
            found = find(step, rest) if dot else step
            if found is not _MISSING:
                return found
        if not dot:
            return _MISSING
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"


def _step(data: Any, key: str) -> Any:
    if isinstance(data, Mapping):
        return cast(Mapping[str, Any], data).get(key, _MISSING)
    if isinstance(data, list) and key.isdecimal():
        return _item_at(data, int(key))
    return _MISSING


def _item_at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _MISSING


def is_same_json(found: Any, expected: Any) -> bool:
    """Equal as JSON is: `true` is not 1, `null` is not missing, 1 is 1.0."""
    if found is _MISSING or isinstance(found, bool) != isinstance(expected, bool):
        return False
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_same_json, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(is_same_json(found[key], expected[key]) for key in found)
    return bool(found == expected)
