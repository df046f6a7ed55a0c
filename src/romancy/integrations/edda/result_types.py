"""What functions give back, by their names: hooks and histories show results as the program knows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, get_origin

from romancy.integrations.edda.coercion import coerce_value
from romancy.integrations.edda.context import RegisteredCompensation

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ResultWithCompensations(Generic[R]):
    """What is stored of an activity that registers compensations: its result, and they."""

    result: R
    compensations: list[RegisteredCompensation] = field(default_factory=list[RegisteredCompensation])


Types: TypeAlias = dict[str, Callable[[], Any]]

ACTIVITIES: Types = {}
"""The types of what activities store; asked for late, since an annotation may name what stands further down."""
WORKFLOWS: Types = {}
"""The types of what workflows return."""


def restore_result(types: Types, name: str, plain: Any) -> Any:
    """A stored result as the function gave it back."""
    value = coerce_value(_type(types, name), plain)
    return value.result if isinstance(value, ResultWithCompensations) else value  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]


def strip_compensations(name: str, plain: Any) -> Any:
    """The stored result of an activity as JSON, without what stands beside it."""
    if (
        get_origin(_type(ACTIVITIES, name)) is ResultWithCompensations
        and isinstance(plain, dict)
        and "compensations" in plain
    ):
        return plain["result"]  # pyright: ignore[reportUnknownVariableType]
    return plain


def _type(types: Types, name: str) -> Any:
    return types[name]() if name in types else Any
