"""A connection to the database of an app: it is opened and closed, and its options are read, here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from romancy.authoring.context import OWN
from romancy.authoring.registry import Registry
from romancy.authoring.workflow import Workflow
from romancy.brokers.addresses import opened
from romancy.clock import Clock, SystemClock
from romancy.codec import PLAIN
from romancy.core.loop import Run
from romancy.crash import CrashPoint
from romancy.errors import InvalidWorkflowStateError, WorkflowIOError
from romancy.figures import Tally
from romancy.ids import Ids, RandomIds
from romancy.options import resolve
from romancy.results import Results
from romancy.store.committer import Committer
from romancy.store.open import Server, open_store
from romancy.store.port import Store


class Connected:
    """Something that has options, a registry of workflows, and a store while it runs."""

    def _configure(
        self,
        given: dict[str, Any],
        workflows: Sequence[Workflow[..., Any]] | None,
        clock: Clock | None,
        ids: Ids | None,
    ) -> None:
        self._options = resolve(given)
        self._brokers = opened(self._options["broker"])
        self._registry = Registry(workflows)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._tally = Tally()
        self._inline = False
        self._crash_point: CrashPoint | None = None
        self._opened: Store | None = None
        self._closed: Store | None = None
        self._committer: Committer | None = None
        self._results: Results | None = None
        self._changing: asyncio.Lock | None = None
        self._on_change: Callable[[], None] | None = None
        """Called when something was written, here or elsewhere."""

    async def startup(self) -> None:
        """Connect. Safe to call again while running."""
        self._changing = self._changing or asyncio.Lock()
        async with self._changing:
            if self._opened is None:
                await self._start()

    def _new_store(self) -> Store:
        return open_store(
            self._options["database"],
            clock=self._clock,
            auto_migrate=self._options["auto_migrate"],
            threads="inline" if self._inline else "threads",
            crash=self._crash_point,
            server=Server(
                pool_size=self._options["pool_size"],
                listen_notify=self._options["listen_notify"],
                listen_dsn=self._options["listen_dsn"],
                near=self._goes_on,
            ),
            coder=self._options["codec"] or PLAIN,
        )

    @property
    def _hides(self) -> bool:
        """What is stored is encrypted: it must not be shown in messages."""
        return (self._options["codec"] or PLAIN).hides

    def _goes_on(self, instance_id: str) -> bool:
        """This process goes on by itself with an instance that is called."""
        return False

    def _is_alive(self) -> bool:
        """What fails now has failed for those who wait, too. Not so when the death of the process is only played."""
        return True

    async def _start(self) -> None:
        store = self._new_store()
        await store.open()
        self._opened = store
        if self._results is None:
            self._results = Results(store, self._is_alive)
        self._results.move_to(store)
        self._committer = Committer(store, self._tally)
        self._committer.on_written = self._changed
        self._committer.start()
        store.on_foreign_commit = self._heard

    def _heard(self) -> None:
        if self._results is not None:
            self._results.hear()
        self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    async def shutdown(self) -> None:
        """Disconnect. Safe to call twice."""
        self._changing = self._changing or asyncio.Lock()
        async with self._changing:
            await self._stop()

    async def _stop(self) -> None:
        if self._opened is None:
            return
        store, self._opened = self._opened, None
        store.on_foreign_commit = None
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
        if self._opened is None:
            raise self._not_running()
        return self._opened

    @property
    def _store_for_others(self) -> Store:
        """The store, for work on connections of others. It has none of its own if this is not running, and needs none."""
        refuse_in_workflow()
        if self._opened is not None:
            return self._opened
        if self._closed is None:
            self._closed = self._new_store()
        return self._closed

    def _not_running(self) -> InvalidWorkflowStateError:
        name = type(self).__name__.lstrip("_")
        return InvalidWorkflowStateError(f"This {name} is not running: use `async with {name}(...)`, or `await startup()`.")

    def _write(self) -> Committer:
        """The committer of a running app."""
        own = OWN.get()
        if own is not None and own.shuts_out_writers:
            raise InvalidWorkflowStateError(
                "The session of this activity holds the write lock of the SQLite file: the app cannot write until the "
                "activity has returned. Say it with ctx (send_event(ctx, ...), publish(ctx, ...)), which commits with the "
                "session, or call the app in another activity."
            )
        assert self._store is not None
        assert self._committer is not None
        return self._committer


def refuse_in_workflow() -> None:
    """Calls of an app are not for workflow code."""
    if isinstance(asyncio._get_running_loop(), Run):
        raise WorkflowIOError(
            "Workflow code called the app. It would do so again on every replay, and could get another answer: move this "
            "into an activity."
        )
