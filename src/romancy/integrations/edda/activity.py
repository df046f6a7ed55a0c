"""Edda's `@activity`, with `retry_policy=`, and `activity_id=` in the call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, overload

import romancy
from romancy import ActivityContext, ConfigurationError
from romancy.integrations.edda.coercion import result_type
from romancy.integrations.edda.compensation import (
    compensation_of,
    fields_of,
    may_register_compensations,
    run_on_failure,
    run_registered,
)
from romancy.integrations.edda.context import WorkflowContext, in_workflow, use_context
from romancy.integrations.edda.result_types import ACTIVITIES, ResultWithCompensations
from romancy.integrations.edda.retry import RetryPolicy, policy_of
from romancy.integrations.edda.unsupported import no_attribute

__all__ = ["Activity", "activity"]

R = TypeVar("R")


class Activity(Generic[R]):
    """A function whose result is recorded. `func` is the plain function, `romancy` the romancy activity."""

    def __init__(self, func: Callable[..., Any], retry_policy: RetryPolicy | romancy.RetryPolicy | None = None) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.name = func.__name__
        self.is_async = inspect.iscoroutinefunction(func)
        self.retry_policy = retry_policy
        self._may_register = may_register_compensations(func)
        ACTIVITIES[self.name] = functools.partial(_recorded_type if self._may_register else result_type, func)
        compensation = _make_compensation(func, self._may_register)
        policy = policy_of(retry_policy, f"retry_policy of activity {self.name!r}")
        self.romancy: romancy.Activity[..., Any] = romancy.activity(retry=policy, compensation=compensation)(
            _body(func, self._may_register)
        )

    if TYPE_CHECKING:

        async def __call__(self, ctx: WorkflowContext, /, *args: Any, **kwargs: Any) -> R:
            """Run the activity in the workflow; `activity_id` is the id of this call in the history."""
            ...

    else:

        def __call__(self, ctx, /, *args, activity_id=None, **kwargs):
            """Run the activity in the workflow; `activity_id` is the id of this call in the history."""
            inner = in_workflow(ctx, f"activity {self.name!r}")
            chosen = self.romancy.with_options(activity_id=activity_id) if activity_id is not None else self.romancy
            operation = chosen(inner, *args, **kwargs)
            return _result_of(operation) if self._may_register else operation

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(
            f"activity {self.__dict__.get('name', '')!r}", name, {}, ("func", "name", "romancy", "retry_policy")
        )

    def __repr__(self) -> str:
        return f"<activity {self.name}>"


@overload
def activity(func: Callable[Concatenate[WorkflowContext, ...], Coroutine[Any, Any, R]], /) -> Activity[R]: ...
@overload
def activity(func: Callable[Concatenate[WorkflowContext, ...], R], /) -> Activity[R]: ...
@overload
def activity(
    *, retry_policy: RetryPolicy | romancy.RetryPolicy | None = None
) -> Callable[[Callable[Concatenate[WorkflowContext, ...], Any]], Activity[Any]]: ...
def activity(func: Any = None, /, *, retry_policy: Any = None) -> Any:
    """Make a function an activity: `async def`, or plain `def`, which runs in a thread."""
    if func is None:
        return functools.partial(Activity[Any], retry_policy=retry_policy)
    return Activity[Any](func, retry_policy)


async def _result_of(operation: Awaitable[ResultWithCompensations[Any]]) -> Any:
    return (await operation).result


# --- adapters for the engine, which passes its own context and inspects signatures


def _body(func: Callable[..., Any], registering: bool) -> Callable[..., Any]:
    def entering(ctx: ActivityContext) -> WorkflowContext:
        return WorkflowContext(ctx, may_register=registering)

    def recorded(ctx: WorkflowContext, result: Any) -> Any:
        return ResultWithCompensations(result, ctx._registered or []) if registering else result  # pyright: ignore[reportPrivateUsage]

    @functools.wraps(func)
    async def waiting(ctx: ActivityContext, /, *args: Any, **kwargs: Any) -> Any:
        with use_context(entering(ctx)) as here:
            return recorded(here, await func(here, *args, **kwargs))

    @functools.wraps(func)
    def blocking(ctx: ActivityContext, /, *args: Any, **kwargs: Any) -> Any:
        with use_context(entering(ctx)) as here:
            return recorded(here, func(here, *args, **kwargs))

    body: Any = waiting if inspect.iscoroutinefunction(func) else blocking
    if registering:
        body.__signature__ = inspect.signature(func).replace(return_annotation=_recorded_type(func))
    return body  # type: ignore[no-any-return]


def _make_compensation(func: Callable[..., Any], registering: bool) -> Callable[..., Any] | None:
    """Make the compensation of the activity: first the registered compensations, then the one of `@on_failure`."""
    on_failure = compensation_of(func)
    if on_failure is None and not registering:
        return None
    own = inspect.signature(func)
    context, *others = own.parameters.values()
    if "result" in own.parameters:
        raise ConfigurationError(
            f"Activity {func.__name__!r} has a compensation and a parameter called `result`: rename the parameter, because "
            "the engine passes the activity's result under that name."
        )

    async def run_compensation(ctx: ActivityContext, result: Any, *args: Any, **kwargs: Any) -> None:
        outcome: Any = result.result if registering else result
        if registering:
            await run_registered(result.compensations, func, ctx)
        if on_failure is not None:
            given = dict(list(own.bind(None, *args, **kwargs).arguments.items())[1:])
            await run_on_failure(on_failure, ctx, given | fields_of(outcome), func.__name__)

    kind = _recorded_type(func) if registering else result_type(func)
    handed = inspect.Parameter("result", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
    parts: Any = run_compensation
    parts.__signature__ = own.replace(parameters=[context, handed, *others], return_annotation=None)
    parts.__name__ = getattr(on_failure, "__name__", f"compensate_{func.__name__}")
    parts.__module__, parts.__qualname__ = func.__module__, func.__qualname__
    parts.__wrapped__ = func
    return run_compensation


def _recorded_type(func: Callable[..., Any]) -> Any:
    return GenericAlias(ResultWithCompensations, (result_type(func),))
