"""Result types of activities and workflows, by name: hooks and histories restore results to these types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, get_origin

from romancy.integrations.edda.coercion import coerce_value
from romancy.integrations.edda.context import RegisteredCompensation

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ResultWithCompensations(Generic[R]):
    """The stored result of an activity that registers compensations: its own result, and the compensations."""

    result: R
    compensations: list[RegisteredCompensation] = field(default_factory=list[RegisteredCompensation])


Types: TypeAlias = dict[str, Callable[[], Any]]

ACTIVITIES: Types = {}
"""The types that activities store. Resolved when first used, because annotations may refer to later definitions."""
WORKFLOWS: Types = {}
"""The types that workflows return."""


def restore_result(types: Types, name: str, plain: Any) -> Any:
    """Restore a stored result to the value that the function returned."""
    value = coerce_value(_type(types, name), plain)
    return value.result if isinstance(value, ResultWithCompensations) else value  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]


def strip_compensations(name: str, plain: Any) -> Any:
    """Return the stored result of an activity as JSON, without its registered compensations."""
    if (
        get_origin(_type(ACTIVITIES, name)) is ResultWithCompensations
        and isinstance(plain, dict)
        and "compensations" in plain
    ):
        return plain["result"]  # pyright: ignore[reportUnknownVariableType]
    return plain


def _type(types: Types, name: str) -> Any:
    return types[name]() if name in types else Any
