"""Reads JSON from outside, as a value of a type or as the arguments of a call.

Payloads that romancy writes have the field names of models as keys. JSON from outside may use their aliases, and any other
form that pydantic accepts by default. So it is read with a plain adapter of the type, and encoded as a payload afterwards.
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
    """Raise `ConfigurationError` if a model is not a type that pydantic can validate."""
    if model is None:
        return
    if isinstance(model, str):
        raise ConfigurationError(f"model={model!r} of {what}: give the type itself, not its name.")
    try:
        _adapter_of(model)
    except Exception as error:
        raise ConfigurationError(
            f"model={type_name(model)} of {what} is not a type that pydantic can validate: {complaint(error)}"
        ) from error


def read_as(model: Any, value: Any, *, plain: bool, what: str) -> Any:
    """Validate a value from outside as a type. Raises PayloadError. `plain`: the value is from JSON, not bytes or absent."""
    try:
        adapter = _adapter_of(model)
        return adapter.validate_json(to_json(value)) if plain else adapter.validate_python(value)
    except RomancyError:
        raise
    except Exception as error:  # a validator of the user's may raise anything
        raise PayloadError(f"{what} is not a valid {type_name(model)}: {complaint(error)}") from error


def _adapter_of(model: Any) -> TypeAdapter[Any]:
    try:
        return _cached_adapter(model, repr(model))
    except TypeError:  # the type cannot be hashed, such as Annotated with a list in it
        return TypeAdapter(model)


@lru_cache(_MAX_ADAPTERS)
def _cached_adapter(model: Any, text: str) -> TypeAdapter[Any]:
    """Return the adapter of a type. `text` is part of the key: `int | str` equals `str | int`, but reads differently."""
    return TypeAdapter(model)


# -- a call -----------------------------------------------------------------------------------------------------------


def encode_external_call(codec: CallCodec, data: bytes | None, *, binary: bool, what: str) -> bytes:
    """Encode data from outside as the arguments of a call. Raises PayloadError if it does not fit the parameters.

    The fields of an object are arguments by name. If the function has a single parameter, data that is not an object is its
    argument, and so is a whole object if the parameter's type takes objects. A function without parameters ignores the data.
    """
    if not codec.parameters:
        return codec.encode((), {})
    value = data if binary or data is None else _parsed(data, what)
    sole = codec.parameters[0] if len(codec.parameters) == 1 and not codec.takes_more else None
    if sole is not None and not _is_by_name(value, sole, codec):
        return codec.encode_named({sole: read_as(codec.annotations[sole], value, plain=_is_json(data, binary), what=what)})
    return codec.encode_named(_read_arguments(codec, value, what))


def encode_mapped_call(
    codec: CallCodec, data: bytes | None, mapping: Callable[[Any], dict[str, Any]], *, binary: bool, what: str
) -> bytes:
    """Encode data from outside as the arguments of a call, converted to arguments by a function of the user."""
    value = data if binary or data is None else _parsed(data, what)
    return codec.encode_named(_read_arguments(codec, mapping(value), what))


def _parsed(data: bytes, what: str) -> Any:
    try:
        return from_json(data)
    except ValueError as error:
        raise PayloadError(f"{what} is not JSON: {error}") from error


def _is_json(data: bytes | None, binary: bool) -> bool:
    return data is not None and not binary


def _is_by_name(value: Any, name: str, codec: CallCodec) -> bool:
    """The value is not the only argument itself, but an object with the argument by name, or without it."""
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
        raise PayloadError(f"{what} is not an object, but there are several parameters: {names}.")
    fields = codec.gather(cast(dict[str, Any], value))
    unknown = [name for name in fields if name not in codec.annotations]
    missing = [name for name in codec.parameters if name not in fields and name not in codec.optional]
    if unknown or missing:
        complaints = [f"{name!r} is not a parameter" for name in unknown] + [f"{name!r} is missing" for name in missing]
        raise PayloadError(f"{what} does not match the parameters {names}: {'; '.join(complaints)}.")
    read: dict[str, Any] = read_as(_record_of(codec), fields, plain=True, what=what)
    return {name: read[name] for name in codec.parameters if name in read}


@lru_cache(_MAX_ADAPTERS)
def _record_of(codec: CallCodec) -> Any:
    """Return the parameters as one typed dict, so that errors of pydantic name the parameter."""
    fields = {name: NotRequired[kind] if name in codec.optional else kind for name, kind in codec.annotations.items()}
    return cast(Any, TypedDict)("Arguments", fields)


def takes_objects(annotation: Any) -> bool:
    """A whole JSON object can be a value of this type: a model, a dataclass, a typed dict, a mapping."""
    stands_for = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
    if stands_for is not None:  # an alias, a NewType
        return takes_objects(stands_for)
    origin = get_origin(annotation)
    if origin is Annotated:
        return takes_objects(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        return any(takes_objects(member) for member in get_args(annotation))
    kind = origin or annotation
    if is_typeddict(kind):
        return True
    return isinstance(kind, type) and (issubclass(kind, BaseModel | Mapping) or dataclasses.is_dataclass(kind))
