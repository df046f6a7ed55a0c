"""Builds the transition of an instance: everything that it did since its last commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from romancy.core.commands import Cancelled, Fail, Finish, Issue, Recur
from romancy.core.execution import Phase
from romancy.errors import PayloadError
from romancy.model.history import Entry, Outcome
from romancy.model.instance import InstanceRow
from romancy.model.messaging import Effect, SendEvent, SendTo, StoreCall
from romancy.model.status import Status
from romancy.model.transition import CreateInstance, Ending, JournalNote, Recurrence, Transition
from romancy.serde.failure import describe_failure, encode_failure
from romancy.worker.runner.waits import waiting_status

if TYPE_CHECKING:
    from romancy.worker.runner.runner import InstanceRunner

T = TypeVar("T")

# Module names for enum members: before Python 3.12, looking up a member of an enum takes as long as a call.
_PHASE_ENDED, _COMPENSATING = Phase.ENDED, Phase.COMPENSATING
_RUNNING, _PAUSED = Status.RUNNING, Status.PAUSED
_END_STATUSES: dict[type, Status] = {Finish: Status.COMPLETED, Fail: Status.FAILED, Cancelled: Status.CANCELLED}


class TransitionDraft:
    """What the next transition has besides the history, the attempts, the waits and the inbox."""

    __slots__ = ("effects", "ending", "notes")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.ending: Ending | None = None
        """The encoded outcome of the body, once it has ended."""
        self.notes: list[JournalNote] = []


def build_transition(runner: InstanceRunner) -> Transition:
    """Build the transition. What it takes out of the runner's lists is from then on only in it."""
    execution, worker, draft, attempts = runner.execution, runner.worker, runner.draft, runner.attempts
    now, outcome, epoch = worker.clock.now(), execution.run.body_outcome, runner.epoch
    phase = None if outcome is None else execution.phase
    done = phase is _PHASE_ENDED and not attempts.running
    pausing = runner.inbox.pausing
    recur = None
    if done and not pausing and isinstance(outcome, Recur):
        recur = Recurrence(outcome.input, worker.options.archive_history)
    ended = done and not isinstance(outcome, Recur)
    paused = pausing and not attempts.running and not ended
    compensating = phase is _COMPENSATING
    store_calls = take_store_calls(runner, now) if runner.waits.calls and not (ended or paused or recur) else ()
    # Store calls with a bound (`before`) are made because a timer is due: stay owned to fire it when they are answered.
    keep_owned = recur is not None or (bool(store_calls) and store_calls[0].before is not None)
    if not keep_owned and not ended and not paused:
        keep_owned = attempts.is_busy(runner) or (compensating and not attempts.retries.waiting)
    # After `is_busy`, which counts `new`: an instance that is about to start activities must not be released.
    attempts.starting, attempts.new = attempts.new, []
    history = execution.take_entries()
    # After `take_store_calls`: a restored wait that is called for again would otherwise be withdrawn here.
    waits, withdrawn = runner.waits.take_changes(
        execution.run, attempts.retries, add=not keep_owned and not ended and not paused
    )
    if ended:
        status = _END_STATUSES[type(outcome)]
    elif paused:
        status = _PAUSED
    elif compensating:
        status = Status.COMPENSATING
    else:
        status = _RUNNING if keep_owned else waiting_status(execution.run)
    generation = runner.identity.generation
    return Transition(
        instance_id=runner.instance_id,
        generation=generation,
        worker=worker.id,
        epoch=epoch,
        new_epoch=epoch if runner.owned else epoch + 1,
        status=status,
        now=now,
        keep_owned=keep_owned,
        inbox_seen=runner.inbox.seen,
        wake_at=None if ended or paused else runner.next_due(),
        retrying_since=attempts.retries.retrying_since() if attempts.retries.waiting else None,
        length=execution.seq - len(history),
        has_messaging_state=execution.used_messaging or generation > 1,
        history=history,
        ending=draft.ending if ended else None,
        attempts=_drain(attempts.rows) if attempts.rows else (),
        closed=_drain(attempts.closed) if attempts.closed else (),
        waits=waits,
        withdrawn=withdrawn,
        consumed_items=tuple(runner.inbox.consumed),
        notes=_drain(draft.notes) if draft.notes else (),
        effects=tuple([worker.with_starts(effect) for effect in _drain(draft.effects)]) if draft.effects else (),
        store_calls=store_calls,
        recur=recur,
    )


def take_store_calls(runner: InstanceRunner, now: int) -> tuple[StoreCall, ...]:
    """The store calls of the transition; from then on they are only in it."""
    run, due = runner.execution.run, runner.execution.next_due()
    before = due if due is not None and due <= now else None
    return tuple([_store_call(runner, issue, max(now, run.at), before) for issue in runner.waits.take_calls(run)])


def _store_call(runner: InstanceRunner, issue: Issue, at: int, before: int | None) -> StoreCall:
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
        worker=runner.worker.id,
        epoch=runner.epoch if runner.owned else runner.epoch + 1,
    )
    command = issue.detail
    if isinstance(command, SendTo):
        command = runner.with_ids(runner.idempotency_key(issue.op), command)
    return StoreCall(entry, command, issue.due, before)


def encode_ending(runner: InstanceRunner) -> Ending | None:
    """Encode the outcome of the body. A result that cannot be stored fails the instance."""
    execution = runner.execution
    outcome = execution.run.body_outcome
    if isinstance(outcome, Finish):
        try:
            return Ending(output=runner.workflow.result.encode(outcome.value))
        except PayloadError as error:
            execution.reject_result(error)
            outcome = execution.run.body_outcome
    if isinstance(outcome, Fail):
        raw = encode_failure(outcome.error)
        return Ending(error=raw, fingerprint=describe_failure(raw).fingerprint)
    if isinstance(outcome, Cancelled):
        reason = () if outcome.reason is None else (outcome.reason,)
        return Ending(error=encode_failure(asyncio.CancelledError(*reason)))
    return None  # the next generation follows


def row_of(runner: InstanceRunner) -> InstanceRow:
    """The instance's row in the store, as far as the runner knows it."""
    identity = runner.identity
    return InstanceRow(
        instance_id=identity.instance_id,
        workflow=runner.workflow.name,
        version=runner.workflow.version,
        status=Status.RUNNING,
        generation=identity.generation,
        round=identity.round,
        epoch=runner.epoch,
        owner=runner.worker.id,
        wake_at=None,
        inbox_version=runner.inbox.seen,
        length=runner.execution.seq,
        deadline_at=identity.deadline_at,
        created_at=identity.created_at,
        started_at=None,
        updated_at=0,
        ended_at=None,
        blocked_by=identity.blocked_by,
    )


def starts_of(transition: Transition) -> list[CreateInstance]:
    """The instances that a transition starts."""
    return [start for effect in transition.effects if isinstance(effect, SendEvent) for start in effect.starts]


def _drain(items: list[T]) -> tuple[T, ...]:
    """Return the items and empty the list."""
    taken = tuple(items)
    items.clear()
    return taken
