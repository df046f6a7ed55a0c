"""The runtime of an app or a client: it reads the options, and opens and closes the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from romancy.authoring.context import CURRENT_TRANSACTION
from romancy.authoring.workflow import Workflow
from romancy.brokers.urls import make_brokers
from romancy.clock import Clock, SystemClock
from romancy.codec import NO_CODEC
from romancy.completions import CompletionWaiter
from romancy.core.loop import Run
from romancy.crash_points import CrashPoint
from romancy.errors import InvalidWorkflowStateError, WorkflowIOError
from romancy.ids import Ids, RandomIds
from romancy.metrics.metrics import Metrics
from romancy.registry.registry import Registry
from romancy.settings import resolve
from romancy.store.committer import Committer
from romancy.store.open import ServerOptions, open_store
from romancy.store.port import Store


class Runtime:
    """The base of `Client` and `App`: it has the options, the registry of workflows, and a store while it runs."""

    def _configure(
        self,
        given: dict[str, Any],
        workflows: Sequence[Workflow[..., Any]] | None,
        clock: Clock | None,
        ids: Ids | None,
    ) -> None:
        self._options = resolve(given)
        self._brokers = make_brokers(self._options["broker"])
        self._registry = Registry(workflows)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._metrics = Metrics()
        self._use_inline_executor = False
        self._crash_point: CrashPoint | None = None
        self._open_store: Store | None = None
        self._unopened_store: Store | None = None
        self._committer: Committer | None = None
        self._results: CompletionWaiter | None = None
        self._lifecycle_lock: asyncio.Lock | None = None
        self._on_change: Callable[[], None] | None = None
        """Called when this process or another one has committed something."""

    async def startup(self) -> None:
        """Open the database and start. Safe to call again while running."""
        self._lifecycle_lock = self._lifecycle_lock or asyncio.Lock()
        async with self._lifecycle_lock:
            if self._open_store is None:
                await self._start()

    def _new_store(self) -> Store:
        return open_store(
            self._options["database"],
            clock=self._clock,
            auto_migrate=self._options["auto_migrate"],
            threads="inline" if self._use_inline_executor else "threads",
            crash=self._crash_point,
            server=ServerOptions(
                pool_size=self._options["pool_size"],
                listen_notify=self._options["listen_notify"],
                listen_dsn=self._options["listen_dsn"],
                is_resumed_here=self._is_resumed_here,
            ),
            codec=self._options["codec"] or NO_CODEC,
        )

    @property
    def _hides_payloads(self) -> bool:
        """Whether payloads are encrypted, so that their values must not appear in messages."""
        return (self._options["codec"] or NO_CODEC).hides

    def _is_resumed_here(self, instance_id: str) -> bool:
        """Whether this process resumes this instance by itself when it is woken, without help of another process."""
        return False

    def _is_alive(self) -> bool:
        """Whether a failed query fails the callers that wait for results, too. Not while a test simulates a crash."""
        return True

    async def _start(self) -> None:
        store = self._new_store()
        await store.open()
        self._open_store = store
        if self._results is None:
            self._results = CompletionWaiter(store, self._is_alive)
        self._results.switch_store(store)
        self._committer = Committer(store, self._metrics)
        self._committer.on_written = self._announce_change
        self._committer.start()
        store.on_remote_commit = self._on_notified

    def _on_notified(self) -> None:
        if self._results is not None:
            self._results.on_notified()
        self._announce_change()

    def _announce_change(self) -> None:
        if self._on_change is not None:
            self._on_change()

    async def shutdown(self) -> None:
        """Stop and close the database. Safe to call twice."""
        self._lifecycle_lock = self._lifecycle_lock or asyncio.Lock()
        async with self._lifecycle_lock:
            await self._stop()

    async def _stop(self) -> None:
        if self._open_store is None:
            return
        store, self._open_store = self._open_store, None
        store.on_remote_commit = None
        if self._results is not None:
            await self._results.stop()
            self._results = None
        if self._committer is not None:
            await self._committer.stop()
        await store.close()

    async def __aenter__(self) -> Self:
        await self.startup()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    @property
    def _store(self) -> Store:
        refuse_in_workflow()
        if self._open_store is None:
            raise self._not_running()
        return self._open_store

    @property
    def _transaction_store(self) -> Store:
        """The store for work on connections of the caller; while this is not running, a store that was never opened."""
        refuse_in_workflow()
        if self._open_store is not None:
            return self._open_store
        if self._unopened_store is None:
            self._unopened_store = self._new_store()
        return self._unopened_store

    def _not_running(self) -> InvalidWorkflowStateError:
        name = type(self).__name__.lstrip("_")
        return InvalidWorkflowStateError(f"This {name} is not running: use `async with {name}(...)`, or `await startup()`.")

    def _require_committer(self) -> Committer:
        """Return the committer. Raises `InvalidWorkflowStateError` if this is not running, or cannot write now."""
        transaction = CURRENT_TRANSACTION.get()
        if transaction is not None and transaction.shuts_out_writers:
            raise InvalidWorkflowStateError(
                "The session of this activity holds the write lock of the SQLite file: the app cannot write until the "
                "activity has returned. Send with ctx (send_event(ctx, ...), publish(ctx, ...)), which commits with the "
                "session, or call the app in another activity."
            )
        assert self._store is not None
        assert self._committer is not None
        return self._committer


def refuse_in_workflow() -> None:
    """Raise `WorkflowIOError` if workflow code calls the app."""
    if isinstance(asyncio._get_running_loop(), Run):
        raise WorkflowIOError(
            "Workflow code called the app. The call would be repeated in every replay, and its result could differ: move "
            "it into an activity."
        )
