"""Plays a cast in one order after another, and tells what is wrong.

A round ends when nobody can go on, after everything that was not told was found by looking and every alarm has rung. Then
whatever was said must have been heard by those it was for, once, in order, and nobody may wait for what is there.
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
from tests.explore.participants import Cast, hands, listen, seen, speak
from tests.explore.scenario import Scene, Stage
from tests.explore.scheduler import Hand, settle
from tests.explore.strategies import Chooser

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

_MEMORY = Path("/dev/shm")  # simulated crashes lose nothing the kernel has, so the disk is not needed
_LONG = 400
"""So many decisions, or looks, without coming to rest are too many."""


class Divergence(AssertionError):
    """The engine did what it must not."""


class Laboratory:
    """A stage that many rounds are played on."""

    def __init__(self) -> None:
        self.stage: Stage
        self._scene: Scene
        self._unwritten: tuple[Sequence[Write], Sequence[WriteResult | StoreError]] | None = None
        self._thread = threading.get_ident()
        self._work = 0
        """How often anything was written or claimed."""

    def open(self, stage: Stage) -> None:
        """Here it is."""
        self.stage = stage
        self._scene = Scene(stage, Cast((), (), ()))

    # --- what the processes do

    def write(self, cursor: SqliteCursor, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch, and remember it until it is committed."""
        answers = apply_batch(cursor, batch)
        if threading.get_ident() == self._thread:  # apps of other tests may run in threads of this process
            self._unwritten = (batch, answers)
        return answers

    def passed(self, process: str, point: str) -> None:
        """A process has passed a point, or died."""
        if point == "death":
            self._unwritten = None
        elif point == "claim.after":
            self._work += 1
        elif point == "commit.after" and self._unwritten is not None:
            (batch, answers), self._unwritten = self._unwritten, None
            self._work += 1
            self._committed(process, batch, answers)

    def _committed(self, process: str, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        """What was written is durable; other processes can learn that it is for somebody."""
        stage, books = self.stage, self._scene.books
        books.enter(batch, answers)
        if books.faults:
            stage.hand.open = False  # what goes wrong may do so for ever
        if any(isinstance(answer, Applied | Accepted) and answer.woken for answer in answers):
            for other in stage.processes:
                if other.name != process:
                    stage.hand.pass_on(other.name, "hear", other.hear)

    # --- a round

    async def play(self, cast: Cast, chooser: Chooser) -> None:
        """Play a round. Raises `Divergence`."""
        scene = self._scene = Scene(self.stage, cast)
        self.stage.hand.open = False
        scene.begin()
        try:
            for part in (partial(self._decide, chooser), self._come_to_rest, partial(check, scene), self._clean_up):
                await part()
                if scene.books.faults:
                    raise Divergence("; ".join(scene.books.faults) + "\n" + " > ".join(scene.trace))
        finally:
            await scene.end()

    async def _decide(self, chooser: Chooser) -> None:
        scene = self._scene
        for _ in range(_LONG):
            await settle()
            options = scene.options(chooser)
            if not options or scene.books.faults:
                return
            chosen = chooser.choose(options)
            if chosen is None:
                return
            scene.trace.append(options[chosen].name)
            await options[chosen].do()
        if not chooser.disturbs:
            scene.books.fault("it never comes to rest")

    async def _come_to_rest(self) -> None:
        """Hold nobody back any more; what was not told is found by looking, and time passes where nothing else happens."""
        self._let_go()
        for _ in range(_LONG):
            await settle()
            if self._scene.books.faults:
                return
            await self._bring_back()
            await self._scene.resume_paused()
            if await self._look_around():
                continue
            due = self.stage.next_due()
            if due is None:
                return
            self.stage.move_to(due)
        self._scene.books.fault("it never comes to rest")

    def _let_go(self) -> None:
        hand = self.stage.hand
        hand.open = True
        hand.calls.clear()
        for process in self.stage.processes:
            process.crash_at = None
            process.storms = process.blind = 0
        for gate in list(hand.gates):
            hand.let(gate)

    async def _bring_back(self) -> None:
        for process in self.stage.processes:
            if process.dead:
                await process.restart()
            elif process.buried:
                await process.revive()

    async def _look_around(self) -> bool:
        """Everybody looks for what they were not told; whether there was something."""
        before = self._work
        for process in self.stage.processes:
            process.look()
        await settle()
        if self._work == before:
            for process in self.stage.processes:
                await process.keep_up()
            await settle()
        return self._work != before

    async def _clean_up(self) -> None:
        """Nobody of this round is left for the next."""
        for spec in self._scene.cast.listeners:
            if not self._scene.books.parties[spec["id"]].ended:
                await self.stage.processes[0].terminate_workflow(spec["id"])
                for process in self.stage.processes:
                    process.forget(spec["id"])
            del seen[spec["id"]]
        await self._come_to_rest()


# --- where it is


@contextlib.asynccontextmanager
async def laboratory(processes: int, hand: Hand, *, warm: int = 1000) -> AsyncIterator[Laboratory]:
    """Some processes on a new database, with room for so many parked instances each."""
    there, clock = Laboratory(), VirtualClock()
    hands.append(hand)
    with _folder() as folder, _quiet(), _watched(there):
        path = str(folder / "talking.db")
        store = open_store(path, clock=SystemClock(), threads="inline")
        apps = [Process(name, path, [listen, speak], hand, clock, there.passed, warm) for name in "ab"[:processes]]
        there.open(Stage(apps, hand, clock, store))
        await store.open()
        try:
            for one in apps:
                await one.startup()
            await settle()
            yield there
        finally:
            hand.open = True
            for one in apps:
                await one._die()
            await store.close()
            hands.remove(hand)


@contextlib.contextmanager
def _watched(there: Laboratory) -> Iterator[None]:
    """Every batch goes through the laboratory's hands; nobody waits in real time before trying again."""
    with (
        mock.patch.object(sqlite_database, "apply_batch", there.write),
        mock.patch.object(committer, "_FIRST_PAUSE", 0.0),
        mock.patch.object(worker, "_FIRST_PAUSE", 0.0),
        mock.patch.object(app, "stored_source", cache(stored_source)),  # read from a file at every start
    ):
        yield


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-talking-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What is planned to go wrong need not be told."""
    logger = logging.getLogger("romancy")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
