"""Group commit: the committer collects all writes of the process that are ready and commits them as one batch.

    instance runners ── enqueue ──┐
                                  ├──► gather ──► store.commit(batch) ──► one result for each write
    other writes ────── submit ───┘      ▲                                       │
                                         └───── writes that became ready ◄───────┘

No delay is added: while one batch is being written, the next one collects, up to a number of bytes. A runner (a
`TransitionSource`) is asked for its transition only when a writer is free, so that everything that its instance did since
its last commit becomes one transition.

A server can write while this process computes, so with a server there are two writers (asyncio tasks) and up to two batches
in flight. A large batch is split into two halves; from then on the instances of one half compute while the other half is
written. Two rules keep the order. Submitted writes never overlap: all of them are in one batch, and the next ones wait
until that batch is done. And a transition waits for submitted attempt updates of its instance: an attempt update that was
committed after the transition that closes the attempt would open the attempt again.

When the database itself fails (disk full, unreachable), callers of `submit` get the error at once and decide what to do.
Transitions are retried, in order, until they succeed: the results of activities must not be lost.

When a batch fails in a way that waiting does not mend (an unexpected exception, or a refusal), each of its writes is
committed alone, so that a write that cannot be made does not block the others. The caller of a failing submitted write gets
the error; a failing transition is quarantined and retried alone. No exception of a store stops the committer.
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
"""Upper limit for the payload bytes of a batch of several writes: drivers and databases copy payloads several times."""
_LONGEST_QUARANTINE_PAUSE = 10.0
"""Longest time between two attempts to write a quarantined transition, in seconds."""
_CHECKS_PER_TIMEOUT = 30
"""Number of deadline checks within one call timeout."""
_MAX_FAILURES = 12
"""After so many failed attempts, while other batches succeeded, a quarantined transition fails for good."""


AnswerCallback: TypeAlias = Callable[[WriteResult | StoreError], None]
SourcedTransition: TypeAlias = "tuple[Transition, TransitionSource]"


class TransitionSource(Protocol):
    """Produces the next transition of an instance on request: an instance runner."""

    @property
    def instance_id(self) -> str:
        """The instance whose transitions it produces."""
        ...

    def take_transition(self) -> Transition | None:
        """Return the transition to write now, or None if there is nothing to write."""
        ...

    def on_answer(self, answer: WriteResult | StoreError) -> None:
        """Receive the result of the last transition."""
        ...


@dataclass(slots=True)
class _QuarantinedTransition:
    """A transition that failed although other writes succeed; it is retried alone."""

    pair: SourcedTransition
    failures: int
    batches: int
    """Value of `Committer.batches` when it last failed."""
    timer: asyncio.TimerHandle | None = None


class Committer:
    """Collects the writes of the process and commits them in batches."""

    def __init__(self, store: Store, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        """The metrics of this process."""
        self._store = store
        self._submitted: list[_SubmittedWrite] = []
        self._sources: dict[TransitionSource, None] = {}
        self._retries: list[SourcedTransition] = []
        self._quarantined: dict[TransitionSource, _QuarantinedTransition] = {}
        """Transitions that are retried alone, each when its timer fires."""
        self._quarantine_due: list[SourcedTransition] = []
        """Quarantined transitions whose timer has fired."""
        self._failing: set[object] = set()
        """The writes that failed, alone as well, since the last successful commit (see `_failure_key`)."""
        self._failing_since = 0.0
        self._writer_count = store.concurrent_batches
        self._tasks: list[asyncio.Task[None]] = []
        self._dead = False
        self._idle_writers: list[asyncio.Future[None]] = []
        """One future for each writer that has nothing to do; setting its result wakes the writer."""
        self._writer_woken = False
        """A writer has been woken and has not gathered yet: no other writer need be woken."""
        self._writes_in_flight: list[list[_SubmittedWrite]] = []
        """The submitted writes of each batch in flight."""
        self._deadline_timer: asyncio.TimerHandle | None = None
        """Runs `_check_deadlines`; set only while a submitted write is waiting."""
        self._check_count = 0
        """How often `_check_deadlines` has run. Deadlines count these checks, so that `submit` need not read a clock."""
        self._batches_in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._submitted_in_flight = False
        """A batch with submitted writes is in flight."""
        self._pending_attempt_updates: Counter[str] = Counter()
        """Number of attempt updates of each instance that are queued or in flight."""
        self._pause = _FIRST_PAUSE
        self.on_written: Callable[[], None] | None = None
        self.batches = 0
        self.writes = 0

    def start(self) -> None:
        """Start the writers."""
        loop = asyncio.get_running_loop()
        self._dead = False
        self._tasks = [loop.create_task(self._run(), name="romancy-committer") for _ in range(self._writer_count)]

    async def stop(self) -> None:
        """Write what is queued, for a few seconds at most, then end the writers."""
        if not self._tasks:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_PAUSE * 2):
                await self.wait_until_idle()
        await self.abandon()

    async def abandon(self) -> None:
        """End the writers now; queued writes fail."""
        # Empty before the tasks are cancelled: by this `_run` tells an ordered end from a failure.
        tasks, self._tasks = self._tasks, []
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        for quarantined in self._quarantined.values():
            if quarantined.timer is not None:
                quarantined.timer.cancel()
        self._quarantined.clear()
        self._answer_queued(StoreError("The app was shut down before this was written."))

    def _answer_queued(self, error: StoreError) -> None:
        submitted, self._submitted = self._submitted, []
        for submission in submitted:
            submission.answer(error)

    async def wait_until_idle(self) -> None:
        """Wait until nothing is queued and nothing is being written."""
        while not self.is_idle:
            await self._idle.wait()
            await asyncio.sleep(0)

    @property
    def is_idle(self) -> bool:
        """Nothing is queued and nothing is being written."""
        return not (self._batches_in_flight or self._submitted or self._sources or self._retries or self._quarantined)

    @property
    def is_dead(self) -> bool:
        """The writers have ended although `stop` was not called: nothing is written any more."""
        return self._dead

    @property
    def problem(self) -> str | None:
        """The reason why nothing can be written, unless it is a failure of the database itself."""
        if self.is_dead:
            return "nothing can be written: the committer has stopped"
        if len(self._failing) > 1:  # a single failing write does not show that other writes fail
            return "recent writes have failed; the log has the details"
        return None

    def is_stuck(self, seconds: float) -> bool:
        """No write has succeeded for at least `seconds`: other workers should take over this worker's instances."""
        return self.is_dead or (self.problem is not None and monotonic() - self._failing_since >= seconds)

    def submit(self, write: Write, then: AnswerCallback | None = None) -> asyncio.Future[WriteResult]:
        """Add a write to the next batch; the future resolves once the write is durable.

        `then` is called with the result even if the caller that awaited the future has been cancelled.
        """
        if not self._tasks:
            raise StoreError("This app is not running: use `async with app`, or `await app.startup()`.")
        if self._dead:
            raise StoreError("This app can no longer write: its committer has stopped. See the log, and restart the app.")
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
        """Fail submitted writes that have waited for the call timeout.

        A queued write is dropped. A write in flight is not cancelled and may still be committed; only its caller stops
        waiting.
        """
        self._check_count = now = self._check_count + 1
        call_timeout = self._store.call_timeout
        overdue = [submission for submission in self._submitted if now >= submission.due]
        if overdue:
            self._submitted = [submission for submission in self._submitted if now < submission.due]
            self._pending_attempt_updates -= Counter(
                submission.write.instance_id for submission in overdue if type(submission.write) is AttemptUpdate
            )
            for submission in overdue:
                submission.answer(
                    _timeout_error("This was not written: the database was busy or did not respond", call_timeout)
                )
        for submission in chain(*self._writes_in_flight):
            if now >= submission.due:
                submission.time_out(
                    _timeout_error("It is not known whether this was written: the database did not respond", call_timeout)
                )
        waiting = self._submitted or self._writes_in_flight
        self._deadline_timer = (
            asyncio.get_running_loop().call_later(call_timeout / _CHECKS_PER_TIMEOUT, self._check_deadlines)
            if waiting
            else None
        )

    def enqueue(self, source: TransitionSource) -> None:
        """Have the next batch ask this source for its transition. Enqueuing it again before that changes nothing."""
        self._sources[source] = None
        if self._idle_writers and not self._writer_woken:
            self._wake_writer()

    def _wake_writer(self) -> None:
        """Wake one idle writer, unless one has been woken already: it will gather everything that is queued."""
        while self._idle_writers and not self._writer_woken:
            idle_writer = self._idle_writers.pop()
            if not idle_writer.done():  # otherwise the writer was cancelled and is about to end
                idle_writer.set_result(None)
                self._writer_woken = True

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._flush()
                except Exception:  # a writer that ended here would leave the process unable to write
                    _log.exception("the committer failed, and continues")
                    await asyncio.sleep(self._pause)
        except SimulatedCrash:
            return  # a simulated death of the process: no caller may get a result
        except BaseException:
            if self._tasks:  # otherwise `abandon` has cancelled this writer, and fails the queued writes itself
                self._answer_queued(StoreError("This was not written: the committer of the app has stopped."))
            raise
        finally:  # if one writer ends, the others end as well: half a committer would look alive
            self._dead = bool(self._tasks)
            for task in self._tasks:
                task.cancel()

    async def _flush(self) -> None:
        """Write one batch, or wait until there is something to write."""
        submitted, pairs = self._gather()
        if not submitted and not pairs:
            # What is queued, if anything, waits for submitted writes in flight. The writer of those gathers it next.
            free = asyncio.get_running_loop().create_future()
            self._idle_writers.append(free)
            await free
            self._writer_woken = False
            return
        self._batches_in_flight += 1
        self._idle.clear()
        try:
            if submitted:
                self._writes_in_flight.append(submitted)
            try:
                left = await self._try_batch(submitted, pairs)
                if left is not None:
                    await self._recover(left)
            except BaseException:
                for submission in submitted:  # no effect on writes that have their result already
                    submission.answer(StoreError("It is not known whether this was written: the committer was stopped."))
                raise
            # Yield once, so that instances resumed by this commit can join the next batch. `_writer_woken` keeps the
            # first of them from waking the other writer, which would write it in a small batch of its own.
            if self._writer_count > 1 and (self._sources or any(transition.keep_owned for transition, _ in pairs)):
                self._writer_woken = True
                await asyncio.sleep(0)
                self._writer_woken = False
        finally:
            # After the yield: until here this batch counts as in flight, so that the other writer, if it gathers during
            # the yield, neither takes submitted writes nor splits what it finds.
            self._batches_in_flight -= 1
            if not self._batches_in_flight:
                self._idle.set()
            if submitted:
                self._writes_in_flight.remove(submitted)
                self._submitted_in_flight = False
                if self._pending_attempt_updates:
                    self._pending_attempt_updates -= Counter(
                        submission.write.instance_id for submission in submitted if type(submission.write) is AttemptUpdate
                    )

    def _gather(self) -> tuple[list[_SubmittedWrite], list[SourcedTransition]]:
        """Take the next batch from the queues; what must wait stays queued."""
        if self._quarantine_due:
            return [], [self._quarantine_due.pop(0)]
        submitted: list[_SubmittedWrite] = []
        # While submitted writes are in flight the next ones wait: in two transactions at once they could change places.
        # It also keeps the two batches apart: submitted writes arrive all the time, and would make many small batches.
        if not self._submitted_in_flight:
            submitted, self._submitted = self._submitted, []
            self._submitted_in_flight = bool(submitted)
        sources, self._sources = list(self._sources), {}
        # Without submitted writes in this batch, pending attempt updates are in the other one. The transitions of their
        # instances wait until that one is done. If the updates are in this batch, they stand before the transitions.
        if self._pending_attempt_updates and not submitted:
            self._sources = {source: None for source in sources if source.instance_id in self._pending_attempt_updates}
            sources = [source for source in sources if source not in self._sources]
        number = len(submitted) + len(sources)
        # Split only when nothing is in flight: otherwise this batch is the second half already. The submitted writes must
        # be in this half, since the other writer may not take any while they are in flight.
        if self._writer_count > 1 and not self._batches_in_flight and sources and number >= _MIN_SIZE_TO_SPLIT:
            size = max(number // 2 - len(submitted), 0)
            sources, self._sources = sources[:size], self._sources | dict.fromkeys(sources[size:])
            self._wake_writer()
        # Retries wait for pending attempt updates like new transitions do.
        retries, self._retries = self._retries, []
        if self._pending_attempt_updates and not submitted:
            self._retries = [pair for pair in retries if pair[0].instance_id in self._pending_attempt_updates]
            retries = [pair for pair in retries if pair[0].instance_id not in self._pending_attempt_updates]
        # Sources are asked last, when it is certain that they are written now: a transition that was taken must be written.
        pairs = retries + [(made, source) for source in sources if (made := _take_transition(source)) is not None]
        if len(submitted) + len(pairs) < 2:
            return submitted, pairs  # a single write is made however large it is
        return self._limit_size(submitted, pairs)

    def _limit_size(
        self, submitted: list[_SubmittedWrite], pairs: list[SourcedTransition]
    ) -> tuple[list[_SubmittedWrite], list[SourcedTransition]]:
        """Cut the batch to `_MOST_BYTES` of payloads; the rest goes back to the front of the queues."""
        sizes = _sizes(submitted, pairs)
        if sum(sizes) <= _MOST_BYTES:
            return submitted, pairs
        number = max(sum(size <= _MOST_BYTES for size in accumulate(sizes)), 1)
        within = max(number - len(submitted), 0)
        self._submitted = submitted[number:] + self._submitted
        self._retries = pairs[within:] + self._retries
        return submitted[:number], pairs[:within]

    async def _write(self, submitted: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition]) -> StoreError | None:
        """Write a batch, with the fallbacks for errors. Return the error if the database is unavailable."""
        left = await self._try_batch(submitted, pairs)
        return None if left is None else await self._recover(left)

    async def _recover(self, left: _Remainder) -> StoreError | None:
        """Handle what could not be written. Return the error if the database is unavailable."""
        if left.is_expected and left.error.retryable:
            await self._wait_for_database(left.submitted, left.pairs, left.error)
            return left.error
        if left.is_single:
            self._record_failures(left.submitted, left.pairs, left.error)
            return None
        return await self._write_one_by_one(left)

    async def _write_one_by_one(self, left: _Remainder) -> StoreError | None:
        """Commit each write alone, so that only those fail that cannot be made. Return the error as `_write` does."""
        writes: list[tuple[list[_SubmittedWrite], list[SourcedTransition]]] = [
            ([submission], []) for submission in left.submitted
        ]
        writes += [([], [pair]) for pair in left.pairs]
        for number, (submitted, pairs) in enumerate(writes, 1):
            if not left.is_expected and submitted and type(submitted[0].write) is PostMessage:
                # It may have been committed, and a message has no id to recognise it by: written again, it would be
                # delivered twice. All other writes can be repeated.
                self._record_failures(submitted, [], left.error)
            elif (outage := await self._write(submitted, pairs)) is not None:
                for unwritten, pairs in writes[number:]:
                    self._retries += pairs
                    for submission in unwritten:
                        submission.answer(outage)
                return outage
        return None

    async def _try_batch(
        self, submitted: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition]
    ) -> _Remainder | None:
        """Commit a batch and deliver the results. Return what was not written, or None if everything was."""
        batch: list[Write] = [submission.write for submission in submitted]
        batch += [transition for transition, _ in pairs]
        began = monotonic()
        try:
            answers = await self._store.commit(batch)
            if len(answers) != len(batch):
                raise AssertionError(f"the store returned {len(answers)} results for {len(batch)} writes")
        except StoreError as error:
            self.metrics.errors["commit"] += 1
            return _Remainder(error, True, submitted, pairs, len(batch) == 1)
        except Exception as error:
            self.metrics.errors["commit"] += 1
            _log.exception("writing a batch of %d failed unexpectedly", len(batch))
            return _Remainder(_unexpected_error(error), False, submitted, pairs, len(batch) == 1)
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
                _log.exception("the callback after a commit failed")
        return self._answer_all(submitted, pairs, answers)

    def _answer_all(
        self,
        submitted: Sequence[_SubmittedWrite],
        pairs: Sequence[SourcedTransition],
        answers: Sequence[WriteResult | StoreError],
    ) -> _Remainder | None:
        """Deliver the result of each write; return the writes that were not made."""
        why: Exception | None = None
        left_calls: list[_SubmittedWrite] = []
        left_pairs: list[SourcedTransition] = []
        for submission, answer in zip(submitted, answers, strict=False):
            if type(answer) is NotWrittenError:
                why = answer.cause
                left_calls.append(submission)
                continue
            _count_accepted(self.metrics, submission.write, answer)
            submission.answer(answer)
        for pair, answer in zip(pairs, answers[len(submitted) :], strict=True):
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
        expected = isinstance(why, StoreError)
        return _Remainder(
            why if isinstance(why, StoreError) else _unexpected_error(why), expected, left_calls, left_pairs, False
        )

    def _record_failures(
        self, submitted: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition], error: StoreError
    ) -> None:
        """Record writes that failed alone as well: callers get the error, transitions are quarantined."""
        if not self._failing:
            self._failing_since = monotonic()
        for submission in submitted:
            self._failing.add(_failure_key(submission.write))
            submission.answer(error)
        for pair in pairs:
            self._failing.add(_failure_key(pair[0]))
            self._quarantine(pair, error)

    def _quarantine(self, pair: SourcedTransition, error: StoreError) -> None:
        """Retry a transition alone, with a growing pause, and give it up after `_MAX_FAILURES`."""
        source = pair[1]
        quarantined = self._quarantined.get(source) or _QuarantinedTransition(pair, 0, self.batches - 1)
        # A failure counts only if another batch has succeeded since the last one: otherwise the database is to blame.
        if self.batches > quarantined.batches:
            quarantined.failures, quarantined.batches = quarantined.failures + 1, self.batches
        if quarantined.failures > _MAX_FAILURES:
            self._quarantined.pop(source, None)
            _deliver_answer(source, error)
            return
        pause = min(_FIRST_PAUSE * 2 ** (quarantined.failures - 1), _LONGEST_QUARANTINE_PAUSE)
        _log.error("a transition of %r cannot be written, will try again in %.2f s: %s", pair[0].instance_id, pause, error)
        self.metrics.commit_retries += 1
        self._quarantined[source] = quarantined
        quarantined.timer = asyncio.get_running_loop().call_later(pause, self._retry_quarantined, quarantined)

    def _retry_quarantined(self, quarantined: _QuarantinedTransition) -> None:
        self._quarantine_due.append(quarantined.pair)
        self._wake_writer()

    async def _wait_for_database(
        self, submitted: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition], error: StoreError
    ) -> None:
        """Pause before the next batch. Callers get the error at once; transitions are kept for the retry."""
        for submission in submitted:
            submission.answer(error)
        if pairs:
            self.metrics.commit_retries += 1
            self._retries += pairs
            _log.warning("could not write to the database, will try again: %s", error)
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class _Remainder(NamedTuple):
    """The writes of a batch that were not made, and the reason."""

    error: StoreError
    is_expected: bool
    """The store itself raised this `StoreError`. Otherwise the exception is a bug, and the outcome may be unknown."""
    submitted: Sequence[_SubmittedWrite]
    pairs: Sequence[SourcedTransition]
    is_single: bool
    """The batch consisted of one write: committing it alone would repeat the same attempt."""


class _SubmittedWrite:
    """A write given to `submit`, with the future that its caller awaits."""

    __slots__ = ("_future", "_then", "due", "write")

    def __init__(self, write: Write, future: asyncio.Future[WriteResult], then: AnswerCallback | None, due: int) -> None:
        self.write = write
        self.due = due
        """Number of the deadline check (`Committer._check_count`) that fails it."""
        self._future = future
        self._then = then

    def answer(self, answer: WriteResult | StoreError) -> None:
        """Deliver the result to the callback and the future. Only the first result counts."""
        then, self._then = self._then, None
        if then is not None:
            try:
                then(answer)
            except Exception:
                _log.exception("the callback after a write failed")
        self._resolve_future(answer)

    def time_out(self, error: StoreError) -> None:
        """Fail the future only. The callback still runs when the store returns a result."""
        self._resolve_future(error)

    def _resolve_future(self, answer: WriteResult | StoreError) -> None:
        if self._future.done():
            return
        if isinstance(answer, StoreError):
            self._future.set_exception(answer)
        else:
            self._future.set_result(answer)


def count_effects(metrics: Metrics, effects: Iterable[Effect]) -> None:
    """Count events and messages that are durably sent."""
    for effect in effects:
        if isinstance(effect, SendEvent):
            metrics.events_sent += 1
        elif isinstance(effect, Publish | SendTo | SendToGroup):
            metrics.messages_sent += 1


def _unexpected_error(error: Exception) -> StoreError:
    """Return the `StoreError` for an exception that no store should raise."""
    found = StoreError(
        f"It is not known whether this was written: the store failed unexpectedly ({type(error).__name__}: {error}). The "
        "log has the traceback; the call can be repeated."
    )
    found.__cause__ = error
    return found


def _timeout_error(what: str, seconds: float) -> StoreError:
    error = StoreError(f"{what} for {seconds:g} s. The call can be repeated.")
    error.retryable = True
    return error


def _sizes(submitted: Sequence[_SubmittedWrite], pairs: Sequence[SourcedTransition]) -> list[int]:
    """Return the payload bytes of each write; no sizes, so that the batch is not cut, if one cannot be measured."""
    try:
        return [size_of(submission.write) for submission in submitted] + [size_of(transition) for transition, _ in pairs]
    except Exception:
        _log.exception("the size of a write could not be determined")
        return []


def _failure_key(write: Write) -> object:
    """Return the instance id, so that repeated failures of one instance count once; other writes count each."""
    return object() if isinstance(write, AcceptEvents | PostMessage) else write.instance_id


def _count_accepted(metrics: Metrics, write: Write, answer: WriteResult | StoreError) -> None:
    if type(answer) is Accepted:
        known = sum(event.duplicate for event in answer.events)
        metrics.events_duplicate += known
        metrics.events_accepted += len(answer.events) - known
    elif type(write) is PostMessage and type(answer) is Applied:
        metrics.messages_sent += 1


def _take_transition(source: TransitionSource) -> Transition | None:
    """Take a source's transition. An exception is logged, so that one failing source does not block the batch."""
    try:
        return source.take_transition()
    except Exception:
        _log.exception("collecting the transition of an instance failed")
        return None


def _deliver_answer(source: TransitionSource, answer: WriteResult | StoreError) -> None:
    try:
        source.on_answer(answer)
    except Exception:
        _log.exception("an instance could not continue after its commit")
