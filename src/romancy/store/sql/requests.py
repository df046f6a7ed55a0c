"""What somebody outside asks of an instance: decided on its hot row under the write lock."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from romancy.core.rewind import rewind
from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.operators import Deeded
from romancy.model.status import Status
from romancy.model.talk import ChannelMode
from romancy.model.transition import Answer, Applied, Note, Refused, Request, RequestKind
from romancy.store.sql import channels, desk
from romancy.store.sql.calls import pass_on
from romancy.store.sql.ledger import Ledger, State


def request(ledger: Ledger, write: Request) -> Answer:
    """Do what was asked, if the instance is in a state for it."""
    state = ledger.states.get(write.instance_id)
    if state is None:
        return Refused()
    if state.ended and write.kind is not RequestKind.RETRY:
        return Refused(Status(state.status))
    answer = _DEEDS[write.kind](ledger, state, write)
    if write.audited and isinstance(answer, Applied):
        desk.note(ledger.cursor, [Deeded(0, write.now, write.by, write.kind.value, write.instance_id, write.reason or "")])
    return answer


def _cancel(ledger: Ledger, state: State, write: Request) -> Answer:
    if state.cancel_requested_at is not None:
        return Applied(state.signal)
    if state.status == Status.COMPENSATING:
        return Refused(Status.COMPENSATING)
    state.cancel_requested_at = write.now
    _post(ledger, state, write)
    if state.owner is None and state.status != Status.BLOCKED:
        state.wake_at = write.now
        if state.status == Status.PAUSED:
            state.status = Status.PENDING
    return _done(ledger, state, write)


def _pause(ledger: Ledger, state: State, write: Request) -> Answer:
    if state.status == Status.PAUSED:
        return Applied(state.signal)
    if state.owner is not None:
        if _mails(ledger, state, RequestKind.PAUSE):
            return Applied(state.signal)
        _post(ledger, state, write)
        return _done(ledger, state, write)
    if state.status == Status.BLOCKED:
        return Refused(Status.BLOCKED)
    state.status, state.wake_at = Status.PAUSED, None
    return _done(ledger, state, write, pass_on(ledger.cursor, [state.id], write.now))


def _resume(ledger: Ledger, state: State, write: Request) -> Answer:
    # A pause may lie unseen in the inbox of an owned instance, or of one whose owner died: it must not outlive this.
    taken_back = ledger.cursor.run("take_back_mails", (state.id, RequestKind.PAUSE))
    if taken_back and state.owner is not None:
        state.signal += 1  # the owner may be about to release it as paused: it must look again
    if state.owner is None and state.status in (Status.PAUSED, Status.BLOCKED):
        state.status, state.wake_at, state.blocked_by = Status.PENDING, write.now, None
        ledger.cursor.run("forget_losses", (state.id,))
    elif not taken_back:
        return Refused(Status(state.status))
    return _done(ledger, state, write)


def _terminate(ledger: Ledger, state: State, write: Request) -> Answer:
    state.status, state.owner, state.wake_at, state.ended_at = Status.TERMINATED, None, None, write.now
    state.epoch += 1
    ledger.clear(state, write.now)
    return _done(ledger, state, write)


def _retry(ledger: Ledger, state: State, write: Request) -> Answer:
    if state.status != Status.FAILED:
        return Refused(Status(state.status))
    if _set_aside(ledger, state):
        state.round += 1
    ledger.add_history(state, (Entry(state.length + 1, Kind.RETRY, "retry", Outcome.OK, write.now, name="retry"),))
    _bind_again(ledger, state, write.now)
    ledger.set_results(state, None, None)
    if state.deadline_at is not None and state.deadline_at <= write.now:
        state.deadline_at = None
    state.status, state.wake_at, state.ended_at, state.fingerprint = Status.PENDING, write.now, None, ""
    state.cancel_requested_at = state.retrying_since = None
    state.epoch += 1
    ledger.cursor.run("forget_losses", (state.id,))
    return _done(ledger, state, write)


_DEEDS: dict[RequestKind, Callable[[Ledger, State, Request], Answer]] = {
    RequestKind.CANCEL: _cancel,
    RequestKind.PAUSE: _pause,
    RequestKind.RESUME: _resume,
    RequestKind.TERMINATE: _terminate,
    RequestKind.RETRY: _retry,
}


def _set_aside(ledger: Ledger, state: State) -> bool:
    """Give the entries of a failed instance their new roles; whether anything had been compensated."""
    rows = ledger.cursor.rows("outline", (state.id, state.generation))
    verdict = rewind([_outlined(*row) for row in rows])
    for seq, role in verdict.roles:
        ledger.cursor.run("set_role", (role, state.id, state.generation, seq))
    ledger.cursor.run("forget_attempts", (state.id, state.generation))
    return verdict.compensated


def _bind_again(ledger: Ledger, state: State, now: int) -> None:
    """Its end had let go of channels and groups, and the code will not ask for them again."""
    (kept,) = ledger.cursor.only("bonds", (state.id, state.generation))
    bonds = json.loads(kept) if kept is not None else {"channels": [], "groups": []}
    for channel, mode in bonds["channels"]:
        # Another mode may have been taken up meanwhile: then the next receive() says that there is no subscription.
        channels.subscribe(ledger.cursor, state.id, channel, ChannelMode(mode), now)
    for group in bonds["groups"]:
        ledger.cursor.run("join_group", (group, state.id, now))


def _outlined(seq: int, kind: str, op: str, outcome: str, at: int, name: str, role: int) -> Entry:
    return Entry(seq, Kind(kind), op, Outcome(outcome), at, name, Role(role))


def _post(ledger: Ledger, state: State, write: Request) -> None:
    ledger.add_mail(state, write.kind, json.dumps(write.reason).encode(), write.now)
    state.signal += 1


def _mails(ledger: Ledger, state: State, kind: RequestKind) -> int:
    return int(ledger.cursor.only("count_mails", (state.id, kind))[0])


def _done(ledger: Ledger, state: State, write: Request, woken: Sequence[str] = ()) -> Answer:
    state.updated_at = write.now
    ledger.move(state)
    ledger.add_note(state, Note(write.kind, write.reason or ""), write.by, write.now)
    return Applied(state.signal, woken=tuple(woken))
