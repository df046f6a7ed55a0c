"""`InstanceRunner`: feeds what happens to the instance's execution, commits the transition, then carries it out.

    input ──► handle ──► execution.feed ──► progress ──► committer: take_transition ──► COMMIT ──► Answered
                                                ▲                                                     │
                                                │          start attempts, park, end, or continue ◄───┘
                                                └── attempts end, timers fire, inbox items arrive

Nothing is started before everything that led to it is durable. The states and inputs are in `state.py`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, TypeVar, cast

from romancy.authoring.workflow import Workflow
from romancy.core.commands import Resolution
from romancy.core.execution import AttemptResult, Execution
from romancy.errors import DeterminismViolationError, StoreError
from romancy.hooks import EventSent
from romancy.model.history import WAITS, Kind, Outcome
from romancy.model.instance import Inbox, InstanceRow
from romancy.model.messaging import Effect, SendEvent
from romancy.model.transition import RESULT_ITEM, Applied, JournalNote, Transition, WriteResult
from romancy.worker.attempt import AttemptEnded
from romancy.worker.hook_dispatcher import HookExtras
from romancy.worker.pending_writes import owned_starts
from romancy.worker.runner.answers import carry_out, propagate
from romancy.worker.runner.attempts import RunnerAttempts
from romancy.worker.runner.inbox import RunnerInbox
from romancy.worker.runner.message_ids import with_ids
from romancy.worker.runner.state import (
    GONE,
    PARKED,
    RUNNING,
    STARTING,
    WRITING,
    Admitted,
    Answered,
    Begin,
    Claimed,
    Discarded,
    InboxRead,
    Input,
    ItemArrived,
    Restore,
    RunnerIdentity,
    RunnerState,
    TimerDue,
    WaitMatched,
    bind,
)
from romancy.worker.runner.transition import TransitionDraft, build_transition, encode_ending, starts_of
from romancy.worker.runner.waits import RunnerWaits
from romancy.worker.timers import ScheduledCall

if TYPE_CHECKING:
    from romancy.worker.attempt import Attempt
    from romancy.worker.worker import Worker

_log = logging.getLogger("romancy.worker")
D = TypeVar("D", bound=Effect)

_FEW_WAITS = 4
_TIMER_DUE = TimerDue()


class InstanceRunner:
    """Runs one instance, or keeps it parked in memory."""

    __slots__ = (
        "_timer",
        "_timer_due",
        "_writing",
        "announced_ops",
        "attempts",
        "draft",
        "epoch",
        "execution",
        "hook_extras",
        "identity",
        "inbox",
        "instance_id",
        "owned",
        "sent_events",
        "state",
        "suspect_at",
        "waits",
        "worker",
        "workflow",
    )

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
        self.state: RunnerState = STARTING
        self.owned = True
        """The store has this worker as the owner, as far as the runner knows: not while it is parked, or being claimed."""
        self.inbox = RunnerInbox(inbox_seen)
        self.attempts = RunnerAttempts()
        self.waits = RunnerWaits()
        self.draft = TransitionDraft()
        self.suspect_at = -1
        """The length of the history at which an earlier worker was lost, or -1."""
        self.announced_ops: set[str] | None = None
        """With hooks: the waits and timers whose start was dispatched to them."""
        self.sent_events: tuple[EventSent, ...] = ()
        """With hooks: the events that the next transition sends."""
        self.hook_extras: HookExtras | None = None
        self._writing: Transition | None = None
        """The transition that the committer has taken and not answered."""
        self._timer: ScheduledCall | None = None
        self._timer_due: int | None = None

    def handle(self, input: Input) -> None:
        """Do what the table in `state.py` says. An input that cannot come in this state is a bug of the engine."""
        handler = self.state.handlers.get(type(input))
        if handler is None:
            raise AssertionError(f"{type(input).__name__} came to {self.instance_id!r} while it was {self.state!r}")
        handler(self, input)

    @property
    def gone(self) -> bool:
        """The instance has ended or belongs to another worker: this runner must do nothing more."""
        return self.state is GONE

    def _ignore(self, _: object) -> None:
        """The input has no effect in this state."""

    # --- the body begins, or continues after a replay

    def _begin(self, input: Begin) -> None:
        self.state = RUNNING
        self.execution.start(input.at)
        if input.inbox is not None:
            self._apply_inbox(input.inbox)
        if self.inbox.must_reread or self._is_past_deadline(self.worker.clock.now()):
            self.check_due()
        else:
            self.progress()

    def _restore(self, input: Restore) -> None:
        loaded = input.loaded
        self.state = RUNNING
        self.suspect_at = self.execution.seq if loaded.losses else -1
        self.waits.restore(loaded.waits)
        self.attempts.rows += self.attempts.retries.restore(loaded.attempts, self.worker.clock.now())
        if self.execution.seq:
            self.draft.notes.append(JournalNote("replayed", f"{self.execution.seq} entries"))
        self._apply_inbox(Inbox(loaded.row.inbox_version, loaded.inbox, ()))
        self.check_due()

    # --- time

    def _on_timer(self) -> None:
        self.handle(_TIMER_DUE)

    def _forget_timer(self, _: TimerDue) -> None:
        self._timer = self._timer_due = None  # armed again after the commit

    def _admit_due(self, _: TimerDue) -> None:
        if self.worker.admit(self):
            self.check_due()

    def _check_due(self, _: TimerDue | Admitted) -> None:
        self.check_due()

    def check_due(self) -> None:
        """Handle what is due: timers, back-offs, the workflow's deadline."""
        if self._timer is not None:
            self._timer.cancel()  # it has not fired if something else has led here
            self._timer = None
        due, self._timer_due = self._timer_due, None
        if self.state is GONE:
            return
        if self.inbox.must_reread:
            self.read_inbox()
            return
        now, execution = self.now(), self.execution
        if due is not None and due <= now and not self.owned:
            self.worker.metrics.lags["timer"].add(now - due)
        if self._is_past_deadline(now):
            self.feed(Resolution(Kind.TIMEOUT, "timeout", now), name="timeout")
        self._fire_timers(now)
        if (
            self.owned
            or execution.has_entries
            or self.waits.calls
            or self.inbox.consumed
            or self.inbox.pausing
            or self.attempts.is_busy(self)
        ):
            self.progress()
        else:
            self.arm_timer()  # nothing was due

    def _fire_timers(self, now: int) -> None:
        """Fire the due timers, in order. Before each, ask the store for unseen arrivals from before the timer's time.

        A wait whose own timeout is due ends by the same store call. `check_due` runs again when the store has replied.
        """
        run, waits = self.execution.run, self.waits
        due = self.execution.due_issues(now)
        if not due and not waits.answered_until:
            return
        open_waits = [op for op, waiting in run.pending.items() if waiting.issue.kind in WAITS]
        for issue in due:
            if open_waits and (waits.answered_until < (issue.due or 0) or issue.kind in WAITS):
                waits.calls.update(open_waits)
                return
            if issue.op in run.pending:
                # The clock may have been set back since `due_issues`; never record that a timer fired before its time.
                self.feed(Resolution(Kind.TIMER, issue.op, max(self.now(), issue.due or 0)))
        if waits.answered_until:  # the bounded store calls ignored what arrived after this time: ask again without a bound
            waits.answered_until = 0
            waits.calls.update(open_waits)

    def _is_past_deadline(self, now: int) -> bool:
        deadline = self.identity.deadline_at
        return deadline is not None and deadline <= now and not self.execution.stopping and self.execution.may_time_out

    def next_due(self, *, here: bool = False) -> int | None:
        """When this instance must continue without being woken. `here`: count only what this worker will handle."""
        execution, waiting, deadline = self.execution, self.attempts.retries.waiting, self.identity.deadline_at
        if here and self.worker.stopping:
            waiting = {}  # the next owner makes the next attempt; a timer for it would fire here again and again
        if not execution.run.due and not waiting and deadline is None:
            return None  # the common case; this is called twice at every step
        dues: list[int | None] = [backoff.next_at for backoff in waiting.values()]
        if execution.body_outcome is None:
            dues += [execution.next_due(), None if execution.stopping else deadline]
        return min([due for due in dues if due is not None], default=None)

    def arm_timer(self) -> None:
        """Let the runner's timer fire when the instance must continue next."""
        # A stopping worker starts nothing: what is due would be due again at once, in a loop. The next owner handles it.
        if self.state is GONE or self.worker.stopping:
            return
        due = self.next_due(here=True)
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.worker.timers.schedule(due, self._on_timer) if due is not None else None

    def now(self) -> int:
        """The time of a new resolution: never earlier than the run's own time."""
        return max(self.worker.clock.now(), self.execution.run.at)

    # --- arrivals

    @property
    def has_unread(self) -> bool:
        """Whether the inbox or a channel may have items that the runner has not read yet."""
        return bool(self.inbox.is_reading or self.inbox.must_reread or self.waits.calls)

    def _remember(self, _: ItemArrived | WaitMatched | InboxRead) -> None:
        """Read the inbox later: when the body has begun, or the write is answered."""
        self.inbox.must_reread = True

    def _arrive(self, _: ItemArrived) -> None:
        """Read the inbox. A parked instance reads it when there is room for it."""
        if self.owned or self.worker.admit(self):
            self.read_inbox()
        else:
            self.inbox.must_reread = True

    def _match(self, _: WaitMatched) -> None:
        """Look for what a wait has received. With few waits, make a store call for each instead of reading the inbox first.

        The store's answer says whether anything else has arrived (`caught_up`).
        """
        waits = self.waits.registered
        if self.inbox.is_reading or not 0 < len(waits) <= _FEW_WAITS:
            self._arrive(ItemArrived())
        elif self.owned or self.worker.admit(self):
            for op in waits:
                self.waits.repeat_call(op, self.execution.run)
            self.check_due()
        else:
            self.inbox.must_reread = True

    def read_inbox(self) -> None:
        """Read the inbox, or remember to do it when the current read is over."""
        if self.inbox.is_reading:
            self.inbox.must_reread = True
        else:
            self.inbox.is_reading = True
            self.worker.spawn(self._fetch_inbox())

    async def _fetch_inbox(self) -> None:
        self.inbox.must_reread = False
        self.inbox.recently_consumed.clear()
        try:
            inbox = await self.worker.read_inbox(self)
        finally:
            self.inbox.is_reading = False
        if inbox is not None:
            self.handle(InboxRead(inbox))

    def _apply_read(self, input: InboxRead) -> None:
        for op in input.inbox.matched_waits:
            self.waits.repeat_call(op, self.execution.run)
        self._apply_inbox(input.inbox)
        self.check_due()

    def _apply_inbox(self, inbox: Inbox) -> None:
        """Feed inbox items to the execution; the next transition records that they were seen."""
        self.inbox.seen = inbox.inbox_version
        for item in self.inbox.accept(inbox.items, self.attempts.running):
            if item.kind == RESULT_ITEM:
                self.attempts.apply_stored_result(self, item)
            elif item.kind == "cancel":
                # The body is cancelled even if it has ended, as long as its end is not durable.
                self.draft.ending = None
                self.feed(
                    Resolution(Kind.CANCEL, "cancel", self.now(), Outcome.OK, _decode_reason(item.body)), name="cancel"
                )
        if not self.inbox.pausing:
            self.attempts.release_held()

    def feed(self, resolution: Resolution, ended: AttemptResult | None = None, *, name: str = "") -> None:
        """Resume the body. Code that does not fit its history blocks the instance; it does not fail it."""
        if self.state is GONE:
            return
        if ended is None:
            ended = AttemptResult(resolution.outcome, resolution.value, 0, worker=self.worker.id, epoch=self.epoch)
        try:
            self.execution.feed(resolution, ended, name=name)
        except DeterminismViolationError as error:
            self.worker.block(self, str(error))

    # --- attempts

    def _record_end(self, input: AttemptEnded) -> None:
        """Record the end of an attempt: its result, a retry, or its failure."""
        if self.attempts.running.get(input.attempt.work.op) is not input.attempt:
            return  # reported before: it was withdrawn before its first step
        if self._writing is not None and self._writing.store_calls:
            # The store is numbering its replies as the next entries of the history: an entry made now would collide.
            self.attempts.deferred_ends.append(input)
        elif self.attempts.record_end(self, input):
            self.progress()

    def _ignore_stale(self, input: AttemptEnded) -> None:
        """Ignore a second report: an instance with attempts stays owned, so no attempt can end here for the first time."""
        assert self.attempts.running.get(input.attempt.work.op) is not input.attempt

    @property
    def is_suspect(self) -> bool:
        """An earlier worker was lost at this point of the history: what runs next may crash this worker too."""
        return self.suspect_at == self.execution.seq

    # --- claims of a parked instance

    def matches_row(self, row: InstanceRow) -> bool:
        """The parked run is at the state of the claimed row: it can continue without a replay."""
        return (
            self.state is PARKED
            and row.epoch == self.epoch + 1
            and row.created_at == self.identity.created_at
            and row.generation == self.identity.generation
            and row.length == self.execution.seq
        )

    def _own(self, input: Claimed) -> None:
        self.epoch = input.epoch
        self.owned, self.state = True, RUNNING
        self.read_inbox()

    # --- progress

    def progress(self) -> None:
        """Collect the body's commands, then enqueue a transition or, if there is nothing to write, start activities."""
        if self.state is GONE:
            return
        self._collect_commands()
        if self.state is WRITING:
            return
        if self._must_write():
            if not self.owned:
                self.worker.unpark(self)
            self.worker.committer.enqueue(self)
        else:
            if self.worker.hook_dispatcher is not None:
                self.worker.hook_dispatcher.resumed_without_commit(self)
            self.attempts.launch(self, self.attempts.new)
            self.attempts.new = []
            self.arm_timer()

    def _collect_commands(self) -> None:
        """Withdraw attempts, collect new activities, store calls and effects, and encode the result of an ended body."""
        execution, draft = self.execution, self.draft
        run = execution.run
        if run.problems:
            for problem in run.problems:
                _log.warning("%r of %s: %s", self.instance_id, self.workflow.label, problem)
            run.problems.clear()
        if execution.withdrawn:
            for op in execution.take_withdrawn():
                self.attempts.withdraw(self, op)
        if execution.new_activities:
            self.attempts.new += execution.take_new_activities()
        if execution.store_calls:
            self.waits.calls.update([issue.op for issue in execution.take_store_calls()])
        if execution.effects:
            draft.effects += [self.with_ids(self.idempotency_key(op), effect) for op, effect in execution.take_effects()]
        if run.body_outcome is not None and draft.ending is None:
            draft.ending = encode_ending(self)

    def _must_write(self) -> bool:
        attempts = self.attempts
        return bool(
            not self.owned
            or self.execution.has_entries
            or self.execution.run.body_outcome is not None
            or attempts.rows
            or attempts.closed
            or self.inbox.consumed
            or self.waits.calls
            or self.draft.effects
            or self.inbox.pausing
            or not attempts.is_busy(self)
        )

    def with_ids(self, key: str, effect: D, attempt: Attempt | None = None) -> D:
        """Return an effect with its id, which follows from `key`, its sender and its time, and the hooks' extensions."""
        effect = with_ids(effect, key, self.instance_id, self.worker.clock.now())
        if self.worker.hook_dispatcher is not None and isinstance(effect, SendEvent):
            return cast(D, self.worker.hook_dispatcher.extend_event(self, effect, attempt))
        return effect

    def idempotency_key(self, op: str) -> str:
        """The same key over attempts and recovery; a new one when the instance is retried after compensations have run."""
        identity = self.identity
        key = f"{identity.instance_id}:{identity.generation}:{op}"
        return f"{key}:{identity.round}" if identity.round else key

    # --- the committer takes a transition, and answers it

    def take_transition(self) -> Transition | None:
        """Build the transition: what the instance did since its last commit. None during a write, or if it is gone.

        The committer calls this when it is free to write, some time after `enqueue`. What is taken out of the lists of this
        runner is only in the returned transition from then on.
        """
        if self.state is WRITING or self.state is GONE:
            return None
        self._collect_commands()  # something may have been fed since the runner was enqueued
        transition = build_transition(self)
        if self.worker.hook_dispatcher is not None:
            # Taken now, dispatched when it is answered: what the body does during the commit belongs to the next transition.
            self.hook_extras = self.worker.hook_dispatcher.take_extras(self)
        self._writing, self.state = transition, WRITING
        if transition.effects:
            self.worker.pending_writes.begin(owned_starts(starts_of(transition)))
        return transition

    def on_answer(self, answer: WriteResult | StoreError) -> None:
        """Receive the result of the transition that was taken last."""
        self.handle(Answered(answer))

    def _propagate_late(self, input: Answered) -> None:
        """The runner was discarded during the write, but what it sent is durable: woken instances must still be woken."""
        transition, self._writing = self._writing, None
        assert transition is not None
        self.worker.pending_writes.end([*owned_starts(starts_of(transition)), self.instance_id])
        if isinstance(input.answer, Applied):
            propagate(self, transition, input.answer)

    def _carry_out(self, input: Answered) -> None:
        transition, self._writing = self._writing, None
        assert transition is not None
        carry_out(self, transition, input.answer)

    # --- the end of the runner

    def _discard(self, _: Discarded) -> None:
        """Abandon the attempts and evict the run. Nothing is recorded."""
        self.state = GONE
        if self._writing is not None:
            self.worker.pending_writes.begin([self.instance_id])  # ended by the answer: the last write is in flight
        if self._timer is not None:
            self._timer.cancel()
        if self.attempts.running:
            self.attempts.abandon()
        for complaint in self.execution.run.evict():
            _log.warning("%r: %s", self.instance_id, complaint)


def _decode_reason(body: bytes | None) -> bytes | None:
    """The reason of a cancellation, decoded from the JSON of its inbox item."""
    reason = json.loads(body) if body is not None else None
    return reason.encode() if isinstance(reason, str) else None


bind(InstanceRunner)
