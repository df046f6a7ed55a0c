"""Activities: the decorator `@activity`, the objects that it makes, and their compensations."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, ParamSpec, Protocol, cast, final, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from romancy.authoring.context import ActivityContext, WorkflowContext, run_of
from romancy.authoring.durations import Duration, optional_micros
from romancy.authoring.operations import optional_text
from romancy.authoring.outcomes import decoder
from romancy.authoring.signatures import check_context_first, check_types, refuse_unknown
from romancy.errors import ConfigurationError
from romancy.model.history import Kind
from romancy.model.retry import RetryPolicy
from romancy.serde.payload import CallCodec, result_codec

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=ActivityContext | WorkflowContext)
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True, default=Callable[..., Any])
_ACTIVITY = Kind.ACTIVITY  # before Python 3.12, looking up a member of an enum takes as long as a call


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """The options for the attempts of an activity; times in microseconds."""

    activity_id: str | None = None
    retry: RetryPolicy | None = None
    timeout: int | None = None
    heartbeat_timeout: int | None = None
    transactional: bool = True

    @property
    def bounded(self) -> bool:
        """Whether the duration of an attempt is limited."""
        return self.timeout is not None or self.heartbeat_timeout is not None


@final
class Compensation:
    """The compensation of an activity: its function, the codec of its arguments, and the options for its attempts."""

    def __init__(self, fn: Callable[..., Any], codec: CallCodec, *, wants_result: bool, options: AttemptOptions) -> None:
        self.fn = fn
        self.codec = codec
        self.wants_result = wants_result
        self.options = options
        self.is_async = _is_async(fn)


@final
class Activity(Generic[P, R, F_co]):
    """An activity: a function whose result is recorded, so that a replay of the workflow does not call it again."""

    def __init__(self, fn: F_co, name: str, options: AttemptOptions) -> None:
        check_context_first(fn, "activity")
        self._fn = fn
        self.name = name
        self.options = options
        self.is_async = _is_async(fn)
        self.codec = CallCodec(fn, what=f"activity {name!r}")
        self.result = result_codec(fn, what=f"result of activity {name!r}")
        check_types(self.codec, self.result)
        self.compensation_spec: Compensation | None = None
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", name)
        self.__module__ = fn.__module__
        self._decode = decoder(self.result, name, fn.__module__)
        self._what = f"activity {name!r}"

    @property
    def fn(self) -> F_co:
        """The function without the decorator."""
        return self._fn

    @property
    def compensation(self) -> Callable[..., Any] | None:
        """The function that compensates this activity, if it has one."""
        return self.compensation_spec.fn if self.compensation_spec is not None else None

    if TYPE_CHECKING:
        # Declared as a coroutine function so that checkers find a forgotten await; at run time the call returns an
        # Operation, a future, issued when called.
        async def __call__(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
            """Run the activity as an operation of the workflow."""
            ...

    else:

        def __call__(self, ctx, /, *args, **kwargs):
            """Run the activity as an operation of the workflow."""
            run, fn = run_of(ctx, self._what), self._fn
            if run.activities_by_name.setdefault(self.name, fn) is not fn:
                _check_same(self.name, run.activities_by_name[self.name], fn)
            raw = self.codec.encode(args, kwargs)
            digest = self.codec.digest(raw)
            return run.issue_operation(
                _ACTIVITY, self.name, self._decode, self.options.activity_id, digest, raw, None, self, self.compensation_spec
            )

    def with_options(
        self,
        *,
        activity_id: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        heartbeat_timeout: Duration | None = None,
        **unknown: Never,
    ) -> Activity[P, R, F_co]:
        """Return the same activity with other options, for one call."""
        refuse_unknown(f"{self.name}.with_options", unknown, self.with_options)
        if activity_id is not None and (not isinstance(activity_id, str) or not activity_id):
            raise ConfigurationError(f"activity_id={activity_id!r}: give a non-empty string.")
        optional_text(activity_id, f"The activity_id given to {self.name}.with_options()")
        given = _options(self.name, retry, timeout, heartbeat_timeout, self.options.transactional)
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.options = AttemptOptions(
            activity_id=activity_id or self.options.activity_id,
            retry=given.retry or self.options.retry,
            timeout=given.timeout or self.options.timeout,
            heartbeat_timeout=given.heartbeat_timeout or self.options.heartbeat_timeout,
            transactional=self.options.transactional,
        )
        return copy

    @overload
    def compensate(self, fn: Callable[Concatenate[C, P], Awaitable[Any] | None], /) -> Callable[Concatenate[C, P], Any]: ...
    @overload
    def compensate(
        self, fn: Callable[Concatenate[C, R, P], Awaitable[Any] | None], /
    ) -> Callable[Concatenate[C, R, P], Any]: ...
    def compensate(self, fn: Any, /) -> Any:
        """Make a function the compensation of this activity.

        The function takes the same arguments, or the result and the same arguments.
        """
        self.compensation_spec = compensation_of(fn, self)
        return fn

    def __repr__(self) -> str:
        return f"<activity {self.name}>"


def compensation_of(fn: Any, target: Activity[..., Any, Any] | None) -> Compensation:
    """Make a compensation of `fn`, after checking its signature against that of the activity that it compensates."""
    options = fn.options if isinstance(fn, Activity) else AttemptOptions()
    plain: Callable[..., Any] = cast(Any, fn).fn if isinstance(fn, Activity) else fn
    check_context_first(plain, "compensation")
    codec = CallCodec(plain, what=f"compensation {getattr(plain, '__name__', plain)!r}")
    if target is None:
        return Compensation(plain, codec, wants_result=False, options=options)
    wants_result = _wants_result(plain, target)
    _check_same_types(plain, target)
    return Compensation(plain, codec, wants_result=wants_result, options=options)


def _check_same(name: str, known: Any, fn: Any) -> None:
    """Refuse two activities of one name in a workflow: after a code change, one could replay with the other's results.

    An activity that was defined again, such as one in a nested function, is the same.
    """
    first, second = _qualified_name(known), _qualified_name(fn)
    if first != second:
        raise ConfigurationError(
            f"Two activities are named {name!r} in one workflow: {first} and {second}. Give one of them another name: "
            "@activity(name=...)."
        )


def _qualified_name(fn: Any) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"


def _wants_result(fn: Callable[..., Any], target: Activity[..., Any, Any]) -> bool:
    mine = list(inspect.signature(fn).parameters.values())[1:]
    theirs = list(inspect.signature(target.fn).parameters.values())[1:]
    if _accepts(mine, theirs):
        return False
    if mine and mine[0].name == "result" and _accepts(mine[1:], theirs):
        return True
    wanted = ", ".join(str(parameter) for parameter in theirs)
    raise ConfigurationError(
        f"{_name(fn)}{inspect.signature(fn)} cannot compensate activity {target.name!r}: it must take the context and the "
        f"same parameters ({wanted}), or the context, `result` and the same parameters."
    )


def _check_same_types(fn: Callable[..., Any], target: Activity[..., Any, Any]) -> None:
    """Refuse a parameter whose type clearly differs from that of the activity's parameter of the same name."""
    theirs = inspect.signature(target.fn).parameters
    for name, parameter in list(inspect.signature(fn).parameters.items())[1:]:
        mine, other = _class_of(fn, parameter), _class_of(target.fn, theirs[name]) if name in theirs else None
        if mine is None or other is None or issubclass(other, mine) or issubclass(mine, other):
            continue
        raise ConfigurationError(
            f"{_name(fn)}{inspect.signature(fn)} cannot compensate activity {target.name!r}: it gets the activity's "
            f"arguments, and there {name!r} is of type {other.__name__}, not {mine.__name__}."
        )


_PLAIN = (str, bytes, int, bool, list, dict)
"""Classes whose annotation is exact: it does not stand for other classes, as that of a protocol or `float` does."""


def _class_of(fn: Any, parameter: inspect.Parameter) -> type | None:
    """Return the class of a parameter's annotation if it is exact, else None."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = getattr(fn, "__globals__", {}).get(annotation, getattr(builtins, annotation, None))
    if not isinstance(annotation, type):
        return None
    exact = annotation in _PLAIN or is_dataclass(annotation) or issubclass(annotation, BaseModel | Enum)
    return annotation if exact else None


def _accepts(mine: list[inspect.Parameter], theirs: list[inspect.Parameter]) -> bool:
    """Whether a function with the parameters `mine` accepts every call that one with the parameters `theirs` accepts."""
    variadic = {parameter.kind for parameter in mine}
    if not _variadic_kinds(theirs) <= variadic:
        return False
    positional, wanted = _positional(mine), _positional(theirs)
    if [parameter.name for parameter in positional[: len(wanted)]] != [
        parameter.name for parameter in wanted[: len(positional)]
    ]:
        return False
    if len(positional) < len(wanted) and inspect.Parameter.VAR_POSITIONAL not in variadic:
        return False
    named = {parameter.name: parameter for parameter in mine if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    for parameter in theirs:
        missing = parameter.kind is inspect.Parameter.KEYWORD_ONLY and named.pop(parameter.name, None) is None
        if missing and inspect.Parameter.VAR_KEYWORD not in variadic:
            return False
    left = [*positional[len(wanted) :], *named.values()]
    return all(parameter.default is not inspect.Parameter.empty for parameter in left)


def _positional(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in parameters if parameter.kind in kinds]


def _variadic_kinds(parameters: list[inspect.Parameter]) -> set[Any]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {parameter.kind for parameter in parameters if parameter.kind in kinds}


class ActivityDecorator(Protocol):
    """The decorator that `@activity(...)` with options returns."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /
    ) -> Activity[P, R, Callable[Concatenate[C, P], Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[C, P], R], /) -> Activity[P, R, Callable[Concatenate[C, P], R]]: ...


@overload
def activity(
    fn: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /
) -> Activity[P, R, Callable[Concatenate[C, P], Coroutine[Any, Any, R]]]: ...
@overload
def activity(fn: Callable[Concatenate[C, P], R], /) -> Activity[P, R, Callable[Concatenate[C, P], R]]: ...
@overload
def activity(
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    compensation: Callable[Concatenate[C, ...], Any] | None = None,
    transactional: bool = True,
) -> ActivityDecorator: ...
def activity(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    compensation: Any = None,
    transactional: bool = True,
    **unknown: Never,
) -> Any:
    """Make a function an activity: an `async def`, or a plain `def`, which runs in a thread.

    `retry` is its retry policy; `timeout` limits one attempt, `heartbeat_timeout` the time between two calls of
    `ctx.heartbeat()`; `compensation` is called when the workflow fails or is cancelled. With `transactional=False`, events
    and messages of an attempt are sent at once, instead of with its result.

    >>> @activity(retry=RetryPolicy.none())
    ... async def charge(ctx: ActivityContext, amount: int) -> str:
    ...     return "receipt"
    """
    refuse_unknown("activity", unknown, activity)

    def decorate(fn: Any) -> Any:
        label = _label(name, fn, "activity")
        made: Activity[..., Any] = Activity(fn, label, _options(label, retry, timeout, heartbeat_timeout, transactional))
        if compensation is not None:
            made.compensation_spec = compensation_of(compensation, made)
        return made

    return decorate if fn is None else decorate(fn)


def _options(
    name: str, retry: Any, timeout: Duration | None, heartbeat_timeout: Duration | None, transactional: bool
) -> AttemptOptions:
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise ConfigurationError(
            f"retry={retry!r} of activity {name!r}: give a RetryPolicy, e.g. RetryPolicy.fixed(3, 1.0)."
        )
    if not isinstance(transactional, bool):
        raise ConfigurationError(f"transactional={transactional!r} of activity {name!r}: give True or False.")
    return AttemptOptions(
        retry=retry,
        timeout=optional_micros(timeout, f"timeout of activity {name!r}"),
        heartbeat_timeout=optional_micros(heartbeat_timeout, f"heartbeat_timeout of activity {name!r}"),
        transactional=transactional,
    )


def _label(name: object, fn: Any, what: str) -> str:
    if not callable(fn):
        raise ConfigurationError(f"@{what} decorates a function, not {fn!r}. Pass options by name: @{what}(name=...).")
    if name is None:
        return str(getattr(fn, "__name__", type(fn).__name__))
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"name={name!r} of {what} {_name(fn)}: give a non-empty string.")
    return name


def _name(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", fn))


def _is_async(fn: Callable[..., Any]) -> bool:
    """Whether a function is an `async def`, or a `def` annotated to return a coroutine."""
    if inspect.iscoroutinefunction(fn):
        return True
    annotation = getattr(fn, "__annotations__", {}).get("return")
    return "Coroutine[" in annotation if isinstance(annotation, str) else "Coroutine" in str(annotation)
