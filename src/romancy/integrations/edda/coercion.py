"""Conversion of arguments to the types of their annotations, as in Edda: dicts to models, values to enums."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function as objects; an empty dict if one of them cannot be resolved."""
    try:
        return typing.get_type_hints(inspect.unwrap(fn), include_extras=True)
    except Exception:  # a name that is imported only for type checkers, or local to a function
        return {}


def result_type(fn: Callable[..., Any]) -> Any:
    """Return the return annotation of a function."""
    return hints_of(fn).get("return", Any)


def coerce_arguments(fn: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Convert the arguments of a workflow. If its only parameter is a model, the fields of the model are accepted too."""
    hints = hints_of(fn)
    names = list(inspect.signature(fn).parameters)[1:]
    if len(names) == 1 and names[0] not in given and _is_model(hints.get(names[0])):
        given = {names[0]: given}
    return {name: coerce_value(hints.get(name, Any), value) for name, value in given.items()}


def event_arguments(fn: Callable[..., Any], data: Any) -> dict[str, Any]:
    """Return the arguments from the data of an event: fields by name, or all for a single model. Others are dropped."""
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
    """Convert a value to its annotation. An invalid value stays unchanged, and the engine reports the error."""
    if annotation is Any:
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return value
