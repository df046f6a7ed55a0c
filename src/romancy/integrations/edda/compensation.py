"""Compensations: `@compensation`, `@on_failure`, `register_compensation`.

A workflow registers a compensation with the engine. An activity cannot, because it may still fail: there the compensation
becomes a part of the result, and the compensation of the activity runs all of them, the last one first.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

import romancy
from romancy import ActivityContext, ConfigurationError, InvalidWorkflowStateError, TerminalError
from romancy.integrations.edda.coercion import hints_of
from romancy.integrations.edda.context import RegisteredCompensation, WorkflowContext, native_context, use_context

__all__ = ["compensation", "on_failure", "register_compensation"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_edda_on_failure"
_known: dict[str, Callable[..., Any]] = {}
"""Compensations by name, so that another process can run a compensation that an activity has registered."""


def compensation(func: F) -> F:
    """Mark a function as a compensation. Returns the function unchanged."""
    _known[_name_of(func)] = func
    return func


def on_failure(compensation_func: Callable[..., Any]) -> Callable[[F], F]:
    """Set the function that compensates an activity when the workflow fails or is cancelled. Write it below `@activity`.

    It is called with those arguments of the activity, and those fields of its result, for which it has parameters.
    """

    def decorate(func: F) -> F:
        if not inspect.isfunction(cast(Any, func)):
            raise ConfigurationError(
                f"@on_failure must be directly above the function, below @activity, not above {func!r}."
            )
        setattr(func, _MARK, compensation_func)
        return func

    return decorate


async def register_compensation(
    ctx: WorkflowContext,
    compensation_func: Callable[..., Any],
    *args: Any,
    activity_id: str | None = None,
    **kwargs: Any,
) -> None:
    """Call a function with these arguments if the workflow fails or is cancelled; the last registered is called first.

    `activity_id` is accepted and ignored: the history shows the registrations.
    """
    inner = native_context(ctx, "register_compensation()")
    if isinstance(inner, romancy.WorkflowContext):
        await romancy.register_compensation(inner, _native(compensation_func), *args, **kwargs)
        return
    steps = ctx._registered  # pyright: ignore[reportPrivateUsage]
    if steps is None:
        raise InvalidWorkflowStateError(
            f"register_compensation() was called in {inner.activity_id}, whose own function does not name it. Registered "
            "compensations are a part of the result, whose type must be known before the activity runs. Call it in the "
            "activity's own function, or in the workflow."
        )
    compensation(plain_of(compensation_func))
    steps.append(
        RegisteredCompensation(_name_of(plain_of(compensation_func)), to_jsonable_python(args), to_jsonable_python(kwargs))
    )


def compensation_of(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the compensation that `@on_failure` has set for a function."""
    found: Callable[..., Any] | None = getattr(func, _MARK, None)
    return found


def may_register_compensations(func: Callable[..., Any]) -> bool:
    """Return whether the code of a function names `register_compensation`."""
    code = getattr(inspect.unwrap(func), "__code__", None)
    return code is not None and any("register_compensation" in one.co_names for one in _codes(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


# --- calling


async def run_on_failure(func: Callable[..., Any], ctx: ActivityContext, available: Mapping[str, Any], what: str) -> None:
    """Call the compensation of `@on_failure` with the arguments for which it has parameters."""
    plain = plain_of(func)
    parameters = list(inspect.signature(plain).parameters.values())[1:]
    spread = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    wanted = {one.name for one in parameters}
    required = [
        one.name for one in parameters if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    missing = [name for name in required if name not in available]
    if missing:
        raise TerminalError(
            f"{plain.__name__}() needs {missing[0]!r}, which neither the arguments of {what} nor its result have."
        )
    await _call(plain, ctx, [], {name: value for name, value in available.items() if spread or name in wanted})


async def run_registered(steps: list[RegisteredCompensation], registrar: Callable[..., Any], ctx: ActivityContext) -> None:
    """Run the compensations that an activity has registered, the last one first. `registrar` is the activity's function."""
    for step in reversed(steps):
        func = _found(step.function, registrar)
        bound = inspect.signature(func).bind(ctx, *step.args, **step.kwargs)
        hints = hints_of(func)
        for name, value in list(bound.arguments.items())[1:]:
            bound.arguments[name] = _typed(hints.get(name), value)
        await _call(func, ctx, list(bound.args[1:]), bound.kwargs)


def fields_of(result: Any) -> dict[str, Any]:
    """Return the fields of a result by name."""
    if isinstance(result, Mapping):
        return {str(name): value for name, value in result.items()}
    return dict(result) if isinstance(result, BaseModel) else {}


async def _call(func: Callable[..., Any], ctx: ActivityContext, args: list[Any], kwargs: dict[str, Any]) -> None:
    with use_context(WorkflowContext(ctx)) as here:
        if inspect.iscoroutinefunction(func):
            await func(here, *args, **kwargs)
        else:
            await _in_thread(functools.partial(func, here, *args, **kwargs))


async def _in_thread(call: Callable[[], Any]) -> None:
    """Make a call in a thread. If this coroutine ends before a thread is free, the call is not made at all."""
    over = threading.Event()
    try:
        await asyncio.to_thread(lambda: None if over.is_set() else call())
    finally:
        over.set()


def _typed(annotation: Any, value: Any) -> Any:
    if annotation is None:
        return value
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return value


# --- names


def plain_of(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the plain function of an activity, or the function itself."""
    inner: Callable[..., Any] = getattr(func, "func", func)
    return inner


def _native(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in the form that romancy calls."""
    native = getattr(func, "romancy", None)
    if isinstance(native, romancy.Activity):
        return cast(Callable[..., Any], native)

    @functools.wraps(func)
    async def body(ctx: ActivityContext, *args: Any, **kwargs: Any) -> None:
        await _call(func, ctx, list(args), kwargs)

    return body


def _name_of(func: Callable[..., Any]) -> str:
    return f"{func.__module__}:{func.__qualname__}"


def _found(name: str, registrar: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compensation of a name.

    The name comes from the database, and write access to the database must not allow a call of any function: nothing is
    imported, and only functions that are marked, or that the code of the activity names, are found.
    """
    if name in _known:
        return _known[name]
    for func in _named_in(registrar):
        if _name_of(func) == name:
            return func
    raise TerminalError(
        f"The compensation {name} is unknown in this process: decorate it with @compensation, in a module that every worker "
        "imports."
    )


def _named_in(registrar: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the functions of its own package that an activity names: as `cancel_room`, or as `hotels.cancel_room`."""
    plain = inspect.unwrap(registrar)
    names = {name for code in _codes(plain.__code__) for name in code.co_names}
    near = [plain.__globals__[name] for name in names if name in plain.__globals__]
    inside = [vars(one)[name] for one in near if isinstance(one, ModuleType) for name in names if name in vars(one)]
    for one in (*near, *inside):
        func = plain_of(one) if callable(one) else None
        if inspect.isfunction(func) and _package(func) == _package(plain):
            yield func


def _package(func: Callable[..., Any]) -> str:
    return func.__module__.partition(".")[0]
