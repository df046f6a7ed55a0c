"""Decides transitions, new instances, attempt updates and external writes, on instance rows read under the write lock."""

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
"""Unowned instances in these statuses resume only on an operator's request, or when other code claims them."""


def create(unit: UnitOfWork, write: CreateInstance) -> WriteResult:
    """Create an instance, unless its id is taken."""
    taken = unit.states.get(write.instance_id)
    if taken is not None:
        return read_existing(unit.cursor, write, taken.status)
    state = _new_state(write)
    unit.create(state, instance_columns(write), write.input)
    if write.ending is not None:
        _fail_on_creation(unit, state, write.ending, write.now)
    return Applied(inbox_version=0, owned=write.owner is not None)


def _new_state(write: CreateInstance) -> InstanceState:
    owned = write.owner is not None
    return InstanceState(
        write.instance_id,
        Status.RUNNING if owned else Status.PENDING,
        epoch=1 if owned else 0,
        owner=write.owner,
        wake_at=None if owned else write.now,
        deadline_at=write.deadline_at,
        started_at=write.now if owned else None,
        updated_at=write.now,
    )


def _fail_on_creation(unit: UnitOfWork, state: InstanceState, ending: Ending, now: int) -> None:
    """Let a new instance fail at once: it can never run, because its arguments do not fit."""
    unit.flush()  # inserts the row that is updated below
    state.owner, state.status, state.wake_at, state.ended_at = None, Status.FAILED, None, now
    state.fingerprint = ending.fingerprint
    unit.set_results(state, None, ending.error)
    unit.move(state)


def has_messaging(write: Transition) -> bool:
    """Whether it may concern other instances. Their rows must not be cached in a unit of work while it is applied."""
    if write.effects or write.store_calls or write.recur is not None:
        return True
    return write.has_messaging_state and (write.ending is not None or bool(write.withdrawn) or not write.keep_owned)


def is_plain_end(write: Transition) -> bool:
    """Whether it ends the instance without effects or store calls.

    The unit of work then wakes other instances for messages that this one was woken for: its waits need no withdrawal.
    """
    return write.ending is not None and not write.effects and not write.store_calls


def apply_transition(unit: UnitOfWork, write: Transition) -> WriteResult:
    """Apply a transition, if its run may still write."""
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
    # If nothing is left in the inbox, the run counts as having seen its newest version. Otherwise every store call that
    # was woken by an arrival would be followed by another, empty read of the inbox.
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
    """Write the instance's row and the other rows of a transition; return the instances woken in its place."""
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
    """Emit effects, then resolve store calls; their replies join the history after the entries of the run itself."""
    for effect in write.effects:
        messaging.emit(state.id, effect)
    if write.withdrawn:
        messaging.withdraw(state.id, write.withdrawn)
    seq = state.length + len(write.history)
    replies: list[StoreReply] = []
    for store_call, decided in messaging.resolve_store_calls(state.id, write.store_calls):
        entry, reply = make_reply(store_call.entry, seq + len(replies) + 1, decided)
        unit.add_history(state, (entry,))
        replies.append(reply)
    # An effect may have woken this instance itself: the version that was read before is old then.
    unit.refresh_inbox_version(state)
    return tuple(replies)


def accept(cursor: Cursor, write: AcceptEvents) -> WriteResult:
    """Accept events from outside, one by one."""
    messaging = MessagingTransaction(cursor, write.now, start)
    starts = write.starts or ((),) * len(write.events)
    fresh = write.fresh_ids or ("",) * len(write.events)
    sent = [SendEvent(*one, write.local, write.brokers) for one in zip(write.events, starts, fresh, strict=True)]
    accepted = [messaging.accept(one) for one in sent]
    return Accepted(tuple(accepted), tuple(messaging.woken), tuple(messaging.started))


def post(cursor: Cursor, write: PostMessage) -> WriteResult:
    """Post a message from outside."""
    messaging = MessagingTransaction(cursor, write.now, start)
    if not isinstance(write.effect, SendTo):
        messaging.emit("", write.effect)
    elif messaging.send(write.effect) is not None:
        found = cursor.first("status_of", (write.effect.target,))
        return Refused(None if found is None else Status(found[0]))
    return Applied(woken=tuple(messaging.woken))


def start(cursor: Cursor, starts: Sequence[CreateInstance]) -> None:
    """Create the instances that an event starts."""
    if starts:
        unit = UnitOfWork(cursor, [one.instance_id for one in starts])
        for one in starts:
            create(unit, one)
        unit.flush()


def update_attempt(unit: UnitOfWork, write: AttemptUpdate) -> WriteResult:
    """Store the details of an open attempt, if its run may still write."""
    state = unit.states.get(write.instance_id)
    if state is None:
        return Refused()
    if state.generation != write.generation or state.epoch != write.epoch or state.owner is None:
        return Refused(Status(state.status))
    unit.put_attempts(state, (write.attempt,))
    return Applied(state.inbox_version, owned=True)


def may_write(state: InstanceState, write: Transition) -> bool:
    """Whether the run that made the transition still owns the instance, or may take it over by this write."""
    if state.generation != write.generation or state.epoch != write.epoch or state.ended:
        return False
    if write.length is not None and state.length != write.length:
        return False
    if state.owner is None:
        # A cached run resumes without a separate claim: its transition raises the epoch. Not if an operator has paused
        # the instance meanwhile.
        return write.new_epoch > write.epoch and state.status not in _AT_REST
    return state.owner == write.worker


def _is_cancelled_meanwhile(state: InstanceState, write: Transition) -> bool:
    """Whether the run ends without knowing of a cancellation that was already confirmed to an operator."""
    return (
        write.ending is not None
        and write.status is not Status.CANCELLED
        and state.cancel_requested_at is not None
        and state.inbox_version != write.inbox_seen
    )


def _keeps_indexes(state: InstanceState, write: Transition) -> bool:
    """Whether no indexed column changes, so that the cheaper statement `step` is enough."""
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
    """End, keep or release the instance; return the instances woken in its place."""
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
        # Something arrived that the run has not seen: the run keeps the instance and reads its inbox. A released
        # instance would not be woken for it again.
        compensating = Status.COMPENSATING in (state.status, write.status)  # compensation never turns back
        state.owner, state.status = write.worker, Status.COMPENSATING if compensating else Status.RUNNING
    else:
        # Only owned instances are `running`: the queries for running instances search by owner.
        state.owner, state.status = None, Status.PENDING if write.status is Status.RUNNING else write.status
        if write.status in _AT_REST:
            state.wake_at = None
            woken = wake_replacements(unit.cursor, [state.id], write.now)
    unit.move(state)
    return woken


def _recur(unit: UnitOfWork, state: InstanceState, write: Transition, recur: Recurrence) -> None:
    """Begin the next generation under the same owner; unread inbox items stay."""
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
    """Return what is known of the instance that already has the id of a new one."""
    workflow, version, digest = cursor.only("existing", (write.instance_id,))
    known = workflow != write.workflow or (digest == write.digest and digest)
    found = None if known else cursor.first("first_input", (write.instance_id,))
    return Existing(workflow, version, digest, Status(status), None if found is None else found[0])


def instance_columns(write: CreateInstance) -> tuple[object, ...]:
    """Return the row of a new instance, as the statement `add_instances` takes it."""
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
