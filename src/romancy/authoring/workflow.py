"""Workflows: the decorator `@workflow`, and the objects that it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, Never, NoReturn, ParamSpec, Protocol, TypeVar, final, overload

from romancy.authoring.context import WorkflowContext, run_of
from romancy.authoring.durations import Duration, optional_micros
from romancy.authoring.signatures import check_context_first, check_types, refuse_unknown
from romancy.errors import ConfigurationError, InvalidWorkflowStateError
from romancy.serde.payload import CallCodec, result_codec

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

imported: list[Workflow[..., Any]] = []
"""Every workflow that was decorated in this process; an app that is given none has these."""


@final
class Workflow(Generic[P, R_co]):
    """A workflow: an `async def` function that survives crashes, restarts and months of waiting."""

    def __init__(
        self,
        fn: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R_co]],
        *,
        name: str,
        version: str = "",
        event_handler: bool = False,
        timeout: int | None = None,
    ) -> None:
        self._fn = fn
        self.name = name
        self.version = version
        self.event_handler = event_handler
        self.timeout = timeout
        self.instance_id: str | None = None
        self.id_prefix = ""
        """The prefix of generated instance ids."""
        self.event_arguments: Callable[[Any], dict[str, Any]] | None = None
        """Makes the arguments, by name, from an event's data; without it the rules of `handler_arguments` apply."""
        self.replaces = False
        """Whether this workflow replaces one of the same name and version that was imported earlier."""
        self.codec = CallCodec(fn, what=f"workflow {name!r}", thorough=True)
        self.result = result_codec(fn, what=f"result of workflow {name!r}")
        check_types(self.codec, self.result)
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", name)
        self.__module__ = fn.__module__

    @property
    def fn(self) -> Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R_co]]:
        """The function without the decorator."""
        return self._fn

    async def __call__(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run this workflow inline in another workflow, as a part of it."""
        run_of(ctx, f"workflow {self.name!r}")
        return await self._fn(ctx, *args, **kwargs)

    async def recur(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """End the current generation and begin the next one with these arguments, as `ctx.recur` does."""
        run_of(ctx, f"{self.name}.recur()")
        own = ctx._workflow
        if own is not None and (own.name, own.version) != (self.name, self.version):
            raise InvalidWorkflowStateError(
                f"{self.name}.recur() was called in {ctx.instance_id}, which is an instance of {own.label}: only that "
                f"workflow can recur. Use {own.name}.recur(ctx, ...) or ctx.recur(...); to run {self.name}, start it."
            )
        await ctx.recur(*args, **kwargs)

    def with_options(self, *, instance_id: str | None = None, **unknown: Never) -> Workflow[P, R_co]:
        """Return the same workflow with an instance id for its start: the same id is the same instance."""
        refuse_unknown(f"{self.name}.with_options", unknown, self.with_options)
        _check_text("instance_id", instance_id)
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.instance_id = instance_id
        return copy

    @property
    def label(self) -> str:
        """The name and version, as messages show them."""
        return f"{self.name} version {self.version}" if self.version else self.name

    @property
    def location(self) -> str:
        """The place where the function is defined."""
        code = getattr(inspect.unwrap(self._fn), "__code__", None)
        position = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "?"
        return f"{self._fn.__module__}.{self._fn.__qualname__} ({position})"

    def __repr__(self) -> str:
        return f"<workflow {self.label}>"


@final
@dataclass(frozen=True, slots=True)
class WorkflowRef:
    """A reference to a workflow by its name, for starting it where its code is not available.

    >>> WorkflowRef("checkout").with_options(instance_id="order-42")
    WorkflowRef(name='checkout', instance_id='order-42')
    """

    name: str
    instance_id: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse a name or an id that is not a text, or is empty."""
        _check_text("name", self.name or "")
        _check_text("instance_id", self.instance_id)

    def with_options(self, *, instance_id: str | None = None, **unknown: Never) -> WorkflowRef:
        """Return the same reference with an instance id for the start: the same id is the same instance."""
        refuse_unknown("WorkflowRef.with_options", unknown, self.with_options)
        return WorkflowRef(self.name, instance_id=instance_id)


def _check_text(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{name}={value!r}: give a non-empty string.")


class WorkflowDecorator(Protocol):
    """The decorator that `@workflow(...)` with options returns."""

    def __call__(self, fn: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def workflow(fn: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    event_handler: bool = False,
    timeout: Duration | None = None,
    version: str | None = None,
) -> WorkflowDecorator: ...
def workflow(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    event_handler: bool = False,
    timeout: Duration | None = None,
    version: str | None = None,
    **unknown: Never,
) -> Any:
    """Make an `async def` a workflow.

    `name` is stored with its instances (default: the name of the function); `version` distinguishes workflows of one name;
    `timeout` limits the time from the first start to the end, waits included. With `event_handler=True`, an event whose type
    is the name starts an instance.

    >>> @workflow
    ... async def greet(ctx: WorkflowContext, name: str) -> str:
    ...     return f"Hello, {name}"
    """
    refuse_unknown("workflow", unknown, workflow)

    def decorate(fn: Any) -> Any:
        if not inspect.iscoroutinefunction(fn):
            raise ConfigurationError(f"{fn!r} cannot be a workflow: it must be an `async def` function.")
        check_context_first(fn, "workflow")
        for option, value in (("name", name), ("version", version)):
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigurationError(f"{option}={value!r} of workflow {fn.__qualname__}: give a non-empty string.")
        label = name or fn.__name__
        made: Workflow[..., Any] = Workflow(
            fn,
            name=label,
            version=version or "",
            event_handler=event_handler,
            timeout=optional_micros(timeout, f"timeout of workflow {label!r}"),
        )
        imported.append(made)
        return made

    return decorate if fn is None else decorate(fn)
