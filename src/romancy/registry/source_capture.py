"""The source to store beside histories: a workflow's function and the helpers that it hands its context to."""

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
    """A workflow's source with its helpers', or an empty text where there is none."""
    return join_sections(_sections(fn))


def _sections(fn: Callable[..., Any]) -> Iterator[Section]:
    waiting, known, left = [fn], {fn}, _MOST_CHARACTERS
    while waiting and len(known) <= _MOST_FUNCTIONS:
        one = waiting.pop(0)
        section = _section(one)
        if section is None or len(section.text) > left:
            continue
        left -= len(section.text)
        yield section
        new = [helper for helper in dict.fromkeys(_helpers(one, section.text)) if helper not in known]
        known.update(new)
        waiting += new


def _section(fn: Callable[..., Any]) -> Section | None:
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError, SyntaxError):
        return None
    text = "".join(lines)
    # A text that no database takes, or a module without a name, is nobody's source.
    usable = text.strip() and "\0" not in text and _is_text(text) and " " not in str(fn.__module__)
    return Section(text, fn.__module__, max(first, 1)) if usable else None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _helpers(fn: Callable[..., Any], text: str) -> Iterator[Callable[..., Any]]:
    """The functions of the user that are called with the context."""
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
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {argument.arg for one in functions for argument in [*one.args.posonlyargs, *one.args.args][:2]}


def _passes_context(call: ast.Call, contexts: set[str]) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(one, ast.Name) and one.id in contexts for one in given)


def _plain(found: Any) -> FunctionType | None:
    if isinstance(found, Workflow):
        found = found.fn  # called in a workflow, it runs inline
    if isinstance(found, staticmethod | classmethod):
        found = cast(Any, found).__func__
    return found if isinstance(found, FunctionType) else None


def _resolved(name: ast.expr, fn: FunctionType) -> Any:
    """What a name of the function's code stands for now. Nothing of the user's is run to find out."""
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
        except ValueError:  # not yet given a value
            continue
    return found
