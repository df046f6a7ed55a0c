"""The first parameter of every workflow and activity: where it is, and what it may ask."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from datetime import datetime
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, final

from romancy.clock import to_datetime
from romancy.core.loop import Run
from romancy.errors import InvalidWorkflowStateError
from romancy.model.messaging import Effect

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from romancy.app import App
    from romancy.authoring.workflow import Workflow

_workflow_log = logging.getLogger("romancy.workflow")
_activity_log = logging.getLogger("romancy.activity")


class Context:
    """What both contexts have."""

    instance_id: str
    workflow_name: str
    worker_id: str
    _app: App | None

    @property
    def app(self) -> App:
        """The app that runs this."""
        if self._app is None:
            raise InvalidWorkflowStateError("This context belongs to no app: it was made by hand, outside a worker.")
        return self._app


@final
class WorkflowContext(Context):
    """Given to a workflow as its first argument.

    `now()`, `uuid4()` and `random()` give the same values in every replay.
    """

    def __init__(
        self,
        *,
        instance_id: str = "",
        workflow_name: str = "",
        worker_id: str = "",
        app: App | None = None,
        generation: int = 1,
        run: Run | None = None,
        workflow: Workflow[..., Any] | None = None,
    ) -> None:
        self.instance_id = instance_id
        self.workflow_name = workflow_name
        self.worker_id = worker_id
        self._app = app
        self.generation = generation
        self._run = run
        self._workflow = workflow
        self._random: Random | None = None
        self._uuids: Random | None = None
        self._log: _ReplayAwareLog | None = None

    @property
    def is_replaying(self) -> bool:
        """What happens now has happened before."""
        return self._run is not None and self._run.replaying

    def now(self) -> datetime:
        """The time of what the workflow is going on from; aware, the same in every replay."""
        return to_datetime(run_of(self, "ctx.now()").at)

    def uuid4(self) -> uuid.UUID:
        """A UUID that is the same in every replay."""
        if self._uuids is None:
            self._uuids = self._seeded("uuid4")
        return uuid.UUID(int=self._uuids.getrandbits(128), version=4)

    def random(self) -> Random:
        """A source of chance that draws the same in every replay."""
        if self._random is None:
            self._random = self._seeded("random")
        return self._random

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that is silent while replaying."""
        if self._log is None:
            self._log = _ReplayAwareLog(self)
        return self._log

    async def recur(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin anew with these arguments: the same instance, its next generation, a fresh history.

        Subscriptions, memberships and what was not read yet carry over; compensations do not. Only from the workflow's own
        body, with no activity in flight, else `InvalidWorkflowStateError`. `checkout.recur(ctx, ...)` does the same, and
        type checkers look at its arguments.
        """
        run = run_of(self, "ctx.recur()")
        if self._workflow is None:
            raise InvalidWorkflowStateError("ctx.recur() was used with a context that belongs to no workflow.")
        run.recur(self._workflow.codec.encode(args, kwargs))

    def _seeded(self, purpose: str) -> Random:
        seed = blake2b(f"{purpose}:{self.instance_id}:{self.generation}".encode(), digest_size=16).digest()
        return Random(seed)  # noqa: S311 (replays must draw the same)


class AttemptLink(Protocol):
    """How an activity's context reaches the worker: what a heartbeat does, and what the last attempt left."""

    @property
    def last_heartbeat(self) -> Any: ...

    @property
    def idempotency_key(self) -> str: ...

    def heartbeat(self, details: Any) -> None: ...


class AttemptTransaction(Protocol):
    """An attempt's own transaction."""

    @property
    def session(self) -> AsyncSession: ...

    @property
    def shuts_out_writers(self) -> bool: ...


CURRENT_TRANSACTION: ContextVar[AttemptTransaction | None] = ContextVar("romancy_transaction", default=None)
"""The transaction of the attempt that runs in this context."""


@final
class ActivityContext(Context):
    """Given to an activity as its first argument."""

    def __init__(
        self,
        *,
        instance_id: str = "",
        workflow_name: str = "",
        worker_id: str = "",
        app: App | None = None,
        activity_id: str = "",
        attempt: int = 1,
        idempotency_key: str | None = None,
        link: AttemptLink | None = None,
        sender: Callable[[Effect], Awaitable[Any]] | None = None,
        check_recipient: Callable[[str], Awaitable[None]] | None = None,
        transaction: AttemptTransaction | None = None,
    ) -> None:
        self._transaction = transaction
        """Its own transaction, if it can have one."""
        self.instance_id = instance_id
        self.workflow_name = workflow_name
        self.worker_id = worker_id
        self._app = app
        self.activity_id = activity_id
        self.attempt = attempt
        self._idempotency_key = idempotency_key
        self._link = link
        self._sender = sender
        """Sends at once; without it, what is said is a part of the attempt's commit."""
        self._check_recipient = check_recipient
        """Raises if nothing can be sent to an instance."""
        self._effects: list[Effect] = []
        """What was said, in order. Appended to from the activity's thread, if it has one."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call, also after a crash: by it a service recognises a repetition."""
        if self._idempotency_key is None:  # most activities do not ask for it
            self._idempotency_key = self._link.idempotency_key if self._link is not None else ""
        return self._idempotency_key

    def heartbeat(self, details: Any = None) -> None:
        """Say that the attempt is alive, and leave details for the next one.

        A plain call, from the activity's coroutine or thread. Raises `asyncio.CancelledError` when the attempt was
        cancelled or has timed out, `LeaseLostError` when another worker has taken the instance over.
        """
        if self._link is not None:
            self._link.heartbeat(details)

    @property
    def session(self) -> AsyncSession:
        """A session of SQLAlchemy on the same database: what it does commits with the result of this attempt, or not at all.

        Opened on first use. Needs `romancy[sqlalchemy]`, an `async def`, and `transactional=True`.
        """
        if self._transaction is None:
            raise InvalidWorkflowStateError(
                f"{self.activity_id or 'This activity'} has no session: only an `async def` activity with "
                "transactional=True has one, and only while a worker runs it."
            )
        return self._transaction.session

    @property
    def last_heartbeat(self) -> Any:
        """The details of the last heartbeat of an earlier attempt, or None."""
        return self._link.last_heartbeat if self._link is not None else None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the instance and the activity."""
        return logging.LoggerAdapter(
            _activity_log,
            {"instance_id": self.instance_id, "activity_id": self.activity_id, "attempt": self.attempt},
        )


class _ReplayAwareLog(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, ctx: WorkflowContext) -> None:
        super().__init__(_workflow_log, {"instance_id": ctx.instance_id, "workflow_name": ctx.workflow_name})
        self._ctx = ctx

    def isEnabledFor(self, level: int) -> bool:
        """Not while replaying: it was logged the first time. Nor while the instance leaves the memory: nothing happened."""
        run = self._ctx._run
        return not (run is not None and run.silent) and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add which instance speaks."""
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def run_of(ctx: object, what: str) -> Run:
    """The run a workflow's context belongs to; anything else is refused with what to do."""
    if isinstance(ctx, WorkflowContext):
        if ctx._run is not None:
            return ctx._run
        raise InvalidWorkflowStateError(
            f"{what} was used with a context that belongs to no running workflow. Start the workflow with "
            "app.start_workflow(...)."
        )
    if isinstance(ctx, ActivityContext):
        raise InvalidWorkflowStateError(
            f"{what} was used inside an activity. Only a workflow may use it: activities are what a workflow orchestrates."
        )
    raise InvalidWorkflowStateError(
        f"{what} was used without a workflow's context (got {type(ctx).__name__}). Call it inside a workflow and pass the "
        "context on as the first argument."
    )
