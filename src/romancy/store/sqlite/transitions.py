"""Transitions, creations and beats: decided on the hot rows as they are under the write lock."""

from __future__ import annotations

from romancy.model.status import Status
from romancy.model.transition import Answer, Applied, Beat, Create, Existing, Refused, Transition
from romancy.store.sqlite.ledger import Ledger, State
from romancy.store.sqlite.statements import one

_AT_REST = frozenset({Status.PAUSED, Status.BLOCKED})
"""Unowned instances that only a request (or a claim for other code) sets going."""


def create(ledger: Ledger, write: Create) -> Answer:
    """A new instance, unless its id is taken."""
    taken = ledger.states.get(write.instance_id)
    if taken is not None:
        return _existing(ledger, taken)
    held = write.owner is not None
    state = State(
        write.instance_id,
        Status.RUNNING if held else Status.PENDING,
        epoch=1 if held else 0,
        owner=write.owner,
        wake_at=None if held else write.now,
        deadline_at=write.deadline_at,
        started_at=write.now if held else None,
        updated_at=write.now,
    )
    ledger.create(state, _instance_row(state, write), write.input)
    return Applied(signal=0, held=held)


def transition(ledger: Ledger, write: Transition) -> Answer:
    """What a run did, if the run still may."""
    state = ledger.states.get(write.instance_id)
    if state is None:
        return Refused()
    if not _may_write(state, write):
        return Refused(Status(state.status))
    if write.hold and write.ending is None and _goes_on(state, write):
        _advance(state, write)
        ledger.step(state)
    else:
        _settle(ledger, state, write)
    _add_rows(ledger, state, write)
    return Applied(state.signal, state.owner is not None)


def beat(ledger: Ledger, write: Beat) -> Answer:
    """The details of an open attempt, if its run still may write."""
    state = ledger.states.get(write.instance_id)
    if state is None:
        return Refused()
    if state.generation != write.generation or state.epoch != write.epoch or state.owner is None:
        return Refused(Status(state.status))
    ledger.put_attempts(state, (write.attempt,))
    return Applied(state.signal, held=True)


def _may_write(state: State, write: Transition) -> bool:
    if state.generation != write.generation or state.epoch != write.epoch or state.ended:
        return False
    if write.length is not None and state.length != write.length:
        return False
    if state.owner is None:
        # A warm run goes on without a claim of its own: not when an operator has paused the instance meanwhile.
        return write.new_epoch > write.epoch and state.status not in _AT_REST
    return state.owner == write.worker


def _goes_on(state: State, write: Transition) -> bool:
    """Nothing changes that an index knows."""
    return (
        state.owner is not None
        and state.status == write.status
        and state.blocked_by == write.blocked_by
        and state.started_at is not None
    )


def _advance(state: State, write: Transition) -> None:
    state.epoch = write.new_epoch
    state.length += len(write.history)
    state.signal_seen = write.seen
    state.updated_at = write.now
    state.wake_at = write.wake_at
    state.retrying_since = write.retrying_since


def _settle(ledger: Ledger, state: State, write: Transition) -> None:
    _advance(state, write)
    state.blocked_by = write.blocked_by
    if state.started_at is None:
        state.started_at = write.now
    if write.ending is not None:
        _end(ledger, state, write)
    elif write.hold:
        state.owner, state.status = write.worker, write.status
    elif state.signal != write.seen:
        # Something arrived that the run has not seen: it keeps the instance and looks again, or nobody would.
        state.owner = write.worker
        state.status = write.status if write.status is Status.COMPENSATING else Status.RUNNING
    else:
        # Running instances are the owned ones: lists find them by that.
        state.owner, state.status = None, Status.PENDING if write.status is Status.RUNNING else write.status
        if write.status in _AT_REST:
            state.wake_at = None
    ledger.move(state)


def _end(ledger: Ledger, state: State, write: Transition) -> None:
    assert write.ending is not None
    state.owner, state.status, state.wake_at, state.ended_at = None, write.status, None, write.now
    state.fingerprint = write.ending.fingerprint
    ledger.set_results(state, write.ending.output, write.ending.error)
    ledger.clear(state)


def _add_rows(ledger: Ledger, state: State, write: Transition) -> None:
    if write.history:
        ledger.add_history(state, write.history)
    if write.closed:
        ledger.close_attempts(state, write.closed)
    if write.attempts:
        ledger.put_attempts(state, write.attempts)
    if write.withdrawn:
        ledger.withdraw_waits(state, write.withdrawn)
    if write.waits:
        ledger.put_waits(state, write.waits)
    if write.consumed:
        ledger.consume_mails(state, write.consumed)
    for note in write.notes:
        ledger.add_note(state, note, write.worker, write.now)


def _existing(ledger: Ledger, taken: State) -> Existing:
    workflow, version, digest = ledger.cursor.execute(one("existing"), (taken.id,)).fetchone()
    return Existing(workflow, version, digest, Status(taken.status))


def _instance_row(state: State, write: Create) -> tuple[object, ...]:
    return (
        state.id,
        write.workflow,
        write.version,
        state.status,
        state.epoch,
        state.owner,
        state.wake_at,
        state.deadline_at,
        write.now,
        state.started_at,
        write.now,
        write.code,
        write.python,
        write.digest,
    )
