"""Compares recorded payloads with those of the code now, and finds where they differ.

The caller compares digests first, which usually are equal. If they differ, both payloads are read with the types of the
code now and compared as values: the order of keys, a field that was added with a default, and an int that is a float now
make no difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from romancy.core.matcher import is_same_json
from romancy.errors import PayloadError
from romancy.serde.external import read_as
from romancy.serde.payload import CallCodec, ValueCodec
from romancy.serde.unions import is_tagged

_MISSING = object()
_LONGEST = 200


class Difference(NamedTuple):
    """The path at which two payloads differ, with both values; or a sentence (`why`) if there is no such path."""

    path: str = ""
    recorded: str = ""
    given: str = ""
    why: str = ""

    def describe(self, *, hidden: bool) -> str:
        """Describe the difference for an error; `hidden` leaves the values out, because payloads are encrypted."""
        if self.why:
            return self.why if not hidden else "the recorded value does not match the current types of the code"
        if hidden:
            return f"{self.path} differs (its values are encrypted)"
        return f"{self.path} was {self.recorded}, and is now {self.given}"


def difference_of_calls(codec: CallCodec, recorded: bytes, given: bytes) -> Difference | None:
    """Find where the arguments of two calls of one function differ; None if the function would get equal arguments."""
    try:
        before = codec.rewritten(recorded)
    except PayloadError as error:
        return Difference(why=f"the recorded value does not match the current types of the code: {error}")
    return _difference(from_json(before), from_json(codec.rewritten(given)))


def difference_of_data(recorded: bytes, given: bytes, values: Any) -> Difference | None:
    """Find where two payloads of an effect or a store call differ. `values` are the code's values; their types read both."""
    return _difference(*_normalize(from_json(recorded), from_json(given), values))


def difference_of_inputs(recorded: bytes, given: bytes, filled: Callable[[Any], Any]) -> Difference | None:
    """Find where two inputs of a workflow differ whose types are not known here. `filled` adds their defaults."""
    return _difference(filled(from_json(recorded)), filled(from_json(given)))


def _difference(before: Any, now: Any, path: str = "") -> Difference | None:
    if isinstance(before, dict) and isinstance(now, dict) and (is_tagged(before) or not is_tagged(now)):
        for key in [*before, *(key for key in now if key not in before)]:
            step = f"{path}.{key}" if path else str(key)
            if key not in before or key not in now:
                return Difference(step, _short(before.get(key, _MISSING)), _short(now.get(key, _MISSING)))
            if (found := _difference(before[key], now[key], step)) is not None:
                return found
        return None
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        differences = (_difference(*pair, f"{path}[{index}]") for index, pair in enumerate(zip(before, now, strict=True)))
        return next((difference for difference in differences if difference is not None), None)
    if is_same_json(before, now) or (before != before and now != now):  # NaN
        return None
    if isinstance(now, dict) and is_tagged(now) and not is_tagged(before):  # it was stored before such values had tags
        return _difference(before, now["v"], path)
    return Difference(path or "the value", _short(before), _short(now))


def _normalize(before: Any, now: Any, value: Any) -> tuple[Any, Any]:
    """Return both payloads as the types of the code now write them, wherever the value has such a type."""
    if isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        try:
            return _rewritten(type(value), before), _rewritten(type(value), now)
        except PayloadError:
            return before, now
    if isinstance(value, Mapping) and isinstance(before, dict) and isinstance(now, dict):
        items: Mapping[Any, Any] = value
        pairs = {str(key): item for key, item in items.items()}
        shared = {key: _normalize(before[key], now[key], pairs[key]) for key in before if key in now and key in pairs}
        return (
            before | {key: pair[0] for key, pair in shared.items()},
            now | {key: pair[1] for key, pair in shared.items()},
        )
    if isinstance(value, set | frozenset) and isinstance(before, list) and isinstance(now, list):
        return sorted(before, key=to_json), sorted(now, key=to_json)
    if isinstance(value, list | tuple) and isinstance(before, list) and isinstance(now, list):
        members: Sequence[Any] = value
        if len(before) == len(now) == len(members):
            both = [_normalize(*three) for three in zip(before, now, members, strict=True)]
            return [pair[0] for pair in both], [pair[1] for pair in both]
    return before, now


def _rewritten(kind: type, value: Any) -> Any:
    return from_json(_codec(kind).encode(read_as(kind, value, plain=True, what="it")))


@lru_cache(maxsize=256)
def _codec(kind: type) -> ValueCodec[Any]:
    return ValueCodec(kind, what="it")


def _short(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    text = to_json(value, inf_nan_mode="constants").decode()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
