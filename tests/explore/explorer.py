"""Explorer: runs scenarios in one order after another and checks the invariants.

A round ends when nothing can happen any more: polling has found everything that was not notified, and every timer has fired.
Then each event and message must have been received once, in order, by each instance it was for, and no instance may wait for
something that is available.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from unittest import mock

from tests.explore.controlled_process import Process
from tests.explore.invariants import check
from tests.explore.participants import Participants, listen, schedulers, seen, send_items
from tests.explore.scenario import Cluster, Scenario
from tests.explore.scheduler import Scheduler, settle
from tests.explore.strategies import Strategy

from romancy import StoreError, app
from romancy.clock import SystemClock
from romancy.model.transition import Accepted, Applied, Write, WriteResult
from romancy.registry.source_capture import stored_source
from romancy.store import committer
from romancy.store.open import open_store
from romancy.store.sqlite import database as sqlite_database
from romancy.store.sqlite.apply import apply_batch
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.testing.environment import VirtualClock
from romancy.worker import worker

_MEMORY = Path("/dev/shm")  # a simulated crash loses nothing that the kernel has, so no disk is needed
_MAX_DECISIONS = 400
"""The number of decisions, or polls, after which a round that is not finished counts as a livelock."""


class Divergence(AssertionError):
    """An invariant was violated."""


class Explorer:
    """A cluster on which many rounds are run."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self._scenario: Scenario
        self._unwritten: tuple[Sequence[Write], Sequence[WriteResult | StoreError]] | None = None
        self._thread = threading.get_ident()
        self._work_count = 0
        """The number of commits and claims so far."""

    def open(self, cluster: Cluster) -> None:
        """Use this cluster."""
        self.cluster = cluster
        self._scenario = Scenario(cluster, Participants((), (), ()))

    # --- called by the processes

    def write(self, cursor: SqliteCursor, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Apply a batch and remember it until it is committed."""
        answers = apply_batch(cursor, batch)
        if threading.get_ident() == self._thread:  # apps of other tests may run in threads of this process
            self._unwritten = (batch, answers)
        return answers

    def on_point(self, process: str, point: str) -> None:
        """A process has passed a crash point or died."""
        if point == "death":
            self._unwritten = None
        elif point == "claim.after":
            self._work_count += 1
        elif point == "commit.after" and self._unwritten is not None:
            (batch, answers), self._unwritten = self._unwritten, None
            self._work_count += 1
            self._committed(process, batch, answers)

    def _committed(self, process: str, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        """Apply a committed batch to the model, and notify the other processes."""
        cluster, model = self.cluster, self._scenario.model
        model.apply(batch, answers)
        if model.faults:
            cluster.scheduler.open = False  # after a fault, stop everything: it may repeat for ever
        if any(isinstance(answer, Applied | Accepted) and answer.woken for answer in answers):
            for other in cluster.processes:
                if other.name != process:
                    cluster.scheduler.notify(other.name, "commit", other.receive_notification)

    # --- one round

    async def run_round(self, participants: Participants, strategy: Strategy) -> None:
        """Run one round. Raises `Divergence` if an invariant is violated."""
        scenario = self._scenario = Scenario(self.cluster, participants)
        self.cluster.scheduler.open = False
        scenario.begin()
        try:
            for part in (partial(self._decide, strategy), self._drain, partial(check, scenario), self._clean_up):
                await part()
                if scenario.model.faults:
                    raise Divergence("; ".join(scenario.model.faults) + "\n" + " > ".join(scenario.trace))
        finally:
            await scenario.end()

    async def _decide(self, strategy: Strategy) -> None:
        scenario = self._scenario
        for _ in range(_MAX_DECISIONS):
            await settle()
            options = scenario.options(strategy)
            if not options or scenario.model.faults:
                return
            chosen = strategy.choose(options)
            if chosen is None:
                return
            scenario.trace.append(options[chosen].name)
            await options[chosen].do()
        if not strategy.injects_faults:
            scenario.model.fault("the round does not end")

    async def _drain(self) -> None:
        """Open all gates, then poll and advance time until nothing happens any more."""
        self._release_all()
        for _ in range(_MAX_DECISIONS):
            await settle()
            if self._scenario.model.faults:
                return
            await self._restart_dead()
            await self._scenario.resume_paused()
            if await self._poll_all():
                continue
            due = self.cluster.next_due()
            if due is None:
                return
            self.cluster.move_to(due)
        self._scenario.model.fault("the round does not end")

    def _release_all(self) -> None:
        scheduler = self.cluster.scheduler
        scheduler.open = True
        scheduler.notifications.clear()
        for process in self.cluster.processes:
            process.crash_at = None
            process.commit_failures = process.read_failures = 0
        for gate in list(scheduler.gates):
            scheduler.release(gate)

    async def _restart_dead(self) -> None:
        for process in self.cluster.processes:
            if process.dead:
                await process.restart()
            elif process.declared_dead:
                await process.revive()

    async def _poll_all(self) -> bool:
        """Let every process poll and run maintenance; whether anything was written or claimed."""
        before = self._work_count
        for process in self.cluster.processes:
            process.poll()
        await settle()
        if self._work_count == before:
            for process in self.cluster.processes:
                await process.run_maintenance()
            await settle()
        return self._work_count != before

    async def _clean_up(self) -> None:
        """End all instances of this round, so that they do not affect the next."""
        for spec in self._scenario.participants.listeners:
            if not self._scenario.model.instances[spec["id"]].ended:
                await self.cluster.processes[0].terminate_workflow(spec["id"])
                for process in self.cluster.processes:
                    process.forget(spec["id"])
            del seen[spec["id"]]
        await self._drain()


# --- setup


@contextlib.asynccontextmanager
async def open_explorer(processes: int, scheduler: Scheduler, *, cache_size: int = 1000) -> AsyncIterator[Explorer]:
    """An explorer with some processes on a new database, each with this cache size."""
    explorer, clock = Explorer(), VirtualClock()
    schedulers.append(scheduler)
    with _folder() as folder, _quiet(), _patched(explorer):
        path = str(folder / "explore.db")
        store = open_store(path, clock=SystemClock(), threads="inline")
        apps = [
            Process(name, path, [listen, send_items], scheduler, clock, explorer.on_point, cache_size)
            for name in "ab"[:processes]
        ]
        explorer.open(Cluster(apps, scheduler, clock, store))
        await store.open()
        try:
            for one in apps:
                await one.startup()
            await settle()
            yield explorer
        finally:
            scheduler.open = True
            for one in apps:
                await one._die()
            await store.close()
            schedulers.remove(scheduler)


@contextlib.contextmanager
def _patched(explorer: Explorer) -> Iterator[None]:
    """Route every batch through the explorer, and retry failed commits without a pause in real time."""
    with (
        mock.patch.object(sqlite_database, "apply_batch", explorer.write),
        mock.patch.object(committer, "_FIRST_PAUSE", 0.0),
        mock.patch.object(worker, "_FIRST_PAUSE", 0.0),
        mock.patch.object(app, "stored_source", cache(stored_source)),  # otherwise read from a file at every start
    ):
        yield


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-explore-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log records about planned faults."""
    logger = logging.getLogger("romancy")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
