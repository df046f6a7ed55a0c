"""One attempt of an activity or a compensation: call the user's function, bound its time, tell how it ended.

    waiting for a slot (a plain `def`: and for a thread) ──► running ──► ended(value | error)
                              ├─ timed out, silent too long: cancelled, ends with ActivityTimeoutError
                              └─ withdrawn: cancelled, ends as cancelled

A plain `def` runs in a thread, which cannot be interrupted: when it is timed out or withdrawn the attempt ends at once and
its outcome is discarded, but its slot stays taken, and the next attempt waits for the thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from romancy.authoring.activity import Activity, ActivityOptions, Compensation
from romancy.authoring.context import OWN, ActivityContext
from romancy.authoring.talking import Said
from romancy.clock import MICROS
from romancy.core.commands import Issue
from romancy.core.execution import Undo
from romancy.crash import SimulatedCrash
from romancy.errors import ActivityTimeoutError, LeaseLostError
from romancy.hooks import EventSent
from romancy.model.history import Attempt as AttemptRow
from romancy.model.history import Kind
from romancy.model.talk import Deed, SendEvent
from romancy.model.transition import Applied, Left
from romancy.serde.tagged import decode_data, encode_data
from romancy.store.committer import count_deeds
from romancy.worker.alarms import Alarm
from romancy.worker.sessions import OwnTransaction, to_its_end
from romancy.worker.unanswered import begun_by

if TYPE_CHECKING:
    from romancy.worker.host import Host
    from romancy.worker.telling import Teller

_log = logging.getLogger("romancy.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
BEAT_SPACING = 1 * MICROS
"""Heartbeat details are written at once, then at most this often."""


class Work:
    """What an attempt is of: an activity, or a step of the way back."""

    __slots__ = ("called", "issue", "op", "options", "undo")

    def __init__(self, issue: Issue, undo: Undo | None = None) -> None:
        self.issue = issue
        self.undo = undo
        self.op = issue.op if undo is None else undo.op
        """The id it is recorded under."""
        self.called: Activity[..., Any, Any] | Compensation = issue.detail if undo is None else issue.undo
        self.options: ActivityOptions = self.called.options
        """How attempts are made."""

    @property
    def name(self) -> str:
        """What people call it: the activity, or the function that undoes it."""
        return self.issue.name if self.undo is None else str(getattr(self.called.fn, "__name__", self.issue.name))

    def bind(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function and its decoded arguments; only the context is missing."""
        raw = self.issue.input or b"{}"
        if self.undo is None:
            activity = self.issue.detail
            return activity._fn, *activity.codec.decode(raw)
        compensation: Compensation = self.issue.undo
        if self.issue.kind is Kind.REGISTRATION:
            args, kwargs = compensation.codec.decode(raw)
        else:
            args, kwargs = self.issue.detail.codec.decode(raw)
        if compensation.wants_result:
            args = (self.issue.detail.result.decode(self.undo.result or b"null"), *args)
        return compensation.fn, args, kwargs

    def encode(self, value: Any) -> bytes:
        """The result as it is recorded. What a compensation returns is nobody's."""
        return b"null" if self.undo is not None else self.issue.detail.result.encode(value)


class Attempt:
    """One attempt, from waiting for a slot to its end."""

    __slots__ = (
        "_alarm", "_beat_at", "_beat_written", "_begun", "_expired", "_heard", "_left", "_own", "_sent", "_since", "_worker",
        "deeds", "details", "host", "left", "noted", "number", "sent", "started_at", "task", "thread", "withdrawn", "work",
    )  # fmt: skip

    def __init__(
        self, host: Host, work: Work, number: int, details: bytes | None, thread: asyncio.Future[Any] | None
    ) -> None:
        self.host = host
        self.work = work
        self.number = number
        self.details = details
        self._left = details
        self.thread = thread
        """The thread of an earlier attempt that is still running; later, of this one."""
        self.sent: tuple[EventSent, ...] = ()
        """Of an app with hooks: the events that it sends."""
        self.started_at = 0
        self.noted = False
        """There is a row of this attempt while it is open."""
        self.withdrawn = False
        self.deeds: Sequence[Deed] = ()
        """What the function has said; it is done in the commit of its result, or not at all."""
        self.left: Left | None = None
        """Its result is durable already, with what it did through its session."""
        self._sent = 0
        self._expired: str | None = None
        self._alarm: Alarm | None = None
        self._beat_at = 0
        self._since = self._heard = 0
        """When it began and when it last beat, by what has elapsed: its bounds are no dates."""
        self._beat_written = -BEAT_SPACING
        self._begun = False
        self._worker = worker = host.worker
        transactional = work.called.is_async and work.options.transactional
        self._own = OwnTransaction(worker.sessions) if transactional else None
        # Not by the loop's `create_task`: a factory that runs tasks eagerly would end the attempt before its host knows it.
        self.task = asyncio.Task(self._run(), loop=worker.loop, name=work.op)

    @property
    def interruptible(self) -> bool:
        """Cancelling it ends it."""
        return self.work.called.is_async or self.started_at == 0

    def withdraw(self) -> None:
        """Nobody wants the outcome any more."""
        if not self.withdrawn:
            self.withdrawn = True
            self.task.cancel()
            if not self._begun:  # a task that is cancelled before its first step never runs a line
                self._worker.loop.call_soon(self.host.attempt_ended, self, None, asyncio.CancelledError())

    def abandon(self) -> None:
        """End without a word: the worker goes, or has lost the instance."""
        self._worker.attempts.discard(self)
        self._disarm()
        self.task.cancel()

    # --- running

    async def _run(self) -> None:
        worker = self._worker
        self._begun = True
        try:
            if not worker.slots.take():
                await worker.slots.wait()
            if not self.work.called.is_async:
                await self._prepare_thread()
        except asyncio.CancelledError as cancelled:
            self.host.attempt_ended(self, None, cancelled)
            return
        if worker.stopping:  # its turn came too late: whoever takes the instance over runs it
            worker.slots.release()
            return
        worker.attempts.add(self)
        try:
            value, error = await self._call_guarded()
        finally:
            worker.attempts.discard(self)
            if self.thread is None or self.thread.done():
                worker.slots.release()
            else:
                self.thread.add_done_callback(lambda _: worker.slots.release())
        try:
            self.host.attempt_ended(self, value, error)
        except Exception as trouble:  # of ours: nobody awaits this task, and the instance must not stay ours without a word
            worker.block(self.host, f"its run broke down: {trouble!r}")
            raise

    async def _prepare_thread(self) -> None:
        """See to a thread for a plain `def`. While the system has none to give, the attempt has not begun."""
        pause = _FIRST_PAUSE
        while not self._worker.stopping:
            try:
                self._worker.threads.prepare()
            except RuntimeError as error:
                if pause == _FIRST_PAUSE:
                    _log.warning("%s of %r waits for a thread: %s", self.work.op, self.host.instance_id, error)
            else:
                return
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self._worker.slots.release()
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
            if self.host.suspect_at >= 0:  # hardly ever, so that other attempts are spared the call
                await self.host.announce_if_suspect(self)
            self.started_at = self._beat_at = worker.clock.now()
            if self.work.options.bounded:
                self._since = self._heard = worker.elapsed()
                self._arm()
            value = await (self._call() if worker.teller is None else self._call_told(worker.teller))
            if self._expired is not None and not self.withdrawn:
                return None, ActivityTimeoutError(self._expired)  # it has swallowed its cancellation
            raw = self.work.encode(value)
            if self._own is not None and self._own.opened:
                await self._commit(self._own, raw)
            if worker.crash_point is not None:
                worker.crash_point("activity.after")
            return raw, None
        except (KeyboardInterrupt, SimulatedCrash):
            raise
        except asyncio.CancelledError as error:
            return None, self._why_cancelled(error)
        except BaseException as error:  # SystemExit too: an activity must not end its worker
            return None, error
        finally:
            if self._alarm is not None:
                self._disarm()
            if self._own is not None and self._own.opened:
                await to_its_end(self._own.close())

    async def _commit(self, own: OwnTransaction, raw: bytes) -> None:
        """What the function did through its session is committed with its result, from which there is no way back."""
        deposit = self.host.deposit_of(self, raw)
        starts = [start for deed in deposit.deeds if isinstance(deed, SendEvent) for start in deed.starts]
        try:
            with self._worker.unanswered.asking(begun_by(starts)):
                self.left = await to_its_end(own.commit(deposit))
        except LeaseLostError:
            self._worker.lost(self.host)
            raise
        self.deeds = ()
        if self._worker.teller is not None:
            self._worker.teller.events_sent(self.sent)
        if deposit.deeds:
            count_deeds(self._worker.tally, deposit.deeds)
            self._worker.put_out(deposit.deeds)
        self._worker.spread(Applied(woken=self.left.woken, started=self.left.started), starts)

    async def _call_told(self, teller: Teller) -> Any:
        with teller.attempt_started(self):
            return await self._call()

    def _call(self) -> Awaitable[Any]:
        fn, args, kwargs = self.work.bind()
        ctx = self._context()
        if self.work.called.is_async:
            OWN.set(self._own)
            called: Awaitable[Any] = fn(ctx, *args, **kwargs)
            return called
        call = functools.partial(contextvars.copy_context().run, fn, ctx, *args, **kwargs)
        self.thread = self._worker.loop.run_in_executor(self._worker.threads, _in_thread, call)
        # Shielded: cancelling the attempt must not cancel the future of a thread that goes on.
        return asyncio.shield(self.thread)

    def _why_cancelled(self, error: asyncio.CancelledError) -> BaseException:
        if self.thread is not None and not self.thread.done():
            self.thread.add_done_callback(_retrieve)
        return ActivityTimeoutError(self._expired) if self._expired is not None and not self.withdrawn else error

    def _context(self) -> ActivityContext:
        host = self.host
        ctx = ActivityContext(
            instance_id=host.instance_id,
            workflow_name=host.workflow.name,
            worker_id=self._worker.id,
            app=self._worker.app,
            activity_id=self.work.op,
            attempt=self.number,
            heart=self,
            sender=None if self.work.options.transactional else self._send_now,
            check_recipient=self._worker.check_recipient,
            own=self._own,
        )
        self.deeds = ctx._deeds
        return ctx

    def _send_now(self, deed: Deed) -> Awaitable[Any]:
        """For an activity without a transaction: what it says does not wait for its result."""
        self._sent += 1
        key = f"{self.idempotency_key}:{self._sent}"
        sending = self._sending(self.host._identified(key, deed, self))
        if threading.get_ident() == self._worker.thread:
            return self._worker.loop.create_task(sending)
        sent = asyncio.run_coroutine_threadsafe(sending, self._worker.loop)
        sent.result()
        return Said()

    async def _sending(self, deed: Deed) -> None:
        sent, self.sent = self.sent, ()
        await self._worker.send(deed)
        if self._worker.teller is not None:
            self._worker.teller.events_sent(sent)

    # --- time

    def _arm(self) -> None:
        options = self.work.options
        dues: list[int] = []
        if options.timeout is not None:
            dues.append(self._since + options.timeout)
        if options.heartbeat_timeout is not None:
            dues.append(self._heard + options.heartbeat_timeout)
        self._alarm = self._worker.stopwatch.at(min(dues), self._due)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _due(self) -> None:
        now, options = self._worker.elapsed(), self.work.options
        if options.timeout is not None and now >= self._since + options.timeout:
            self._expire(f"took longer than its timeout of {options.timeout / MICROS:g} s")
        elif options.heartbeat_timeout is not None and now >= self._heard + options.heartbeat_timeout:
            self._expire(f"gave no heartbeat for {options.heartbeat_timeout / MICROS:g} s")
        else:
            self._arm()

    def _expire(self, why: str) -> None:
        self._expired = f"Attempt {self.number} of {self.work.op} in {self.host.instance_id} {why}."
        self.task.cancel()

    # --- heartbeats

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the call."""
        return self.host.idempotency_key(self.work.op)

    @property
    def last(self) -> Any:
        """The details the last heartbeat of an earlier attempt left."""
        return decode_data(self._left, self.work.called.fn.__module__) if self._left is not None else None

    def beat(self, details: Any) -> None:
        """Called by the user's code, on the event loop or in a thread."""
        if self.host.gone:
            raise LeaseLostError(f"{self.host.instance_id} was taken over by another worker: this attempt is void.")
        if self.withdrawn or self._expired is not None:
            raise asyncio.CancelledError(self._expired or f"{self.work.op} was cancelled")
        if details is not None:
            self.details = encode_data(details)
        self._beat_at, self._heard = self._worker.clock.now(), self._worker.elapsed()
        if details is not None and self._heard - self._beat_written >= BEAT_SPACING:
            self._beat_written = self._heard
            self._worker.loop.call_soon_threadsafe(self.note)

    def note(self) -> None:
        """Write a row that shows this attempt while it is open."""
        self.host.note_attempt(self)

    def row(
        self, *, open: bool, ended_at: int | None = None, next_at: int | None = None, error: bytes | None = None
    ) -> AttemptRow:
        """What the store keeps of this attempt."""
        issue = self.work.issue
        return AttemptRow(
            op=self.work.op,
            attempt=self.number,
            name=self.work.name,
            open=open,
            worker=self._worker.id,
            epoch=self.host.epoch,
            site=issue.site,
            scheduled_at=issue.at,
            started_at=self.started_at,
            ended_at=ended_at,
            next_at=next_at,
            error=error,
            details=self.details,
            beat_at=self._beat_at,
        )


def _retrieve(thread: asyncio.Future[Any]) -> None:
    """The outcome of a thread nobody waits for any more is discarded, without a complaint."""
    if not thread.cancelled():
        thread.exception()


def _in_thread(call: Callable[[], Any]) -> Any:
    """Call, as a coroutine would: a StopIteration cannot pass through a future, and the attempt would never end."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("the activity raised StopIteration") from error
