"""Encodes values without annotations as JSON, and decodes them; a value of a type that JSON does not have carries a tag.

    {"$": "tuple", "v": [1, 2]}      {"$": "bytes", "v": "_w=="}      {"$": "model", "c": "shop:Order", "v": {...}}

Used for the attributes of exceptions. Only exact types are accepted: a value of a subclass would be read as another type.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from romancy.errors import PayloadError, RomancyError
from romancy.serde.class_lookup import class_path, find_class
from romancy.serde.payload import ValueCodec

_TAG = "$"
_MAX_DEPTH = 60  # each level may need three of the 200 levels that the JSON reader reads


class Unkept(str):
    """A string that stands for a value that cannot be stored, with the `str()` and the `repr()` of that value."""

    shown: str

    def __new__(cls, text: str, shown: str = "") -> Unkept:
        """Take the `str()` and the `repr()` of the value."""
        self = super().__new__(cls, text)
        self.shown = shown
        return self

    def __repr__(self) -> str:
        return self.shown


class _Form(NamedTuple):
    """The writer and the reader of one type; the tag is the name of the type."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _write_bytes(value: Any) -> str:
    return base64.b64encode(value).decode()


def _write_complex(value: complex) -> list[float]:
    return [value.real, value.imag]


def _write_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _write_moment(value: datetime | time) -> str | list[Any]:
    return [value.isoformat(), value.fold] if value.fold else value.isoformat()


def _read_datetime(value: str | list[Any]) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else _read_datetime(value[0]).replace(fold=value[1])


def _read_time(value: str | list[Any]) -> time:
    return time.fromisoformat(value) if isinstance(value, str) else _read_time(value[0]).replace(fold=value[1])


def _read_bytearray(text: str) -> bytearray:
    return bytearray(base64.b64decode(text))


def _read_complex(parts: list[float]) -> complex:
    return complex(parts[0], parts[1])


def _read_timedelta(parts: list[int]) -> timedelta:
    return timedelta(parts[0], parts[1], parts[2])


def _write_unkept(value: Unkept) -> list[str]:
    return [str(value), value.shown]


def _read_unkept(parts: list[str]) -> Unkept:
    return Unkept(parts[0], parts[1])


_FORMS: dict[type[Any], _Form] = {
    bytes: _Form(_write_bytes, base64.b64decode),
    bytearray: _Form(_write_bytes, _read_bytearray),
    complex: _Form(_write_complex, _read_complex),
    date: _Form(date.isoformat, date.fromisoformat),
    datetime: _Form(_write_moment, _read_datetime),
    Decimal: _Form(str, Decimal),
    time: _Form(_write_moment, _read_time),
    timedelta: _Form(_write_timedelta, _read_timedelta),
    Unkept: _Form(_write_unkept, _read_unkept),
    UUID: _Form(str, UUID),
}
_FORMS_BY_TAG: dict[str, _Form] = {kind.__name__: form for kind, form in _FORMS.items()}
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encode_data(value: Any) -> bytes:
    """Encode a value made of plain data as tagged JSON. Raises PayloadError if it could not be read back."""
    try:
        raw = to_json(to_tagged(value), inf_nan_mode="constants")
        decode_data(raw)
        return raw
    except RomancyError:
        raise
    except Exception as error:
        raise PayloadError(f"a {type(value).__name__} cannot be stored: {error}") from error


def decode_data(raw: bytes, near: str | None = None) -> Any:
    """Decode a value that `encode_data` wrote. Raises PayloadError if its classes are gone or it does not fit them."""
    try:
        return from_tagged(from_json(raw), near)
    except RomancyError:
        raise
    except Exception as error:
        raise PayloadError(f"stored data cannot be read: {error}") from error


def to_tagged(value: Any, depth: int = 0) -> Any:
    """Return the value in terms of JSON."""
    kind = _class_of(value)
    if value is None or kind in (bool, int, float):
        return value
    if kind is str:
        value.encode()  # UTF-8 cannot encode a lone surrogate: raise here, where the value is known
        return value
    if depth > _MAX_DEPTH:
        raise PayloadError(f"data nested deeper than {_MAX_DEPTH} levels cannot be stored")
    if kind is list:
        return [to_tagged(item, depth + 1) for item in value]
    if kind is dict:
        return _dict_to_tagged(value, depth)
    if kind in _FORMS:
        return {_TAG: kind.__name__, "v": _FORMS[kind].write(value)}
    if kind.__name__ in _SEQUENCES and kind.__module__ == "builtins":
        return {_TAG: kind.__name__, "v": _items(value, depth)}
    if isinstance(value, Path):
        return {_TAG: "path", "v": str(value)}
    return _object_to_tagged(value, depth)


def _items(value: Any, depth: int) -> list[Any]:
    items = [to_tagged(item, depth + 1) for item in value]
    return items if isinstance(value, tuple) else sorted(items, key=_sort_key)


def _sort_key(item: Any) -> bytes:
    return to_json(item, inf_nan_mode="constants")


def _dict_to_tagged(value: dict[Any, Any], depth: int) -> Any:
    if all(type(key) is str and key != _TAG for key in value):
        for key in value:
            key.encode()
        return {key: to_tagged(item, depth + 1) for key, item in value.items()}
    return {_TAG: "dict", "v": [[to_tagged(k, depth + 1), to_tagged(v, depth + 1)] for k, v in value.items()]}


def _object_to_tagged(value: Any, depth: int) -> Any:
    kind = _class_of(value)
    path = class_path(kind)
    tag = _tag_of(kind)
    if tag is None:
        raise PayloadError(f"a {path.replace(':', '.')} is not plain data")
    if find_class(path) is not kind:
        raise PayloadError(f"{path.replace(':', '.')} cannot be imported by that name")
    return {_TAG: tag, "c": path, "v": _content(tag, value, depth)}


def _content(tag: str, value: Any, depth: int) -> Any:
    match tag:
        case "enum":
            members: dict[str, Any] = value.__class__.__members__
            if value.name not in members:
                raise PayloadError(f"{value!r} has no name by which it can be imported")  # a combination of flags
            return value.name
        case "namedtuple":
            return [to_tagged(item, depth + 1) for item in value]
        case _:
            return from_json(_codec(_class_of(value)).encode(value))


def _class_of(value: object) -> type:
    return type(value)  # type checkers would not know the type of `type(value)` for an Any


def _tag_of(kind: type[Any]) -> str | None:
    if issubclass(kind, Enum):
        return "enum"
    if tuple in kind.__mro__ and hasattr(kind, "_fields") and hasattr(kind, "_make"):
        return "namedtuple"
    if BaseModel in kind.__mro__ or (dataclasses.is_dataclass(kind) and BaseException not in kind.__mro__):
        return "model"
    return None


# Cached, since building a codec takes longer than recording an exception; bounded, since classes may be made at run time.
@lru_cache(maxsize=256)
def _codec(kind: type[Any]) -> ValueCodec[Any]:
    return ValueCodec(kind, what=f"a {class_path(kind).replace(':', '.')}")


def from_tagged(value: Any, near: str | None = None) -> Any:
    """Return the value from which `to_tagged` made this."""
    parts: Any = value
    if isinstance(value, list):
        return [from_tagged(item, near) for item in parts]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: from_tagged(item, near) for key, item in parts.items()}
    return _from_tag(parts[_TAG], parts, near)


def _from_tag(tag: str, node: dict[str, Any], near: str | None) -> Any:
    content = node["v"]
    if tag in _FORMS_BY_TAG:
        return _FORMS_BY_TAG[tag].read(content)
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](from_tagged(item, near) for item in content)
    if tag == "dict":
        return {from_tagged(k, near): from_tagged(v, near) for k, v in content}
    if tag == "path":
        return Path(content)
    kind: Any = find_class(node["c"], near)
    # Without this check, a record could make this process call any class.
    if kind is None or _tag_of(kind) != tag:
        raise PayloadError(f"{node['c']!r} is not a class of the kind that was stored ({tag}), or no longer exists")
    match tag:
        case "enum":
            return kind[content]
        case "namedtuple":
            return kind._make(from_tagged(item, near) for item in content)
        case _:
            return _codec(kind).decode(to_json(content, inf_nan_mode="constants"))
