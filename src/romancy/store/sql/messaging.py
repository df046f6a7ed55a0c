"""Effects and store calls of a transition: applied and resolved one after another, under the write lock.

    effects        events and messages are sent, and the instances that wait for them are woken
    store calls    resolved from stored events, messages and groups; a wait that finds nothing is registered

Every function writes to the database at once. It may change rows of other instances, which must not be cached in a unit of
work meanwhile: so a write with effects or store calls gets a unit of work of its own.
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
from romancy.model.messaging import (
    AcceptedEvent,
    Effect,
    JoinGroup,
    LeaveGroup,
    ListMembers,
    Publish,
    SendEvent,
    SendTo,
    SendToGroup,
    StoreCall,
    StoreReply,
    Subscribe,
    Unsubscribe,
    WaitSelector,
)
from romancy.model.transition import CreateInstance, WaitKind
from romancy.serde.failure import encode_failure
from romancy.serde.messaging import event_input
from romancy.store.sql import channels, events, outbox
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json
from romancy.store.sql.wakeups import members, wake_next


class StoreDecision(NamedTuple):
    """The resolution of a store call: a value or an error."""

    outcome: Outcome
    value: bytes | None

    @classmethod
    def ok(cls, value: bytes | None) -> StoreDecision:
        """Resolve with a value."""
        return cls(Outcome.OK, value)

    @classmethod
    def error(cls, error: RomancyError) -> StoreDecision:
        """Resolve with an error."""
        return cls(Outcome.ERROR, encode_failure(error))


@dataclass(slots=True)
class MessagingTransaction:
    """Applies the effects and store calls of one write, and collects the instances that it wakes and starts."""

    cursor: Cursor
    now: int
    create: Callable[[Cursor, Sequence[CreateInstance]], None]
    """Creates instances (`transitions.start`, passed in to avoid a circular import)."""
    woken: dict[str, None] = field(default_factory=dict[str, None])
    started: list[str] = field(default_factory=list[str])

    def add_woken(self, ids: Iterable[str]) -> None:
        """Add instances that were woken."""
        self.woken.update(dict.fromkeys(ids))

    # --- effects

    def emit(self, instance_id: str, effect: Effect) -> None:
        """Apply an effect of an instance or of one of its activities."""
        match effect:
            case SendEvent():
                self.accept(effect)
            case Publish():
                self.add_woken(channels.publish(self.cursor, effect.message, self.now))
            case SendToGroup():
                self.add_woken(channels.send_to_group(self.cursor, effect.message, effect.group, self.now))
            case SendTo():
                self.send(effect)
            case Unsubscribe():
                self.add_woken(channels.unsubscribe(self.cursor, instance_id, effect.channel, self.now))
            case JoinGroup():
                self.cursor.run("join_group", (effect.group, instance_id, self.now))

    def accept(self, sent: SendEvent) -> AcceptedEvent:
        """Accept an event. A duplicate changes nothing: it is not sent to brokers again either."""
        event = sent.event
        if not sent.local:
            outbox.enqueue(self.cursor, event, sent.brokers, self.now)
            return AcceptedEvent(event.id, event.source, duplicate=False, instance_ids=())
        accepted = events.accept(self.cursor, event, self.now)
        if accepted is None:
            return AcceptedEvent(event.id, event.source, duplicate=True, instance_ids=())
        if sent.brokers:
            outbox.enqueue(self.cursor, event, sent.brokers, self.now)
        woken, first_matched = accepted
        self.add_woken(woken)
        starts = sent.starts or self._started_elsewhere(sent)
        # Before the next event of the batch: instances receive only events that were accepted after their creation.
        self.create(self.cursor, starts)
        ids = [create.instance_id for create in starts]
        self.started += ids
        return AcceptedEvent(event.id, event.source, duplicate=False, instance_ids=(*first_matched, *ids))

    def _started_elsewhere(self, sent: SendEvent) -> tuple[CreateInstance, ...]:
        """Return the instance that an event starts if its workflow's code is not in this process.

        The worker that runs it binds the event's data to the workflow's parameters.
        """
        event = sent.event
        handler = self.cursor.first("handler_of", (event.type,))
        if handler is None or not sent.fresh_id or event.target is not None:
            return ()
        given = self.cursor.codec.encode(event_input(event), ("input", sent.fresh_id, "1"))
        return (CreateInstance(sent.fresh_id, event.type, handler[0], given, b"", self.now),)

    def send(self, sent: SendTo) -> RomancyError | None:
        """Send a message to one instance. Return an error if the instance does not exist or has ended."""
        found = self.cursor.first("status_of", (sent.target,))
        if found is None or found[1]:
            return no_recipient(sent.target, None if found is None else found[0])
        self.add_woken(channels.send(self.cursor, sent.message, sent.target, self.now))
        return None

    def withdraw(self, instance_id: str, ops: Sequence[str]) -> None:
        """Drop waits; if one was woken for a pooled message, another instance is woken in its place."""
        values = (instance_id, as_json(ops))
        # Read before the waits are dropped: their rows say what they were woken for.
        channels_to_wake: list[str] = self.cursor.json_rows("withdrawn_calls", values)
        for op in ops:
            self.cursor.run("drop_wait", (instance_id, op))
        for channel in channels_to_wake:
            self.add_woken(wake_next(self.cursor, channel, self.now))

    # --- store calls

    def has_unread(self, instance_id: str) -> bool:
        """Return whether the instance has inbox items, or waits that were matched and not resolved."""
        return bool(self.cursor.only("has_unread", {"id": instance_id})[0])

    def resolve_store_calls(
        self, instance_id: str, store_calls: Sequence[StoreCall]
    ) -> list[tuple[StoreCall, StoreDecision]]:
        """Resolve the store calls that can be resolved now, in the order to be recorded.

        Waits are resolved only if there are no other calls, and then only the one with the earliest arrival. After any
        reply the code may withdraw a wait, and an event or message that it had consumed would be lost. The run makes the
        remaining calls again.
        """
        decided = [
            (store_call, self._resolve_store_call(instance_id, store_call))
            for store_call in store_calls
            if not isinstance(store_call.command, WaitSelector)
        ]
        if decided:
            return decided
        waits = [store_call for store_call in store_calls if isinstance(store_call.command, WaitSelector)]
        return self._take_first_arrival(instance_id, waits) or self._expire_or_register(instance_id, waits)

    def _resolve_store_call(self, instance_id: str, store_call: StoreCall) -> StoreDecision:
        match store_call.command:
            case SendTo():
                return _decision_of(self.send(store_call.command))
            case Subscribe():
                return _decision_of(self._subscribe(instance_id, store_call.command))
            case LeaveGroup():
                return _decision_of(self._leave_group(instance_id, store_call.command))
            case ListMembers():
                return StoreDecision.ok(json.dumps(members(self.cursor, store_call.command.group)).encode())
            case WaitSelector():
                raise AssertionError("waits are resolved together, in _take_first_arrival")

    def _take_first_arrival(self, instance_id: str, waits: Sequence[StoreCall]) -> list[tuple[StoreCall, StoreDecision]]:
        """Give the earliest event or message among those found for the waits to its wait."""
        found = [(arrival, wait) for wait in waits if (arrival := self._find_arrival(instance_id, wait)) is not None]
        if not found:
            return []
        (_, seq, body), wait = min(found, key=lambda one: one[0][:2])
        self._consume(instance_id, wait, seq)
        self._end_wait(instance_id, wait)
        return [(wait, StoreDecision.ok(body))]

    def _find_arrival(self, instance_id: str, store_call: StoreCall) -> tuple[int, int, bytes] | None:
        selector = store_call.command
        assert isinstance(selector, WaitSelector)
        if store_call.due is not None and store_call.due <= (store_call.entry.scheduled_at or 0):
            before = None  # a timeout of zero: anything that is there now is in time
        else:
            before = min((time for time in (store_call.due, store_call.before) if time is not None), default=None)
        return self._find_arrival_before(instance_id, store_call, selector, before)

    def _find_arrival_before(
        self, instance_id: str, store_call: StoreCall, selector: WaitSelector, before: int | None
    ) -> tuple[int, int, bytes] | None:
        if store_call.entry.kind is Kind.EVENT:
            return events.find(self.cursor, instance_id, store_call.entry.op, selector, before)
        mode = self._subscription_mode(instance_id, selector.key)
        return None if mode is None else channels.find(self.cursor, instance_id, selector.key, mode, before)

    def _consume(self, instance_id: str, store_call: StoreCall, seq: int) -> None:
        selector = store_call.command
        assert isinstance(selector, WaitSelector)
        if store_call.entry.kind is Kind.EVENT:
            events.take(self.cursor, instance_id, selector, seq)
        else:
            channels.take(self.cursor, instance_id, selector.key, seq)

    def _expire_or_register(self, instance_id: str, waits: Sequence[StoreCall]) -> list[tuple[StoreCall, StoreDecision]]:
        """Resolve waits that cannot succeed or have timed out with an error; register the others."""
        expired: list[tuple[StoreCall, StoreDecision]] = []
        for wait in waits:
            error = self._expiry_error(instance_id, wait)
            if error is None:
                self._register_wait(instance_id, wait)
            else:
                self._end_wait(instance_id, wait)
                expired.append((wait, _decision_of(error)))
        return expired

    def _expiry_error(self, instance_id: str, store_call: StoreCall) -> RomancyError | None:
        selector = store_call.command
        assert isinstance(selector, WaitSelector)
        if store_call.entry.kind is Kind.MESSAGE and self._subscription_mode(instance_id, selector.key) is None:
            return ChannelNotSubscribedError(
                f"Instance {instance_id!r} has not subscribed to channel {selector.key!r}: await subscribe(ctx, "
                f"{selector.key!r}) before receive()."
            )
        now = self.now if store_call.before is None else store_call.before
        return timeout_error(store_call.entry, selector) if store_call.due is not None and store_call.due <= now else None

    def _subscription_mode(self, instance_id: str, channel: str) -> str | None:
        found = self.cursor.first("subscription", (channel, instance_id))
        return None if found is None else str(found[0])

    def _end_wait(self, instance_id: str, store_call: StoreCall) -> None:
        self.cursor.run("drop_wait", (instance_id, store_call.entry.op))
        if store_call.entry.kind is Kind.MESSAGE:  # it may have been woken for another message than the one it got
            assert isinstance(store_call.command, WaitSelector)
            self.add_woken(wake_next(self.cursor, store_call.command.key, self.now))

    def _register_wait(self, instance_id: str, store_call: StoreCall) -> None:
        selector = store_call.command
        assert isinstance(selector, WaitSelector)
        # The wait was resolved only for arrivals before `store_call.before`. A later arrival is noted as matched, so that
        # the wait finds it when the run makes this store call again.
        later = (
            None
            if store_call.before is None
            else self._find_arrival_before(instance_id, store_call, selector, store_call.due)
        )
        if selector.match is not None:
            match = self.cursor.codec.encode(selector.match, events.match_context(instance_id, store_call.entry.op))
            store_call = replace(store_call, command=replace(selector, match=match))
        self.cursor.run("put_wait", wait_row(instance_id, store_call, None if later is None else later[1]))

    def _subscribe(self, instance_id: str, command: Subscribe) -> RomancyError | None:
        mode = channels.subscribe(self.cursor, instance_id, command.channel, command.mode, self.now)
        if mode is None:
            return None
        return ChannelModeConflictError(
            f"Channel {command.channel!r} is in use in mode {mode!r}, so instance {instance_id!r} cannot subscribe in mode "
            f"{command.mode.value!r}: use that mode, or another channel."
        )

    def _leave_group(self, instance_id: str, command: LeaveGroup) -> RomancyError | None:
        if self.cursor.run("leave_group", (command.group, instance_id)):
            return None
        return GroupNotJoinedError(f"Instance {instance_id!r} cannot leave group {command.group!r}: it is not a member.")


def make_reply(entry: Entry, seq: int, decided: StoreDecision) -> tuple[Entry, StoreReply]:
    """Return the resolution of a store call as a history entry, and as a reply to the run."""
    outcome, value = decided
    written = entry._replace(seq=seq, outcome=outcome, value=value)
    return written, StoreReply(entry.op, seq, entry.at, outcome, value)


def wait_row(instance_id: str, store_call: StoreCall, matched_seq: int | None) -> tuple[object, ...]:
    """Return the row of a wait; `matched_seq` is the event or message that has arrived for it already."""
    entry, selector = store_call.entry, store_call.command
    assert isinstance(selector, WaitSelector)
    kind = WaitKind.EVENT if entry.kind is Kind.EVENT else WaitKind.MESSAGE
    return (
        instance_id,
        entry.op,
        kind,
        entry.scheduled_at,
        store_call.due,
        selector.key,
        selector.subject,
        selector.match,
        entry.site,
        matched_seq,
    )


def _decision_of(error: RomancyError | None) -> StoreDecision:
    return StoreDecision.ok(None) if error is None else StoreDecision.error(error)


def timeout_error(entry: Entry, selector: WaitSelector) -> RomancyError:
    """Return the error of a wait that has timed out."""
    if entry.kind is Kind.MESSAGE:
        return ChannelMessageTimeoutError(f"No message arrived on channel {selector.key!r} in time ({entry.op}).")
    subject = f" with subject {selector.subject!r}" if selector.subject is not None else ""
    return EventTimeoutError(f"No event {selector.key!r}{subject} arrived in time ({entry.op}).")
