"""Introspection of the code in this process: activities with their options, and the models of waits."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter

from romancy.authoring.activity import Activity
from romancy.model.source import tree_of

AnyActivity = Activity[..., Any, Any]
_PLAIN = (
    ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.List, ast.Constant,
    ast.Load,
)  # fmt: skip
"""The nodes that an expression for a type may contain. There are no calls among them, so its evaluation is harmless."""
_WAITS = ("wait_event", "receive")


def find_activities(sites: Iterable[str]) -> dict[str, AnyActivity]:
    """Return, by name, the activities in the modules of these call sites and in the modules that they import."""
    found: dict[str, AnyActivity] = {}
    for name in {site.partition(":")[0] for site in sites}:
        module = sys.modules.get(name)
        if module is not None:
            found |= {activity.name: activity for activity in _activities(module, depth=1)}
    return found


def _activities(module: ModuleType, depth: int) -> Iterator[AnyActivity]:
    for value in list(vars(module).values()):
        if isinstance(value, Activity):
            yield value
        elif isinstance(value, ModuleType) and depth and not _is_library(value):
            yield from _activities(value, depth - 1)


def _is_library(module: ModuleType) -> bool:
    return module.__name__.partition(".")[0] in sys.stdlib_module_names or module.__name__.startswith("romancy")


def model_schema(site: str) -> dict[str, Any] | None:
    """Return the JSON Schema of the model of the wait at a call site; None if it has no model, or none is found."""
    module, _, position = site.partition(":")
    _, line, column = position.rsplit(":", 2) if position.count(":") >= 2 else ("", "", "")
    home = sys.modules.get(module)
    if home is None or not line.isdecimal() or not column.isdecimal():
        return None
    call = _call_at(home, int(line), int(column) - 1)
    if call is None:
        return None
    model = next((keyword.value for keyword in call.keywords if keyword.arg == "model"), None)
    return None if model is None else _schema(model, home)


def _call_at(module: ModuleType, line: int, column: int) -> ast.Call | None:
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    tree = tree_of("".join(linecache.getlines(path)))
    if tree is None:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == line and _is_wait(node)]
    exact = [call for call in calls if call.col_offset == column]
    return next(iter(exact or calls), None)


def _is_wait(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _WAITS


def _schema(model: ast.expr, module: ModuleType) -> dict[str, Any] | None:
    expression = ast.Expression(model)
    if not all(isinstance(node, _PLAIN) for node in ast.walk(expression)):
        return None
    try:
        type_ = eval(compile(expression, "<model>", "eval"), dict(vars(module)))  # noqa: S307 (names, of our own code)
        return TypeAdapter[Any](type_).json_schema()
    except Exception:  # the name is not defined in the module, or the type has no schema
        return None
