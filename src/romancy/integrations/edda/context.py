"""Edda's context: one class for workflows, activities and compensations."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from romancy import ActivityContext, ConfigurationError, InvalidWorkflowStateError
from romancy import WorkflowContext as RunContext
from romancy.integrations.edda.unsupported import CONTEXT, no_attribute

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["WorkflowContext"]


@dataclass(frozen=True, slots=True)
class RegisteredCompensation:
    """A compensation that an activity has registered: the name of its function, and its arguments as plain JSON."""

    function: str
    args: list[Any] = field(default_factory=list[Any])
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])


class WorkflowContext:
    """The first parameter of workflows, activities and compensations. `romancy` is the romancy context behind it."""

    def __init__(
        self,
        inner: RunContext | ActivityContext,
        *,
        named: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        may_register: bool = False,
    ) -> None:
        self.romancy = inner
        self.instance_id = inner.instance_id
        self.workflow_name = inner.workflow_name
        self.worker_id = inner.worker_id
        self._bind_arguments = named
        """Converts the arguments of a new generation to the types of the workflow's parameters."""
        self._direct: set[str] = set()
        """The channels subscribed to with mode="direct"."""
        self._numbers = itertools.count()
        self._registered: list[RegisteredCompensation] | None = [] if may_register else None

    @property
    def is_replaying(self) -> bool:
        """Whether the workflow is replaying its history. False in an activity."""
        return isinstance(self.romancy, RunContext) and self.romancy.is_replaying

    @property
    def session(self) -> AsyncSession:
        """In an activity: a SQLAlchemy session that commits with its result. Needs `romancy[sqlalchemy]`."""
        return in_activity(self, "ctx.session").session

    async def recur(self, **kwargs: Any) -> NoReturn:
        """Restart the workflow with these arguments: the next generation of the instance, with an empty history."""
        await in_workflow(self, "ctx.recur()").recur(**self._bind_arguments(kwargs))

    def in_transaction(self) -> bool:
        """Return True in an activity: each attempt is a transaction."""
        return isinstance(self.romancy, ActivityContext)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Do nothing, in an activity: its whole attempt commits together, or not at all."""
        in_activity(self, "ctx.transaction()")
        yield

    def register_post_commit(self, callback: Callable[[], Awaitable[None]]) -> NoReturn:
        """Not offered: a callback would be lost if the process died after the commit."""
        raise ConfigurationError(
            "ctx.register_post_commit() is not offered: a callback would be lost if the process died after the commit. Send "
            "with ctx (publish, send_event_transactional), which commits with the activity, or make it the next activity."
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("ctx", name, CONTEXT, [one for one in dir(type(self)) if not one.startswith("_")])

    def __repr__(self) -> str:
        return f"WorkflowContext(instance_id={self.instance_id!r}, workflow_name={self.workflow_name!r})"


CURRENT_CONTEXT: ContextVar[WorkflowContext | None] = ContextVar("romancy_edda_here", default=None)
"""The context of the running workflow or activity, for functions of Edda that take no context."""


@contextmanager
def use_context(ctx: WorkflowContext) -> Iterator[WorkflowContext]:
    """Make this the current context while a workflow or an activity runs."""
    token = CURRENT_CONTEXT.set(ctx)
    try:
        yield ctx
    finally:
        CURRENT_CONTEXT.reset(token)


def in_workflow(ctx: WorkflowContext, what: str) -> RunContext:
    """Return the workflow context, or raise an error that `what` must be used in a workflow."""
    inner = _require_context(ctx, what)
    if isinstance(inner, RunContext):
        return inner
    raise InvalidWorkflowStateError(f"{what} was used inside an activity. Only a workflow may use it.")


def in_activity(ctx: WorkflowContext, what: str) -> ActivityContext:
    """Return the activity context, or raise an error that `what` must be used in an activity."""
    inner = _require_context(ctx, what)
    if isinstance(inner, ActivityContext):
        return inner
    raise InvalidWorkflowStateError(f"{what} was used in a workflow. Only an activity has a transaction: use it in one.")


def native_context(ctx: WorkflowContext, what: str) -> RunContext | ActivityContext:
    """Return the romancy context behind an Edda context."""
    return _require_context(ctx, what)


def new_id(ctx: WorkflowContext) -> str:
    """Return an id that is the same in every replay of a workflow, and different in each attempt of an activity."""
    inner = ctx.romancy
    if isinstance(inner, RunContext):
        return str(inner.uuid4())
    number = next(ctx._numbers)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{inner.idempotency_key}:{inner.attempt}:{number}"))


def _require_context(ctx: object, what: str) -> RunContext | ActivityContext:
    if isinstance(ctx, WorkflowContext):
        return ctx.romancy
    raise InvalidWorkflowStateError(f"{what} needs the context that a workflow or an activity was given, not {ctx!r}.")
