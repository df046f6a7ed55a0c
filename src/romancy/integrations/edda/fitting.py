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


def fitting(fn: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name for a workflow. The fields of a sole model may stand for the model itself."""
    hints = hints_of(fn)
    names = list(inspect.signature(fn).parameters)[1:]
    if len(names) == 1 and names[0] not in given and _is_model(hints.get(names[0])):
        given = {names[0]: given}
    return {name: read(hints.get(name, Any), value) for name, value in given.items()}


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def read(annotation: Any, value: Any) -> Any:
    """The value as its annotation says. What does not fit is left as it is: the engine says what is wrong with it."""
    if annotation is Any:
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return value
