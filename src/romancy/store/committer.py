"""Group commit: everything in the process that is ready to be written now goes into one transaction.

    hosts ── enlist ──┐
                      ├──► gather ──► store.commit(batch) ──► every answer to its asker
    calls ── submit ──┘       ▲                                      │
                              └──── what became ready meanwhile ◄────┘

No delay is added: while one batch is being written, the next gathers. A host is asked for its transition when the writer is
free, so that everything it did since its last commit is one transition.

When the database itself fails (full, away), callers of `submit` are told at once and decide; transitions are written again,
in order, until they succeed: what activities did must not be forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias

from romancy.crash import SimulatedCrash
from romancy.errors import StoreError
from romancy.model.transition import Answer, Transition, Write
from romancy.store.port import Store

_log = logging.getLogger("romancy.store")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


Then: TypeAlias = Callable[[Answer | StoreError], None]


class Source(Protocol):
    """Something that has a transition to write when it is asked."""

    def take(self) -> Transition | None:
        """What to write now, if anything."""
        ...

    def answered(self, answer: Answer | StoreError) -> None:
        """What became of it."""
        ...


class Committer:
    """Gathers writes and commits them in batches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._calls: list[_Call] = []
        self._sources: dict[Source, None] = {}
        self._again: list[tuple[Transition, Source]] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self.on_written: Callable[[], None] | None = None
        self.batches = 0
        self.writes = 0

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-committer")

    async def stop(self) -> None:
        """Write what is left, then end."""
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_PAUSE * 2):
                await self.drained()
        await self.abandon()

    async def abandon(self) -> None:
        """End now, leaving what was not written unwritten."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        for call in self._calls:
            call.answer(StoreError("The app was shut down before this was written."))
        self._calls.clear()

    async def drained(self) -> None:
        """Wait until nothing is left to write."""
        while self._wanted.is_set() or not self._idle.is_set():
            await self._idle.wait()
            await asyncio.sleep(0)

    @property
    def idle(self) -> bool:
        """Nothing is being written and nothing is ready to be."""
        return self._idle.is_set() and not self._wanted.is_set()

    def submit(self, write: Write, then: Then | None = None) -> asyncio.Future[Answer]:
        """Write something with the next batch; the future is done when it is durable.

        `then` is called with the answer even if whoever awaits the future has gone away meanwhile.
        """
        if self._task is None or self._task.done():
            raise StoreError("This app is not running: use `async with app`, or `await app.startup()`.")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(write, future, then))
        self._wanted.set()
        return future

    def enlist(self, source: Source) -> None:
        """Ask a source for its transition when the next batch gathers."""
        self._sources[source] = None
        self._wanted.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._idle.clear()
            try:
                await self._flush()
                pause = _FIRST_PAUSE
            except StoreError as error:
                _log.warning("could not write to the database, will try again: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                self._wanted.set()
            except SimulatedCrash:
                return
            finally:
                self._idle.set()

    async def _flush(self) -> None:
        calls, self._calls = self._calls, []
        sources, self._sources = self._sources, {}
        pairs = self._again + [(made, source) for source in sources if (made := _take(source)) is not None]
        self._again = []
        batch: list[Write] = [call.write for call in calls]
        batch += [transition for transition, _ in pairs]
        if not batch:
            return
        try:
            answers = await self._store.commit(batch)
        except StoreError as error:
            self._again = pairs
            for call in calls:
                call.answer(error)
            if pairs:
                raise
            return
        except BaseException:
            for call in calls:
                call.answer(StoreError("It is not known whether this was written: the process was stopped."))
            raise
        self.batches += 1
        self.writes += len(batch)
        if self.on_written is not None:
            self.on_written()
        for call, answer in zip(calls, answers, strict=False):
            call.answer(answer)
        for (_, source), answer in zip(pairs, answers[len(calls) :], strict=True):
            _tell(source, answer)


class _Call:
    """A write that somebody waits for."""

    __slots__ = ("_future", "_then", "write")

    def __init__(self, write: Write, future: asyncio.Future[Answer], then: Then | None) -> None:
        self.write = write
        self._future = future
        self._then = then

    def answer(self, answer: Answer | StoreError) -> None:
        if self._then is not None:
            try:
                self._then(answer)
            except Exception:
                _log.exception("what should have followed a write failed")
        if self._future.done():
            return
        if isinstance(answer, StoreError):
            self._future.set_exception(answer)
        else:
            self._future.set_result(answer)


def _take(source: Source) -> Transition | None:
    """One source that fails must not silence the others."""
    try:
        return source.take()
    except Exception:
        _log.exception("an instance could not say what to write")
        return None


def _tell(source: Source, answer: Answer | StoreError) -> None:
    try:
        source.answered(answer)
    except Exception:
        _log.exception("an instance could not go on after its commit")
