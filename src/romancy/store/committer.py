"""Group commit: everything in the process that is ready to be written now goes into one transaction.

    hosts ── enlist ──┐
                      ├──► gather ──► store.commit(batch) ──► every answer to its asker
    calls ── submit ──┘       ▲                                      │
                              └──── what became ready meanwhile ◄────┘

No delay is added: while one batch is being written, the next gathers. A host is asked for its transition when the writer is
free, so that everything it did since its last commit is one transition.

A server can write while this process computes, so to a server two batches may be under way: a large one is written in two
halves, and from then on one half computes while the other is written. Calls keep their order: they wait for calls, and are
in one half. A run waits for calls that show an open attempt of its instance: written after the attempt's end, they would
open it again.

When the database itself fails (full, away), callers of `submit` are told at once and decide; transitions are written again,
in order, until they succeed: what activities did must not be forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from romancy.clock import MICROS, monotonic
from romancy.crash import SimulatedCrash
from romancy.errors import StoreError
from romancy.figures import Tally
from romancy.model.talk import Deed, Publish, SendEvent, SendTo, SendToGroup
from romancy.model.transition import Accepted, Answer, Applied, Beat, Post, Transition, Write
from romancy.store.port import Store

_log = logging.getLogger("romancy.store")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_WORTH_HALVING = 8


Then: TypeAlias = Callable[[Answer | StoreError], None]


class Source(Protocol):
    """Something that has a transition to write when it is asked."""

    @property
    def instance_id(self) -> str:
        """The instance it writes."""
        ...

    def take(self) -> Transition | None:
        """What to write now, if anything."""
        ...

    def answered(self, answer: Answer | StoreError) -> None:
        """What became of it."""
        ...


class Committer:
    """Gathers writes and commits them in batches."""

    def __init__(self, store: Store, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        """What is counted in this process."""
        self._store = store
        self._calls: list[_Call] = []
        self._sources: dict[Source, None] = {}
        self._again: list[tuple[Transition, Source]] = []
        self._lanes = store.lanes
        self._tasks: list[asyncio.Task[None]] = []
        self._free: list[asyncio.Future[None]] = []
        """Lanes with nothing to do, until they are called."""
        self._called = False
        """One of them has been called, and has not looked yet."""
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._calling = False
        """A batch with calls is under way."""
        self._showing: Counter[str] = Counter()
        """Instances of which open attempts are to be shown, or are being shown."""
        self._pause = _FIRST_PAUSE
        self.on_written: Callable[[], None] | None = None
        self.batches = 0
        self.writes = 0

    def start(self) -> None:
        """Begin to write."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="romancy-committer") for _ in range(self._lanes)]

    async def stop(self) -> None:
        """Write what is left, then end."""
        if not self._tasks:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_PAUSE * 2):
                await self.drained()
        await self.abandon()

    async def abandon(self) -> None:
        """End now, leaving what was not written unwritten."""
        tasks, self._tasks = self._tasks, []
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for call in self._calls:
            call.answer(StoreError("The app was shut down before this was written."))
        self._calls.clear()

    async def drained(self) -> None:
        """Wait until nothing is left to write."""
        while not self.idle:
            await self._idle.wait()
            await asyncio.sleep(0)

    @property
    def idle(self) -> bool:
        """Nothing is being written and nothing is ready to be."""
        return not (self._under_way or self._calls or self._sources or self._again)

    def submit(self, write: Write, then: Then | None = None) -> asyncio.Future[Answer]:
        """Write something with the next batch; the future is done when it is durable.

        `then` is called with the answer even if whoever awaits the future has gone away meanwhile.
        """
        if not self._tasks or any(task.done() for task in self._tasks):
            raise StoreError("This app is not running: use `async with app`, or `await app.startup()`.")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(write, future, then))
        if type(write) is Beat:
            self._showing[write.instance_id] += 1
        self._call_lane()
        return future

    def enlist(self, source: Source) -> None:
        """Ask a source for its transition when the next batch gathers."""
        self._sources[source] = None
        if self._free and not self._called:
            self._call_lane()

    def _call_lane(self) -> None:
        while self._free and not self._called:
            lane = self._free.pop()
            if not lane.done():  # else it was cancelled, and is about to end
                lane.set_result(None)
                self._called = True

    async def _run(self) -> None:
        with contextlib.suppress(SimulatedCrash):
            try:
                while True:
                    await self._flush()
            finally:  # together or not at all
                for task in self._tasks:
                    task.cancel()

    async def _flush(self) -> None:
        calls, pairs = self._gather()
        if not calls and not pairs:  # or calls that wait for calls: they go when those have landed
            free = asyncio.get_running_loop().create_future()
            self._free.append(free)
            await free
            self._called = False
            return
        self._under_way += 1
        self._idle.clear()
        try:
            await self._write(calls, pairs)
            # In a moment those are ready too that go on now, or were in between.
            if self._lanes > 1 and (self._sources or any(transition.hold for transition, _ in pairs)):
                self._called = True  # nobody else need look before
                await asyncio.sleep(0)
                self._called = False
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
            if calls:
                self._calling = False
                self._showing -= Counter(call.write.instance_id for call in calls if type(call.write) is Beat)

    def _gather(self) -> tuple[list[_Call], list[tuple[Transition, Source]]]:
        """What is to be written now; the rest stays."""
        calls: list[_Call] = []
        if not self._calling:
            calls, self._calls = self._calls, []
            self._calling = bool(calls)
        sources, self._sources = list(self._sources), {}
        if self._showing and not calls:  # they wait, or are in the other batch
            self._sources = {source: None for source in sources if source.instance_id in self._showing}
            sources = [source for source in sources if source not in self._sources]
        number = len(calls) + len(sources)
        if self._lanes > 1 and not self._under_way and sources and number >= _WORTH_HALVING:
            here = max(number // 2 - len(calls), 0)
            sources, self._sources = sources[:here], self._sources | dict.fromkeys(sources[here:])
            self._call_lane()
        pairs = self._again + [(made, source) for source in sources if (made := _take(source)) is not None]
        self._again = []
        return calls, pairs

    async def _write(self, calls: list[_Call], pairs: list[tuple[Transition, Source]]) -> None:
        batch: list[Write] = [call.write for call in calls]
        batch += [transition for transition, _ in pairs]
        began = monotonic()
        try:
            answers = await self._store.commit(batch)
        except StoreError as error:
            self.tally.errors["commit"] += 1
            for call in calls:
                call.answer(error)
            if pairs:
                self.tally.commit_retries += 1
                self._again += pairs
                await self._wait_for_database(error)
            return
        except BaseException:
            for call in calls:
                call.answer(StoreError("It is not known whether this was written: the process was stopped."))
            raise
        self._pause = _FIRST_PAUSE
        self.batches += 1
        self.writes += len(batch)
        self.tally.batches.add(len(batch))
        self.tally.commits.add(round((monotonic() - began) * MICROS))
        if self.on_written is not None:
            self.on_written()
        for call, answer in zip(calls, answers, strict=False):
            _count_call(self.tally, call.write, answer)
            call.answer(answer)
        for (transition, source), answer in zip(pairs, answers[len(calls) :], strict=True):
            if transition.deeds and isinstance(answer, Applied):
                count_deeds(self.tally, transition.deeds)
            _tell(source, answer)

    async def _wait_for_database(self, error: StoreError) -> None:
        _log.warning("could not write to the database, will try again: %s", error)
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


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


def count_deeds(tally: Tally, deeds: Iterable[Deed]) -> None:
    """These were done, durably."""
    for deed in deeds:
        if isinstance(deed, SendEvent):
            tally.events_sent += 1
        elif isinstance(deed, Publish | SendTo | SendToGroup):
            tally.messages_sent += 1


def _count_call(tally: Tally, write: Write, answer: Answer | StoreError) -> None:
    if type(answer) is Accepted:
        known = sum(event.duplicate for event in answer.events)
        tally.events_duplicate += known
        tally.events_accepted += len(answer.events) - known
    elif type(write) is Post and type(answer) is Applied:
        tally.messages_sent += 1


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
