"""What a transition says and asks: done and decided one after another, under the write lock.

    deeds    events and messages go out, those who wait for them are called
    asks     answered from what there is, and the answer joins the history; a wait that finds nothing is registered

Everything here writes at once. What it changes about other instances must not lie in a ledger meanwhile: a write that talks
has a ledger of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from romancy.errors import (
    ChannelMessageTimeoutError,
    ChannelModeConflictError,
    ChannelNotSubscribedError,
    EventTimeoutError,
    GroupNotJoinedError,
    RomancyError,
    no_recipient,
)
from romancy.model.history import Entry, Kind, Outcome
from romancy.model.talk import (
    AcceptedEvent,
    Ask,
    Deed,
    JoinGroup,
    LeaveGroup,
    Members,
    Publish,
    Reply,
    SendEvent,
    SendTo,
    SendToGroup,
    Subscribe,
    Unsubscribe,
    Wanted,
)
from romancy.model.transition import Create, WaitKind
from romancy.serde.failure import encode_failure
from romancy.serde.talk import event_input
from romancy.store.sql import channels, events, outbox
from romancy.store.sql.calls import call_next, members
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.keys import as_json


class Decided(NamedTuple):
    """An answer: a value, or an error."""

    outcome: Outcome
    value: bytes | None

    @classmethod
    def of(cls, value: bytes | None) -> Decided:
        """A value."""
        return cls(Outcome.OK, value)

    @classmethod
    def error(cls, error: RomancyError) -> Decided:
        """An error."""
        return cls(Outcome.ERROR, encode_failure(error))


@dataclass(slots=True)
class Talk:
    """The talking of one write."""

    cursor: Cursor
    now: int
    create: Callable[[Cursor, Sequence[Create]], None]
    """Creates instances."""
    woken: dict[str, None] = field(default_factory=dict[str, None])
    started: list[str] = field(default_factory=list[str])

    def call(self, ids: Iterable[str]) -> None:
        """These instances have something to look for."""
        self.woken.update(dict.fromkeys(ids))

    # --- deeds

    def do(self, instance_id: str, deed: Deed) -> None:
        """Do what an instance, or one of its activities, has said."""
        match deed:
            case SendEvent():
                self.accept(deed)
            case Publish():
                self.call(channels.publish(self.cursor, deed.message, self.now))
            case SendToGroup():
                self.call(channels.send_to_group(self.cursor, deed.message, deed.group, self.now))
            case SendTo():
                self.send(deed)
            case Unsubscribe():
                self.call(channels.unsubscribe(self.cursor, instance_id, deed.channel, self.now))
            case JoinGroup():
                self.cursor.run("join_group", (deed.group, instance_id, self.now))

    def accept(self, sent: SendEvent) -> AcceptedEvent:
        """Accept an event, unless it is known; what is known is not sent to brokers again either."""
        event = sent.event
        if not sent.local:
            outbox.put(self.cursor, event, sent.brokers, self.now)
            return AcceptedEvent(event.id, event.source, duplicate=False, instance_ids=())
        accepted = events.accept(self.cursor, event, self.now)
        if accepted is None:
            return AcceptedEvent(event.id, event.source, duplicate=True, instance_ids=())
        if sent.brokers:
            outbox.put(self.cursor, event, sent.brokers, self.now)
        called, woken = accepted
        self.call(called)
        starts = sent.starts or self._started_elsewhere(sent)
        self.create(self.cursor, starts)  # now: the next event comes after them
        ids = [create.instance_id for create in starts]
        self.started += ids
        return AcceptedEvent(event.id, event.source, duplicate=False, instance_ids=(*woken, *ids))

    def _started_elsewhere(self, sent: SendEvent) -> tuple[Create, ...]:
        """What an event starts that is handled by a workflow whose code is not here: it binds the data when it begins."""
        event = sent.event
        handler = self.cursor.first("handler_of", (event.type,))
        if handler is None or not sent.fresh_id or event.target is not None:
            return ()
        given = self.cursor.coder.encode(event_input(event), ("input", sent.fresh_id, "1"))
        return (Create(sent.fresh_id, event.type, handler[0], given, b"", self.now),)

    def send(self, sent: SendTo) -> RomancyError | None:
        """Send to one instance; the error if it cannot get anything."""
        found = self.cursor.first("status_of", (sent.target,))
        if found is None or found[1]:
            return no_recipient(sent.target, None if found is None else found[0])
        self.call(channels.send(self.cursor, sent.message, sent.target, self.now))
        return None

    def withdraw(self, instance_id: str, ops: Sequence[str]) -> None:
        """Waits are given up; who was called for a message and does not want it is replaced."""
        values = (instance_id, as_json(ops))
        called: list[str] = self.cursor.lines("withdrawn_calls", values)
        for op in ops:
            self.cursor.run("drop_wait", (instance_id, op))
        for channel in called:
            self.call(call_next(self.cursor, channel, self.now))

    # --- asks

    def anything_left(self, instance_id: str) -> bool:
        """Something lies there for the instance that its waits did not ask for, or could not have yet."""
        return bool(self.cursor.only("anything_left", {"id": instance_id})[0])

    def ask(self, instance_id: str, asks: Sequence[Ask]) -> list[tuple[Ask, Decided]]:
        """Decide what can be decided, in the order to be recorded.

        Waits come last, and only if nothing else is answered: an answer before could make the code withdraw the wait, and
        what it got would be lost. For the same reason one of them gets something, what came first. The run asks again.
        """
        decided = [(ask, self._decide(instance_id, ask)) for ask in asks if not isinstance(ask.question, Wanted)]
        if decided:
            return decided
        waits = [ask for ask in asks if isinstance(ask.question, Wanted)]
        return self._first_to_come(instance_id, waits) or self._over(instance_id, waits)

    def _decide(self, instance_id: str, ask: Ask) -> Decided:
        match ask.question:
            case SendTo():
                return _told(self.send(ask.question))
            case Subscribe():
                return _told(self._subscribe(instance_id, ask.question))
            case LeaveGroup():
                return _told(self._leave(instance_id, ask.question))
            case Members():
                return Decided.of(json.dumps(members(self.cursor, ask.question.group)).encode())
            case Wanted():
                raise AssertionError("a wait is not decided alone")

    def _first_to_come(self, instance_id: str, waits: Sequence[Ask]) -> list[tuple[Ask, Decided]]:
        """The wait for which something came first gets it."""
        found = [(event, ask) for ask in waits if (event := self._find(instance_id, ask)) is not None]
        if not found:
            return []
        (_, seq, body), ask = min(found, key=lambda one: one[0][:2])
        self._take(instance_id, ask, seq)
        self._end_wait(instance_id, ask)
        return [(ask, Decided.of(body))]

    def _find(self, instance_id: str, ask: Ask) -> tuple[int, int, bytes] | None:
        wanted = ask.question
        assert isinstance(wanted, Wanted)
        if ask.due is not None and ask.due <= (ask.entry.scheduled_at or 0):
            before = None  # without patience: whatever is there now
        else:
            before = min((time for time in (ask.due, ask.before) if time is not None), default=None)
        return self._find_before(instance_id, ask, wanted, before)

    def _find_before(self, instance_id: str, ask: Ask, wanted: Wanted, before: int | None) -> tuple[int, int, bytes] | None:
        if ask.entry.kind is Kind.EVENT:
            return events.find(self.cursor, instance_id, ask.entry.op, wanted, before)
        mode = self._mode(instance_id, wanted.key)
        return None if mode is None else channels.find(self.cursor, instance_id, wanted.key, mode, before)

    def _take(self, instance_id: str, ask: Ask, seq: int) -> None:
        wanted = ask.question
        assert isinstance(wanted, Wanted)
        if ask.entry.kind is Kind.EVENT:
            events.take(self.cursor, instance_id, wanted, seq)
        else:
            channels.take(self.cursor, instance_id, wanted.key, seq)

    def _over(self, instance_id: str, waits: Sequence[Ask]) -> list[tuple[Ask, Decided]]:
        """Waits that are in vain, or whose time is over; the others are registered."""
        over: list[tuple[Ask, Decided]] = []
        for ask in waits:
            error = self._why_over(instance_id, ask)
            if error is None:
                self._register(instance_id, ask)
            else:
                self._end_wait(instance_id, ask)
                over.append((ask, _told(error)))
        return over

    def _why_over(self, instance_id: str, ask: Ask) -> RomancyError | None:
        wanted = ask.question
        assert isinstance(wanted, Wanted)
        if ask.entry.kind is Kind.MESSAGE and self._mode(instance_id, wanted.key) is None:
            return ChannelNotSubscribedError(
                f"{instance_id} has not subscribed to channel {wanted.key!r}: await subscribe(ctx, {wanted.key!r}) before "
                "receive()."
            )
        now = self.now if ask.before is None else ask.before
        return expired(ask.entry, wanted) if ask.due is not None and ask.due <= now else None

    def _mode(self, instance_id: str, channel: str) -> str | None:
        found = self.cursor.first("subscription", (channel, instance_id))
        return None if found is None else str(found[0])

    def _end_wait(self, instance_id: str, ask: Ask) -> None:
        self.cursor.run("drop_wait", (instance_id, ask.entry.op))
        if ask.entry.kind is Kind.MESSAGE:  # it may have been called for another message than it got
            assert isinstance(ask.question, Wanted)
            self.call(call_next(self.cursor, ask.question.key, self.now))

    def _register(self, instance_id: str, ask: Ask) -> None:
        wanted = ask.question
        assert isinstance(wanted, Wanted)
        # What came, but not before the bound, is for this wait when it is asked for again.
        later = None if ask.before is None else self._find_before(instance_id, ask, wanted, ask.due)
        if wanted.match is not None:
            match = self.cursor.coder.encode(wanted.match, events.match_place(instance_id, ask.entry.op))
            ask = replace(ask, question=replace(wanted, match=match))
        self.cursor.run("put_wait", registration(instance_id, ask, None if later is None else later[1]))

    def _subscribe(self, instance_id: str, asked: Subscribe) -> RomancyError | None:
        mode = channels.subscribe(self.cursor, instance_id, asked.channel, asked.mode, self.now)
        if mode is None:
            return None
        return ChannelModeConflictError(
            f"Channel {asked.channel!r} is in use in mode {mode!r}, so {instance_id} cannot subscribe to it in mode "
            f"{asked.mode.value!r}: use that mode, or another channel."
        )

    def _leave(self, instance_id: str, asked: LeaveGroup) -> RomancyError | None:
        if self.cursor.run("leave_group", (asked.group, instance_id)):
            return None
        return GroupNotJoinedError(f"{instance_id} is not a member of group {asked.group!r}: it cannot leave it.")


def record(entry: Entry, seq: int, decided: Decided) -> tuple[Entry, Reply]:
    """An answer as the history keeps it, and as the run is told."""
    outcome, value = decided
    written = entry._replace(seq=seq, outcome=outcome, value=value)
    return written, Reply(entry.op, seq, entry.at, outcome, value)


def registration(instance_id: str, ask: Ask, met: int | None) -> tuple[object, ...]:
    """The row of a wait; `met`: what has come for it."""
    entry, wanted = ask.entry, ask.question
    assert isinstance(wanted, Wanted)
    kind = WaitKind.EVENT if entry.kind is Kind.EVENT else WaitKind.MESSAGE
    return (
        instance_id,
        entry.op,
        kind,
        entry.scheduled_at,
        ask.due,
        wanted.key,
        wanted.subject,
        wanted.match,
        entry.site,
        met,
    )


def _told(error: RomancyError | None) -> Decided:
    return Decided.of(None) if error is None else Decided.error(error)


def expired(entry: Entry, wanted: Wanted) -> RomancyError:
    """What a wait is told whose time is over."""
    if entry.kind is Kind.MESSAGE:
        return ChannelMessageTimeoutError(f"No message came on channel {wanted.key!r} in time ({entry.op}).")
    subject = f" with subject {wanted.subject!r}" if wanted.subject is not None else ""
    return EventTimeoutError(f"No event {wanted.key!r}{subject} came in time ({entry.op}).")
