"""The capture of the source that is stored with histories: a workflow's function, and helpers that receive its context."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, cast

from romancy.authoring.workflow import Workflow
from romancy.model.source import Section, join_sections, tree_of

_MOST_FUNCTIONS = 50
_MOST_CHARACTERS = 200_000
_LIBRARY_PACKAGES = ("romancy", "asyncio")


def stored_source(fn: Callable[..., Any]) -> str:
    """Return the source of a workflow and of its helpers, or an empty text if it is not available."""
    return join_sections(_sections(fn))


def _sections(fn: Callable[..., Any]) -> Iterator[Section]:
    waiting, known, left = [fn], {fn}, _MOST_CHARACTERS
    while waiting and len(known) <= _MOST_FUNCTIONS:
        function = waiting.pop(0)
        section = _section(function)
        if section is None or len(section.text) > left:
            continue
        left -= len(section.text)
        yield section
        new = [helper for helper in dict.fromkeys(_helpers(function, section.text)) if helper not in known]
        known.update(new)
        waiting += new


def _section(fn: Callable[..., Any]) -> Section | None:
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError, SyntaxError):
        return None
    text = "".join(lines)
    # Leave out a text that a database refuses, and the source of a module without a proper name.
    usable = text.strip() and "\0" not in text and _is_text(text) and " " not in str(fn.__module__)
    return Section(text, fn.__module__, max(first, 1)) if usable else None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _helpers(fn: Callable[..., Any], text: str) -> Iterator[Callable[..., Any]]:
    """Yield the user's functions that this function calls with the context."""
    plain = inspect.unwrap(fn)
    if not isinstance(plain, FunctionType):
        return
    tree = tree_of(textwrap.dedent(text))
    if tree is None:
        return
    contexts = _contexts(tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _passes_context(call, contexts):
            helper = _plain(_resolved(call.func, plain))
            if helper is not None and str(helper.__module__).partition(".")[0] not in _LIBRARY_PACKAGES:
                yield helper


def _contexts(tree: ast.AST) -> set[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {argument.arg for node in functions for argument in [*node.args.posonlyargs, *node.args.args][:2]}


def _passes_context(call: ast.Call, contexts: set[str]) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(argument, ast.Name) and argument.id in contexts for argument in given)


def _plain(found: Any) -> FunctionType | None:
    if isinstance(found, Workflow):
        found = found.fn  # a workflow that is called in a workflow runs inline
    if isinstance(found, staticmethod | classmethod):
        found = cast(Any, found).__func__
    return found if isinstance(found, FunctionType) else None


def _resolved(name: ast.expr, fn: FunctionType) -> Any:
    """Return the object that a name in the function's code refers to now, without running code of the user."""
    if isinstance(name, ast.Name):
        return _variables(fn).get(name.id)
    if not isinstance(name, ast.Attribute):
        return None
    owner = _resolved(name.value, fn)
    if owner is None:
        return None
    holder = owner if isinstance(owner, ModuleType | type) else type(owner)
    return inspect.getattr_static(holder, name.attr, None)


def _variables(fn: FunctionType) -> dict[str, Any]:
    found = dict(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    return found
