"""Reads the parameters and the result type of a function, without its first parameter, which is the context."""

from __future__ import annotations

import collections.abc
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Never, NoReturn, ParamSpec, TypeVar, TypeVarTuple, get_args, get_origin

import typing_extensions

from romancy.errors import ConfigurationError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a function, by the way in which they are passed.

    `bind` takes the same arguments as the function and returns them by name, or raises the TypeError of a wrong call.
    `defaults` holds the values of all parameters that a call may leave out, `*args` and `**kwargs` (`()` and `{}`) included.
    """

    parameters: tuple[inspect.Parameter, ...]
    positional: tuple[str, ...]
    keyword: tuple[str, ...]
    star: str | None
    double_star: str | None
    defaults: dict[str, Any]
    bind: Callable[..., dict[str, Any]]
    positional_count: int
    """The number of parameters if each of them can be given by position; else -1."""


def shape_of(fn: Callable[..., Any], what: str) -> Shape:
    """Read the signature. Annotations are not evaluated, because they may name classes that do not exist yet."""
    everything = tuple(_signature(fn).parameters.values())
    if not everything or everything[0].kind not in _POSITIONAL:
        raise ConfigurationError(f"{what} has no context: its first parameter must be one, as in `def {_name(fn)}(ctx)`.")
    own = everything[1:]
    by_kind = {kind: tuple(p.name for p in own if p.kind is kind) for kind in {p.kind for p in own}}
    stars = by_kind.get(inspect.Parameter.VAR_POSITIONAL, ())
    double_stars = by_kind.get(inspect.Parameter.VAR_KEYWORD, ())
    return Shape(
        parameters=own,
        positional=tuple(p.name for p in own if p.kind in _POSITIONAL),
        keyword=by_kind.get(inspect.Parameter.KEYWORD_ONLY, ()),
        star=next(iter(stars), None),
        double_star=next(iter(double_stars), None),
        defaults={p.name: p.default for p in own if p.default is not _EMPTY}
        | dict.fromkeys(stars, ())
        | {name: {} for name in double_stars},
        bind=_binder(fn, everything),
        positional_count=len(own) if all(p.kind in _POSITIONAL for p in own) else -1,
    )


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Reading annotations evaluates them: a missing name must not raise here, where they are not needed.
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _binder(fn: Callable[..., Any], parameters: tuple[inspect.Parameter, ...]) -> Callable[..., dict[str, Any]]:
    """Make a function with the same signature and name that returns its arguments by name.

    `inspect.Signature.bind` takes twenty times as long, and its errors differ from those of a call. The source that is
    executed contains only names of parameters; the defaults are set afterwards, as objects.
    """
    bare = [p.replace(annotation=_EMPTY, default=_EMPTY if p.default is _EMPTY else None) for p in parameters]
    values = ", ".join(f"{p.name!r}: {p.name}" for p in parameters[1:])
    namespace: dict[str, Any] = {}
    exec(f"def bind{inspect.Signature(bare)}: return {{{values}}}", namespace)  # noqa: S102
    bind: types.FunctionType = namespace["bind"]
    given = [p for p in parameters if p.default is not _EMPTY]
    bind.__defaults__ = tuple(p.default for p in given if p.kind in _POSITIONAL)
    bind.__kwdefaults__ = {p.name: p.default for p in given if p.kind not in _POSITIONAL}
    bind.__name__ = _name(fn)
    bind.__qualname__ = getattr(fn, "__qualname__", bind.__name__)
    return bind


# -- annotations ------------------------------------------------------------------------------------------------------


class Scope:
    """The namespace in which the names in a function's annotations are looked up.

    A function that is defined inside another may name classes that exist only in the frame of the outer function. They are
    captured when the scope is made, while the decorator runs. Only names that occur in annotations are captured.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        plain: Any = inspect.unwrap(fn)
        self._globals: dict[str, Any] = getattr(plain, "__globals__", {})
        self._locals = _enclosing_locals(plain)

    def resolve(self, name: str, annotation: Any, what: str) -> Any:
        """Evaluate an annotation; a missing one is Any. Raises ConfigurationError if it cannot be used to store a value."""
        if annotation is _EMPTY:
            return Any
        try:
            resolved = self._evaluate(annotation)
        except Exception as error:
            raise ConfigurationError(
                f"{name} of {what} is annotated {annotation!r}, which cannot be resolved: {error}."
                " Import or define that name at module level, not only for type checkers."
            ) from error
        for part in _parts(resolved):
            if isinstance(part, TypeVar | TypeVarTuple | ParamSpec):
                raise ConfigurationError(
                    f"{name} of {what} is annotated with the type variable {part}, which does not say how to store"
                    " a value. Annotate it with a type, or with Any for plain JSON."
                )
        return resolved

    def _evaluate(self, annotation: Any) -> Any:
        def carrier() -> None: ...

        carrier.__annotations__ = {"it": annotation}
        return typing.get_type_hints(carrier, self._globals, self._locals, include_extras=True)["it"]


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    if get_origin(annotation) is not Literal:
        for argument in get_args(annotation):
            yield from _parts(argument)


def _enclosing_locals(fn: Any) -> dict[str, Any]:
    outer, inside, _ = getattr(fn, "__qualname__", "").rpartition(".<locals>.")
    names = _names_in_annotations(fn)
    if not inside or not names:
        return {}
    code = fn.__code__
    cells = zip(code.co_freevars, fn.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells if name in names and _is_filled(cell)}
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_qualname == outer and frame.f_code.co_filename == code.co_filename:
            return found | {name: value for name, value in frame.f_locals.items() if name in names}
        frame = frame.f_back
    return found


def _names_in_annotations(fn: Any) -> frozenset[str]:
    texts = (text for text in getattr(fn, "__annotations__", {}).values() if isinstance(text, str))
    return frozenset(name for text in texts for name in re.findall(r"\w+", text))


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  reading is the test
    except ValueError:
        return False
    return True


def annotations_of(shape: Shape, scope: Scope, what: str) -> dict[str, Any]:
    """Return the stored type of each parameter, in the order of declaration."""
    return {p.name: _stored_type(p, scope.resolve(f"parameter {p.name!r}", p.annotation, what)) for p in shape.parameters}


def _stored_type(parameter: inspect.Parameter, annotation: Any) -> Any:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return types.GenericAlias(tuple, (annotation, ...))
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        unpacked = get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack)  # two objects before 3.12
        return get_args(annotation)[0] if unpacked else types.GenericAlias(dict, (str, annotation))
    # `x: str = None` is common; read it as Optional, as Python itself did until 3.10.
    return typing.Optional[annotation] if parameter.default is None else annotation  # noqa: UP045  works on any object


def result_annotation(fn: Callable[..., Any], scope: Scope, what: str) -> Any:
    """Return the type of an awaited call's result; for a plain function that returns a coroutine, that of the coroutine."""
    annotation = scope.resolve("the result", _signature(fn).return_annotation, what)
    if annotation in (NoReturn, Never):
        return Any
    if not inspect.iscoroutinefunction(fn):
        arguments = get_args(annotation)
        if get_origin(annotation) is collections.abc.Coroutine and len(arguments) == 3:
            return arguments[2]
        if get_origin(annotation) is collections.abc.Awaitable and arguments:
            return arguments[0]
    return annotation
