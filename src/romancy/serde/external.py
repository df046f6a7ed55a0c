"""What others wrote, read as they wrote it.

A record of ours is read by the names of its fields. JSON from outside is not ours: it says aliases where a model has them,
and whatever else pydantic takes by default. So it is read by a plain adapter of the type, and written as ours afterwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict, is_typeddict

from romancy.errors import ConfigurationError, PayloadError, RomancyError
from romancy.serde.payload import CallCodec, complaint, type_name

_MAX_ADAPTERS = 512


def check_model(model: Any, what: str) -> None:
    """Raise `ConfigurationError` for what is no type that pydantic can validate."""
    if model is None:
        return
    if isinstance(model, str):
        raise ConfigurationError(f"model={model!r} of {what}: give the type itself, not its name.")
    try:
        _adapter_of(model)
    except Exception as error:
        raise ConfigurationError(
            f"model={type_name(model)} of {what} is no type that pydantic can validate: {complaint(error)}"
        ) from error


def read_as(model: Any, value: Any, *, plain: bool, what: str) -> Any:
    """A value from outside as a type; PayloadError if it does not fit. `plain`: it is JSON's, not bytes or nothing."""
    try:
        adapter = _adapter_of(model)
        return adapter.validate_json(to_json(value)) if plain else adapter.validate_python(value)
    except RomancyError:
        raise
    except Exception as error:  # a validator of the user's may raise anything
        raise PayloadError(f"{what} does not fit {type_name(model)}: {complaint(error)}") from error


def _adapter_of(model: Any) -> TypeAdapter[Any]:
    try:
        return _cached_adapter(model, repr(model))
    except TypeError:  # it cannot be hashed, as Annotated with a list in it
        return TypeAdapter(model)


@lru_cache(_MAX_ADAPTERS)
def _cached_adapter(model: Any, text: str) -> TypeAdapter[Any]:
    """By its text too: `int | str` equals `str | int`, but does not read the same."""
    return TypeAdapter(model)


# -- a call -----------------------------------------------------------------------------------------------------------


def encode_external_call(codec: CallCodec, data: bytes | None, *, binary: bool, what: str) -> bytes:
    """The arguments that data from outside means, encoded as a call; PayloadError if it means none.

    The fields of an object are arguments by name. A sole parameter that takes objects takes the whole of it, and whatever is
    no object. A function without parameters takes no notice of the data.
    """
    if not codec.parameters:
        return codec.encode((), {})
    value = data if binary or data is None else _parsed(data, what)
    sole = codec.parameters[0] if len(codec.parameters) == 1 and not codec.takes_more else None
    if sole is not None and not _is_argument(value, sole, codec):
        return codec.encode_named({sole: read_as(codec.annotations[sole], value, plain=_is_json(data, binary), what=what)})
    return codec.encode_named(_read_arguments(codec, value, what))


def encode_mapped_call(
    codec: CallCodec, data: bytes | None, mapping: Callable[[Any], dict[str, Any]], *, binary: bool, what: str
) -> bytes:
    """The arguments that a mapping of the program's own makes of data from outside, encoded as a call."""
    value = data if binary or data is None else _parsed(data, what)
    return codec.encode_named(_read_arguments(codec, mapping(value), what))


def _parsed(data: bytes, what: str) -> Any:
    try:
        return from_json(data)
    except ValueError as error:
        raise PayloadError(f"{what} is no JSON: {error}") from error


def _is_json(data: bytes | None, binary: bool) -> bool:
    return data is not None and not binary


def _is_argument(value: Any, name: str, codec: CallCodec) -> bool:
    """For a function of one parameter: the value is not the argument itself but names it, or leaves it out."""
    if value is None:
        return name in codec.optional
    if not isinstance(value, dict) or takes_objects(codec.annotations[name]):
        return False
    return not value or name in value


def _read_arguments(codec: CallCodec, value: Any, what: str) -> dict[str, Any]:
    names = ", ".join(codec.parameters)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise PayloadError(f"{what} is no object, and the parameters are several: {names}.")
    fields = codec.gather(cast(dict[str, Any], value))
    unknown = [name for name in fields if name not in codec.annotations]
    missing = [name for name in codec.parameters if name not in fields and name not in codec.optional]
    if unknown or missing:
        complaints = [f"{name!r} is no parameter" for name in unknown] + [f"{name!r} is missing" for name in missing]
        raise PayloadError(f"{what} does not fit the parameters {names}: {'; '.join(complaints)}.")
    read: dict[str, Any] = read_as(_record_of(codec), fields, plain=True, what=what)
    return {name: read[name] for name in codec.parameters if name in read}


@lru_cache(_MAX_ADAPTERS)
def _record_of(codec: CallCodec) -> Any:
    """The parameters as one typed dict: pydantic then says in which of them the fault is."""
    fields = {name: NotRequired[one] if name in codec.optional else one for name, one in codec.annotations.items()}
    return cast(Any, TypedDict)("Arguments", fields)


def takes_objects(annotation: Any) -> bool:
    """A JSON object can be a value of this type as a whole: a model, a dataclass, a typed dict, a mapping."""
    stands_for = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
    if stands_for is not None:  # an alias, a NewType
        return takes_objects(stands_for)
    origin = get_origin(annotation)
    if origin is Annotated:
        return takes_objects(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        return any(takes_objects(one) for one in get_args(annotation))
    kind = origin or annotation
    if is_typeddict(kind):
        return True
    return isinstance(kind, type) and (issubclass(kind, BaseModel | Mapping) or dataclasses.is_dataclass(kind))
