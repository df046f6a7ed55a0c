"""Arguments as Edda takes them, made what the annotations say: dicts for models, values for enums."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function as objects; none if one of them means nothing here."""
    try:
        return typing.get_type_hints(inspect.unwrap(fn), include_extras=True)
    except Exception:  # a name that only type checkers see, or that a function keeps to itself
        return {}


def result_type(fn: Callable[..., Any]) -> Any:
    """What a function says it returns."""
    return hints_of(fn).get("return", Any)


def coerce_arguments(fn: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name for a workflow. The fields of a sole model may stand for the model itself."""
    hints = hints_of(fn)
    names = list(inspect.signature(fn).parameters)[1:]
    if len(names) == 1 and names[0] not in given and _is_model(hints.get(names[0])):
        given = {names[0]: given}
    return {name: coerce_value(hints.get(name, Any), value) for name, value in given.items()}


def event_arguments(fn: Callable[..., Any], data: Any) -> dict[str, Any]:
    """What the data of an event gives a workflow: fields by name, or all of them for a sole model. Others are left out."""
    names = list(inspect.signature(fn).parameters)[1:]
    fields: dict[str, Any] = data if isinstance(data, dict) else {"_data": data} if data is not None else {}
    if _takes_more(fn):
        return fields
    given = {name: value for name, value in fields.items() if name in names}
    if not given and len(names) == 1 and _is_model(hints_of(fn).get(names[0])):
        return {names[0]: data}
    return given


def _takes_more(fn: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(fn).parameters.values())


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def coerce_value(annotation: Any, value: Any) -> Any:
    """The value as its annotation says. What does not fit is left as it is: the engine says what is wrong with it."""
    if annotation is Any:
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return value
