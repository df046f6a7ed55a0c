"""Runs one instance on this worker: feeds what happens to its execution, commits the transition, then carries it out.

    something happened ──► execution.feed ──► progress ──► committer: take_transition ──► COMMIT ──► on_answer
                                                 ▲                                                       │
                                                 │              start attempts, park, end, or continue ◄─┘
                                                 └── attempts end, timers fire, inbox items arrive

Nothing is started before everything that led to it is durable. A parked runner does not own its instance: its next
transition is a claim as well, made under the epoch it knows. The store refuses it if another worker was faster.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from romancy.authoring.workflow import Workflow
from romancy.clock import MICROS
from romancy.codec import is_encoded, not_decoded
from romancy.core.commands import Cancelled, Fail, Finish, Issue, Recur, Resolution
from romancy.core.execution import AttemptResult, Execution, Phase
from romancy.errors import CodecError, DeterminismViolationError, PayloadError, StoreError
from romancy.hooks import EventSent
from romancy.metrics.metrics import ActivityMetrics
from romancy.model.history import WAITS, AttemptRow, Entry, Kind, Outcome
from romancy.model.instance import Inbox, InboxItem, InstanceRow
from romancy.model.messaging import Effect, SendEvent, SendTo, StoreCall, StoreReply
from romancy.model.status import Status
from romancy.model.transition import (
    RESULT_ITEM,
    Applied,
    AttemptUpdate,
    CreateInstance,
    Ending,
    JournalNote,
    Recurrence,
    TransactionalResult,
    Transition,
    Wait,
    WriteResult,
)
from romancy.serde.failure import describe_failure, encode_failure
from romancy.worker import failure_log
from romancy.worker.activity_session import CommittedResult, pack, unpack
from romancy.worker.attempt import Attempt, WorkItem
from romancy.worker.hook_dispatcher import HookExtras
from romancy.worker.message_ids import with_ids
from romancy.worker.pending_writes import owned_starts
from romancy.worker.retries import Backoff, Retries
from romancy.worker.timers import ScheduledCall
from romancy.worker.wait_registry import StoredWaits, waiting_status

if TYPE_CHECKING:
    from romancy.worker.worker import Worker

_log = logging.getLogger("romancy.worker")
T = TypeVar("T")
D = TypeVar("D", bound=Effect)

# Module names for enum members: before Python 3.12, looking up a member of an enum takes as long as a call.
_OK, _CANCELLED = Outcome.OK, Outcome.CANCELLED
_PHASE_ENDED, _COMPENSATING = Phase.ENDED, Phase.COMPENSATING
_RUNNING, _PAUSED = Status.RUNNING, Status.PAUSED
_FEW_WAITS = 4
SHORT_BACKOFF = 1 * MICROS
"""The instance stays owned during a back-off of up to this length; a longer one releases it."""


class RunnerIdentity(NamedTuple):
    """What does not change during the life of a runner."""

    instance_id: str
    generation: int
    round: int
    deadline_at: int | None
    blocked_by: str | None = None
    created_at: int = 0


class InstanceRunner:
    """Runs one instance, or keeps it parked in memory."""

    __slots__ = (
        "_answered_until",
        "_attempt_rows",
        "_attempts",
        "_begun",
        "_closed_attempts",
        "_consumed_items",
        "_deferred_ends",
        "_effects",
        "_ending",
        "_has_unstarted_work",
        "_hook_extras",
        "_is_reading_inbox",
        "_must_reread_inbox",
        "_notes",
        "_paused_starts",
        "_pausing",
        "_recently_consumed",
        "_retries",
        "_starts",
        "_starts_after_commit",
        "_store_call_ops",
        "_stored_waits",
        "_timer",
        "_timer_due",
        "_writing",
        "announced_ops",
        "epoch",
        "execution",
        "gone",
        "identity",
        "inbox_seen",
        "instance_id",
        "owned",
        "sent_events",
        "suspect_at",
        "worker",
        "workflow",
    )  # fmt: skip

    def __init__(
        self,
        worker: Worker,
        workflow: Workflow[..., Any],
        identity: RunnerIdentity,
        execution: Execution,
        *,
        epoch: int,
        inbox_seen: int,
    ) -> None:
        self.worker = worker
        self.workflow = workflow
        self.instance_id = identity.instance_id
        self.identity = identity
        self.execution = execution
        self.epoch = epoch
        self.inbox_seen = inbox_seen
        self.owned = True
        self.gone = False
        """The instance has ended or belongs to another worker: this runner must do nothing more."""
        self.announced_ops: set[str] | None = None
        """With hooks: the waits and timers whose start was dispatched to them."""
        self.sent_events: tuple[EventSent, ...] = ()
        """With hooks: the events that the next transition sends."""
        self._hook_extras: HookExtras | None = None
        self.suspect_at = -1
        """The length of the history at which an earlier worker was lost, or -1."""
        self._begun = False
        """The body was started or replayed. Before that, inbox items and timers cannot be applied."""
        self._writing: Transition | None = None
        """The transition that the committer has taken and not answered yet; there is never more than one."""
        self._answered_until = 0
        """Store calls have been answered for everything that arrived before this time."""
        self._timer: ScheduledCall | None = None
        self._timer_due: int | None = None
        self._ending: Ending | None = None
        self._pausing = False
        self._is_reading_inbox = False
        self._must_reread_inbox = False
        self._has_unstarted_work = False
        """Work was not started because the worker is stopping: the instance stays owned until the worker releases it."""
        self._attempts: dict[str, Attempt] = {}
        self._retries = Retries()
        self._starts: list[Issue] = []
        self._starts_after_commit: list[Issue] = []
        self._attempt_rows: list[AttemptRow] = []
        self._closed_attempts: list[str] = []
        self._consumed_items: list[int] = []
        self._recently_consumed: set[int] = set()
        """Inbox items that were consumed during the current read of the inbox, which may still return them."""
        self._notes: list[JournalNote] = []
        self._store_call_ops: set[str] = set()
        """The operations whose store calls go into the next transition."""
        self._effects: list[Effect] = []
        self._deferred_ends: list[tuple[Attempt, bytes | None, BaseException | None]] = []
        """Attempts that ended while store calls were being committed: the replies come before them in the history."""
        self._stored_waits = StoredWaits()
        self._paused_starts: list[Issue] = []
        """Activities that are held back by a pause, or until the inbox has been read."""

    # --- inputs: due times, inbox items, ends of attempts

    def begin(self, at: int, inbox: Inbox | None = None) -> None:
        """Start the body of an instance or generation that was created here, and apply what is in its inbox already."""
        self._begun = True
        self.execution.start(at)
        if inbox is not None:
            self.apply_inbox(inbox.inbox_version, inbox.items)
        if self._must_reread_inbox or self._is_past_deadline(self.worker.clock.now()):
            self.check_due()
        else:
            self.progress()

    def restore(self, attempts: tuple[AttemptRow, ...], waits: tuple[str, ...], losses: int = 0) -> None:
        """Take over the attempts and waits that the last owner left; the instance was claimed and replayed."""
        self._begun = True
        self.suspect_at = self.execution.seq if losses else -1
        self._stored_waits.restore(waits)
        self._attempt_rows += self._retries.restore(attempts, self.worker.clock.now())
        if self.execution.seq:
            self._notes.append(JournalNote("replayed", f"{self.execution.seq} entries"))

    def check_due(self) -> None:
        """Handle what is due: timers, back-offs, the workflow's deadline."""
        self._timer = None
        due, self._timer_due = self._timer_due, None
        if self.gone or self._writing is not None or not self._begun:
            return
        if self._must_reread_inbox:
            self.check_inbox()
            return
        now, execution = self._now(), self.execution
        if due is not None and due <= now and not self.owned:
            self.worker.metrics.lags["timer"].add(now - due)
        if self._is_past_deadline(now):
            self._feed(Resolution(Kind.TIMEOUT, "timeout", now), name="timeout")
        self._fire_timers(now)
        if (
            self.owned
            or execution.has_entries
            or self._store_call_ops
            or self._consumed_items
            or self._pausing
            or self._is_busy()
        ):
            self.progress()
        else:
            self._arm_timer()  # nothing was due

    def _fire_timers(self, now: int) -> None:
        """Fire the due timers, in order. Before each, ask the store for unseen arrivals from before the timer's time.

        A wait whose own timeout is due ends by the same store call. `check_due` runs again when the store has replied.
        """
        run = self.execution.run
        due = self.execution.due_issues(now)
        waits = (
            [op for op, waiting in run.pending.items() if waiting.issue.kind in WAITS] if due or self._answered_until else []
        )
        for issue in due:
            if waits and (self._answered_until < (issue.due or 0) or issue.kind in WAITS):
                self._store_call_ops.update(waits)
                return
            if issue.op in run.pending:
                # The clock may have been set back since `due_issues`; never record that a timer fired before its time.
                self._feed(Resolution(Kind.TIMER, issue.op, max(self._now(), issue.due or 0)))
        if self._answered_until:  # the bounded store calls ignored what arrived after this time: ask again without a bound
            self._answered_until = 0
            self._store_call_ops.update(waits)

    def _on_timer(self) -> None:
        """The runner's timer fired. A parked instance continues when there is room for it."""
        if self.owned or self.worker.admit(self):
            self.check_due()

    def wake_for_inbox(self) -> None:
        """Something arrived in the inbox. A parked instance reads it when there is room for it."""
        if self.owned or self.worker.admit(self):
            self.check_inbox()
        else:
            self._must_reread_inbox = True

    @property
    def has_unread(self) -> bool:
        """Something may have arrived that the runner has not read yet."""
        return bool(self._is_reading_inbox or self._must_reread_inbox or self._store_call_ops)

    def wake_for_waits(self) -> None:
        """Something arrived for a wait. With few waits, issue a store call for each instead of reading the inbox first.

        The store's answer says whether anything else has arrived (`caught_up`).
        """
        waits = self._stored_waits.registered
        if self._writing is not None or self._is_reading_inbox or not self._begun or not 0 < len(waits) <= _FEW_WAITS:
            self.wake_for_inbox()
        elif self.owned or self.worker.admit(self):
            for op in waits:
                self._repeat_store_call(op)
            self.check_due()
        else:
            self._must_reread_inbox = True

    def _is_past_deadline(self, now: int) -> bool:
        deadline = self._deadline()
        return deadline is not None and deadline <= now and self.execution.may_time_out

    def _feed(self, resolution: Resolution, ended: AttemptResult | None = None, *, name: str = "") -> None:
        """Resume the body. Code that does not fit its history blocks the instance; it does not fail it."""
        if self.gone:
            return
        if ended is None:
            ended = AttemptResult(resolution.outcome, resolution.value, 0, worker=self.worker.id, epoch=self.epoch)
        try:
            self.execution.feed(resolution, ended, name=name)
        except DeterminismViolationError as error:
            self.worker.block(self, str(error))

    def matches_row(self, row: InstanceRow) -> bool:
        """The parked run is at the state of the claimed row: it can continue without a replay."""
        return (
            not self.owned
            and self._writing is None
            and row.epoch == self.epoch + 1
            and row.created_at == self.identity.created_at
            and row.generation == self.identity.generation
            and row.length == self.execution.seq
        )

    def on_claimed(self, epoch: int) -> None:
        """The worker has claimed this parked instance."""
        self.epoch = epoch
        self.owned = True
        self.check_inbox()

    def to_row(self) -> InstanceRow:
        """The instance's row in the store, as far as the runner knows it."""
        identity = self.identity
        return InstanceRow(
            instance_id=identity.instance_id,
            workflow=self.workflow.name,
            version=self.workflow.version,
            status=Status.RUNNING,
            generation=identity.generation,
            round=identity.round,
            epoch=self.epoch,
            owner=self.worker.id,
            wake_at=None,
            inbox_version=self.inbox_seen,
            length=self.execution.seq,
            deadline_at=identity.deadline_at,
            created_at=identity.created_at,
            started_at=None,
            updated_at=0,
            ended_at=None,
            blocked_by=identity.blocked_by,
        )

    def check_inbox(self) -> None:
        """Read the inbox, or remember to do it when the current read or write is over."""
        if self.gone:
            return
        if self._is_reading_inbox or self._writing is not None or not self._begun:
            self._must_reread_inbox = True
            return
        self._is_reading_inbox = True
        self.worker.spawn(self._read_inbox())

    async def _read_inbox(self) -> None:
        self._must_reread_inbox = False
        self._recently_consumed.clear()
        try:
            inbox = await self.worker.read_inbox(self)
        finally:
            self._is_reading_inbox = False
        if inbox is None:
            return
        if self._writing is not None:
            # The transition may consume items that were read here. `on_answer` reads the inbox again.
            self._must_reread_inbox = True
            return
        for op in inbox.matched_waits:
            self._repeat_store_call(op)
        self.apply_inbox(inbox.inbox_version, inbox.items)
        self.check_due()

    def _repeat_store_call(self, op: str) -> None:
        if op in self.execution.run.pending:
            self._store_call_ops.add(op)

    def apply_inbox(self, inbox_seen: int, items: tuple[InboxItem, ...]) -> None:
        """Feed inbox items to the execution; the next transition records that they were seen."""
        self.inbox_seen = inbox_seen
        pauses: list[int] = []
        for item in items:
            if item.id in self._consumed_items or item.id in self._recently_consumed:
                continue
            if item.kind == RESULT_ITEM and item.op in self._attempts:
                continue  # the running attempt reports its result itself
            if item.kind == "pause":
                # A pause stays in the inbox until the instance is resumed: consumed earlier, it would not outlive a crash.
                pauses.append(item.id)
                continue
            self._consumed_items.append(item.id)
            if item.kind == RESULT_ITEM:
                self._apply_result(item)
            elif item.kind == "cancel":
                self._apply_cancel(item)
                self._consumed_items += pauses
                pauses.clear()
        self._pausing = bool(pauses)
        if not self._pausing:
            self._starts, self._paused_starts = self._paused_starts + self._starts, []

    def _apply_result(self, item: InboxItem) -> None:
        """Record the result that an activity of an earlier owner committed with its own transaction."""
        result = unpack(item.body or b"")
        ended = AttemptResult(
            Outcome.OK, result.value, result.attempt, result.started_at, result.ended_at, result.worker, result.epoch
        )
        execution, now = self.execution, self._now()
        compensation = execution.next_compensation()
        if compensation is not None and compensation.op == item.op:
            execution.record_compensation(compensation, ended, now, name=WorkItem(compensation.issue, compensation).name)
        elif item.op in execution.run.pending:
            self._feed(Resolution(Kind.ACTIVITY, item.op, now, Outcome.OK, result.value), ended)
        elif (issue := execution.find_compensable(item.op)) is not None:
            execution.record_late_result(issue, ended, now)

    def build_transactional_result(self, attempt: Attempt, value: bytes) -> TransactionalResult:
        """The result and effects that an attempt commits with its own transaction."""
        op, now = attempt.work.op, self.worker.clock.now()
        result = CommittedResult(value, attempt.number, attempt.started_at, now, self.worker.id, self.epoch)
        effects = tuple(self.worker.with_starts(effect) for effect in self._effects_of(attempt))
        generation = self.identity.generation
        return TransactionalResult(self.instance_id, generation, self.epoch, self.worker.id, op, pack(result), now, effects)

    def _effects_of(self, attempt: Attempt) -> list[Effect]:
        key = self.idempotency_key(attempt.work.op)
        return [self._with_ids(f"{key}:{n}", effect, attempt) for n, effect in enumerate(attempt.effects, 1)]

    def _apply_cancel(self, item: InboxItem) -> None:
        """Cancel the body, even if it has ended, as long as its end is not durable."""
        self._ending = None
        self._feed(Resolution(Kind.CANCEL, "cancel", self._now(), Outcome.OK, _decode_reason(item.body)), name="cancel")

    def attempt_ended(self, attempt: Attempt, value: bytes | None, error: BaseException | None) -> None:
        """Record the end of an attempt: its result, a retry, or its failure."""
        work = attempt.work
        if self._attempts.get(work.op) is not attempt or self.gone:
            return
        if self._writing is not None and self._writing.store_calls:
            # The store is numbering its replies as the next entries of the history: an entry made now would collide.
            self._deferred_ends.append((attempt, value, error))
            return
        del self._attempts[work.op]
        if attempt.is_recorded:
            self._closed_attempts.append(work.op)
        if error is None:
            self._record_outcome(attempt, _OK, value)
        elif attempt.withdrawn:
            self._record_outcome(attempt, _CANCELLED, None)
        elif self.worker.stopping and isinstance(error, asyncio.CancelledError):
            self._has_unstarted_work = True  # the next owner runs it again
            return
        elif not self._schedule_retry(attempt, error):
            raw = encode_failure(self._final_error(attempt, error))
            failure_log.log_activity_failed(attempt, raw)
            self._record_outcome(attempt, Outcome.ERROR, raw)
        self.progress()

    def _record_outcome(self, attempt: Attempt, outcome: Outcome, value: bytes | None) -> None:
        work, clock = attempt.work, self.worker.clock.now()
        now = max(clock, self.execution.run.at)
        head = (outcome, value, attempt.number, attempt.started_at or None)
        # tuple.__new__ for speed, as in `take_transition`.
        ended = tuple.__new__(AttemptResult, (*head, clock, self.worker.id, self.epoch))
        self._count_attempt(attempt, clock).ended[outcome] += 1
        if attempt.effects and outcome is _OK:
            self._effects += self._effects_of(attempt)
            self.sent_events += attempt.sent_events
        if attempt.result_stored is not None:
            self._consumed_items.append(attempt.result_stored.item_id)
        if work.pending_compensation is not None:
            self.execution.record_compensation(work.pending_compensation, ended, now, name=work.name)
        elif work.op in self.execution.run.pending and outcome is not _CANCELLED:
            self._feed(tuple.__new__(Resolution, (work.issue.kind, work.op, now, outcome, value)), ended)
        else:
            self.execution.record_late_result(work.issue, ended, now)

    def _schedule_retry(self, attempt: Attempt, error: BaseException) -> bool:
        work = attempt.work
        if work.pending_compensation is None and work.op not in self.execution.run.pending:
            return False
        policy = work.options.retry or self.worker.default_retry
        now = self.worker.clock.now()
        row = self._retries.fail(attempt, error, policy, self.idempotency_key(work.op), now)
        if row is None:
            return False
        self._attempt_rows.append(row)
        self._count_attempt(attempt, now).retries += 1
        failure_log.log_attempt_failed(attempt, row)
        return True

    def _count_attempt(self, attempt: Attempt, now: int) -> ActivityMetrics:
        work = attempt.work
        metrics = self.worker.metrics.activities[work.issue.name if work.pending_compensation is None else work.name]
        if attempt.started_at:  # otherwise it was withdrawn while it waited for its slot
            metrics.micros.add(now - attempt.started_at)
        return metrics

    def _final_error(self, attempt: Attempt, error: BaseException) -> BaseException:
        policy = attempt.work.options.retry or self.worker.default_retry
        return self._retries.final_error(attempt.work.op, error, policy)

    # --- progress

    def progress(self) -> None:
        """Collect the body's commands, then enqueue a transition or, if there is nothing to write, start activities."""
        if self.gone:
            return
        self._collect_commands()
        if self._writing is not None:
            return
        if self._must_write():
            if not self.owned:
                self.worker.unpark(self)
            self.worker.committer.enqueue(self)
        else:
            if self.worker.hook_dispatcher is not None:
                self.worker.hook_dispatcher.resumed_without_commit(self)
            self._launch(self._starts)
            self._starts = []
            self._arm_timer()

    def _collect_commands(self) -> None:
        """Withdraw attempts, collect new activities, store calls and effects, and encode the result of an ended body."""
        execution = self.execution
        run = execution.run
        if run.problems:
            self._report_problems()
        if execution.withdrawn:
            for op in execution.take_withdrawn():
                self._withdraw(op)
        if execution.new_activities:
            self._starts += execution.take_new_activities()
        if execution.store_calls or execution.effects:
            self._collect_messaging()
        if run.body_outcome is not None and self._ending is None:
            self._encode_ending()

    def _collect_messaging(self) -> None:
        self._store_call_ops.update(issue.op for issue in self.execution.take_store_calls())
        self._effects += [self._with_ids(self.idempotency_key(op), effect) for op, effect in self.execution.take_effects()]

    def _with_ids(self, key: str, effect: D, attempt: Attempt | None = None) -> D:
        effect = with_ids(effect, key, self.instance_id, self.worker.clock.now())
        if self.worker.hook_dispatcher is not None and isinstance(effect, SendEvent):
            return cast(D, self.worker.hook_dispatcher.extend_event(self, effect, attempt))
        return effect

    def _must_write(self) -> bool:
        execution = self.execution
        return (
            not self.owned
            or execution.has_entries
            or execution.run.body_outcome is not None
            or bool(
                self._attempt_rows or self._closed_attempts or self._consumed_items or self._store_call_ops or self._effects
            )
            or self._pausing
            or not self._is_busy()
        )

    def _is_busy(self) -> bool:
        """Something runs or is about to start: the instance stays owned."""
        if self._attempts or self._starts or self.execution.finishing or self._has_unstarted_work:
            return True
        return self._retries.has_due_by(self.worker.clock.now() + SHORT_BACKOFF)

    def _withdraw(self, op: str) -> None:
        self._retries.waiting.pop(op, None)
        attempt = self._attempts.get(op)
        if attempt is None:
            return
        execution = self.execution
        ended = execution.body_outcome is not None
        self.execution.finishing.add(op)
        if attempt.started_at and execution.stopping:
            return  # a started attempt finishes, is recorded and compensated; one that waits for its slot is cancelled
        if ended and not attempt.interruptible:
            attempt.withdrawn = True  # its next heartbeat raises; if it returns a result all the same, that is recorded
            return
        attempt.withdraw()

    def _encode_ending(self) -> None:
        """Encode the outcome of the body. A result that cannot be stored fails the instance."""
        execution = self.execution
        body_outcome = execution.body_outcome
        if isinstance(body_outcome, Recur):
            return
        if isinstance(body_outcome, Finish):
            try:
                self._ending = Ending(output=self.workflow.result.encode(body_outcome.value))
                return
            except PayloadError as error:
                execution.reject_result(error)
                body_outcome = execution.body_outcome
        if isinstance(body_outcome, Fail):
            raw = encode_failure(body_outcome.error)
            self._ending = Ending(error=raw, fingerprint=describe_failure(raw).fingerprint)
        elif isinstance(body_outcome, Cancelled):
            reason = () if body_outcome.reason is None else (body_outcome.reason,)
            raw = encode_failure(asyncio.CancelledError(*reason))
            self._ending = Ending(error=raw)

    def _report_problems(self) -> None:
        for problem in self.execution.run.problems:
            _log.warning("%r of %s: %s", self.instance_id, self.workflow.label, problem)
        self.execution.run.problems.clear()

    # --- writing

    def take_transition(self) -> Transition | None:
        """Build the transition: what the instance did since its last commit. None during a write, or if it is gone.

        The committer calls this when it is free to write, some time after `enqueue`. What is taken out of the lists of this
        runner is only in the returned transition from then on.
        """
        if self.gone or self._writing is not None:
            return None
        self._collect_commands()  # something may have been fed since the runner was enqueued
        execution, worker, epoch = self.execution, self.worker, self.epoch
        now, phase = worker.clock.now(), None if execution.run.body_outcome is None else execution.phase
        done = phase is _PHASE_ENDED and not self._attempts
        recur = self._recurrence() if done and not self._pausing else None
        ended = done and not isinstance(execution.body_outcome, Recur)
        paused = self._pausing and not self._attempts and not ended
        compensating = phase is _COMPENSATING
        store_calls = self._take_store_calls(now) if self._store_call_ops and not (ended or paused or recur) else ()
        # Store calls with a bound (`before`) are made because a timer is due: stay owned to fire it when they are answered.
        keep_owned = recur is not None or (bool(store_calls) and store_calls[0].before is not None)
        if not keep_owned and not ended and not paused:
            keep_owned = self._is_busy() or (compensating and not self._retries.waiting)
        # After `_is_busy`, which counts `_starts`: an instance that is about to start activities must not be released.
        self._starts_after_commit, self._starts = self._starts, []
        history = execution.take_entries()
        releasing = not keep_owned and not ended and not paused
        waits: tuple[Wait, ...] = ()
        withdrawn: tuple[str, ...] = ()
        if releasing or self._stored_waits:
            # After `_take_store_calls`: a restored wait that is called for again would otherwise be withdrawn here.
            waits, withdrawn = self._stored_waits.take_changes(execution.run, self._retries, add=releasing)
        if worker.hook_dispatcher is not None:
            # Taken now, dispatched in `on_answer`: what the body does during the commit belongs to the next transition.
            self._hook_extras = worker.hook_dispatcher.take_extras(self)
        generation = self.identity.generation
        fields = (
            self.instance_id,
            generation,
            worker.id,
            epoch,
            epoch if self.owned else epoch + 1,
            self._next_status(ended=ended, paused=paused, compensating=compensating, keep_owned=keep_owned),
            now,
            keep_owned,
            self.inbox_seen,
            None if ended or paused else self.next_due(),
            self._retries.retrying_since(),
            execution.seq - len(history),
            execution.used_messaging or generation > 1,
            history,
            self._ending if ended else None,
            _drain(self._attempt_rows) if self._attempt_rows else (),
            _drain(self._closed_attempts) if self._closed_attempts else (),
            waits,
            withdrawn,
            tuple(self._consumed_items),
            _drain(self._notes) if self._notes else (),
            tuple([worker.with_starts(effect) for effect in _drain(self._effects)]) if self._effects else (),
            store_calls,
            None,
            recur,
        )
        # tuple.__new__ for speed: the named tuple's constructor takes twice the time. `fields` must be in its order.
        self._writing = tuple.__new__(Transition, fields)
        if self._writing.effects:
            worker.pending_writes.begin(owned_starts(_starts_of(self._writing)))
        return self._writing

    def _recurrence(self) -> Recurrence | None:
        body_outcome = self.execution.body_outcome
        return (
            Recurrence(body_outcome.input, self.worker.options.archive_history) if isinstance(body_outcome, Recur) else None
        )

    def _take_store_calls(self, now: int) -> tuple[StoreCall, ...]:
        run = self.execution.run
        issues = [
            waiting.issue for op, waiting in run.pending.items() if op in self._store_call_ops
        ]  # in the order they were issued
        self._store_call_ops.clear()
        self._stored_waits.mark_registered(issue.op for issue in issues if issue.kind in WAITS)
        due = self.execution.next_due()
        before = due if due is not None and due <= now else None
        return tuple([self._build_store_call(issue, max(now, run.at), before) for issue in issues])

    def _build_store_call(self, issue: Issue, at: int, before: int | None) -> StoreCall:
        entry = Entry(
            0,
            issue.kind,
            issue.op,
            Outcome.OK,
            at,
            name=issue.name,
            digest=issue.digest,
            input=issue.input,
            site=issue.site,
            scheduled_at=issue.at,
            worker=self.worker.id,
            epoch=self.epoch if self.owned else self.epoch + 1,
        )
        command = issue.detail
        if isinstance(command, SendTo):
            command = self._with_ids(self.idempotency_key(issue.op), command)
        return StoreCall(entry, command, issue.due, before)

    def _next_status(self, *, ended: bool, paused: bool, compensating: bool, keep_owned: bool) -> Status:
        if ended:
            return _END_STATUSES[type(self.execution.body_outcome)]
        if paused:
            return _PAUSED
        if compensating:
            return Status.COMPENSATING
        return _RUNNING if keep_owned else waiting_status(self.execution.run)

    def next_due(self, *, here: bool = False) -> int | None:
        """When this instance must continue without being woken. `here`: count only what this worker will handle."""
        execution, waiting = self.execution, self._retries.waiting
        if here and self.worker.stopping:
            waiting = {}  # the next owner makes the next attempt; a timer for it would fire here again and again
        if not execution.run.due and not waiting and self.identity.deadline_at is None:
            return None  # the common case; this is called twice at every step
        dues = [backoff.next_at for backoff in waiting.values()]
        if execution.body_outcome is None:
            dues += [due for due in (execution.next_due(), self._deadline()) if due is not None]
        return min(dues, default=None)

    def _deadline(self) -> int | None:
        return None if self.execution.stopping else self.identity.deadline_at

    def on_answer(self, answer: WriteResult | StoreError) -> None:
        """Carry out a transition that is durable, or drop the instance because the transition was refused.

        The order of the steps matters; each comment says why.
        """
        # First: everything below may call `progress`, `check_inbox` or `discard`, which do otherwise during a write.
        transition, self._writing = self._writing, None
        if transition is None:
            return
        if transition.effects:
            self.worker.pending_writes.end(owned_starts(_starts_of(transition)))
        if self.gone:
            # The runner was discarded during the write, but what it sent is durable: woken instances must still be woken.
            self.worker.pending_writes.end([self.instance_id])
            if isinstance(answer, Applied):
                self._propagate(transition, answer)
            return
        if not isinstance(answer, Applied):
            self._on_refused(answer)
            return
        self.epoch = transition.new_epoch
        self.owned = answer.owned
        # Before `unread` is computed: with `caught_up`, the replies are all that has arrived.
        if answer.caught_up:
            self.inbox_seen = answer.inbox_version
        if transition.consumed_items:
            if self._is_reading_inbox:
                self._recently_consumed.update(transition.consumed_items)
            self._consumed_items = [one for one in self._consumed_items if one not in transition.consumed_items]
        # Before the body moves on: here the run is exactly what its stored history says.
        if self.worker.on_committed is not None:
            self.worker.on_committed(self)
        # A reply that this process cannot decode blocks the instance, below. Hooks are not called: they could not read it.
        encoded = next((one.value for one in answer.replies if is_encoded(one.value)), None) if answer.replies else None
        if self.worker.hook_dispatcher is not None and encoded is None:
            self.worker.hook_dispatcher.committed(self, transition, answer, self._hook_extras)
        # Before every return below: instances that this commit woke or started depend on it.
        if transition.effects or answer.woken or answer.started:  # a plain step has none of them and saves the call
            self._propagate(transition, answer)
        if transition.recur is not None:
            # The next generation gets a runner of its own: a read of the inbox that is under way is lost with this one.
            unread = answer.inbox_version != self.inbox_seen or self._must_reread_inbox or self._is_reading_inbox
            self.worker.start_next_generation(self, transition.recur.input, transition.now, unread=unread)
            return
        # If the instance is still owned, the store did not end it, because something arrived that the run has not seen
        # (a cancellation): it reads its inbox below. The same holds for a pause.
        if transition.ending is not None and not answer.owned:
            self.worker.instance_ended(self, transition.status, transition.ending)
            return
        if transition.status is _PAUSED and not answer.owned:
            self.worker.drop(self)
            return
        launching, self._starts_after_commit = self._starts_after_commit, []
        # No replies: nothing had arrived before the bound, so the timer that is due may fire (`_continue_after_commit`).
        if transition.store_calls and not answer.replies:
            self._answered_until = transition.store_calls[0].before or 0
        if encoded is not None:
            self.worker.block(self, not_decoded("the received event or message", encoded))
            return
        # The store has recorded the replies as the next entries of the history: they must be fed before anything else.
        if answer.replies:
            self._resume_with_replies(transition.store_calls, answer.replies)
            if self.gone:
                return
        unread = answer.inbox_version != self.inbox_seen or self._must_reread_inbox
        if unread:  # read the inbox before starting anything: it may hold a cancellation or a pause
            self._paused_starts += launching
            self.check_inbox()
        elif answer.owned:
            self._launch(launching)
        if not answer.owned:
            self.worker.park(self)
            self._arm_timer()
        else:
            self._continue_after_commit()
        # After the replies, as in the history.
        if self._deferred_ends:
            self._apply_deferred_ends()

    def _propagate(self, transition: Transition, answer: Applied) -> None:
        """Wake the relays and the instances that this commit concerns, even if this runner was dropped during the write."""
        if transition.effects:
            self.worker.announce_outbox(transition.effects)
        if answer.woken or answer.started:
            self.worker.propagate(answer, _starts_of(transition))

    def _on_refused(self, answer: WriteResult | StoreError) -> None:
        if isinstance(answer, CodecError):
            self.worker.block(self, str(answer))
        elif isinstance(answer, StoreError):
            self.worker.block(self, f"its state cannot be stored: {answer}")
        else:
            self.worker.instance_lost(self)

    def _resume_with_replies(self, store_calls: tuple[StoreCall, ...], replies: tuple[StoreReply, ...]) -> None:
        """Resume the body with the store's replies, and repeat the store calls that got none."""
        self._stored_waits.mark_resolved(reply.op for reply in replies)
        try:
            self.execution.feed_replies(*replies)
        except DeterminismViolationError as error:
            self.worker.block(self, str(error))
            return
        answered = {reply.op: reply for reply in replies}
        for store_call in store_calls:
            reply = answered.get(store_call.entry.op)
            if reply is None:
                self._repeat_store_call(store_call.entry.op)
            elif reply.outcome is Outcome.OK:
                self._count_reply(store_call.entry.kind)

    def _count_reply(self, kind: Kind) -> None:
        metrics = self.worker.metrics
        if kind is Kind.EVENT:
            metrics.events_received += 1
        elif kind is Kind.MESSAGE:
            metrics.messages_received += 1
        elif kind is Kind.SEND_TO:
            metrics.messages_sent += 1

    def _apply_deferred_ends(self) -> None:
        """Record the attempts that ended while store calls were being committed."""
        ended, self._deferred_ends = self._deferred_ends, []
        for attempt, value, error in ended:
            self.attempt_ended(attempt, value, error)

    def _continue_after_commit(self) -> None:
        if self._is_reading_inbox:
            return  # the runner continues when the inbox has been read: it may hold a cancellation or a pause
        # Not while an entry is unwritten: the next compensation may follow from it.
        execution = self.execution
        if execution.phase is _COMPENSATING and not self._pausing and not execution.has_entries:
            self._compensate_next()
        if self._answered_until:
            self.check_due()
        elif self._has_unwritten() or not self._is_busy():
            self.progress()
        else:
            self._arm_timer()

    def _has_unwritten(self) -> bool:
        """There is something to write, or to collect from the execution."""
        execution = self.execution
        if execution.has_entries or execution.store_calls or execution.effects or execution.new_activities:
            return True
        return bool(self._starts or self._attempt_rows or self._closed_attempts or self._store_call_ops or self._effects)

    def record_open_attempt(self, attempt: Attempt) -> None:
        """Write the row of an attempt while it is open; the recorded end of one that has ended must not be overwritten."""
        if not self.gone and self._attempts.get(attempt.work.op) is attempt:
            attempt.is_recorded = True
            write = AttemptUpdate(self.instance_id, self.identity.generation, self.epoch, attempt.to_row(open=True))
            self.worker.record_attempt(self, write)

    @property
    def is_suspect(self) -> bool:
        """An earlier worker was lost at this point of the history: what runs next may crash this worker too."""
        return self.suspect_at == self.execution.seq

    async def record_if_suspect(self, attempt: Attempt) -> None:
        """Write an attempt's row before it begins, so that operators see which attempt ran if it crashes this worker."""
        if not self.is_suspect:
            return
        attempt.is_recorded = True
        now = self.worker.clock.now()
        row = replace(attempt.to_row(open=True), started_at=now, heartbeat_at=now)
        await self.worker.record_attempt_durably(
            self, AttemptUpdate(self.instance_id, self.identity.generation, self.epoch, row)
        )
        if self.gone:
            raise asyncio.CancelledError

    # --- starting work

    def _launch(self, issues: list[Issue]) -> None:
        if self._pausing:
            self._paused_starts += issues
        elif self.worker.stopping:
            self._has_unstarted_work = self._has_unstarted_work or bool(issues)
        else:
            for issue in issues:
                if issue.op in self.execution.run.pending:
                    self._start(WorkItem(issue))
            if self._retries.waiting:
                self._start_due_backoffs()

    def _compensate_next(self) -> None:
        compensation = self.execution.next_compensation()
        if (
            compensation is not None
            and compensation.op not in self._attempts
            and compensation.op not in self._retries.waiting
        ):
            self._start(WorkItem(compensation.issue, compensation))

    def _start(self, work: WorkItem) -> None:
        """Start an activity or a compensation, or wait for its back-off if an earlier owner's attempt failed."""
        if self.worker.stopping:
            self._has_unstarted_work = True
            return
        due = self._retries.due_at(work.op) if self._retries.ended_attempts else None
        if due is not None and due > self.worker.clock.now():
            self._retries.waiting[work.op] = Backoff(work, due)
        else:
            self._start_attempt(work)

    def _start_due_backoffs(self) -> None:
        if not self._attempt_rows:  # a new attempt follows from a failure, which must be durable first
            for backoff in self._retries.take_due(self.worker.clock.now()):
                self._start_attempt(backoff.work, backoff.thread)

    def _start_attempt(self, work: WorkItem, thread: asyncio.Future[Any] | None = None) -> None:
        retries = self._retries
        number, details = (retries.number(work.op), retries.details(work.op)) if retries.ended_attempts else (1, None)
        self._attempts[work.op] = Attempt(self, work, number, details, thread)

    def _arm_timer(self) -> None:
        # A stopping worker starts nothing: what is due would be due again at once, in a loop. The next owner handles it.
        if self.gone or self.worker.stopping:
            return
        due = self.next_due(here=True)
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.worker.timers.schedule(due, self._on_timer) if due is not None else None

    def _now(self) -> int:
        """The time of a new resolution: never earlier than the run's own time."""
        return max(self.worker.clock.now(), self.execution.run.at)

    def idempotency_key(self, op: str) -> str:
        """The same key over attempts and recovery; a new one when the instance is retried after compensations have run."""
        identity = self.identity
        key = f"{identity.instance_id}:{identity.generation}:{op}"
        return f"{key}:{identity.round}" if identity.round else key

    def discard(self) -> None:
        """Abandon the attempts and evict the run. Nothing is recorded."""
        if self.gone:
            return
        self.gone = True
        if self._writing is not None:
            self.worker.pending_writes.begin([self.instance_id])  # ended in `on_answer`: the last write is in flight
        if self._timer is not None:
            self._timer.cancel()
        for attempt in self._attempts.values():
            attempt.abandon()
        self._attempts.clear()
        self._deferred_ends.clear()
        for complaint in self.execution.run.evict():
            _log.warning("%r: %s", self.instance_id, complaint)


_END_STATUSES: dict[type, Status] = {Finish: Status.COMPLETED, Fail: Status.FAILED, Cancelled: Status.CANCELLED}


def _starts_of(transition: Transition) -> list[CreateInstance]:
    """The instances that a transition starts."""
    return [start for effect in transition.effects if isinstance(effect, SendEvent) for start in effect.starts]


def _drain(items: list[T]) -> tuple[T, ...]:
    """Return the items and empty the list."""
    taken = tuple(items)
    items.clear()
    return taken


def _decode_reason(body: bytes | None) -> bytes | None:
    """The reason of a cancellation, decoded from the JSON of its inbox item."""
    reason = json.loads(body) if body is not None else None
    return reason.encode() if isinstance(reason, str) else None
