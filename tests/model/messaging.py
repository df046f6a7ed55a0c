"""Reference model of messaging: it applies every committed write in order and checks each answer.

The rules are those of the documentation in their simplest form: a wait gets the oldest match that its instance has not had.
The model knows nothing of wake-ups, inbox versions, epochs or caches, because those are under test.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from romancy.errors import StoreError
from romancy.model.history import Kind, Outcome
from romancy.model.messaging import (
    ChannelMode,
    Effect,
    Event,
    JoinGroup,
    LeaveGroup,
    ListMembers,
    Message,
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
from romancy.model.transition import (
    Accepted,
    AcceptEvents,
    Applied,
    AttemptUpdate,
    ControlKind,
    ControlRequest,
    CreateInstance,
    PostMessage,
    Transition,
    Write,
    WriteResult,
)
from romancy.store.sql.apply import concerns_others
from romancy.store.sql.transitions import is_plain_end


def _decision_order(batch: Sequence[Write]) -> list[int]:
    """The writes of a batch in the order in which the store decides them, which need not be the order of submission.

    First writes that concern one instance alone (a new instance, its steps), then effects and store calls in their order,
    then ends. Several writes of one instance keep their order.
    """
    alone: list[int] = []
    rest: dict[int, str] = {}
    for index, write in enumerate(batch):
        own = "" if isinstance(write, AcceptEvents | PostMessage) else write.instance_id
        if own not in rest.values() and not concerns_others(write):
            alone.append(index)
        else:
            rest[index] = own
    times = Counter(rest.values())
    writes = {index: batch[index] for index in rest}
    ends = [i for i, write in writes.items() if type(write) is Transition and is_plain_end(write) and times[rest[i]] == 1]
    return [*alone, *[index for index in rest if index not in ends], *ends]


@dataclass(frozen=True)
class Sent:
    """An event or message that was committed."""

    id: str
    position: int
    """Its position among everything that was sent."""
    at: int
    data: Any
    event: Event | None = None


@dataclass
class InstanceState:
    """The state of an instance that other participants can observe."""

    events_before: int
    """The number of events before its creation."""
    ended: bool = False
    consumed: set[str] = field(default_factory=set[str])
    """The events it has consumed."""
    received: list[str] = field(default_factory=list[str])
    """Everything it has received, in order."""
    waits: dict[str, StoreCall] = field(default_factory=dict[str, StoreCall])


class MessagingModel:
    """Everything that was sent and received on one database."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.instances: dict[str, InstanceState] = {}
        self.sent: dict[str, Sent] = {}
        """What was sent, by id."""
        self._events: list[Sent] = []
        self._known: set[tuple[str, str]] = set()
        self._subscribers: dict[str, dict[str, ChannelMode]] = defaultdict(dict)
        self._members: dict[str, dict[str, None]] = defaultdict(dict)
        self._unread: dict[tuple[str, str], list[Sent]] = defaultdict(list)
        self._pools: dict[str, list[Sent]] = defaultdict(list)
        self._order: dict[str, int] = {}
        self._consumed_from_pool: set[str] = set()
        """Messages that a competing subscriber has consumed."""

    def fault(self, what: str) -> None:
        """Record a violation."""
        self.faults.append(what)

    # --- committed writes

    def apply(self, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        """Apply a batch that was committed."""
        for index in _decision_order(batch):
            answer = answers[index]
            if isinstance(answer, Applied | Accepted):
                self._apply(batch[index], answer)

    def _apply(self, write: Write, answer: Applied | Accepted) -> None:
        match write:
            case CreateInstance():
                self.instances[write.instance_id] = InstanceState(events_before=len(self._events))
            case Transition():
                assert isinstance(answer, Applied)
                self._transition(write, answer)
            case AcceptEvents():
                assert isinstance(answer, Accepted)
                for event, accepted in zip(write.events, answer.events, strict=True):
                    if self._accept(event, write.now) == accepted.duplicate:
                        self.fault(
                            f"{event.id} was reported as {'a duplicate' if accepted.duplicate else 'new'}, which it is not"
                        )
            case PostMessage():
                self._apply_effect("", write.effect, write.now)
            case ControlRequest():
                if write.kind is ControlKind.TERMINATE:
                    self._end(write.instance_id)
            case AttemptUpdate():
                pass

    def _transition(self, write: Transition, answer: Applied) -> None:
        instance = self.instances[write.instance_id]
        for effect in write.effects:
            self._apply_effect(write.instance_id, effect, write.now)
        for op in write.withdrawn:
            instance.waits.pop(op, None)
        replies = {reply.op: reply for reply in answer.replies}
        self._check_first(write, replies)
        for store_call in write.store_calls:
            self._check_store_call(write, store_call, replies.get(store_call.entry.op), first=not answer.replies)
        if write.recur is not None:
            instance.waits.clear()
        if write.ending is not None and not answer.owned:  # otherwise it is still owned: it was cancelled without knowing it
            self._end(write.instance_id)

    def _end(self, instance_id: str) -> None:
        instance = self.instances[instance_id]
        instance.ended = True
        instance.waits.clear()
        for subscribers in self._subscribers.values():
            subscribers.pop(instance_id, None)
        for members in self._members.values():
            members.pop(instance_id, None)
        for key in [key for key in self._unread if key[0] == instance_id]:
            del self._unread[key]

    # --- effects

    def _apply_effect(self, instance_id: str, effect: Effect, now: int) -> None:
        match effect:
            case SendEvent():
                if not self._accept(effect.event, now):
                    self.fault(f"{instance_id} sent {effect.event.id} twice")
            case Publish():
                self._publish(effect.message, now)
            case SendTo():
                self._send(effect, now)
            case SendToGroup():
                self._deliver(effect.message, list(self._members[effect.group]), now)
            case JoinGroup():
                self._members[effect.group][instance_id] = None
            case Unsubscribe():
                self._subscribers[effect.channel].pop(instance_id, None)
                self._unread.pop((instance_id, effect.channel), None)

    def _accept(self, event: Event, now: int) -> bool:
        if (event.source, event.id) in self._known:
            return False
        self._known.add((event.source, event.id))
        at = max(now, self._events[-1].at) if self._events else now
        self._events.append(self._add_sent(event.id, at, event.data, event))
        return True

    def _publish(self, message: Message, now: int) -> None:
        subscribers = self._subscribers[message.channel]
        if ChannelMode.BROADCAST in subscribers.values():
            self._deliver(message, [one for one, mode in subscribers.items() if mode is ChannelMode.BROADCAST], now)
        else:
            self._pools[message.channel].append(self._add_sent(message.id, now, message.data))

    def _send(self, sent: SendTo, now: int) -> bool:
        target = self.instances.get(sent.target)
        if target is None or target.ended:
            return False
        self._deliver(sent.message, [sent.target], now)
        return True

    def _deliver(self, message: Message, recipients: Sequence[str], now: int) -> None:
        sent = self._add_sent(message.id, now, message.data)
        for recipient in recipients:
            self._unread[recipient, message.channel].append(sent)

    def _add_sent(self, id: str, at: int, raw: bytes | None, event: Event | None = None) -> Sent:
        data = None if raw is None else json.loads(raw)
        sent = Sent(id, len(self.sent), at, data, event)
        if id in self.sent:
            self.fault(f"{id} was sent twice")
        self.sent[id] = sent
        self._check_order(sent)
        return sent

    def _check_order(self, sent: Sent) -> None:
        """Items of one sender are sent in order."""
        sender, number = sent.data["by"], sent.data["n"]
        if self._order.get(sender, -1) >= number:
            self.fault(f"{sender} sent number {number} after number {self._order[sender]}")
        self._order[sender] = number

    # --- store calls

    def _check_store_call(self, write: Transition, store_call: StoreCall, reply: StoreReply | None, *, first: bool) -> None:
        instance_id, command = write.instance_id, store_call.command
        match command:
            case WaitSelector():
                self._check_wait(write, store_call, command, reply, first=first)
            case SendTo():
                if reply is None or self._send(command, write.now) != (reply.outcome is Outcome.OK):
                    self.fault(f"{store_call.entry.op} of {instance_id} got the reply {reply}")
            case Subscribe():
                if reply is not None and reply.outcome is Outcome.OK:
                    self._subscribers[command.channel][instance_id] = command.mode
            case LeaveGroup():
                self._members[command.group].pop(instance_id, None)
            case ListMembers():
                if reply is None or json.loads(reply.value or b"") != list(self._members[command.group]):
                    self.fault(f"the members of {command.group} are {list(self._members[command.group])}, not {reply}")

    def _check_first(self, write: Transition, replies: dict[str, StoreReply]) -> None:
        """Of several waits in one transition, the one with the earliest match is resolved."""
        waits = [store_call for store_call in write.store_calls if isinstance(store_call.command, WaitSelector)]
        found = {store_call.entry.op: next(self.available(write.instance_id, store_call), None) for store_call in waits}
        resolved = [op for op in found if op in replies and replies[op].outcome is Outcome.OK]
        for op, sent in found.items():
            for other in resolved if op not in resolved else ():
                first = found[other]
                if sent is not None and first is not None and sent.at < first.at:
                    self.fault(
                        f"{other} of {write.instance_id} got {first.id} although {sent.id} had arrived earlier for {op}"
                    )

    def _check_wait(
        self, write: Transition, store_call: StoreCall, selector: WaitSelector, reply: StoreReply | None, *, first: bool
    ) -> None:
        instance_id, op = write.instance_id, store_call.entry.op
        waits, name = self.instances[instance_id].waits, f"{op} of {instance_id}"
        due = next(self.available(instance_id, store_call), None)
        over = store_call.due is not None and store_call.due <= (
            write.now if store_call.before is None else store_call.before
        )
        if reply is None:
            if first:  # otherwise the wait is issued again, unless the workflow has dropped it
                self._check_pending(name, waits, store_call, due, over=over)
            return
        waits.pop(op, None)
        if reply.outcome is Outcome.OK:
            self._check_received(instance_id, name, store_call, json.loads(reply.value or b"")["id"], due)
        elif due is not None:
            self.fault(f"{name} timed out although {due.id} had arrived in time")
        elif not over:
            self.fault(f"{name} timed out too early")

    def _check_pending(
        self, name: str, waits: dict[str, StoreCall], store_call: StoreCall, due: Sent | None, *, over: bool
    ) -> None:
        waits[store_call.entry.op] = replace(store_call, before=None)
        if due is not None:
            self.fault(f"{name} was left waiting although {due.id} is available")
        elif over:
            self.fault(f"{name} was left waiting after its timeout")

    def _check_received(self, instance_id: str, name: str, store_call: StoreCall, id: str, due: Sent | None) -> None:
        instance = self.instances[instance_id]
        if id in instance.received:
            self.fault(f"{name} got {id} a second time")
        elif id in self._consumed_from_pool:
            self.fault(f"{name} got {id}, which another instance had consumed")
        elif due is None or id != due.id:
            self.fault(f"{name} got {id}; expected {'nothing' if due is None else due.id}")
        instance.received.append(id)
        if store_call.entry.kind is Kind.EVENT:
            instance.consumed.add(id)
            return
        assert isinstance(store_call.command, WaitSelector)
        pool, unread = self._pools[store_call.command.key], self._unread[instance_id, store_call.command.key]
        if any(one.id == id for one in pool):
            self._consumed_from_pool.add(id)
        pool[:] = [one for one in pool if one.id != id]
        unread[:] = [one for one in unread if one.id != id]

    def available(self, instance_id: str, store_call: StoreCall) -> Iterator[Sent]:
        """The matches of a wait, oldest first."""
        selector = store_call.command
        assert isinstance(selector, WaitSelector)
        if store_call.entry.kind is Kind.EVENT:
            found = self._matching_events(instance_id, selector)
        else:
            found = self._unread_messages(instance_id, selector.key)
        times = [time for time in (store_call.due, store_call.before) if time is not None]
        return (one for one in found if all(one.at < time for time in times))

    def _matching_events(self, instance_id: str, selector: WaitSelector) -> Iterator[Sent]:
        instance = self.instances[instance_id]
        match = {} if selector.match is None else json.loads(selector.match)
        for sent in self._events[instance.events_before :]:
            event = sent.event
            assert event is not None
            if sent.id in instance.consumed or event.type != selector.key or event.target not in (None, instance_id):
                continue
            if selector.subject is not None and event.subject != selector.subject:
                continue
            if all(sent.data.get(path) == value for path, value in match.items()):
                yield sent

    def _unread_messages(self, instance_id: str, channel: str) -> Iterator[Sent]:
        found = list(self._unread[instance_id, channel])
        if self._subscribers[channel].get(instance_id) is ChannelMode.COMPETING:
            found += self._pools[channel]
        # Only the first one: a message that came too late for the wait blocks those behind it.
        return iter(sorted(found, key=lambda one: one.position)[:1])
