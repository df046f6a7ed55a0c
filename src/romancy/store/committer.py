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
from romancy.crash_points import SimulatedCrash
from romancy.errors import StoreError
from romancy.metrics.metrics import Metrics
from romancy.model.messaging import Effect, Publish, SendEvent, SendTo, SendToGroup
from romancy.model.transition import (
    Accepted,
    AcceptEvents,
    Applied,
    AttemptUpdate,
    PostMessage,
    Transition,
    Write,
    WriteResult,
    size_of,
)
from romancy.store.port import NotWrittenError, Store

_log = logging.getLogger("romancy.store")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_MIN_SIZE_TO_SPLIT = 8
_MOST_BYTES = 8 << 20
"""Bytes of payloads in a batch, unless a single write has more: drivers and databases copy them several times."""
_LONGEST_QUARANTINE_PAUSE = 10.0
"""Seconds between two attempts to write a transition that fails alone."""
_CHECKS_PER_TIMEOUT = 30
"""How often, within the time that a call may take, is looked whether one has taken it."""
_MAX_FAILURES = 12
"""So many attempts, while others were written, until its instance is told that it cannot be written."""


AnswerCallback: TypeAlias = Callable[[WriteResult | StoreError], None]
SourcedTransition: TypeAlias = "tuple[Transition, TransitionSource]"


class TransitionSource(Protocol):
    """Something that has a transition to write when it is asked."""

    @property
    def instance_id(self) -> str:
        """The instance it writes."""
        ...

    def take_transition(self) -> Transition | None:
        """What to write now, if anything."""
        ...

    def on_answer(self, answer: WriteResult | StoreError) -> None:
        """What became of it."""
        ...


@dataclass(slots=True)
class _QuarantinedTransition:
    """A transition that could not be written although others can."""

    pair: SourcedTransition
    failures: int
    batches: int
    """How many had been written when it last failed."""
    timer: asyncio.TimerHandle | None = None


class Committer:
    """Gathers writes and commits them in batches."""

    def __init__(self, store: Store, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        """What is counted in this process."""
        self._store = store
        self._submitted: list[_SubmittedWrite] = []
        self._sources: dict[TransitionSource, None] = {}
        self._retries: list[SourcedTransition] = []
        self._quarantined: dict[TransitionSource, _QuarantinedTransition] = {}
        """What is tried again alone, at its time."""
        self._quarantine_due: list[SourcedTransition] = []
        """Of that, what is to be tried now."""
        self._failing: set[object] = set()
        """What failed in a way that nobody foresaw, since something was last written."""
        self._failing_since = 0.0
        self._writer_count = store.concurrent_batches
        self._tasks: list[asyncio.Task[None]] = []
        self._dead = False
        self._idle_writers: list[asyncio.Future[None]] = []
        """Lanes with nothing to do, until they are called."""
        self._writer_woken = False
        """One of them has been called, and has not looked yet."""
        self._writes_in_flight: list[list[_SubmittedWrite]] = []
        """The calls of batches that are under way."""
        self._deadline_timer: asyncio.TimerHandle | None = None
        """Looks whether somebody has waited for too long, while somebody waits."""
        self._check_count = 0
        """How often `_look` has run. Calls are timed in such looks, so that none of them has to read a clock."""
        self._batches_in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._submitted_in_flight = False
        """A batch with calls is under way."""
        self._pending_attempt_updates: Counter[str] = Counter()
        """Instances of which open attempts are to be shown, or are being shown."""
        self._pause = _FIRST_PAUSE
        self.on_written: Callable[[], None] | None = None
        self.batches = 0
        self.writes = 0

    def start(self) -> None:
        """Begin to write."""
        loop = asyncio.get_running_loop()
        self._dead = False
        self._tasks = [loop.create_task(self._run(), name="romancy-committer") for _ in range(self._writer_count)]

    async def stop(self) -> None:
        """Write what is left, then end."""
        if not self._tasks:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_PAUSE * 2):
                await self.wait_until_idle()
        await self.abandon()

    async def abandon(self) -> None:
        """End now, leaving what was not written unwritten."""
        tasks, self._tasks = self._tasks, []
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        for aside in self._quarantined.values():
            if aside.timer is not None:
                aside.timer.cancel()
        self._quarantined.clear()
        self._answer_queued(StoreError("The app was shut down before this was written."))

    def _answer_queued(self, error: StoreError) -> None:
        calls, self._submitted = self._submitted, []
        for call in calls:
            call.answer(error)

    async def wait_until_idle(self) -> None:
        """Wait until nothing is left to write."""
        while not self.is_idle:
            await self._idle.wait()
            await asyncio.sleep(0)

    @property
    def is_idle(self) -> bool:
        """Nothing is being written and nothing is ready to be."""
        return not (self._batches_in_flight or self._submitted or self._sources or self._retries or self._quarantined)

    @property
    def is_dead(self) -> bool:
        """It was started and has ended without being told to: nothing is written any more."""
        return self._dead

    @property
    def problem(self) -> str | None:
        """Why nothing can be written, if that is so and is not the database's own failure."""
        if self.is_dead:
            return "nothing is written any more: the committer has stopped"
        if len(self._failing) > 1:  # a single one is that one's trouble
            return "nothing could be written lately; the log says why"
        return None

    def is_stuck(self, seconds: float) -> bool:
        """It makes no progress, for at least so long: others should take over what is owned here."""
        return self.is_dead or (self.problem is not None and monotonic() - self._failing_since >= seconds)

    def submit(self, write: Write, then: AnswerCallback | None = None) -> asyncio.Future[WriteResult]:
        """Write something with the next batch; the future is done when it is durable.

        `then` is called with the answer even if whoever awaits the future has gone away meanwhile.
        """
        if not self._tasks:
            raise StoreError("This app is not running: use `async with app`, or `await app.startup()`.")
        if self._dead:
            raise StoreError("This app cannot write any more: its committer has stopped. The log says why; start it anew.")
        future: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self._submitted.append(_SubmittedWrite(write, future, then, self._check_count + _CHECKS_PER_TIMEOUT + 1))
        if self._deadline_timer is None:
            self._deadline_timer = future.get_loop().call_later(
                self._store.call_timeout / _CHECKS_PER_TIMEOUT, self._check_deadlines
            )
        if type(write) is AttemptUpdate:
            self._pending_attempt_updates[write.instance_id] += 1
        self._wake_writer()
        return future

    def _check_deadlines(self) -> None:
        """Answer those who have waited for as long as a call may take. What is under way goes on, and may be written."""
        self._check_count = now = self._check_count + 1
        patience = self._store.call_timeout
        overdue = [call for call in self._submitted if now >= call.due]
        if overdue:
            self._submitted = [call for call in self._submitted if now < call.due]
            self._pending_attempt_updates -= Counter(
                call.write.instance_id for call in overdue if type(call.write) is AttemptUpdate
            )
            for call in overdue:
                call.answer(_timeout_error("This was not written: the database was busy, or did not answer,", patience))
        for call in chain(*self._writes_in_flight):
            if now >= call.due:
                call.time_out(
                    _timeout_error("It is not known whether this was written: the database did not answer", patience)
                )
        waiting = self._submitted or self._writes_in_flight
        self._deadline_timer = (
            asyncio.get_running_loop().call_later(patience / _CHECKS_PER_TIMEOUT, self._check_deadlines) if waiting else None
        )

    def enqueue(self, source: TransitionSource) -> None:
        """Ask a source for its transition when the next batch gathers."""
        self._sources[source] = None
        if self._idle_writers and not self._writer_woken:
            self._wake_writer()

    def _wake_writer(self) -> None:
        while self._idle_writers and not self._writer_woken:
            lane = self._idle_writers.pop()
            if not lane.done():  # else it was cancelled, and is about to end
                lane.set_result(None)
                self._writer_woken = True

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
            self._idle_writers.append(free)
            await free
            self._writer_woken = False
            return
        self._batches_in_flight += 1
        self._idle.clear()
        try:
            if calls:
                self._writes_in_flight.append(calls)
            try:
                await self._write(calls, pairs)
            except BaseException:
                for call in calls:  # those that have been answered hear nothing more
                    call.answer(StoreError("It is not known whether this was written: the committer was stopped."))
                raise
            # In a moment those are ready too that go on now, or were in between.
            if self._writer_count > 1 and (self._sources or any(transition.keep_owned for transition, _ in pairs)):
                self._writer_woken = True  # nobody else need look before
                await asyncio.sleep(0)
                self._writer_woken = False
        finally:
            self._batches_in_flight -= 1
            if not self._batches_in_flight:
                self._idle.set()
            if calls:
                self._writes_in_flight.remove(calls)
                self._submitted_in_flight = False
                if self._pending_attempt_updates:
                    self._pending_attempt_updates -= Counter(
                        call.write.instance_id for call in calls if type(call.write) is AttemptUpdate
                    )

    def _gather(self) -> tuple[list[_SubmittedWrite], list[SourcedTransition]]:
        """What is to be written now; the rest stays."""
        if self._quarantine_due:
            return [], [self._quarantine_due.pop(0)]
        calls: list[_SubmittedWrite] = []
        if not self._submitted_in_flight:
            calls, self._submitted = self._submitted, []
            self._submitted_in_flight = bool(calls)
        sources, self._sources = list(self._sources), {}
        if self._pending_attempt_updates and not calls:  # they wait, or are in the other batch
            self._sources = {source: None for source in sources if source.instance_id in self._pending_attempt_updates}
            sources = [source for source in sources if source not in self._sources]
        number = len(calls) + len(sources)
        if self._writer_count > 1 and not self._batches_in_flight and sources and number >= _MIN_SIZE_TO_SPLIT:
            here = max(number // 2 - len(calls), 0)
            sources, self._sources = sources[:here], self._sources | dict.fromkeys(sources[here:])
            self._wake_writer()
        again, self._retries = self._retries, []
        if self._pending_attempt_updates and not calls:
            self._retries = [pair for pair in again if pair[0].instance_id in self._pending_attempt_updates]
            again = [pair for pair in again if pair[0].instance_id not in self._pending_attempt_updates]
        pairs = again + [(made, source) for source in sources if (made := _take_transition(source)) is not None]
        return self._limit_size(calls, pairs)

    def _limit_size(
        self, calls: list[_SubmittedWrite], pairs: list[SourcedTransition]
    ) -> tuple[list[_SubmittedWrite], list[SourcedTransition]]:
        """As many of them, in order, as are written at once without taking much memory; the rest comes next."""
        if len(calls) + len(pairs) < 2:
            return calls, pairs  # one write is made however large it is
        sizes = _sizes(calls, pairs)
        if sum(sizes) <= _MOST_BYTES:
            return calls, pairs
        number = max(sum(size <= _MOST_BYTES for size in accumulate(sizes)), 1)
        within = max(number - len(calls), 0)
        self._submitted = calls[number:] + self._submitted
        self._retries = pairs[within:] + self._retries
        return calls[:number], pairs[:within]

    async def _write(self, calls: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition]) -> StoreError | None:
        """Write a batch. If the database is away, why."""
        left = await self._try_batch(calls, pairs)
        if left is None:
            return None
        if left.is_expected and left.error.retryable:
            await self._wait_for_database(left.submitted, left.pairs, left.error)
            return left.error
        if left.is_single:
            self._record_failures(left.submitted, left.pairs, left.error)
            return None
        return await self._write_one_by_one(left)

    async def _write_one_by_one(self, left: _Remainder) -> StoreError | None:
        """Each write by itself: what cannot be made fails alone."""
        writes: list[tuple[list[_SubmittedWrite], list[SourcedTransition]]] = [([call], []) for call in left.submitted]
        writes += [([], [pair]) for pair in left.pairs]
        for number, (calls, pairs) in enumerate(writes, 1):
            if not left.is_expected and calls and type(calls[0].write) is PostMessage:
                self._record_failures(calls, [], left.error)  # if it was written after all, it would be there twice
            elif (away := await self._write(calls, pairs)) is not None:
                for others, pairs in writes[number:]:
                    self._retries += pairs
                    for call in others:
                        call.answer(away)
                return away
        return None

    async def _try_batch(self, calls: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition]) -> _Remainder | None:
        """Write a batch and tell everybody; what was not written, if there is something."""
        batch: list[Write] = [call.write for call in calls]
        batch += [transition for transition, _ in pairs]
        began = monotonic()
        try:
            answers = await self._store.commit(batch)
            if len(answers) != len(batch):
                raise AssertionError(f"the store gave {len(answers)} answers to {len(batch)} writes")
        except StoreError as error:
            self.metrics.errors["commit"] += 1
            return _Remainder(error, True, calls, pairs, len(batch) == 1)
        except Exception as error:
            self.metrics.errors["commit"] += 1
            _log.exception("writing %d at once failed in a way that was not foreseen", len(batch))
            return _Remainder(_unexpected_error(error), False, calls, pairs, len(batch) == 1)
        self._pause = _FIRST_PAUSE
        self.batches += 1
        self.writes += len(batch)
        self.metrics.batches.add(len(batch))
        self.metrics.commits.add(round((monotonic() - began) * MICROS))
        if self._failing:
            self._failing.clear()
        if self.on_written is not None:
            try:
                self.on_written()
            except Exception:
                _log.exception("what should have followed a commit failed")
        return self._answer_all(calls, pairs, answers)

    def _answer_all(
        self,
        calls: Sequence[_SubmittedWrite],
        pairs: Sequence[SourcedTransition],
        answers: Sequence[WriteResult | StoreError],
    ) -> _Remainder | None:
        why: Exception | None = None
        left_calls: list[_SubmittedWrite] = []
        left_pairs: list[SourcedTransition] = []
        for call, answer in zip(calls, answers, strict=False):
            if type(answer) is NotWrittenError:
                why = answer.cause
                left_calls.append(call)
                continue
            _count_accepted(self.metrics, call.write, answer)
            call.answer(answer)
        for pair, answer in zip(pairs, answers[len(calls) :], strict=True):
            if type(answer) is NotWrittenError:
                why = answer.cause
                left_pairs.append(pair)
                continue
            transition, source = pair
            if self._quarantined:
                self._quarantined.pop(source, None)
            if transition.effects and isinstance(answer, Applied):
                count_effects(self.metrics, transition.effects)
            _deliver_answer(source, answer)
        if why is None:
            return None
        foreseen = isinstance(why, StoreError)
        return _Remainder(
            why if isinstance(why, StoreError) else _unexpected_error(why), foreseen, left_calls, left_pairs, False
        )

    def _record_failures(
        self, calls: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition], error: StoreError
    ) -> None:
        """What could not be written by itself either."""
        if not self._failing:
            self._failing_since = monotonic()
        for call in calls:
            self._failing.add(_failure_key(call.write))
            call.answer(error)
        for pair in pairs:
            self._failing.add(_failure_key(pair[0]))
            self._quarantine(pair, error)

    def _quarantine(self, pair: SourcedTransition, error: StoreError) -> None:
        """Try a transition again alone, ever more rarely. It is the database's fault unless others are written meanwhile."""
        source = pair[1]
        aside = self._quarantined.get(source) or _QuarantinedTransition(pair, 0, self.batches - 1)
        if self.batches > aside.batches:
            aside.failures, aside.batches = aside.failures + 1, self.batches
        if aside.failures > _MAX_FAILURES:
            self._quarantined.pop(source, None)
            _deliver_answer(source, error)
            return
        pause = min(_FIRST_PAUSE * 2 ** (aside.failures - 1), _LONGEST_QUARANTINE_PAUSE)
        _log.error("what %r did cannot be written, will try again in %.2f s: %s", pair[0].instance_id, pause, error)
        self.metrics.commit_retries += 1
        self._quarantined[source] = aside
        aside.timer = asyncio.get_running_loop().call_later(pause, self._retry_quarantined, aside)

    def _retry_quarantined(self, aside: _QuarantinedTransition) -> None:
        self._quarantine_due.append(aside.pair)
        self._wake_writer()

    async def _wait_for_database(
        self, calls: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition], error: StoreError
    ) -> None:
        for call in calls:
            call.answer(error)
        if pairs:
            self.metrics.commit_retries += 1
            self._retries += pairs
            _log.warning("could not write to the database, will try again: %s", error)
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class _Remainder(NamedTuple):
    """What of a batch was not written, and why."""

    error: StoreError
    is_expected: bool
    """The store said so itself: it was not written, or nothing more can be known."""
    submitted: Sequence[_SubmittedWrite]
    pairs: Sequence[SourcedTransition]
    is_single: bool
    """It was all of the batch, and only one."""


class _SubmittedWrite:
    """A write that somebody waits for."""

    __slots__ = ("_future", "_then", "due", "write")

    def __init__(self, write: Write, future: asyncio.Future[WriteResult], then: AnswerCallback | None, due: int) -> None:
        self.write = write
        self.due = due
        """The number of the look that answers it, if nothing has answered it before."""
        self._future = future
        self._then = then

    def answer(self, answer: WriteResult | StoreError) -> None:
        """Only the first answer counts."""
        then, self._then = self._then, None
        if then is not None:
            try:
                then(answer)
            except Exception:
                _log.exception("what should have followed a write failed")
        self._resolve_future(answer)

    def time_out(self, error: StoreError) -> None:
        """Let nobody wait any longer; what follows from the answer follows when there is one."""
        self._resolve_future(error)

    def _resolve_future(self, answer: WriteResult | StoreError) -> None:
        if self._future.done():
            return
        if isinstance(answer, StoreError):
            self._future.set_exception(answer)
        else:
            self._future.set_result(answer)


def count_effects(metrics: Metrics, effects: Iterable[Effect]) -> None:
    """These were done, durably."""
    for effect in effects:
        if isinstance(effect, SendEvent):
            metrics.events_sent += 1
        elif isinstance(effect, Publish | SendTo | SendToGroup):
            metrics.messages_sent += 1


def _unexpected_error(error: Exception) -> StoreError:
    """What is said of an exception that no store should raise."""
    found = StoreError(
        f"It is not known whether this was written: the store failed in a way that was not foreseen "
        f"({type(error).__name__}: {error}). The log has the traceback; the call can be repeated."
    )
    found.__cause__ = error
    return found


def _timeout_error(what: str, seconds: float) -> StoreError:
    error = StoreError(f"{what} for {seconds:g} s. The call can be repeated.")
    error.retryable = True
    return error


def _sizes(calls: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition]) -> list[int]:
    """The bytes of each. What cannot be measured is written all the same, or fails alone."""
    try:
        return [size_of(call.write) for call in calls] + [size_of(transition) for transition, _ in pairs]
    except Exception:
        _log.exception("a write could not be measured")
        return []


def _failure_key(write: Write) -> object:
    return object() if isinstance(write, AcceptEvents | PostMessage) else write.instance_id


def _count_accepted(metrics: Metrics, write: Write, answer: WriteResult | StoreError) -> None:
    if type(answer) is Accepted:
        known = sum(event.duplicate for event in answer.events)
        metrics.events_duplicate += known
        metrics.events_accepted += len(answer.events) - known
    elif type(write) is PostMessage and type(answer) is Applied:
        metrics.messages_sent += 1


def _take_transition(source: TransitionSource) -> Transition | None:
    """One source that fails must not silence the others."""
    try:
        return source.take_transition()
    except Exception:
        _log.exception("an instance could not say what to write")
        return None


def _deliver_answer(source: TransitionSource, answer: WriteResult | StoreError) -> None:
    try:
        source.on_answer(answer)
    except Exception:
        _log.exception("an instance could not go on after its commit")
