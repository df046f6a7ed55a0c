"""Transitions, creations and beats: decided on the hot rows as they are under the write lock."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.messaging import SendEvent, SendTo, StoreReply
from romancy.model.status import Status
from romancy.model.transition import (
    Accepted,
    AcceptEvents,
    Applied,
    AttemptUpdate,
    CreateInstance,
    Ending,
    Existing,
    PostMessage,
    Recurrence,
    Refused,
    Transition,
    WriteResult,
)
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.messaging import MessagingTransaction, make_reply
from romancy.store.sql.unit_of_work import InstanceState, UnitOfWork
from romancy.store.sql.wakeups import wake_replacements

_AT_REST = frozenset({Status.PAUSED, Status.BLOCKED})
"""Unowned instances that only a request (or a claim for other code) sets going."""


def create(unit: UnitOfWork, write: CreateInstance) -> WriteResult:
    """A new instance, unless its id is taken."""
    taken = unit.states.get(write.instance_id)
    if taken is not None:
        return read_existing(unit.cursor, write, taken.status)
    state = _new_state(write)
    unit.create(state, instance_columns(write), write.input)
    if write.ending is not None:
        _fail_on_creation(unit, state, write.ending, write.now)
    return Applied(inbox_version=0, owned=write.owner is not None)


def _new_state(write: CreateInstance) -> InstanceState:
    held = write.owner is not None
    return InstanceState(
        write.instance_id,
        Status.RUNNING if held else Status.PENDING,
        epoch=1 if held else 0,
        owner=write.owner,
        wake_at=None if held else write.now,
        deadline_at=write.deadline_at,
        started_at=write.now if held else None,
        updated_at=write.now,
    )


def _fail_on_creation(unit: UnitOfWork, state: InstanceState, ending: Ending, now: int) -> None:
    """It can never run: its arguments do not fit."""
    unit.flush()
    state.owner, state.status, state.wake_at, state.ended_at = None, Status.FAILED, None, now
    state.fingerprint = ending.fingerprint
    unit.set_results(state, None, ending.error)
    unit.move(state)


def has_messaging(write: Transition) -> bool:
    """It may concern other instances: nothing of theirs may lie in a ledger meanwhile."""
    if write.effects or write.store_calls or write.recur is not None:
        return True
    return write.has_messaging_state and (write.ending is not None or bool(write.withdrawn) or not write.keep_owned)


def is_plain_end(write: Transition) -> bool:
    """It ends, and says nothing more: what it was called for is passed on, whatever it withdraws."""
    return write.ending is not None and not write.effects and not write.store_calls


def apply_transition(unit: UnitOfWork, write: Transition) -> WriteResult:
    """What a run did, if the run still may."""
    state = unit.states.get(write.instance_id)
    if state is None:
        return Refused()
    if not may_write(state, write):
        return Refused(Status(state.status))
    if _is_cancelled_meanwhile(state, write):
        status = Status.COMPENSATING if state.status == Status.COMPENSATING else Status.RUNNING
        write = write._replace(ending=None, keep_owned=True, status=status)
    messaging = MessagingTransaction(unit.cursor, write.now, start)
    replies = _run_messaging(unit, state, write, messaging) if has_messaging(write) and not is_plain_end(write) else ()
    caught_up = bool(write.store_calls) and not write.consumed_items and not messaging.has_unread(state.id)
    if caught_up:
        write = write._replace(inbox_seen=state.inbox_version)
    if write.recur is not None:
        messaging.add_woken(wake_replacements(unit.cursor, [state.id], write.now))
        _recur(unit, state, write, write.recur)
        return Applied(state.inbox_version, True, woken=tuple(messaging.woken), started=tuple(messaging.started))
    messaging.add_woken(conclude(unit, state, write, has_replies=bool(replies)))
    return Applied(
        state.inbox_version, state.owner is not None, replies, tuple(messaging.woken), tuple(messaging.started), caught_up
    )


def conclude(unit: UnitOfWork, state: InstanceState, write: Transition, *, has_replies: bool) -> list[str]:
    """The hot row and the other rows as the run leaves them; the instances called in its place."""
    woken: list[str] = []
    if write.keep_owned and write.ending is None and _keeps_indexes(state, write):
        _advance(state, write)
        unit.step(state)
    else:
        woken = _resolve_ownership(unit, state, write, has_replies=has_replies)
    _add_rows(unit, state, write)
    return woken


def _run_messaging(
    unit: UnitOfWork, state: InstanceState, write: Transition, messaging: MessagingTransaction
) -> tuple[StoreReply, ...]:
    """Say what is to be said, then answer what is asked; the answers join the history behind what the run did itself."""
    for effect in write.effects:
        messaging.emit(state.id, effect)
    if write.withdrawn:
        messaging.withdraw(state.id, write.withdrawn)
    seq = state.length + len(write.history)
    replies: list[StoreReply] = []
    for ask, decided in messaging.resolve_store_calls(state.id, write.store_calls):
        entry, reply = make_reply(ask.entry, seq + len(replies) + 1, decided)
        unit.add_history(state, (entry,))
        replies.append(reply)
    unit.refresh_inbox_version(state)
    return tuple(replies)


def accept(cursor: Cursor, write: AcceptEvents) -> WriteResult:
    """Events from outside."""
    messaging = MessagingTransaction(cursor, write.now, start)
    starts = write.starts or ((),) * len(write.events)
    fresh = write.fresh_ids or ("",) * len(write.events)
    sent = [SendEvent(*one, write.local, write.brokers) for one in zip(write.events, starts, fresh, strict=True)]
    accepted = [messaging.accept(one) for one in sent]
    return Accepted(tuple(accepted), tuple(messaging.woken), tuple(messaging.started))


def post(cursor: Cursor, write: PostMessage) -> WriteResult:
    """A message from outside."""
    messaging = MessagingTransaction(cursor, write.now, start)
    if not isinstance(write.effect, SendTo):
        messaging.emit("", write.effect)
    elif messaging.send(write.effect) is not None:
        found = cursor.first("status_of", (write.effect.target,))
        return Refused(None if found is None else Status(found[0]))
    return Applied(woken=tuple(messaging.woken))


def start(cursor: Cursor, starts: Sequence[CreateInstance]) -> None:
    """Create instances that something starts."""
    if starts:
        unit = UnitOfWork(cursor, [one.instance_id for one in starts])
        for one in starts:
            create(unit, one)
        unit.flush()


def update_attempt(unit: UnitOfWork, write: AttemptUpdate) -> WriteResult:
    """The details of an open attempt, if its run still may write."""
    state = unit.states.get(write.instance_id)
    if state is None:
        return Refused()
    if state.generation != write.generation or state.epoch != write.epoch or state.owner is None:
        return Refused(Status(state.status))
    unit.put_attempts(state, (write.attempt,))
    return Applied(state.inbox_version, owned=True)


def may_write(state: InstanceState, write: Transition) -> bool:
    """The run that made the transition still has the instance, or may go on with it."""
    if state.generation != write.generation or state.epoch != write.epoch or state.ended:
        return False
    if write.length is not None and state.length != write.length:
        return False
    if state.owner is None:
        # A warm run goes on without a claim of its own: not when an operator has paused the instance meanwhile.
        return write.new_epoch > write.epoch and state.status not in _AT_REST
    return state.owner == write.worker


def _is_cancelled_meanwhile(state: InstanceState, write: Transition) -> bool:
    """The run ends, and does not know that its cancellation was promised to somebody."""
    return (
        write.ending is not None
        and write.status is not Status.CANCELLED
        and state.cancel_requested_at is not None
        and state.inbox_version != write.inbox_seen
    )


def _keeps_indexes(state: InstanceState, write: Transition) -> bool:
    """Nothing changes that an index knows."""
    return (
        state.owner is not None
        and state.status == write.status
        and state.blocked_by == write.blocked_by
        and state.started_at is not None
    )


def _advance(state: InstanceState, write: Transition) -> None:
    state.epoch = write.new_epoch
    state.length += len(write.history)
    state.inbox_version_seen = write.inbox_seen
    state.updated_at = write.now
    state.wake_at = write.wake_at
    state.retrying_since = write.retrying_since


def _resolve_ownership(unit: UnitOfWork, state: InstanceState, write: Transition, *, has_replies: bool) -> list[str]:
    woken: list[str] = []
    _advance(state, write)
    state.blocked_by = write.blocked_by
    if state.started_at is None:
        state.started_at = write.now
    if write.ending is not None:
        _end(unit, state, write)
    elif write.keep_owned:
        state.owner, state.status = write.worker, write.status
    elif has_replies or state.inbox_version != write.inbox_seen:
        # Something arrived that the run has not seen: it keeps the instance and looks again, or nobody would.
        back = Status.COMPENSATING in (state.status, write.status)  # once on the way back, always
        state.owner, state.status = write.worker, Status.COMPENSATING if back else Status.RUNNING
    else:
        # Running instances are the owned ones: lists find them by that.
        state.owner, state.status = None, Status.PENDING if write.status is Status.RUNNING else write.status
        if write.status in _AT_REST:
            state.wake_at = None
            woken = wake_replacements(unit.cursor, [state.id], write.now)
    unit.move(state)
    return woken


def _recur(unit: UnitOfWork, state: InstanceState, write: Transition, recur: Recurrence) -> None:
    """The next generation begins, in the same hands; what was unread stays unread."""
    _add_rows(unit, state, write if recur.archive else write._replace(history=(), attempts=(), closed=()))
    _advance(state, write)
    unit.start_next_generation(state, recur.input, write.now, archive=recur.archive)
    state.generation, state.length = state.generation + 1, 0
    state.owner, state.status, state.wake_at, state.blocked_by = write.worker, Status.RUNNING, None, None
    unit.move(state)


def _end(unit: UnitOfWork, state: InstanceState, write: Transition) -> None:
    assert write.ending is not None
    state.owner, state.status, state.wake_at, state.ended_at = None, write.status, None, write.now
    state.fingerprint = write.ending.fingerprint
    unit.set_results(state, write.ending.output, write.ending.error)
    unit.clear(state, write.now)


def _add_rows(unit: UnitOfWork, state: InstanceState, write: Transition) -> None:
    if write.history:
        unit.add_history(state, write.history)
    if write.closed:
        unit.close_attempts(state, write.closed)
    if write.attempts:
        unit.put_attempts(state, write.attempts)
    if write.withdrawn:
        unit.withdraw_waits(state, write.withdrawn)
    if write.waits:
        unit.put_waits(state, write.waits)
    if write.consumed_items:
        unit.consume_inbox_items(state, write.consumed_items)
    for note in write.notes:
        unit.add_note(state, note, write.worker, write.now)


def read_existing(cursor: Cursor, write: CreateInstance, status: str) -> Existing:
    """What has the id that a new instance was to have."""
    workflow, version, digest = cursor.only("existing", (write.instance_id,))
    known = workflow != write.workflow or (digest == write.digest and digest)
    found = None if known else cursor.first("first_input", (write.instance_id,))
    return Existing(workflow, version, digest, Status(status), None if found is None else found[0])


def instance_columns(write: CreateInstance) -> tuple[object, ...]:
    """The hot row of a new instance, as the statement `add_instances` takes it."""
    state = _new_state(write)
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
