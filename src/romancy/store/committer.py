"""Group commit: everything in the process that is ready to be written now goes into one transaction.

    hosts ── enlist ──┐
                      ├──► gather ──► store.commit(batch) ──► every answer to its asker
    calls ── submit ──┘       ▲                                      │
                              └──── what became ready meanwhile ◄────┘

No delay is added: while one batch is being written, the next gathers, up to a number of bytes. A host is asked for its
transition when the writer is free, so that everything it did since its last commit is one transition.

A server can write while this process computes, so to a server two batches may be under way: a large one is written in two
halves, and from then on one half computes while the other is written. Calls keep their order: they wait for calls, and are
in one half. A run waits for calls that show an open attempt of its instance: written after the attempt's end, they would
open it again.

When the database itself fails (full, away), callers of `submit` are told at once and decide; transitions are written again,
in order, until they succeed: what activities did must not be forgotten.

When a batch fails in a way that waiting does not mend (an exception that nobody foresaw, or a refusal), each of its writes
is made by itself: one that cannot be made must not keep its neighbours from being written. It is answered alone, and a
transition is set aside and tried again alone. Whatever a store raises, the committer goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple, Protocol, TypeAlias

from romancy.clock import MICROS, monotonic
from romancy.crash import SimulatedCrash
from romancy.errors import StoreError
from romancy.figures import Tally
from romancy.model.talk import Deed, Publish, SendEvent, SendTo, SendToGroup
from romancy.model.transition import Accept, Accepted, Answer, Applied, Beat, Post, Transition, Write, size_of
from romancy.store.port import Store, Unwritten

_log = logging.getLogger("romancy.store")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_WORTH_HALVING = 8
_MOST_BYTES = 8 << 20
"""Bytes of payloads in a batch, unless a single write has more: drivers and databases copy them several times."""
_LONGEST_ASIDE = 10.0
"""Seconds between two attempts to write a transition that fails alone."""
_LOOKS = 30
"""How often, within the time that a call may take, is looked whether one has taken it."""
_GIVEN_UP = 12
"""So many attempts, while others were written, until its instance is told that it cannot be written."""


Then: TypeAlias = Callable[[Answer | StoreError], None]
Pair: TypeAlias = "tuple[Transition, Source]"


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


@dataclass(slots=True)
class _Aside:
    """A transition that could not be written although others can."""

    pair: Pair
    failures: int
    batches: int
    """How many had been written when it last failed."""
    timer: asyncio.TimerHandle | None = None


class Committer:
    """Gathers writes and commits them in batches."""

    def __init__(self, store: Store, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        """What is counted in this process."""
        self._store = store
        self._calls: list[_Call] = []
        self._sources: dict[Source, None] = {}
        self._again: list[Pair] = []
        self._aside: dict[Source, _Aside] = {}
        """What is tried again alone, at its time."""
        self._alone: list[Pair] = []
        """Of that, what is to be tried now."""
        self._failing: set[object] = set()
        """What failed in a way that nobody foresaw, since something was last written."""
        self._failing_since = 0.0
        self._lanes = store.lanes
        self._tasks: list[asyncio.Task[None]] = []
        self._dead = False
        self._free: list[asyncio.Future[None]] = []
        """Lanes with nothing to do, until they are called."""
        self._called = False
        """One of them has been called, and has not looked yet."""
        self._in_hand: list[list[_Call]] = []
        """The calls of batches that are under way."""
        self._clock: asyncio.TimerHandle | None = None
        """Looks whether somebody has waited for too long, while somebody waits."""
        self._looks = 0
        """How often `_look` has run. Calls are timed in such looks, so that none of them has to read a clock."""
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
        self._dead = False
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
        if self._clock is not None:
            self._clock.cancel()
        for aside in self._aside.values():
            if aside.timer is not None:
                aside.timer.cancel()
        self._aside.clear()
        self._answer_queued(StoreError("The app was shut down before this was written."))

    def _answer_queued(self, error: StoreError) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call.answer(error)

    async def drained(self) -> None:
        """Wait until nothing is left to write."""
        while not self.idle:
            await self._idle.wait()
            await asyncio.sleep(0)

    @property
    def idle(self) -> bool:
        """Nothing is being written and nothing is ready to be."""
        return not (self._under_way or self._calls or self._sources or self._again or self._aside)

    @property
    def dead(self) -> bool:
        """It was started and has ended without being told to: nothing is written any more."""
        return self._dead

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written, if that is so and is not the database's own failure."""
        if self.dead:
            return "nothing is written any more: the committer has stopped"
        if len(self._failing) > 1:  # a single one is that one's trouble
            return "nothing could be written lately; the log says why"
        return None

    def stuck(self, seconds: float) -> bool:
        """It makes no progress, for at least so long: others should take over what is owned here."""
        return self.dead or (self.trouble is not None and monotonic() - self._failing_since >= seconds)

    def submit(self, write: Write, then: Then | None = None) -> asyncio.Future[Answer]:
        """Write something with the next batch; the future is done when it is durable.

        `then` is called with the answer even if whoever awaits the future has gone away meanwhile.
        """
        if not self._tasks:
            raise StoreError("This app is not running: use `async with app`, or `await app.startup()`.")
        if self._dead:
            raise StoreError("This app cannot write any more: its committer has stopped. The log says why; start it anew.")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(write, future, then, self._looks + _LOOKS + 1))
        if self._clock is None:
            self._clock = future.get_loop().call_later(self._store.patience / _LOOKS, self._look)
        if type(write) is Beat:
            self._showing[write.instance_id] += 1
        self._call_lane()
        return future

    def _look(self) -> None:
        """Answer those who have waited for as long as a call may take. What is under way goes on, and may be written."""
        self._looks = now = self._looks + 1
        patience = self._store.patience
        overdue = [call for call in self._calls if now >= call.due]
        if overdue:
            self._calls = [call for call in self._calls if now < call.due]
            self._showing -= Counter(call.write.instance_id for call in overdue if type(call.write) is Beat)
            for call in overdue:
                call.answer(_too_late("This was not written: the database was busy, or did not answer,", patience))
        for call in chain(*self._in_hand):
            if now >= call.due:
                call.give_up(_too_late("It is not known whether this was written: the database did not answer", patience))
        waiting = self._calls or self._in_hand
        self._clock = asyncio.get_running_loop().call_later(patience / _LOOKS, self._look) if waiting else None

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
        try:
            while True:
                try:
                    await self._flush()
                except Exception:  # nobody else writes: whatever happens, this goes on
                    _log.exception("the committer failed, and goes on")
                    await asyncio.sleep(self._pause)
        except SimulatedCrash:
            return  # as if the process had died: nobody is told
        except BaseException:
            if self._tasks:  # else it was told to end, and whoever told it answers
                self._answer_queued(StoreError("This was not written: the committer of the app has stopped."))
            raise
        finally:  # together or not at all
            self._dead = bool(self._tasks)
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
            if calls:
                self._in_hand.append(calls)
            try:
                await self._write(calls, pairs)
            except BaseException:
                for call in calls:  # those that have been answered hear nothing more
                    call.answer(StoreError("It is not known whether this was written: the committer was stopped."))
                raise
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
                self._in_hand.remove(calls)
                self._calling = False
                if self._showing:
                    self._showing -= Counter(call.write.instance_id for call in calls if type(call.write) is Beat)

    def _gather(self) -> tuple[list[_Call], list[Pair]]:
        """What is to be written now; the rest stays."""
        if self._alone:
            return [], [self._alone.pop(0)]
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
        again, self._again = self._again, []
        if self._showing and not calls:
            self._again = [pair for pair in again if pair[0].instance_id in self._showing]
            again = [pair for pair in again if pair[0].instance_id not in self._showing]
        pairs = again + [(made, source) for source in sources if (made := _take(source)) is not None]
        return self._bounded(calls, pairs)

    def _bounded(self, calls: list[_Call], pairs: list[Pair]) -> tuple[list[_Call], list[Pair]]:
        """As many of them, in order, as are written at once without taking much memory; the rest comes next."""
        if len(calls) + len(pairs) < 2:
            return calls, pairs  # one write is made however large it is
        sizes = _sizes(calls, pairs)
        if sum(sizes) <= _MOST_BYTES:
            return calls, pairs
        number = max(sum(size <= _MOST_BYTES for size in accumulate(sizes)), 1)
        within = max(number - len(calls), 0)
        self._calls = calls[number:] + self._calls
        self._again = pairs[within:] + self._again
        return calls[:number], pairs[:within]

    async def _write(self, calls: Sequence[_Call], pairs: Sequence[Pair]) -> StoreError | None:
        """Write a batch. If the database is away, why."""
        left = await self._try(calls, pairs)
        if left is None:
            return None
        if left.foreseen and left.error.retryable:
            await self._wait_for_database(left.calls, left.pairs, left.error)
            return left.error
        if left.alone:
            self._fail_alone(left.calls, left.pairs, left.error)
            return None
        return await self._write_each(left)

    async def _write_each(self, left: _Left) -> StoreError | None:
        """Each write by itself: what cannot be made fails alone."""
        writes: list[tuple[list[_Call], list[Pair]]] = [([call], []) for call in left.calls]
        writes += [([], [pair]) for pair in left.pairs]
        for number, (calls, pairs) in enumerate(writes, 1):
            if not left.foreseen and calls and type(calls[0].write) is Post:
                self._fail_alone(calls, [], left.error)  # if it was written after all, it would be there twice
            elif (away := await self._write(calls, pairs)) is not None:
                for others, pairs in writes[number:]:
                    self._again += pairs
                    for call in others:
                        call.answer(away)
                return away
        return None

    async def _try(self, calls: Sequence[_Call], pairs: Sequence[Pair]) -> _Left | None:
        """Write a batch and tell everybody; what was not written, if there is something."""
        batch: list[Write] = [call.write for call in calls]
        batch += [transition for transition, _ in pairs]
        began = monotonic()
        try:
            answers = await self._store.commit(batch)
            if len(answers) != len(batch):
                raise AssertionError(f"the store gave {len(answers)} answers to {len(batch)} writes")
        except StoreError as error:
            self.tally.errors["commit"] += 1
            return _Left(error, True, calls, pairs, len(batch) == 1)
        except Exception as error:
            self.tally.errors["commit"] += 1
            _log.exception("writing %d at once failed in a way that was not foreseen", len(batch))
            return _Left(_unforeseen(error), False, calls, pairs, len(batch) == 1)
        self._pause = _FIRST_PAUSE
        self.batches += 1
        self.writes += len(batch)
        self.tally.batches.add(len(batch))
        self.tally.commits.add(round((monotonic() - began) * MICROS))
        if self._failing:
            self._failing.clear()
        if self.on_written is not None:
            try:
                self.on_written()
            except Exception:
                _log.exception("what should have followed a commit failed")
        return self._tell_all(calls, pairs, answers)

    def _tell_all(
        self, calls: Sequence[_Call], pairs: Sequence[Pair], answers: Sequence[Answer | StoreError]
    ) -> _Left | None:
        why: Exception | None = None
        left_calls: list[_Call] = []
        left_pairs: list[Pair] = []
        for call, answer in zip(calls, answers, strict=False):
            if type(answer) is Unwritten:
                why = answer.why
                left_calls.append(call)
                continue
            _count_call(self.tally, call.write, answer)
            call.answer(answer)
        for pair, answer in zip(pairs, answers[len(calls) :], strict=True):
            if type(answer) is Unwritten:
                why = answer.why
                left_pairs.append(pair)
                continue
            transition, source = pair
            if self._aside:
                self._aside.pop(source, None)
            if transition.deeds and isinstance(answer, Applied):
                count_deeds(self.tally, transition.deeds)
            _tell(source, answer)
        if why is None:
            return None
        foreseen = isinstance(why, StoreError)
        return _Left(why if isinstance(why, StoreError) else _unforeseen(why), foreseen, left_calls, left_pairs, False)

    def _fail_alone(self, calls: Sequence[_Call], pairs: Sequence[Pair], error: StoreError) -> None:
        """What could not be written by itself either."""
        if not self._failing:
            self._failing_since = monotonic()
        for call in calls:
            self._failing.add(_subject(call.write))
            call.answer(error)
        for pair in pairs:
            self._failing.add(_subject(pair[0]))
            self._set_aside(pair, error)

    def _set_aside(self, pair: Pair, error: StoreError) -> None:
        """Try a transition again alone, ever more rarely. It is the database's fault unless others are written meanwhile."""
        source = pair[1]
        aside = self._aside.get(source) or _Aside(pair, 0, self.batches - 1)
        if self.batches > aside.batches:
            aside.failures, aside.batches = aside.failures + 1, self.batches
        if aside.failures > _GIVEN_UP:
            self._aside.pop(source, None)
            _tell(source, error)
            return
        pause = min(_FIRST_PAUSE * 2 ** (aside.failures - 1), _LONGEST_ASIDE)
        _log.error("what %r did cannot be written, will try again in %.2f s: %s", pair[0].instance_id, pause, error)
        self.tally.commit_retries += 1
        self._aside[source] = aside
        aside.timer = asyncio.get_running_loop().call_later(pause, self._take_up, aside)

    def _take_up(self, aside: _Aside) -> None:
        self._alone.append(aside.pair)
        self._call_lane()

    async def _wait_for_database(self, calls: Sequence[_Call], pairs: Sequence[Pair], error: StoreError) -> None:
        for call in calls:
            call.answer(error)
        if pairs:
            self.tally.commit_retries += 1
            self._again += pairs
            _log.warning("could not write to the database, will try again: %s", error)
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class _Left(NamedTuple):
    """What of a batch was not written, and why."""

    error: StoreError
    foreseen: bool
    """The store said so itself: it was not written, or nothing more can be known."""
    calls: Sequence[_Call]
    pairs: Sequence[Pair]
    alone: bool
    """It was all of the batch, and only one."""


class _Call:
    """A write that somebody waits for."""

    __slots__ = ("_future", "_then", "due", "write")

    def __init__(self, write: Write, future: asyncio.Future[Answer], then: Then | None, due: int) -> None:
        self.write = write
        self.due = due
        """The number of the look that answers it, if nothing has answered it before."""
        self._future = future
        self._then = then

    def answer(self, answer: Answer | StoreError) -> None:
        """Only the first answer counts."""
        then, self._then = self._then, None
        if then is not None:
            try:
                then(answer)
            except Exception:
                _log.exception("what should have followed a write failed")
        self._tell(answer)

    def give_up(self, error: StoreError) -> None:
        """Let nobody wait any longer; what follows from the answer follows when there is one."""
        self._tell(error)

    def _tell(self, answer: Answer | StoreError) -> None:
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


def _unforeseen(error: Exception) -> StoreError:
    """What is said of an exception that no store should raise."""
    found = StoreError(
        f"It is not known whether this was written: the store failed in a way that was not foreseen "
        f"({type(error).__name__}: {error}). The log has the traceback; the call can be repeated."
    )
    found.__cause__ = error
    return found


def _too_late(what: str, seconds: float) -> StoreError:
    error = StoreError(f"{what} for {seconds:g} s. The call can be repeated.")
    error.retryable = True
    return error


def _sizes(calls: Sequence[_Call], pairs: Sequence[Pair]) -> list[int]:
    """The bytes of each. What cannot be measured is written all the same, or fails alone."""
    try:
        return [size_of(call.write) for call in calls] + [size_of(transition) for transition, _ in pairs]
    except Exception:
        _log.exception("a write could not be measured")
        return []


def _subject(write: Write) -> object:
    return object() if isinstance(write, Accept | Post) else write.instance_id


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
