"""One instance on this worker: what happens is fed to its execution, what that asks for is written, then carried out.

    something happened ──► execution.feed ──► progress ──► committer asks take() ──► COMMIT ──► answered
                                                 ▲                                                 │
                                                 │          start attempts, park, end, or go on ◄──┘
                                                 └── attempts end, alarms ring, mail comes

Nothing is started before everything it follows from is durable. A parked host owns nothing: its next transition is a claim
as well, made under the epoch it knows, and is refused if anybody else was quicker.
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
from romancy.core.execution import Ended, Execution, Phase
from romancy.errors import CodecError, DeterminismViolationError, PayloadError, StoreError
from romancy.figures import OfActivity
from romancy.hooks import EventSent
from romancy.model.history import WAITS, Entry, Kind, Outcome
from romancy.model.history import Attempt as AttemptRow
from romancy.model.instance import Inbox, Mail, Row
from romancy.model.status import Status
from romancy.model.talk import Ask, Deed, Reply, SendEvent, SendTo
from romancy.model.transition import (
    RESULT,
    Answer,
    Applied,
    Beat,
    Create,
    Deposit,
    Ending,
    Note,
    Recurrence,
    Transition,
    Wait,
)
from romancy.serde.failure import describe_failure, encode_failure
from romancy.worker import failures
from romancy.worker.alarms import Alarm
from romancy.worker.attempt import Attempt, Work
from romancy.worker.retries import Backoff, Retries
from romancy.worker.sessions import Result, pack, unpack
from romancy.worker.talk import identified
from romancy.worker.telling import Unwritten
from romancy.worker.unanswered import begun_by
from romancy.worker.waits import StoredWaits, waiting_status

if TYPE_CHECKING:
    from romancy.worker.worker import Worker

_log = logging.getLogger("romancy.worker")
T = TypeVar("T")
D = TypeVar("D", bound=Deed)

# By names of their own: to look a member of an enum up takes as long as a call (before Python 3.12).
_OK, _CANCELLED = Outcome.OK, Outcome.CANCELLED
_PHASE_ENDED, _COMPENSATING = Phase.ENDED, Phase.COMPENSATING
_RUNNING, _PAUSED = Status.RUNNING, Status.PAUSED
_FEW_WAITS = 4
SHORT_BACKOFF = 1 * MICROS
"""A back-off up to this long is waited for with the instance in hand; a longer one releases it."""


class Identity(NamedTuple):
    """What does not change while a host lives."""

    instance_id: str
    generation: int
    round: int
    deadline_at: int | None
    blocked_by: str | None = None
    created_at: int = 0


class Host:
    """One instance that this worker runs, or has parked."""

    __slots__ = (
        "_alarm", "_alarm_due", "_asked_before", "_asks", "_attempts", "_begun", "_closed", "_consumed", "_deeds",
        "_ended", "_ending", "_held_back", "_launching", "_left", "_mail_again", "_notes", "_pausing", "_reading_mail",
        "_retries", "_rows", "_starts", "_stored_waits", "_untold", "_used_up", "_writing", "epoch", "execution", "gone",
        "identity", "instance_id", "owned", "seen", "sent", "suspect_at", "told", "worker", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        worker: Worker,
        workflow: Workflow[..., Any],
        identity: Identity,
        execution: Execution,
        *,
        epoch: int,
        seen: int,
    ) -> None:
        self.worker = worker
        self.workflow = workflow
        self.instance_id = identity.instance_id
        self.identity = identity
        self.execution = execution
        self.epoch = epoch
        self.seen = seen
        self.owned = True
        self.gone = False
        """The instance has ended or belongs to somebody else: nothing this host does matters any more."""
        self.told: set[str] | None = None
        """Of an app with hooks: the waits and timers whose beginning they know."""
        self.sent: tuple[EventSent, ...] = ()
        """Of an app with hooks: the events of the next transition."""
        self._untold: Unwritten | None = None
        self.suspect_at = -1
        """The end of its history, if its worker was lost there before."""
        self._begun = False
        """The body runs, or was replayed. Before that nothing can be made of what arrives."""
        self._writing: Transition | None = None
        self._asked_before = 0
        """Nothing that came before this is left for the waits."""
        self._alarm: Alarm | None = None
        self._alarm_due: int | None = None
        self._ending: Ending | None = None
        self._pausing = False
        self._reading_mail = False
        self._mail_again = False
        self._left = False
        """Something was not started because the worker goes: the instance stays in hand until the worker releases it."""
        self._attempts: dict[str, Attempt] = {}
        self._retries = Retries()
        self._starts: list[Issue] = []
        self._launching: list[Issue] = []
        self._rows: list[AttemptRow] = []
        self._closed: list[str] = []
        self._consumed: list[int] = []
        self._used_up: set[int] = set()
        """Mail that was consumed while the inbox was read: it may come once more."""
        self._notes: list[Note] = []
        self._asks: set[str] = set()
        """What to ask the store with the next transition."""
        self._deeds: list[Deed] = []
        self._ended: list[tuple[Attempt, bytes | None, BaseException | None]] = []
        """Attempts that ended while the store was being asked: its answers come first in the history."""
        self._stored_waits = StoredWaits()
        self._held_back: list[Issue] = []
        """What a pause keeps from being started, should it be taken back."""

    # --- what happens

    def begin(self, at: int, inbox: Inbox | None = None) -> None:
        """The instance, or its generation, was created here: start its body. What has arrived before counts at once."""
        self._begun = True
        self.execution.start(at)
        if inbox is not None:
            self.take_mail(inbox.signal, inbox.mails)
        if self._mail_again or self._past_deadline(self.worker.clock.now()):
            self.wake()
        else:
            self.progress()

    def restore(self, attempts: tuple[AttemptRow, ...], waits: tuple[str, ...], losses: int = 0) -> None:
        """The instance was claimed and replayed: take over what its last owner left."""
        self._begun = True
        self.suspect_at = self.execution.seq if losses else -1
        self._stored_waits.restore(waits)
        self._rows += self._retries.restore(attempts, self.worker.clock.now())
        if self.execution.seq:
            self._notes.append(Note("replayed", f"{self.execution.seq} entries"))

    def wake(self) -> None:
        """Something may be due: timers, back-offs, the workflow's deadline."""
        self._alarm = None
        due, self._alarm_due = self._alarm_due, None
        if self.gone or self._writing is not None or not self._begun:
            return
        if self._mail_again:
            self.check_mail()
            return
        now, execution = self._now(), self.execution
        if due is not None and due <= now and not self.owned:
            self.worker.tally.lags["alarm"].add(now - due)
        if self._past_deadline(now):
            self._feed(Resolution(Kind.TIMEOUT, "timeout", now), name="timeout")
        self._time_out(now)
        if self.owned or execution.has_entries or self._asks or self._consumed or self._pausing or self._busy():
            self.progress()
        else:
            self._arm()  # nothing is due after all

    def _time_out(self, now: int) -> None:
        """Let timers go off, in order. Before one does, the store is asked for what came before its time and was not seen.

        That is also how a wait ends whose own time has come. The alarm rings again when the store has answered.
        """
        run = self.execution.run
        due = self.execution.due_issues(now)
        waits = (
            [op for op, waiting in run.pending.items() if waiting.issue.kind in WAITS] if due or self._asked_before else []
        )
        for issue in due:
            if waits and (self._asked_before < (issue.due or 0) or issue.kind in WAITS):
                self._asks.update(waits)
                return
            if issue.op in run.pending:
                # A clock may be set back between two looks; no timer is recorded to have gone off before its time.
                self._feed(Resolution(Kind.TIMER, issue.op, max(self._now(), issue.due or 0)))
        if self._asked_before:  # what came after that was left aside
            self._asked_before = 0
            self._asks.update(waits)

    def _rung(self) -> None:
        """The alarm rang. A parked instance goes on when there is room for it."""
        if self.owned or self.worker.admits(self):
            self.wake()

    def nudge(self) -> None:
        """Something arrived. A parked instance looks when there is room for it."""
        if self.owned or self.worker.admits(self):
            self.check_mail()
        else:
            self._mail_again = True

    @property
    def called(self) -> bool:
        """Something has come that it has not looked at."""
        return bool(self._reading_mail or self._mail_again or self._asks)

    def call(self) -> None:
        """Something has come for a wait. If there are but a few, ask for each: the store says whether that was all."""
        waits = self._stored_waits.registered
        if self._writing is not None or self._reading_mail or not self._begun or not 0 < len(waits) <= _FEW_WAITS:
            self.nudge()
        elif self.owned or self.worker.admits(self):
            for op in waits:
                self._ask_again(op)
            self.wake()
        else:
            self._mail_again = True

    def _past_deadline(self, now: int) -> bool:
        deadline = self._deadline()
        return deadline is not None and deadline <= now and self.execution.undecided

    def _feed(self, resolution: Resolution, ended: Ended | None = None, *, name: str = "") -> None:
        """Let the body go on. Code that does not fit its history blocks the instance; it does not fail it."""
        if self.gone:
            return
        if ended is None:
            ended = Ended(resolution.outcome, resolution.value, 0, worker=self.worker.id, epoch=self.epoch)
        try:
            self.execution.feed(resolution, ended, name=name)
        except DeterminismViolationError as error:
            self.worker.block(self, str(error))

    def fits(self, row: Row) -> bool:
        """The parked run stands where the claimed row says: it can go on without a replay."""
        return (
            not self.owned
            and self._writing is None
            and row.epoch == self.epoch + 1
            and row.created_at == self.identity.created_at
            and row.generation == self.identity.generation
            and row.length == self.execution.seq
        )

    def claimed(self, epoch: int) -> None:
        """A parked host owns its instance again."""
        self.epoch = epoch
        self.owned = True
        self.check_mail()

    def as_row(self) -> Row:
        """What the store would say of the instance, as far as a host knows."""
        identity = self.identity
        return Row(
            instance_id=identity.instance_id,
            workflow=self.workflow.name,
            version=self.workflow.version,
            status=Status.RUNNING,
            generation=identity.generation,
            round=identity.round,
            epoch=self.epoch,
            owner=self.worker.id,
            wake_at=None,
            signal=self.seen,
            length=self.execution.seq,
            deadline_at=identity.deadline_at,
            created_at=identity.created_at,
            started_at=None,
            updated_at=0,
            ended_at=None,
            blocked_by=identity.blocked_by,
        )

    def check_mail(self) -> None:
        """Something may have arrived: read the inbox."""
        if self.gone:
            return
        if self._reading_mail or self._writing is not None or not self._begun:
            self._mail_again = True
            return
        self._reading_mail = True
        self.worker.spawn(self._read_mail())

    async def _read_mail(self) -> None:
        self._mail_again = False
        self._used_up.clear()
        try:
            inbox = await self.worker.read_inbox(self)
        finally:
            self._reading_mail = False
        if inbox is None:
            return
        if self._writing is not None:
            self._mail_again = True
            return
        for op in inbox.called:
            self._ask_again(op)
        self.take_mail(inbox.signal, inbox.mails)
        self.wake()

    def _ask_again(self, op: str) -> None:
        if op in self.execution.run.pending:
            self._asks.add(op)

    def take_mail(self, seen: int, mails: tuple[Mail, ...]) -> None:
        """Feed what arrived; the next transition says that it was seen."""
        self.seen = seen
        pauses: list[int] = []
        for mail in mails:
            if mail.id in self._consumed or mail.id in self._used_up:
                continue
            if mail.kind == RESULT and mail.op in self._attempts:
                continue  # an attempt tells of its result itself
            if mail.kind == "pause":
                # It stays where it is until somebody takes it back: used up earlier, it would not outlive a crash.
                pauses.append(mail.id)
                continue
            self._consumed.append(mail.id)
            if mail.kind == RESULT:
                self._take_result(mail)
            elif mail.kind == "cancel":
                self._cancel(mail)
                self._consumed += pauses
                pauses.clear()
        self._pausing = bool(pauses)
        if not self._pausing:
            self._starts, self._held_back = self._held_back + self._starts, []

    def _take_result(self, mail: Mail) -> None:
        """An activity of an earlier owner has committed its result with its own transaction."""
        result = unpack(mail.body or b"")
        ended = Ended(
            Outcome.OK, result.value, result.attempt, result.started_at, result.ended_at, result.worker, result.epoch
        )
        execution, now = self.execution, self._now()
        undo = execution.next_undo()
        if undo is not None and undo.op == mail.op:
            execution.compensated(undo, ended, now, name=Work(undo.issue, undo).name)
        elif mail.op in execution.run.pending:
            self._feed(Resolution(Kind.ACTIVITY, mail.op, now, Outcome.OK, result.value), ended)
        elif (issue := execution.undoable(mail.op)) is not None:
            execution.late(issue, ended, now)

    def deposit_of(self, attempt: Attempt, value: bytes) -> Deposit:
        """What an attempt leaves with its own transaction."""
        op, now = attempt.work.op, self.worker.clock.now()
        result = Result(value, attempt.number, attempt.started_at, now, self.worker.id, self.epoch)
        deeds = tuple(self.worker.with_starts(deed) for deed in self._deeds_of(attempt))
        generation = self.identity.generation
        return Deposit(self.instance_id, generation, self.epoch, self.worker.id, op, pack(result), now, deeds)

    def _deeds_of(self, attempt: Attempt) -> list[Deed]:
        key = self.idempotency_key(attempt.work.op)
        return [self._identified(f"{key}:{n}", deed, attempt) for n, deed in enumerate(attempt.deeds, 1)]

    def _cancel(self, mail: Mail) -> None:
        """The body is cancelled, also one that has ended while its end is not durable."""
        self._ending = None
        self._feed(Resolution(Kind.CANCEL, "cancel", self._now(), Outcome.OK, _reason(mail.body)), name="cancel")

    def attempt_ended(self, attempt: Attempt, value: bytes | None, error: BaseException | None) -> None:
        """An attempt has ended, one way or another."""
        work = attempt.work
        if self._attempts.get(work.op) is not attempt or self.gone:
            return
        if self._writing is not None and self._writing.asks:
            self._ended.append((attempt, value, error))
            return
        del self._attempts[work.op]
        if attempt.noted:
            self._closed.append(work.op)
        if error is None:
            self._settle(attempt, _OK, value)
        elif attempt.withdrawn:
            self._settle(attempt, _CANCELLED, None)
        elif self.worker.stopping and isinstance(error, asyncio.CancelledError):
            self._left = True  # whoever takes over runs it again
            return
        elif not self._try_again(attempt, error):
            raw = encode_failure(self._final_error(attempt, error))
            failures.activity_failed(attempt, raw)
            self._settle(attempt, Outcome.ERROR, raw)
        self.progress()

    def _settle(self, attempt: Attempt, outcome: Outcome, value: bytes | None) -> None:
        work, clock = attempt.work, self.worker.clock.now()
        now = max(clock, self.execution.run.at)
        head = (outcome, value, attempt.number, attempt.started_at or None)
        ended = tuple.__new__(Ended, (*head, clock, self.worker.id, self.epoch))  # as fast as a tuple, as in `take`
        self._counted(attempt, clock).ended[outcome] += 1
        if attempt.deeds and outcome is _OK:
            self._deeds += self._deeds_of(attempt)
            self.sent += attempt.sent
        if attempt.left is not None:
            self._consumed.append(attempt.left.mail)
        if work.undo is not None:
            self.execution.compensated(work.undo, ended, now, name=work.name)
        elif work.op in self.execution.run.pending and outcome is not _CANCELLED:
            self._feed(tuple.__new__(Resolution, (work.issue.kind, work.op, now, outcome, value)), ended)
        else:
            self.execution.late(work.issue, ended, now)

    def _try_again(self, attempt: Attempt, error: BaseException) -> bool:
        work = attempt.work
        if work.undo is None and work.op not in self.execution.run.pending:
            return False
        policy = work.options.retry or self.worker.default_retry
        now = self.worker.clock.now()
        row = self._retries.fail(attempt, error, policy, self.idempotency_key(work.op), now)
        if row is None:
            return False
        self._rows.append(row)
        self._counted(attempt, now).retries += 1
        failures.attempt_failed(attempt, row)
        return True

    def _counted(self, attempt: Attempt, now: int) -> OfActivity:
        work = attempt.work
        figures = self.worker.tally.activities[work.issue.name if work.undo is None else work.name]
        if attempt.started_at:  # else it was withdrawn while it waited for its slot
            figures.micros.add(now - attempt.started_at)
        return figures

    def _final_error(self, attempt: Attempt, error: BaseException) -> BaseException:
        policy = attempt.work.options.retry or self.worker.default_retry
        return self._retries.final_error(attempt.work.op, error, policy)

    # --- what follows from it

    def progress(self) -> None:
        """Take up what the body wants now, and write or start what is next."""
        if self.gone:
            return
        self._follow()
        if self._writing is not None:
            return
        if self._must_write():
            if not self.owned:
                self.worker.unpark(self)
            self.worker.committer.enlist(self)
        else:
            if self.worker.teller is not None:
                self.worker.teller.goes_on(self)
            self._launch(self._starts)
            self._starts = []
            self._arm()

    def _follow(self) -> None:
        """Stop what was withdrawn, take what is asked for, judge the end."""
        execution = self.execution
        run = execution.run
        if run.problems:
            self._report_problems()
        if execution.withdrawn:
            for op in execution.take_withdrawn():
                self._withdraw(op)
        if execution.starts:
            self._starts += execution.take_starts()
        if execution.asks or execution.deeds:
            self._take_talk()
        if run.verdict is not None and self._ending is None:
            self._judge()

    def _take_talk(self) -> None:
        self._asks.update(issue.op for issue in self.execution.take_asks())
        self._deeds += [self._identified(self.idempotency_key(op), deed) for op, deed in self.execution.take_deeds()]

    def _identified(self, key: str, deed: D, attempt: Attempt | None = None) -> D:
        deed = identified(deed, key, self.instance_id, self.worker.clock.now())
        if self.worker.teller is not None and isinstance(deed, SendEvent):
            return cast(D, self.worker.teller.sending(self, deed, attempt))
        return deed

    def _must_write(self) -> bool:
        execution = self.execution
        return (
            not self.owned
            or execution.has_entries
            or execution.run.verdict is not None
            or bool(self._rows or self._closed or self._consumed or self._asks or self._deeds)
            or self._pausing
            or not self._busy()
        )

    def _busy(self) -> bool:
        """Something runs, or is about to: the instance stays in hand."""
        if self._attempts or self._starts or self.execution.lingering or self._left:
            return True
        return self._retries.due_by(self.worker.clock.now() + SHORT_BACKOFF)

    def _withdraw(self, op: str) -> None:
        self._retries.waiting.pop(op, None)
        attempt = self._attempts.get(op)
        if attempt is None:
            return
        execution = self.execution
        ended = execution.verdict is not None
        self.execution.lingering.add(op)
        if attempt.started_at and execution.stopping:
            return  # it finishes, is recorded and compensated; one that still waits for its slot does not begin
        if ended and not attempt.interruptible:
            attempt.withdrawn = True  # its next heartbeat says so; what it returns in spite of that is recorded
            return
        attempt.withdraw()

    def _judge(self) -> None:
        """The body has ended: encode how. A result that cannot be stored fails the instance."""
        execution = self.execution
        verdict = execution.verdict
        if isinstance(verdict, Recur):
            return
        if isinstance(verdict, Finish):
            try:
                self._ending = Ending(output=self.workflow.result.encode(verdict.value))
                return
            except PayloadError as error:
                execution.reject_result(error)
                verdict = execution.verdict
        if isinstance(verdict, Fail):
            raw = encode_failure(verdict.error)
            self._ending = Ending(error=raw, fingerprint=describe_failure(raw).fingerprint)
        elif isinstance(verdict, Cancelled):
            reason = () if verdict.reason is None else (verdict.reason,)
            raw = encode_failure(asyncio.CancelledError(*reason))
            self._ending = Ending(error=raw)

    def _report_problems(self) -> None:
        for problem in self.execution.run.problems:
            _log.warning("%r of %s: %s", self.instance_id, self.workflow.label, problem)
        self.execution.run.problems.clear()

    # --- writing

    def take(self) -> Transition | None:
        """What the instance did since its last commit, if anything."""
        if self.gone or self._writing is not None:
            return None
        self._follow()  # something may have been fed since it was enlisted
        execution, worker, epoch = self.execution, self.worker, self.epoch
        now, phase = worker.clock.now(), None if execution.run.verdict is None else execution.phase
        done = phase is _PHASE_ENDED and not self._attempts
        recur = self._recurrence() if done and not self._pausing else None
        ended = done and not isinstance(execution.verdict, Recur)
        paused = self._pausing and not self._attempts and not ended
        compensating = phase is _COMPENSATING
        asks = self._take_asks(now) if self._asks and not (ended or paused or recur) else ()
        # What is asked with a bound is followed by what is due then: the instance stays in hand.
        hold = recur is not None or (bool(asks) and asks[0].before is not None)
        if not hold and not ended and not paused:
            hold = self._busy() or (compensating and not self._retries.waiting)
        self._launching, self._starts = self._starts, []
        history = execution.take_entries()
        releasing = not hold and not ended and not paused
        waits: tuple[Wait, ...] = ()
        withdrawn: tuple[str, ...] = ()
        if releasing or self._stored_waits:
            waits, withdrawn = self._stored_waits.change(execution.run, self._retries, add=releasing)
        if worker.teller is not None:
            self._untold = worker.teller.unwritten(self)
        generation = self.identity.generation
        fields = (
            self.instance_id,
            generation,
            worker.id,
            epoch,
            epoch if self.owned else epoch + 1,
            self._status(ended=ended, paused=paused, compensating=compensating, hold=hold),
            now,
            hold,
            self.seen,
            None if ended or paused else self.next_due(),
            self._retries.since(),
            execution.seq - len(history),
            execution.talked or generation > 1,
            history,
            self._ending if ended else None,
            _taken(self._rows) if self._rows else (),
            _taken(self._closed) if self._closed else (),
            waits,
            withdrawn,
            tuple(self._consumed),
            _taken(self._notes) if self._notes else (),
            tuple([worker.with_starts(deed) for deed in _taken(self._deeds)]) if self._deeds else (),
            asks,
            None,
            recur,
        )
        self._writing = tuple.__new__(Transition, fields)  # its own constructor takes twice the time, at every step
        if self._writing.deeds:
            worker.unanswered.ask(begun_by(_starts_of(self._writing)))
        return self._writing

    def _recurrence(self) -> Recurrence | None:
        verdict = self.execution.verdict
        return Recurrence(verdict.input, self.worker.options.archive_history) if isinstance(verdict, Recur) else None

    def _take_asks(self, now: int) -> tuple[Ask, ...]:
        run = self.execution.run
        wanted = [waiting.issue for op, waiting in run.pending.items() if op in self._asks]  # in the order they were issued
        self._asks.clear()
        self._stored_waits.asked(issue.op for issue in wanted if issue.kind in WAITS)
        due = self.execution.next_due()
        before = due if due is not None and due <= now else None
        return tuple([self._ask(issue, max(now, run.at), before) for issue in wanted])

    def _ask(self, issue: Issue, at: int, before: int | None) -> Ask:
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
        question = issue.detail
        if isinstance(question, SendTo):
            question = self._identified(self.idempotency_key(issue.op), question)
        return Ask(entry, question, issue.due, before)

    def _status(self, *, ended: bool, paused: bool, compensating: bool, hold: bool) -> Status:
        if ended:
            return _ENDINGS[type(self.execution.verdict)]
        if paused:
            return _PAUSED
        if compensating:
            return Status.COMPENSATING
        return _RUNNING if hold else waiting_status(self.execution.run)

    def next_due(self, *, here: bool = False) -> int | None:
        """When this instance must go on by itself; here: as far as this worker will see to it."""
        execution, waiting = self.execution, self._retries.waiting
        if here and self.worker.stopping:
            waiting = {}  # whoever takes over makes the next attempt: an alarm would ring for it without end
        if not execution.run.due and not waiting and self.identity.deadline_at is None:
            return None  # the common case, asked twice at every step
        dues = [backoff.next_at for backoff in waiting.values()]
        if execution.verdict is None:
            dues += [due for due in (execution.next_due(), self._deadline()) if due is not None]
        return min(dues, default=None)

    def _deadline(self) -> int | None:
        return None if self.execution.stopping else self.identity.deadline_at

    def answered(self, answer: Answer | StoreError) -> None:
        """The transition is durable, or was refused."""
        transition, self._writing = self._writing, None
        if transition is None:
            return
        if transition.deeds:
            self.worker.unanswered.answered(begun_by(_starts_of(transition)))
        if self.gone:
            self.worker.unanswered.answered([self.instance_id])
            if isinstance(answer, Applied):
                self._spread(transition, answer)
            return
        if not isinstance(answer, Applied):
            self._not_written(answer)
            return
        self.epoch = transition.new_epoch
        self.owned = answer.held
        if answer.caught_up:
            self.seen = answer.signal
        if transition.consumed:
            if self._reading_mail:
                self._used_up.update(transition.consumed)
            self._consumed = [one for one in self._consumed if one not in transition.consumed]
        if self.worker.on_committed is not None:
            self.worker.on_committed(self)
        encoded = next((one.value for one in answer.replies if is_encoded(one.value)), None) if answer.replies else None
        if self.worker.teller is not None and encoded is None:
            self.worker.teller.committed(self, transition, answer, self._untold)
        if transition.deeds or answer.woken or answer.started:  # a plain step has none of them, and is spared the call
            self._spread(transition, answer)
        if transition.recur is not None:
            unread = answer.signal != self.seen or self._mail_again or self._reading_mail
            self.worker.turn_over(self, transition.recur.input, transition.now, unread=unread)
            return
        if transition.ending is not None and not answer.held:
            self.worker.ended(self, transition.status, transition.ending)
            return
        if transition.status is _PAUSED and not answer.held:
            self.worker.drop(self)
            return
        launching, self._launching = self._launching, []
        if transition.asks and not answer.replies:
            self._asked_before = transition.asks[0].before or 0
        if encoded is not None:
            self.worker.block(self, not_decoded("what it waited for", encoded))
            return
        if answer.replies:
            self._settle_asks(transition.asks, answer.replies)
            if self.gone:
                return
        unread = answer.signal != self.seen or self._mail_again
        if unread:  # first what arrived: it may be a cancellation or a pause, after which nothing new starts
            self._held_back += launching
            self.check_mail()
        elif answer.held:
            self._launch(launching)
        if not answer.held:
            self.worker.park(self)
            self._arm()
        else:
            self._after_answer()
        if self._ended:
            self._catch_up()

    def _spread(self, transition: Transition, answer: Applied) -> None:
        """Let others go on with what was said, also when this run was dropped while it was written."""
        if transition.deeds:
            self.worker.put_out(transition.deeds)
        if answer.woken or answer.started:
            self.worker.spread(answer, _starts_of(transition))

    def _not_written(self, answer: Answer | StoreError) -> None:
        if isinstance(answer, CodecError):
            self.worker.block(self, str(answer))
        elif isinstance(answer, StoreError):
            self.worker.block(self, f"its state cannot be stored: {answer}")
        else:
            self.worker.lost(self)

    def _settle_asks(self, asks: tuple[Ask, ...], replies: tuple[Reply, ...]) -> None:
        """Let the body go on with the store's answers. What was asked behind the first of them is asked again."""
        self._stored_waits.answered(reply.op for reply in replies)
        try:
            self.execution.settled(*replies)
        except DeterminismViolationError as error:
            self.worker.block(self, str(error))
            return
        answered = {reply.op: reply for reply in replies}
        for ask in asks:
            reply = answered.get(ask.entry.op)
            if reply is None:
                self._ask_again(ask.entry.op)
            elif reply.outcome is Outcome.OK:
                self._count_answer(ask.entry.kind)

    def _count_answer(self, kind: Kind) -> None:
        tally = self.worker.tally
        if kind is Kind.EVENT:
            tally.events_received += 1
        elif kind is Kind.MESSAGE:
            tally.messages_received += 1
        elif kind is Kind.SEND_TO:
            tally.messages_sent += 1

    def _catch_up(self) -> None:
        """Attempts that ended while the store was asked count now."""
        ended, self._ended = self._ended, []
        for attempt, value, error in ended:
            self.attempt_ended(attempt, value, error)

    def _after_answer(self) -> None:
        if self._reading_mail:
            return  # mail decides how it goes on
        # Not while something is unwritten: the next step of the way back may follow from it.
        execution = self.execution
        if execution.phase is _COMPENSATING and not self._pausing and not execution.has_entries:
            self._compensate_next()
        if self._asked_before:
            self.wake()
        elif self._unwritten() or not self._busy():
            self.progress()
        else:
            self._arm()

    def _unwritten(self) -> bool:
        """There is something to write, or to take from the execution."""
        execution = self.execution
        if execution.has_entries or execution.asks or execution.deeds or execution.starts:
            return True
        return bool(self._starts or self._rows or self._closed or self._asks or self._deeds)

    def note_attempt(self, attempt: Attempt) -> None:
        """Show an attempt while it is open; what is known of one that has ended must not be overwritten."""
        if not self.gone and self._attempts.get(attempt.work.op) is attempt:
            attempt.noted = True
            write = Beat(self.instance_id, self.identity.generation, self.epoch, attempt.row(open=True))
            self.worker.note(self, write)

    @property
    def suspect(self) -> bool:
        """Its worker was lost where it stands now: what it does next may take this one along too."""
        return self.suspect_at == self.execution.seq

    async def announce_if_suspect(self, attempt: Attempt) -> None:
        """Show an attempt before it begins: should it take this worker along, it is known which one it was."""
        if not self.suspect:
            return
        attempt.noted = True
        now = self.worker.clock.now()
        row = replace(attempt.row(open=True), started_at=now, beat_at=now)
        await self.worker.announce(self, Beat(self.instance_id, self.identity.generation, self.epoch, row))
        if self.gone:
            raise asyncio.CancelledError

    # --- carrying out

    def _launch(self, issues: list[Issue]) -> None:
        if self._pausing:
            self._held_back += issues
        elif self.worker.stopping:
            self._left = self._left or bool(issues)
        else:
            for issue in issues:
                if issue.op in self.execution.run.pending:
                    self._start(Work(issue))
            if self._retries.waiting:
                self._start_due_backoffs()

    def _compensate_next(self) -> None:
        undo = self.execution.next_undo()
        if undo is not None and undo.op not in self._attempts and undo.op not in self._retries.waiting:
            self._start(Work(undo.issue, undo))

    def _start(self, work: Work) -> None:
        """Start an activity: its first attempt, or the one its last owner's failures lead to."""
        if self.worker.stopping:
            self._left = True
            return
        due = self._retries.due_at(work.op) if self._retries.before else None
        if due is not None and due > self.worker.clock.now():
            self._retries.waiting[work.op] = Backoff(work, due)
        else:
            self._attempt(work)

    def _start_due_backoffs(self) -> None:
        if not self._rows:  # an attempt follows from the failure before it: that is written first
            for backoff in self._retries.take_due(self.worker.clock.now()):
                self._attempt(backoff.work, backoff.thread)

    def _attempt(self, work: Work, thread: asyncio.Future[Any] | None = None) -> None:
        retries = self._retries
        number, details = (retries.number(work.op), retries.details(work.op)) if retries.before else (1, None)
        self._attempts[work.op] = Attempt(self, work, number, details, thread)

    def _arm(self) -> None:
        # A worker that goes starts nothing: what is due would be due again at once, for ever. Whoever comes next sees to it.
        if self.gone or self.worker.stopping:
            return
        due = self.next_due(here=True)
        if due == self._alarm_due:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = self.worker.alarms.at(due, self._rung) if due is not None else None

    def _now(self) -> int:
        """The time of a new resolution: never before the run's own time."""
        return max(self.worker.clock.now(), self.execution.run.at)

    def idempotency_key(self, op: str) -> str:
        """The same over attempts and recovery; another after the operation was compensated and runs again."""
        identity = self.identity
        key = f"{identity.instance_id}:{identity.generation}:{op}"
        return f"{key}:{identity.round}" if identity.round else key

    def discard(self) -> None:
        """Let everything go: attempts end without a word, the run is evicted."""
        if self.gone:
            return
        self.gone = True
        if self._writing is not None:
            self.worker.unanswered.ask([self.instance_id])  # what it wrote last is still on its way
        if self._alarm is not None:
            self._alarm.cancel()
        for attempt in self._attempts.values():
            attempt.abandon()
        self._attempts.clear()
        self._ended.clear()
        for complaint in self.execution.run.evict():
            _log.warning("%r: %s", self.instance_id, complaint)


_ENDINGS: dict[type, Status] = {Finish: Status.COMPLETED, Fail: Status.FAILED, Cancelled: Status.CANCELLED}


def _starts_of(transition: Transition) -> list[Create]:
    """The instances that a transition starts."""
    return [start for deed in transition.deeds if isinstance(deed, SendEvent) for start in deed.starts]


def _taken(items: list[T]) -> tuple[T, ...]:
    """What has gathered in a list, which is empty afterwards."""
    taken = tuple(items)
    items.clear()
    return taken


def _reason(body: bytes | None) -> bytes | None:
    """The reason in a cancellation's mail (JSON), as the run keeps it."""
    reason = json.loads(body) if body is not None else None
    return reason.encode() if isinstance(reason, str) else None
