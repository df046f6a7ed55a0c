"""Transitions, creations and beats: decided on the hot rows as they are under the write lock."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.status import Status
from romancy.model.talk import Reply, SendEvent, SendTo
from romancy.model.transition import (
    Accept,
    Accepted,
    Answer,
    Applied,
    Beat,
    Create,
    Ending,
    Existing,
    Post,
    Recurrence,
    Refused,
    Transition,
)
from romancy.store.sql.calls import pass_on
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.ledger import Ledger, State
from romancy.store.sql.talk import Talk, record

_AT_REST = frozenset({Status.PAUSED, Status.BLOCKED})
"""Unowned instances that only a request (or a claim for other code) sets going."""


def create(ledger: Ledger, write: Create) -> Answer:
    """A new instance, unless its id is taken."""
    taken = ledger.states.get(write.instance_id)
    if taken is not None:
        return existing(ledger.cursor, write, taken.status)
    state = _state(write)
    ledger.create(state, born(write), write.input)
    if write.ending is not None:
        _fail_at_birth(ledger, state, write.ending, write.now)
    return Applied(signal=0, held=write.owner is not None)


def _state(write: Create) -> State:
    held = write.owner is not None
    return State(
        write.instance_id,
        Status.RUNNING if held else Status.PENDING,
        epoch=1 if held else 0,
        owner=write.owner,
        wake_at=None if held else write.now,
        deadline_at=write.deadline_at,
        started_at=write.now if held else None,
        updated_at=write.now,
    )


def _fail_at_birth(ledger: Ledger, state: State, ending: Ending, now: int) -> None:
    """It can never run: its arguments do not fit."""
    ledger.flush()
    state.owner, state.status, state.wake_at, state.ended_at = None, Status.FAILED, None, now
    state.fingerprint = ending.fingerprint
    ledger.set_results(state, None, ending.error)
    ledger.move(state)


def talks(write: Transition) -> bool:
    """It may concern other instances: nothing of theirs may lie in a ledger meanwhile."""
    if write.deeds or write.asks or write.recur is not None:
        return True
    return write.bound and (write.ending is not None or bool(write.withdrawn) or not write.hold)


def is_plain_end(write: Transition) -> bool:
    """It ends, and says nothing more: what it was called for is passed on, whatever it withdraws."""
    return write.ending is not None and not write.deeds and not write.asks


def transition(ledger: Ledger, write: Transition) -> Answer:
    """What a run did, if the run still may."""
    state = ledger.states.get(write.instance_id)
    if state is None:
        return Refused()
    if not may_write(state, write):
        return Refused(Status(state.status))
    if _is_cancelled_meanwhile(state, write):
        status = Status.COMPENSATING if state.status == Status.COMPENSATING else Status.RUNNING
        write = write._replace(ending=None, hold=True, status=status)
    talk = Talk(ledger.cursor, write.now, start)
    replies = _talk(ledger, state, write, talk) if talks(write) and not is_plain_end(write) else ()
    caught_up = bool(write.asks) and not write.consumed and not talk.anything_left(state.id)
    if caught_up:
        write = write._replace(seen=state.signal)
    if write.recur is not None:
        talk.call(pass_on(ledger.cursor, [state.id], write.now))
        _recur(ledger, state, write, write.recur)
        return Applied(state.signal, True, woken=tuple(talk.woken), started=tuple(talk.started))
    talk.call(conclude(ledger, state, write, asked=bool(replies)))
    return Applied(state.signal, state.owner is not None, replies, tuple(talk.woken), tuple(talk.started), caught_up)


def conclude(ledger: Ledger, state: State, write: Transition, *, asked: bool) -> list[str]:
    """The hot row and the other rows as the run leaves them; the instances called in its place."""
    called: list[str] = []
    if write.hold and write.ending is None and _goes_on(state, write):
        _advance(state, write)
        ledger.step(state)
    else:
        called = _settle(ledger, state, write, asked=asked)
    _add_rows(ledger, state, write)
    return called


def _talk(ledger: Ledger, state: State, write: Transition, talk: Talk) -> tuple[Reply, ...]:
    """Say what is to be said, then answer what is asked; the answers join the history behind what the run did itself."""
    for deed in write.deeds:
        talk.do(state.id, deed)
    if write.withdrawn:
        talk.withdraw(state.id, write.withdrawn)
    seq = state.length + len(write.history)
    replies: list[Reply] = []
    for ask, decided in talk.ask(state.id, write.asks):
        entry, reply = record(ask.entry, seq + len(replies) + 1, decided)
        ledger.add_history(state, (entry,))
        replies.append(reply)
    ledger.refresh(state)
    return tuple(replies)


def accept(cursor: Cursor, write: Accept) -> Answer:
    """Events from outside."""
    talk = Talk(cursor, write.now, start)
    starts = write.starts or ((),) * len(write.events)
    fresh = write.fresh_ids or ("",) * len(write.events)
    sent = [SendEvent(*one, write.local, write.brokers) for one in zip(write.events, starts, fresh, strict=True)]
    accepted = [talk.accept(one) for one in sent]
    return Accepted(tuple(accepted), tuple(talk.woken), tuple(talk.started))


def post(cursor: Cursor, write: Post) -> Answer:
    """A message from outside."""
    talk = Talk(cursor, write.now, start)
    if not isinstance(write.deed, SendTo):
        talk.do("", write.deed)
    elif talk.send(write.deed) is not None:
        found = cursor.first("status_of", (write.deed.target,))
        return Refused(None if found is None else Status(found[0]))
    return Applied(woken=tuple(talk.woken))


def start(cursor: Cursor, starts: Sequence[Create]) -> None:
    """Create instances that something starts."""
    if starts:
        ledger = Ledger(cursor, [one.instance_id for one in starts])
        for one in starts:
            create(ledger, one)
        ledger.flush()


def beat(ledger: Ledger, write: Beat) -> Answer:
    """The details of an open attempt, if its run still may write."""
    state = ledger.states.get(write.instance_id)
    if state is None:
        return Refused()
    if state.generation != write.generation or state.epoch != write.epoch or state.owner is None:
        return Refused(Status(state.status))
    ledger.put_attempts(state, (write.attempt,))
    return Applied(state.signal, held=True)


def may_write(state: State, write: Transition) -> bool:
    """The run that made the transition still has the instance, or may go on with it."""
    if state.generation != write.generation or state.epoch != write.epoch or state.ended:
        return False
    if write.length is not None and state.length != write.length:
        return False
    if state.owner is None:
        # A warm run goes on without a claim of its own: not when an operator has paused the instance meanwhile.
        return write.new_epoch > write.epoch and state.status not in _AT_REST
    return state.owner == write.worker


def _is_cancelled_meanwhile(state: State, write: Transition) -> bool:
    """The run ends, and does not know that its cancellation was promised to somebody."""
    return (
        write.ending is not None
        and write.status is not Status.CANCELLED
        and state.cancel_requested_at is not None
        and state.signal != write.seen
    )


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


def _settle(ledger: Ledger, state: State, write: Transition, *, asked: bool) -> list[str]:
    called: list[str] = []
    _advance(state, write)
    state.blocked_by = write.blocked_by
    if state.started_at is None:
        state.started_at = write.now
    if write.ending is not None:
        _end(ledger, state, write)
    elif write.hold:
        state.owner, state.status = write.worker, write.status
    elif asked or state.signal != write.seen:
        # Something arrived that the run has not seen: it keeps the instance and looks again, or nobody would.
        back = Status.COMPENSATING in (state.status, write.status)  # once on the way back, always
        state.owner, state.status = write.worker, Status.COMPENSATING if back else Status.RUNNING
    else:
        # Running instances are the owned ones: lists find them by that.
        state.owner, state.status = None, Status.PENDING if write.status is Status.RUNNING else write.status
        if write.status in _AT_REST:
            state.wake_at = None
            called = pass_on(ledger.cursor, [state.id], write.now)
    ledger.move(state)
    return called


def _recur(ledger: Ledger, state: State, write: Transition, recur: Recurrence) -> None:
    """The next generation begins, in the same hands; what was unread stays unread."""
    _add_rows(ledger, state, write if recur.archive else write._replace(history=(), attempts=(), closed=()))
    _advance(state, write)
    ledger.turn_over(state, recur.input, write.now, archive=recur.archive)
    state.generation, state.length = state.generation + 1, 0
    state.owner, state.status, state.wake_at, state.blocked_by = write.worker, Status.RUNNING, None, None
    ledger.move(state)


def _end(ledger: Ledger, state: State, write: Transition) -> None:
    assert write.ending is not None
    state.owner, state.status, state.wake_at, state.ended_at = None, write.status, None, write.now
    state.fingerprint = write.ending.fingerprint
    ledger.set_results(state, write.ending.output, write.ending.error)
    ledger.clear(state, write.now)


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


def existing(cursor: Cursor, write: Create, status: str) -> Existing:
    """What has the id that a new instance was to have."""
    workflow, version, digest = cursor.only("existing", (write.instance_id,))
    known = workflow != write.workflow or (digest == write.digest and digest)
    found = None if known else cursor.first("first_input", (write.instance_id,))
    return Existing(workflow, version, digest, Status(status), None if found is None else found[0])


def born(write: Create) -> tuple[object, ...]:
    """The hot row of a new instance, as the statement `add_instances` takes it."""
    state = _state(write)
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
