"""Control requests of operators and clients (cancel, pause, resume, terminate, retry), decided under the write lock."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from romancy.core.rewind import rewind
from romancy.model.admin import AuditRow
from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.messaging import ChannelMode
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, ControlRequest, JournalNote, Refused, WriteResult
from romancy.store.sql import audit, channels
from romancy.store.sql.unit_of_work import InstanceState, UnitOfWork
from romancy.store.sql.wakeups import wake_replacements


def apply_request(unit: UnitOfWork, write: ControlRequest) -> WriteResult:
    """Apply a control request, if the state of the instance allows it."""
    state = unit.states.get(write.instance_id)
    if state is None:
        return Refused()
    if state.ended and write.kind is not ControlKind.RETRY:
        return Refused(Status(state.status))
    answer = _ACTIONS[write.kind](unit, state, write)
    if write.audited and isinstance(answer, Applied):
        audit.add_audit(
            unit.cursor, [AuditRow(0, write.now, write.by, write.kind.value, write.instance_id, write.reason or "")]
        )
    return answer


def _cancel(unit: UnitOfWork, state: InstanceState, write: ControlRequest) -> WriteResult:
    if state.cancel_requested_at is not None:
        return Applied(state.inbox_version)
    if state.status == Status.COMPENSATING:
        return Refused(Status.COMPENSATING)
    state.cancel_requested_at = write.now
    _add_to_inbox(unit, state, write)
    if state.owner is None and state.status != Status.BLOCKED:
        state.wake_at = write.now
        if state.status == Status.PAUSED:
            state.status = Status.PENDING
    return _complete(unit, state, write)


def _pause(unit: UnitOfWork, state: InstanceState, write: ControlRequest) -> WriteResult:
    if state.status == Status.PAUSED:
        return Applied(state.inbox_version)
    if state.owner is not None:
        if _count_inbox_items(unit, state, ControlKind.PAUSE):
            return Applied(state.inbox_version)
        _add_to_inbox(unit, state, write)
        return _complete(unit, state, write)
    if state.status == Status.BLOCKED:
        return Refused(Status.BLOCKED)
    state.status, state.wake_at = Status.PAUSED, None
    return _complete(unit, state, write, wake_replacements(unit.cursor, [state.id], write.now))


def _resume(unit: UnitOfWork, state: InstanceState, write: ControlRequest) -> WriteResult:
    # An earlier pause may be unread in the inbox, of an owned instance or of one whose owner died: it must not take effect
    # after this resume.
    withdrawn = unit.cursor.run("withdraw_inbox_items", (state.id, ControlKind.PAUSE))
    if withdrawn and state.owner is not None:
        state.inbox_version += 1  # the owner may be about to release it as paused: it must read the inbox again
    if state.owner is None and state.status in (Status.PAUSED, Status.BLOCKED):
        state.status, state.wake_at, state.blocked_by = Status.PENDING, write.now, None
        unit.cursor.run("forget_losses", (state.id,))
    elif not withdrawn:
        return Refused(Status(state.status))
    return _complete(unit, state, write)


def _terminate(unit: UnitOfWork, state: InstanceState, write: ControlRequest) -> WriteResult:
    state.status, state.owner, state.wake_at, state.ended_at = Status.TERMINATED, None, None, write.now
    state.epoch += 1
    unit.clear(state, write.now)
    return _complete(unit, state, write)


def _retry(unit: UnitOfWork, state: InstanceState, write: ControlRequest) -> WriteResult:
    if state.status != Status.FAILED:
        return Refused(Status(state.status))
    if _rewind_history(unit, state):
        state.round += 1
    unit.add_history(state, (Entry(state.length + 1, Kind.RETRY, "retry", Outcome.OK, write.now, name="retry"),))
    _restore_memberships(unit, state, write.now)
    unit.set_results(state, None, None)
    if state.deadline_at is not None and state.deadline_at <= write.now:
        state.deadline_at = None
    state.status, state.wake_at, state.ended_at, state.fingerprint = Status.PENDING, write.now, None, ""
    state.cancel_requested_at = state.retrying_since = None
    state.epoch += 1
    unit.cursor.run("forget_losses", (state.id,))
    return _complete(unit, state, write)


_ACTIONS: dict[ControlKind, Callable[[UnitOfWork, InstanceState, ControlRequest], WriteResult]] = {
    ControlKind.CANCEL: _cancel,
    ControlKind.PAUSE: _pause,
    ControlKind.RESUME: _resume,
    ControlKind.TERMINATE: _terminate,
    ControlKind.RETRY: _retry,
}


def _rewind_history(unit: UnitOfWork, state: InstanceState) -> bool:
    """Give the history entries of a failed instance their new roles; return whether anything had been compensated."""
    rows = unit.cursor.rows("outline", (state.id, state.generation))
    rewound = rewind([_outline_entry(*row) for row in rows])
    for seq, role in rewound.roles:
        unit.cursor.run("set_role", (role, state.id, state.generation, seq))
    unit.cursor.run("forget_attempts", (state.id, state.generation))
    return rewound.compensated


def _restore_memberships(unit: UnitOfWork, state: InstanceState, now: int) -> None:
    """Restore subscriptions and memberships, which the failure deleted: the replayed code will not request them again."""
    (saved,) = unit.cursor.only("memberships", (state.id, state.generation))
    memberships = json.loads(saved) if saved is not None else {"channels": [], "groups": []}
    for channel, mode in memberships["channels"]:
        # The channel may be in use in another mode now. Then the next receive() raises that there is no subscription.
        channels.subscribe(unit.cursor, state.id, channel, ChannelMode(mode), now)
    for group in memberships["groups"]:
        unit.cursor.run("join_group", (group, state.id, now))


def _outline_entry(seq: int, kind: str, op: str, outcome: str, at: int, name: str, role: int) -> Entry:
    return Entry(seq, Kind(kind), op, Outcome(outcome), at, name, Role(role))


def _add_to_inbox(unit: UnitOfWork, state: InstanceState, write: ControlRequest) -> None:
    unit.add_inbox_item(state, write.kind, json.dumps(write.reason).encode(), write.now)
    state.inbox_version += 1


def _count_inbox_items(unit: UnitOfWork, state: InstanceState, kind: ControlKind) -> int:
    return int(unit.cursor.only("count_inbox_items", (state.id, kind))[0])


def _complete(unit: UnitOfWork, state: InstanceState, write: ControlRequest, woken: Sequence[str] = ()) -> WriteResult:
    state.updated_at = write.now
    unit.move(state)
    unit.add_note(state, JournalNote(write.kind, write.reason or ""), write.by, write.now)
    return Applied(state.inbox_version, woken=tuple(woken))
