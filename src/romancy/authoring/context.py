"""The contexts: the first parameter of every workflow and activity."""

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
    """The base of both contexts."""

    instance_id: str
    workflow_name: str
    worker_id: str
    _app: App | None

    @property
    def app(self) -> App:
        """The app that runs this workflow or activity."""
        if self._app is None:
            raise InvalidWorkflowStateError("This context belongs to no app: it was not made by a worker.")
        return self._app


@final
class WorkflowContext(Context):
    """The context of a workflow, which is its first argument.

    `now()`, `uuid4()` and `random()` return the same values in every replay.
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
        """Whether recorded steps are being repeated."""
        return self._run is not None and self._run.replaying

    def now(self) -> datetime:
        """Return the time of the last thing that happened to the workflow; aware, and the same in every replay."""
        return to_datetime(run_of(self, "ctx.now()").at)

    def uuid4(self) -> uuid.UUID:
        """Return a UUID that is the same in every replay."""
        if self._uuids is None:
            self._uuids = self._seeded("uuid4")
        return uuid.UUID(int=self._uuids.getrandbits(128), version=4)

    def random(self) -> Random:
        """Return a random number generator that draws the same numbers in every replay."""
        if self._random is None:
            self._random = self._seeded("random")
        return self._random

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that is silent during a replay."""
        if self._log is None:
            self._log = _ReplayAwareLog(self)
        return self._log

    async def recur(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End this generation and begin the next one with these arguments: the same instance, with a new history.

        Subscriptions, memberships, and events and messages that were not received yet carry over; compensations do not.
        Raises `InvalidWorkflowStateError` outside the workflow's own body, or while an activity is in flight.
        `checkout.recur(ctx, ...)` does the same, and type checkers check its arguments.
        """
        run = run_of(self, "ctx.recur()")
        if self._workflow is None:
            raise InvalidWorkflowStateError("ctx.recur() was used with a context that belongs to no workflow.")
        run.recur(self._workflow.codec.encode(args, kwargs))

    def _seeded(self, purpose: str) -> Random:
        seed = blake2b(f"{purpose}:{self.instance_id}:{self.generation}".encode(), digest_size=16).digest()
        return Random(seed)  # noqa: S311 (every replay must draw the same numbers)


class AttemptLink(Protocol):
    """The link from an activity's context to its attempt in the worker."""

    @property
    def last_heartbeat(self) -> Any: ...

    @property
    def idempotency_key(self) -> str: ...

    def heartbeat(self, details: Any) -> None: ...


class AttemptTransaction(Protocol):
    """The transaction of an attempt, in which its result commits."""

    @property
    def session(self) -> AsyncSession: ...

    @property
    def shuts_out_writers(self) -> bool: ...


CURRENT_TRANSACTION: ContextVar[AttemptTransaction | None] = ContextVar("romancy_transaction", default=None)
"""The transaction of the attempt that runs in this context."""


@final
class ActivityContext(Context):
    """The context of an activity, which is its first argument."""

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
        """The transaction of the attempt, if it can have one."""
        self.instance_id = instance_id
        self.workflow_name = workflow_name
        self.worker_id = worker_id
        self._app = app
        self.activity_id = activity_id
        self.attempt = attempt
        self._idempotency_key = idempotency_key
        self._link = link
        self._sender = sender
        """Sends effects at once; without it, they are a part of the attempt's commit."""
        self._check_recipient = check_recipient
        """Raises if an instance can receive no messages."""
        self._effects: list[Effect] = []
        """The effects of the attempt, in order. A plain `def` activity appends to them from its thread."""

    @property
    def idempotency_key(self) -> str:
        """The key of this call for other services: the same for all its attempts, also after a crash."""
        if self._idempotency_key is None:  # made on first use, because most activities do not read it
            self._idempotency_key = self._link.idempotency_key if self._link is not None else ""
        return self._idempotency_key

    def heartbeat(self, details: Any = None) -> None:
        """Report that the attempt is alive, and leave details for the next attempt.

        Not awaited; called in the activity's coroutine or thread. Raises `asyncio.CancelledError` if the attempt was
        cancelled or has timed out, `LeaseLostError` if another worker has taken over the instance.
        """
        if self._link is not None:
            self._link.heartbeat(details)

    @property
    def session(self) -> AsyncSession:
        """A session of SQLAlchemy on the same database; its work commits with the result of this attempt, or not at all.

        It is opened on first use. Needs `romancy[sqlalchemy]`, an `async def`, and `transactional=True`.
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
        """A logger whose records carry the instance and the activity."""
        return logging.LoggerAdapter(
            _activity_log,
            {"instance_id": self.instance_id, "activity_id": self.activity_id, "attempt": self.attempt},
        )


class _ReplayAwareLog(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, ctx: WorkflowContext) -> None:
        super().__init__(_workflow_log, {"instance_id": ctx.instance_id, "workflow_name": ctx.workflow_name})
        self._ctx = ctx

    def isEnabledFor(self, level: int) -> bool:
        """Return False while the run replays or is evicted: a replay would log a second time, and an eviction is no step."""
        run = self._ctx._run
        return not (run is not None and run.silent) and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the instance to the record."""
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def run_of(ctx: object, what: str) -> Run:
    """Return the run of a workflow's context. Raises `InvalidWorkflowStateError` for anything else."""
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
