"""Whether a value that was written and read back is the value that was given.

Most of what can go wrong makes reading fail. Some things are lost without a word: the fields of a subclass, what a
dataclass sets outside `__init__`, the seconds of a UTC offset, a key that is None.
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

# Values of these can be compared, whatever the user's classes think of `==`.
_COMPARED = (str, bytes, int, float, complex, datetime, date, time, timedelta, Decimal, Enum)


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """What would be lost, and where.

    `ours`: it was not written, or is never read. Otherwise a validator of the type may have changed it, as it should.
    """

    path: tuple[object, ...]
    why: str
    ours: bool

    def __str__(self) -> str:
        place = ".".join(map(str, self.path))
        return f"{place}: {self.why}" if place else self.why


def find_loss(given: Any, seen: Any, path: tuple[object, ...] = ()) -> Loss | None:
    """The first place where what is read back is not what was given; None if there is none.

    Where the annotation says less than the value (Any, Sequence, float for an int), what is read is what it says.
    """
    if _is_object(given) and _is_object(seen):
        return _object_loss(given, seen, path)
    if isinstance(given, Mapping) and isinstance(seen, Mapping):
        return _mapping_loss(given, seen, path)
    if isinstance(given, list | tuple | deque) and isinstance(seen, list | tuple | deque):
        pairs = zip(given, seen, strict=False)  # another length is a validator's doing
        return next((one for place, pair in enumerate(pairs) if (one := find_loss(*pair, (*path, place))) is not None), None)
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
        return Loss(path, "it is set outside __init__, and what it holds now would be lost", ours=True)
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
            return Loss(path, 'JSON has only text as keys: None would be read back as "None"', ours=True)
    return None


def alike(given: Any, seen: Any, *, inside: bool = False) -> bool:
    """Equal and of one type. `inside` of something an int is a float, too."""
    if type(given) is not type(seen):
        return inside and type(given) is int and type(seen) is float and given == seen
    if isinstance(given, float):
        return bool(given == seen or (_is_nan(given) and _is_nan(seen)))
    if isinstance(given, list | tuple | deque):
        return len(given) == len(seen) and all(alike(one, two, inside=True) for one, two in zip(given, seen, strict=True))
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
