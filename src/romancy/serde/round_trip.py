"""Finds what a value has lost when it was written and read back.

Most losses make reading fail. Some are silent: the fields of a subclass, a field that a dataclass sets outside `__init__`,
the seconds of a UTC offset, a key that is None.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

# Types whose values can be compared by `==`. A class of the user may define `==` in any way.
_COMPARED = (str, bytes, int, float, complex, datetime, date, time, timedelta, Decimal, Enum)


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """A part of a value that would be lost, at a path.

    `ours`: the part was not written, or is never read. Otherwise, a validator of the type may have changed it, as it should.
    """

    path: tuple[object, ...]
    why: str
    ours: bool

    def __str__(self) -> str:
        path = ".".join(map(str, self.path))
        return f"{path}: {self.why}" if path else self.why


def find_loss(given: Any, seen: Any, path: tuple[object, ...] = ()) -> Loss | None:
    """Find the first part of a value that differs from what was read back; None if there is none.

    The type may differ where the annotation is less specific than the value (Any, Sequence, float for an int).
    """
    if _is_object(given) and _is_object(seen):
        return _object_loss(given, seen, path)
    if isinstance(given, Mapping) and isinstance(seen, Mapping):
        return _mapping_loss(given, seen, path)
    if isinstance(given, list | tuple | deque) and isinstance(seen, list | tuple | deque):
        pairs = zip(given, seen, strict=False)  # only a validator can have changed the length
        losses = (find_loss(*pair, (*path, index)) for index, pair in enumerate(pairs))
        return next((loss for loss in losses if loss is not None), None)
    if type(given) is type(seen) and isinstance(given, _COMPARED) and given != seen and not _is_nan(given):
        return Loss(path, f"{_short(given)} would be read back as {_short(seen)}", ours=False)
    return None


def _is_object(value: Any) -> bool:
    return isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _object_loss(given: Any, seen: Any, path: tuple[object, ...]) -> Loss | None:
    if type(given) is not type(seen) and given != seen:  # a generic model equals its parametrised self
        mine, theirs = type(given).__name__, type(seen).__name__
        why = f"a {mine} would be read back as a {theirs}: annotate it as {mine}, or as a union with it"
        return Loss(path, why, ours=True)
    if isinstance(given, BaseModel):
        return _mapping_loss(_contents(given), _contents(seen), path)
    for field in dataclasses.fields(given):
        if (found := _field_loss(field, given, seen, (*path, field.name))) is not None:
            return found
    return None


def _field_loss(field: dataclasses.Field[Any], given: Any, seen: Any, path: tuple[object, ...]) -> Loss | None:
    mine, theirs = getattr(given, field.name, None), getattr(seen, field.name, None)
    if not field.init and not alike(mine, theirs, inside=True):
        return Loss(path, "it is set outside __init__, and its value would be lost", ours=True)
    return find_loss(mine, theirs, path)


def _contents(model: Any) -> dict[str, Any]:
    return {**model.__dict__, **(model.__pydantic_extra__ or {})}


def _mapping_loss(given: Mapping[Any, Any], seen: Mapping[Any, Any], path: tuple[object, ...]) -> Loss | None:
    for key, value in given.items():
        if key in seen:
            found = find_loss(value, seen[key], (*path, key))
            if found is not None:
                return found
        elif key is None:
            return Loss(path, 'JSON keys are strings: None would be read back as "None"', ours=True)
    return None


def alike(given: Any, seen: Any, *, inside: bool = False) -> bool:
    """Two values are equal and of one type. `inside` a collection or an object, an int may have become a float."""
    if type(given) is not type(seen):
        return inside and type(given) is int and type(seen) is float and given == seen
    if isinstance(given, float):
        return bool(given == seen or (_is_nan(given) and _is_nan(seen)))
    if isinstance(given, list | tuple | deque):
        return len(given) == len(seen) and all(alike(*pair, inside=True) for pair in zip(given, seen, strict=True))
    if isinstance(given, dict):
        return given.keys() == seen.keys() and all(alike(given[key], seen[key], inside=True) for key in given)
    if isinstance(given, BaseModel):
        return alike(_contents(given), _contents(seen), inside=True)
    if dataclasses.is_dataclass(given):
        names = [field.name for field in dataclasses.fields(given)]
        return all(alike(getattr(given, name, None), getattr(seen, name, None), inside=True) for name in names)
    return "__eq__" not in {name for cls in type(given).__mro__[:-1] for name in vars(cls)} or bool(given == seen)


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
