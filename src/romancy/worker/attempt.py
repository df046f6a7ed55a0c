"""One attempt of an activity or a compensation: calls the user's function, limits its time, and reports how it ended.

    waiting for a slot (a plain `def`: and for a thread) ──► running ──► ended(value | error)
                              ├─ timeout or missing heartbeat: cancelled, ends with ActivityTimeoutError
                              └─ withdrawn: cancelled, ends as cancelled

A plain `def` runs in a thread, which cannot be interrupted: on a timeout or when it is withdrawn, the attempt ends at once
and its outcome is discarded, but its slot stays taken until the thread ends, and the next attempt waits for the thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from romancy.authoring.activity import Activity, AttemptOptions, Compensation
from romancy.authoring.context import CURRENT_TRANSACTION, ActivityContext
from romancy.authoring.operations import EmittedEffect
from romancy.clock import MICROS
from romancy.core.commands import Issue
from romancy.core.execution import PendingCompensation
from romancy.crash_points import SimulatedCrash
from romancy.errors import ActivityTimeoutError, LeaseLostError
from romancy.hooks import EventSent
from romancy.model.history import AttemptRow, Kind
from romancy.model.messaging import Effect, SendEvent
from romancy.model.transition import Applied, ResultStored
from romancy.serde.tagged import decode_data, encode_data
from romancy.store.committer import count_effects
from romancy.worker.activity_session import ActivityTransaction, run_shielded
from romancy.worker.pending_writes import owned_starts
from romancy.worker.timers import ScheduledCall

if TYPE_CHECKING:
    from romancy.worker.hook_dispatcher import HookDispatcher
    from romancy.worker.runner.runner import InstanceRunner

_log = logging.getLogger("romancy.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
HEARTBEAT_SPACING = 1 * MICROS
"""The first heartbeat details are written at once, later ones at intervals of at least this length."""


class WorkItem:
    """What is attempted: an activity or a compensation."""

    __slots__ = ("definition", "issue", "op", "options", "pending_compensation")

    def __init__(self, issue: Issue, pending_compensation: PendingCompensation | None = None) -> None:
        self.issue = issue
        self.pending_compensation = pending_compensation
        self.op = issue.op if pending_compensation is None else pending_compensation.op
        """The id under which it is recorded."""
        self.definition: Activity[..., Any, Any] | Compensation = (
            issue.detail if pending_compensation is None else issue.compensation
        )
        self.options: AttemptOptions = self.definition.options

    @property
    def name(self) -> str:
        """The name of the activity, or of the function that compensates it."""
        return (
            self.issue.name
            if self.pending_compensation is None
            else str(getattr(self.definition.fn, "__name__", self.issue.name))
        )

    def bind(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function and its decoded arguments, without the context."""
        raw = self.issue.input or b"{}"
        if self.pending_compensation is None:
            activity = self.issue.detail
            return activity._fn, *activity.codec.decode(raw)
        compensation: Compensation = self.issue.compensation
        if self.issue.kind is Kind.REGISTRATION:
            args, kwargs = compensation.codec.decode(raw)
        else:
            args, kwargs = self.issue.detail.codec.decode(raw)
        if compensation.wants_result:
            args = (self.issue.detail.result.decode(self.pending_compensation.result or b"null"), *args)
        return compensation.fn, args, kwargs

    def encode(self, value: Any) -> bytes:
        """The result as it is recorded. The return value of a compensation is discarded."""
        return b"null" if self.pending_compensation is not None else self.issue.detail.result.encode(value)


class Attempt:
    """One attempt, from waiting for a slot to its end."""

    __slots__ = (
        "_began_elapsed",
        "_begun",
        "_details_written_at",
        "_expired",
        "_heartbeat_at",
        "_heartbeat_elapsed",
        "_previous_details",
        "_sent_count",
        "_timer",
        "_transaction",
        "_worker",
        "details",
        "effects",
        "is_recorded",
        "number",
        "result_stored",
        "runner",
        "sent_events",
        "started_at",
        "task",
        "thread",
        "withdrawn",
        "work",
    )  # fmt: skip

    def __init__(
        self, runner: InstanceRunner, work: WorkItem, number: int, details: bytes | None, thread: asyncio.Future[Any] | None
    ) -> None:
        self.runner = runner
        self.work = work
        self.number = number
        self.details = details
        self._previous_details = details
        self.thread = thread
        """At first the thread of an earlier attempt that is still running; later the thread of this attempt."""
        self.sent_events: tuple[EventSent, ...] = ()
        """With hooks: the events that this attempt sends."""
        self.started_at = 0
        self.is_recorded = False
        """The row of this open attempt was written."""
        self.withdrawn = False
        self.effects: Sequence[Effect] = ()
        """The events and messages that the function sends with the commit of its result, or not at all."""
        self.result_stored: ResultStored | None = None
        """Set if the result was committed with the activity's own transaction."""
        self._sent_count = 0
        self._expired: str | None = None
        self._timer: ScheduledCall | None = None
        self._heartbeat_at = 0
        self._began_elapsed = self._heartbeat_elapsed = 0
        """When it began and sent its last heartbeat, by elapsed time: timeouts must not depend on changes of the date."""
        self._details_written_at = -HEARTBEAT_SPACING
        self._begun = False
        self._worker = worker = runner.worker
        transactional = work.definition.is_async and work.options.transactional
        self._transaction = ActivityTransaction(worker.sessions) if transactional else None
        # Not `loop.create_task`: an eager task factory could end the attempt before the runner has stored it.
        self.task = asyncio.Task(self._run(), loop=worker.loop, name=work.op)

    @property
    def interruptible(self) -> bool:
        """Cancelling the task ends the attempt."""
        return self.work.definition.is_async or self.started_at == 0

    def withdraw(self) -> None:
        """Cancel the attempt: the workflow no longer waits for its outcome."""
        if not self.withdrawn:
            self.withdrawn = True
            self.task.cancel()
            if not self._begun:  # a task that is cancelled before its first step never runs a line
                self._worker.loop.call_soon(self.runner.handle, AttemptEnded(self, None, asyncio.CancelledError()))

    def abandon(self) -> None:
        """Cancel the attempt without reporting its end: the worker stops, or has lost the instance."""
        self._worker.attempts.discard(self)
        self._disarm()
        self.task.cancel()

    # --- running

    async def _run(self) -> None:
        worker = self._worker
        self._begun = True
        try:
            if not worker.limiter.try_acquire():
                await worker.limiter.acquire()
            if not self.work.definition.is_async:
                await self._prepare_thread()
        except asyncio.CancelledError as cancelled:
            self.runner.handle(AttemptEnded(self, None, cancelled))
            return
        if worker.stopping:  # the slot came too late: the next owner of the instance runs it
            worker.limiter.release()
            return
        worker.attempts.add(self)
        try:
            value, error = await self._call_guarded()
        finally:
            worker.attempts.discard(self)
            if self.thread is None or self.thread.done():
                worker.limiter.release()
            else:
                self.thread.add_done_callback(lambda _: worker.limiter.release())
        try:
            self.runner.handle(AttemptEnded(self, value, error))
        except Exception as bug:  # nothing awaits this task: without this, the instance would stay owned and never continue
            worker.block(self.runner, f"the engine failed to record an attempt: {bug!r}")
            raise

    async def _prepare_thread(self) -> None:
        """Get a thread for a plain `def`, retrying while the system has none. Until then the attempt has not begun."""
        pause = _FIRST_PAUSE
        while not self._worker.stopping:
            try:
                self._worker.threads.prepare()
            except RuntimeError as error:
                if pause == _FIRST_PAUSE:
                    _log.warning("%s of %r is waiting for a thread: %s", self.work.op, self.runner.instance_id, error)
            else:
                return
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self._worker.limiter.release()
                raise
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _call_guarded(self) -> tuple[bytes | None, BaseException | None]:
        worker = self._worker
        try:
            if self.thread is not None:
                await asyncio.wait({self.thread})
                self.thread = None
            if worker.crash_point is not None:
                worker.crash_point("activity.before")
            if self.runner.suspect_at >= 0:  # rare: this saves the call in all other cases
                await self.runner.attempts.record_if_suspect(self.runner, self)
            self.started_at = self._heartbeat_at = worker.clock.now()
            if self.work.options.bounded:
                self._began_elapsed = self._heartbeat_elapsed = worker.elapsed()
                self._arm()
            value = await (self._call() if worker.hook_dispatcher is None else self._call_with_hooks(worker.hook_dispatcher))
            if self._expired is not None and not self.withdrawn:
                return None, ActivityTimeoutError(self._expired)  # the function has swallowed its cancellation
            raw = self.work.encode(value)
            if self._transaction is not None and self._transaction.is_open:
                await self._commit(self._transaction, raw)
            if worker.crash_point is not None:
                worker.crash_point("activity.after")
            return raw, None
        except (KeyboardInterrupt, SimulatedCrash):
            raise
        except asyncio.CancelledError as error:
            return None, self._cancellation_error(error)
        except BaseException as error:  # SystemExit too: an activity must not end its worker
            return None, error
        finally:
            if self._timer is not None:
                self._disarm()
            if self._transaction is not None and self._transaction.is_open:
                await run_shielded(self._transaction.close())

    async def _commit(self, transaction: ActivityTransaction, raw: bytes) -> None:
        """Commit the function's session with the result. From then on the attempt has succeeded and cannot be withdrawn."""
        result = self.runner.attempts.build_transactional_result(self.runner, self, raw)
        starts = [start for effect in result.effects if isinstance(effect, SendEvent) for start in effect.starts]
        try:
            with self._worker.pending_writes.pending(owned_starts(starts)):
                self.result_stored = await run_shielded(transaction.commit(result))
        except LeaseLostError:
            self._worker.instance_lost(self.runner)
            raise
        self.effects = ()
        if self._worker.hook_dispatcher is not None:
            self._worker.hook_dispatcher.events_sent(self.sent_events)
        if result.effects:
            count_effects(self._worker.metrics, result.effects)
            self._worker.announce_outbox(result.effects)
        self._worker.propagate(Applied(woken=self.result_stored.woken, started=self.result_stored.started), starts)

    async def _call_with_hooks(self, dispatcher: HookDispatcher) -> Any:
        with dispatcher.attempt_started(self):
            return await self._call()

    def _call(self) -> Awaitable[Any]:
        fn, args, kwargs = self.work.bind()
        ctx = self._make_context()
        if self.work.definition.is_async:
            CURRENT_TRANSACTION.set(self._transaction)
            called: Awaitable[Any] = fn(ctx, *args, **kwargs)
            return called
        call = functools.partial(contextvars.copy_context().run, fn, ctx, *args, **kwargs)
        self.thread = self._worker.loop.run_in_executor(self._worker.threads, _run_in_thread, call)
        # Shielded: cancelling the attempt must not cancel the future of a thread that keeps running.
        return asyncio.shield(self.thread)

    def _cancellation_error(self, error: asyncio.CancelledError) -> BaseException:
        if self.thread is not None and not self.thread.done():
            self.thread.add_done_callback(_discard_outcome)
        return ActivityTimeoutError(self._expired) if self._expired is not None and not self.withdrawn else error

    def _make_context(self) -> ActivityContext:
        runner = self.runner
        ctx = ActivityContext(
            instance_id=runner.instance_id,
            workflow_name=runner.workflow.name,
            worker_id=self._worker.id,
            app=self._worker.app,
            activity_id=self.work.op,
            attempt=self.number,
            link=self,
            sender=None if self.work.options.transactional else self._send_now,
            check_recipient=self._worker.check_recipient,
            transaction=self._transaction,
        )
        self.effects = ctx._effects
        return ctx

    def _send_now(self, effect: Effect) -> Awaitable[Any]:
        """Send at once, not with the result: for an activity that is not transactional."""
        self._sent_count += 1
        key = f"{self.idempotency_key}:{self._sent_count}"
        sending = self._send(self.runner.with_ids(key, effect, self))
        if threading.get_ident() == self._worker.thread:
            return self._worker.loop.create_task(sending)
        sent = asyncio.run_coroutine_threadsafe(sending, self._worker.loop)
        sent.result()
        return EmittedEffect()

    async def _send(self, effect: Effect) -> None:
        sent, self.sent_events = self.sent_events, ()
        await self._worker.emit(effect)
        if self._worker.hook_dispatcher is not None:
            self._worker.hook_dispatcher.events_sent(sent)

    # --- time

    def _arm(self) -> None:
        options = self.work.options
        dues: list[int] = []
        if options.timeout is not None:
            dues.append(self._began_elapsed + options.timeout)
        if options.heartbeat_timeout is not None:
            dues.append(self._heartbeat_elapsed + options.heartbeat_timeout)
        self._timer = self._worker.stopwatch.schedule(min(dues), self._check_deadlines)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_deadlines(self) -> None:
        now, options = self._worker.elapsed(), self.work.options
        if options.timeout is not None and now >= self._began_elapsed + options.timeout:
            self._expire(f"took longer than its timeout of {options.timeout / MICROS:g} s")
        elif options.heartbeat_timeout is not None and now >= self._heartbeat_elapsed + options.heartbeat_timeout:
            self._expire(f"sent no heartbeat for {options.heartbeat_timeout / MICROS:g} s")
        else:
            self._arm()

    def _expire(self, why: str) -> None:
        self._expired = f"Attempt {self.number} of {self.work.op} in {self.runner.instance_id} {why}."
        self.task.cancel()

    # --- heartbeats

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of the call."""
        return self.runner.idempotency_key(self.work.op)

    @property
    def last_heartbeat(self) -> Any:
        """The details of the last heartbeat of an earlier attempt."""
        return (
            decode_data(self._previous_details, self.work.definition.fn.__module__)
            if self._previous_details is not None
            else None
        )

    def heartbeat(self, details: Any) -> None:
        """Record a heartbeat. User code calls this on the event loop or in a thread."""
        if self.runner.gone:
            raise LeaseLostError(
                f"{self.runner.instance_id} was taken over by another worker: the result of this attempt is discarded."
            )
        if self.withdrawn or self._expired is not None:
            raise asyncio.CancelledError(self._expired or f"{self.work.op} was cancelled")
        if details is not None:
            self.details = encode_data(details)
        self._heartbeat_at, self._heartbeat_elapsed = self._worker.clock.now(), self._worker.elapsed()
        if details is not None and self._heartbeat_elapsed - self._details_written_at >= HEARTBEAT_SPACING:
            self._details_written_at = self._heartbeat_elapsed
            self._worker.loop.call_soon_threadsafe(self.record_open)

    def record_open(self) -> None:
        """Write the row of this attempt while it is open."""
        self.runner.attempts.record_open(self.runner, self)

    def to_row(
        self, *, open: bool, ended_at: int | None = None, next_at: int | None = None, error: bytes | None = None
    ) -> AttemptRow:
        """The attempt as a row of the store."""
        issue = self.work.issue
        return AttemptRow(
            op=self.work.op,
            attempt=self.number,
            name=self.work.name,
            open=open,
            worker=self._worker.id,
            epoch=self.runner.epoch,
            site=issue.site,
            scheduled_at=issue.at,
            started_at=self.started_at,
            ended_at=ended_at,
            next_at=next_at,
            error=error,
            details=self.details,
            heartbeat_at=self._heartbeat_at,
        )


class AttemptEnded(NamedTuple):
    """The report of an attempt to its runner: it has ended, with an encoded value or an error."""

    attempt: Attempt
    value: bytes | None
    error: BaseException | None


def _discard_outcome(thread: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned thread, so that asyncio does not log it."""
    if not thread.cancelled():
        thread.exception()


def _run_in_thread(call: Callable[[], Any]) -> Any:
    """Call the function, turning StopIteration into RuntimeError: a future cannot carry it, and the attempt would hang."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("the activity raised StopIteration") from error
