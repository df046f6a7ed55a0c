"""Edda's `@workflow`, with the method `start`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, NoReturn, TypeVar, overload

import romancy
from romancy import ActivityContext, App, ConfigurationError, Status, WorkflowFailedError
from romancy.integrations.edda.coercion import coerce_arguments, event_arguments, result_type
from romancy.integrations.edda.context import CURRENT_CONTEXT, WorkflowContext, in_workflow, new_id, use_context
from romancy.integrations.edda.current_app import current_app
from romancy.integrations.edda.result_types import WORKFLOWS
from romancy.integrations.edda.unsupported import WORKFLOW, no_attribute

__all__ = ["Workflow", "recur", "workflow"]

R_co = TypeVar("R_co", covariant=True)

_IN_PROGRESS = frozenset({Status.PENDING, Status.RUNNING, Status.COMPENSATING})
_ASYNCIO_TIMER = "timer:"
"""Prefix of the ids of asyncio timers, such as that of `asyncio.sleep()`."""
_FIRST_POLL, _LONGEST_WAIT = 0.001, 0.1
"""Seconds between two polls of a started instance; the interval doubles."""


class Workflow(Generic[R_co]):
    """A durable function. `func` is the plain function, `romancy` the romancy workflow."""

    def __init__(self, func: Callable[..., Coroutine[Any, Any, R_co]], event_handler: bool = False) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.name = func.__name__
        self.event_handler = event_handler
        WORKFLOWS[self.name] = functools.partial(result_type, func)
        self.romancy: romancy.Workflow[..., R_co] = romancy.workflow(event_handler=event_handler)(_body(func))
        self.romancy.event_arguments = functools.partial(event_arguments, func)
        self.romancy.id_prefix = f"{self.name}-"  # as in Edda, for programs that parse ids
        self.romancy.replaces = True  # as in Edda, the last definition of a name wins

    async def start(self, lock_timeout_seconds: int | None = None, **kwargs: Any) -> str:
        """Start the workflow; returns the id of the instance when it has ended or is waiting.

        Raises the error of the workflow. In a workflow or an activity, it returns when the instance is durable. A workflow
        starts the instance once, however often the workflow is replayed. `lock_timeout_seconds` is ignored.
        """
        app = current_app(f"{self.name}.start()")
        arguments, here = coerce_arguments(self.func, kwargs), CURRENT_CONTEXT.get()
        if here is None:
            handle = await app.start_workflow(self.romancy, **arguments)
            return await _wait_until_idle(app, handle.instance_id)
        if isinstance(here.romancy, romancy.WorkflowContext):
            instance_id = f"{self.name}-{new_id(here)}"
            return await start_workflow(here.romancy, self.name, instance_id, arguments)
        return (await app.start_workflow(self.romancy, **arguments)).instance_id

    async def resume(self, instance_id: str, event: Any = None) -> NoReturn:
        """Not offered: instances resume automatically."""
        raise ConfigurationError(
            f"{self.name}.resume() is not offered: an instance resumes automatically when its event, message or timer "
            "arrives, on any worker. `await app.romancy.resume_workflow(instance_id)` resumes a paused one."
        )

    async def __call__(self, ctx: WorkflowContext, /, *args: Any, **kwargs: Any) -> R_co:
        """Run this workflow inline, as a part of the calling workflow."""
        return await self.romancy(in_workflow(ctx, f"workflow {self.name!r}"), *args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(
            f"workflow {self.__dict__.get('name', '')!r}", name, WORKFLOW, ("func", "name", "romancy", "start")
        )

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


@overload
def workflow(func: Callable[Concatenate[WorkflowContext, ...], Coroutine[Any, Any, R_co]], /) -> Workflow[R_co]: ...
@overload
def workflow(
    *, event_handler: bool = False, lock_timeout_seconds: int | None = None
) -> Callable[[Callable[Concatenate[WorkflowContext, ...], Coroutine[Any, Any, Any]]], Workflow[Any]]: ...
def workflow(func: Any = None, /, *, event_handler: bool = False, lock_timeout_seconds: int | None = None) -> Any:
    """Make an `async def` a workflow. `lock_timeout_seconds` is ignored: leases are renewed."""
    if func is None:
        return functools.partial(Workflow[Any], event_handler=event_handler)
    return Workflow[Any](func, event_handler)


async def recur(ctx: WorkflowContext, **kwargs: Any) -> NoReturn:
    """The same as `ctx.recur(...)`."""
    await ctx.recur(**kwargs)


def _body(func: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    if not inspect.iscoroutinefunction(func):
        raise ConfigurationError(f"{func!r} cannot be a workflow: it must be an `async def` function.")

    @functools.wraps(func)
    async def body(ctx: romancy.WorkflowContext, /, *args: Any, **kwargs: Any) -> Any:
        with use_context(WorkflowContext(ctx, named=functools.partial(coerce_arguments, func))) as here:
            return await func(here, *args, **kwargs)

    return body


@romancy.activity
async def start_workflow(ctx: ActivityContext, name: str, instance_id: str, arguments: dict[str, Any]) -> str:
    """Start a workflow from another. The caller chooses the id, so that a repeated call starts no second instance."""
    found = ctx.app.get_workflow(name)
    handle = await ctx.app.start_workflow(
        found.with_options(instance_id=instance_id), **coerce_arguments(found.fn, arguments)
    )
    return handle.instance_id


async def _wait_until_idle(app: App, instance_id: str) -> str:
    """Wait until the instance has ended or is waiting, as Edda does. Raise its error if it has failed."""
    handle, pause = app.get_handle(instance_id), _FIRST_POLL
    while (status := await handle.status()) in _IN_PROGRESS or await _is_pausing(app, instance_id, status):
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_WAIT)
    if status in (Status.FAILED, Status.TERMINATED):
        try:
            await handle.result()
        except WorkflowFailedError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__  # noqa: B904  it has a cause of its own
    return instance_id


async def _is_pausing(app: App, instance_id: str, status: Status) -> bool:
    """Return whether the instance is between two attempts or in an `asyncio.sleep()`, which Edda counts as running."""
    if status is not Status.WAITING_FOR_TIMER:
        return False
    found = await app.get_instance(instance_id)
    return found is not None and all(
        one.kind == "retry" or (one.kind == "timer" and one.activity_id.startswith(_ASYNCIO_TIMER))
        for one in found.waiting_for
    )
