"""The attempts of one instance: those that run, those that are to start, and what the next transition records of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from romancy.clock import MICROS
from romancy.core.commands import Issue, Resolution
from romancy.core.execution import AttemptResult
from romancy.metrics.metrics import ActivityMetrics
from romancy.model.history import AttemptRow, Kind, Outcome
from romancy.model.instance import InboxItem
from romancy.model.messaging import Effect
from romancy.model.transition import AttemptUpdate, TransactionalResult
from romancy.serde.failure import encode_failure
from romancy.worker import failure_log
from romancy.worker.activity_session import CommittedResult, pack, unpack
from romancy.worker.attempt import Attempt, AttemptEnded, WorkItem
from romancy.worker.retries import Backoff, Retries

if TYPE_CHECKING:
    from romancy.worker.runner.runner import InstanceRunner

_OK, _CANCELLED = Outcome.OK, Outcome.CANCELLED
SHORT_BACKOFF = 1 * MICROS
"""The instance stays owned during a back-off of up to this length; a longer one releases it."""


class RunnerAttempts:
    """The attempts of one instance. (Its methods are given the runner: a reference back would be a cycle of garbage.)"""

    __slots__ = ("closed", "deferred_ends", "held", "new", "retries", "rows", "running", "starting", "unstarted")

    def __init__(self) -> None:
        self.running: dict[str, Attempt] = {}
        self.retries = Retries()
        self.new: list[Issue] = []
        """Activities that the body has issued since the last transition."""
        self.starting: list[Issue] = []
        """Activities whose transition is being committed: they start when it is durable."""
        self.held: list[Issue] = []
        """Activities that are held back by a pause, or until the inbox has been read."""
        self.unstarted = False
        """Work was not started because the worker is stopping: the instance stays owned until the worker releases it."""
        self.rows: list[AttemptRow] = []
        """Rows to write with the next transition."""
        self.closed: list[str] = []
        """Operations whose recorded attempt has ended since the last transition."""
        self.deferred_ends: list[AttemptEnded] = []
        """Attempts that ended while store calls were being committed: the replies come before them in the history."""

    # --- starting

    def launch(self, runner: InstanceRunner, issues: list[Issue]) -> None:
        """Start activities whose cause is durable, and the attempts whose back-off is over."""
        if runner.inbox.pausing:
            self.held += issues
        elif runner.worker.stopping:
            self.unstarted = self.unstarted or bool(issues)
        else:
            for issue in issues:
                if issue.op in runner.execution.run.pending:
                    self._start(runner, WorkItem(issue))
            if self.retries.waiting:
                self._start_due_backoffs(runner)

    def release_held(self) -> None:
        """Start what was held back, before what the body has issued since."""
        if self.held:
            self.new, self.held = self.held + self.new, []

    def compensate_next(self, runner: InstanceRunner) -> None:
        """Start the next compensation, unless it runs or waits for its back-off."""
        due = runner.execution.next_compensation()
        if due is not None and due.op not in self.running and due.op not in self.retries.waiting:
            self._start(runner, WorkItem(due.issue, due))

    def _start(self, runner: InstanceRunner, work: WorkItem) -> None:
        """Start an activity or a compensation, or wait for its back-off if an earlier owner's attempt failed."""
        if runner.worker.stopping:
            self.unstarted = True
            return
        if self.retries.ended_attempts:
            due = self.retries.due_at(work.op)
            if due is not None and due > runner.worker.clock.now():
                self.retries.waiting[work.op] = Backoff(work, due)
                return
        self._start_attempt(runner, work)

    def _start_due_backoffs(self, runner: InstanceRunner) -> None:
        if not self.rows:  # a new attempt follows from a failure, which must be durable first
            for backoff in self.retries.take_due(runner.worker.clock.now()):
                self._start_attempt(runner, backoff.work, backoff.thread)

    def _start_attempt(self, runner: InstanceRunner, work: WorkItem, thread: asyncio.Future[Any] | None = None) -> None:
        retries = self.retries
        number, details = (retries.number(work.op), retries.details(work.op)) if retries.ended_attempts else (1, None)
        self.running[work.op] = Attempt(runner, work, number, details, thread)

    def is_busy(self, runner: InstanceRunner) -> bool:
        """Something runs or is about to start: the instance stays owned."""
        if self.running or self.new or self.unstarted or runner.execution.finishing:
            return True
        return bool(self.retries.waiting) and self.retries.has_due_by(runner.worker.clock.now() + SHORT_BACKOFF)

    # --- ends

    def record_end(self, runner: InstanceRunner, ended: AttemptEnded) -> bool:
        """Record the end of an attempt: its result, a retry, or its failure. False if the next owner runs it again."""
        attempt, value, error = ended
        del self.running[attempt.work.op]
        if attempt.is_recorded:
            self.closed.append(attempt.work.op)
        if error is None:
            self._record_outcome(runner, attempt, _OK, value)
        elif attempt.withdrawn:
            self._record_outcome(runner, attempt, _CANCELLED, None)
        elif runner.worker.stopping and isinstance(error, asyncio.CancelledError):
            self.unstarted = True
            return False
        elif not self.schedule_retry(runner, attempt, error):
            policy = attempt.work.options.retry or runner.worker.default_retry
            raw = encode_failure(self.retries.final_error(attempt.work.op, error, policy))
            failure_log.log_activity_failed(attempt, raw)
            self._record_outcome(runner, attempt, Outcome.ERROR, raw)
        return True

    def _record_outcome(self, runner: InstanceRunner, attempt: Attempt, outcome: Outcome, value: bytes | None) -> None:
        work, execution, clock = attempt.work, runner.execution, runner.worker.clock.now()
        now = max(clock, execution.run.at)
        ended = AttemptResult(
            outcome, value, attempt.number, attempt.started_at or None, clock, runner.worker.id, runner.epoch
        )
        self._count(runner, attempt, clock).ended[outcome] += 1
        if attempt.effects and outcome is _OK:
            runner.draft.effects += _effects_of(runner, attempt)
            runner.sent_events += attempt.sent_events
        if attempt.result_stored is not None:
            runner.inbox.consumed.append(attempt.result_stored.item_id)
        if work.pending_compensation is not None:
            execution.record_compensation(work.pending_compensation, ended, now, name=work.name)
        elif work.op in execution.run.pending and outcome is not _CANCELLED:
            runner.feed(Resolution(work.issue.kind, work.op, now, outcome, value), ended)
        else:
            execution.record_late_result(work.issue, ended, now)

    def schedule_retry(self, runner: InstanceRunner, attempt: Attempt, error: BaseException) -> bool:
        """Record a failed attempt, and schedule the next one. False if the retry policy allows none."""
        work = attempt.work
        if work.pending_compensation is None and work.op not in runner.execution.run.pending:
            return False
        policy = work.options.retry or runner.worker.default_retry
        now = runner.worker.clock.now()
        row = self.retries.fail(attempt, error, policy, runner.idempotency_key(work.op), now)
        if row is None:
            return False
        self.rows.append(row)
        self._count(runner, attempt, now).retries += 1
        failure_log.log_attempt_failed(attempt, row)
        return True

    def _count(self, runner: InstanceRunner, attempt: Attempt, now: int) -> ActivityMetrics:
        work = attempt.work
        metrics = runner.worker.metrics.activities[work.issue.name if work.pending_compensation is None else work.name]
        if attempt.started_at:  # otherwise it was withdrawn while it waited for its slot
            metrics.micros.add(now - attempt.started_at)
        return metrics

    def withdraw(self, runner: InstanceRunner, op: str) -> None:
        """The body no longer waits for an operation: end its attempt, if it can be interrupted."""
        self.retries.waiting.pop(op, None)
        attempt = self.running.get(op)
        if attempt is None:
            return
        execution = runner.execution
        ended = execution.body_outcome is not None
        execution.finishing.add(op)
        if attempt.started_at and execution.stopping:
            return  # a started attempt finishes, is recorded and compensated; one that waits for its slot is cancelled
        if ended and not attempt.interruptible:
            attempt.withdrawn = True  # its next heartbeat raises; if it returns a result all the same, that is recorded
            return
        attempt.withdraw()

    def abandon(self) -> None:
        """Cancel all attempts without recording their ends."""
        for attempt in self.running.values():
            attempt.abandon()
        self.running.clear()
        self.deferred_ends.clear()

    # --- results that an activity commits with its own transaction

    def build_transactional_result(self, runner: InstanceRunner, attempt: Attempt, value: bytes) -> TransactionalResult:
        """The result and effects that an attempt commits with its own transaction."""
        worker, op, now = runner.worker, attempt.work.op, runner.worker.clock.now()
        result = CommittedResult(value, attempt.number, attempt.started_at, now, worker.id, runner.epoch)
        effects = tuple(worker.with_starts(effect) for effect in _effects_of(runner, attempt))
        generation = runner.identity.generation
        return TransactionalResult(runner.instance_id, generation, runner.epoch, worker.id, op, pack(result), now, effects)

    def apply_stored_result(self, runner: InstanceRunner, item: InboxItem) -> None:
        """Record the result that an activity of an earlier owner committed with its own transaction."""
        result = unpack(item.body or b"")
        ended = AttemptResult(
            Outcome.OK, result.value, result.attempt, result.started_at, result.ended_at, result.worker, result.epoch
        )
        execution, now = runner.execution, runner.now()
        compensation = execution.next_compensation()
        if compensation is not None and compensation.op == item.op:
            execution.record_compensation(compensation, ended, now, name=WorkItem(compensation.issue, compensation).name)
        elif item.op in execution.run.pending:
            runner.feed(Resolution(Kind.ACTIVITY, item.op, now, Outcome.OK, result.value), ended)
        elif (issue := execution.find_compensable(item.op)) is not None:
            execution.record_late_result(issue, ended, now)

    # --- rows of attempts that are open

    def record_open(self, runner: InstanceRunner, attempt: Attempt) -> None:
        """Write the row of an attempt while it is open; the recorded end of one that has ended must not be overwritten."""
        if not runner.gone and self.running.get(attempt.work.op) is attempt:
            attempt.is_recorded = True
            write = AttemptUpdate(runner.instance_id, runner.identity.generation, runner.epoch, attempt.to_row(open=True))
            runner.worker.record_attempt(runner, write)

    async def record_if_suspect(self, runner: InstanceRunner, attempt: Attempt) -> None:
        """Write an attempt's row before it begins, so that operators see which attempt ran if it crashes this worker."""
        if not runner.is_suspect:
            return
        attempt.is_recorded = True
        now = runner.worker.clock.now()
        row = replace(attempt.to_row(open=True), started_at=now, heartbeat_at=now)
        await runner.worker.record_attempt_durably(
            runner, AttemptUpdate(runner.instance_id, runner.identity.generation, runner.epoch, row)
        )
        if runner.gone:
            raise asyncio.CancelledError


def _effects_of(runner: InstanceRunner, attempt: Attempt) -> list[Effect]:
    """The events and messages that an attempt sends with its result, with their ids."""
    key = runner.idempotency_key(attempt.work.op)
    return [runner.with_ids(f"{key}:{number}", effect, attempt) for number, effect in enumerate(attempt.effects, 1)]
