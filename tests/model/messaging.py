"""What should happen: every committed write is entered here, in order, and each answer is held against the books.

The rules are those of the documentation, in their plainest form: whoever waits gets the oldest that is for it and that it
has not had. Nothing here knows of calls, signals, wake-ups, epochs or caches; those are what is being tested.
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


def _as_taken_up(batch: Sequence[Write]) -> list[int]:
    """The writes of a batch in the order in which they are decided: nobody has been told of any, so it need not be theirs.

    First what concerns one instance alone (a new one, its steps), then what is said and asked, in its order, then ends. Of
    one instance each keeps its place.
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
    """Something that was said, durably."""

    id: str
    place: int
    """Among all that was said."""
    at: int
    data: Any
    event: Event | None = None


@dataclass
class Party:
    """An instance, as far as others can tell."""

    born: int
    """How many events there had been before it."""
    ended: bool = False
    taken: set[str] = field(default_factory=set[str])
    """The events it has had."""
    got: list[str] = field(default_factory=list[str])
    """Everything it has had, in order."""
    waits: dict[str, StoreCall] = field(default_factory=dict[str, StoreCall])


class Books:
    """All that was said and heard on one database."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.parties: dict[str, Party] = {}
        self.sent: dict[str, Sent] = {}
        """By id."""
        self._events: list[Sent] = []
        self._known: set[tuple[str, str]] = set()
        self._subscribers: dict[str, dict[str, ChannelMode]] = defaultdict(dict)
        self._members: dict[str, dict[str, None]] = defaultdict(dict)
        self._unread: dict[tuple[str, str], list[Sent]] = defaultdict(list)
        self._pools: dict[str, list[Sent]] = defaultdict(list)
        self._order: dict[str, int] = {}
        self._sole: set[str] = set()
        """Messages of pools that somebody has had."""

    def fault(self, what: str) -> None:
        """Something is wrong."""
        self.faults.append(what)

    # --- what was committed

    def enter(self, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        """A batch is durable."""
        for index in _as_taken_up(batch):
            answer = answers[index]
            if isinstance(answer, Applied | Accepted):
                self._enter(batch[index], answer)

    def _enter(self, write: Write, answer: Applied | Accepted) -> None:
        match write:
            case CreateInstance():
                self.parties[write.instance_id] = Party(born=len(self._events))
            case Transition():
                assert isinstance(answer, Applied)
                self._transition(write, answer)
            case AcceptEvents():
                assert isinstance(answer, Accepted)
                for event, accepted in zip(write.events, answer.events, strict=True):
                    if self._accept(event, write.now) == accepted.duplicate:
                        self.fault(f"{event.id} was called {'a duplicate' if accepted.duplicate else 'new'}, and is not")
            case PostMessage():
                self._do("", write.effect, write.now)
            case ControlRequest():
                if write.kind is ControlKind.TERMINATE:
                    self._end(write.instance_id)
            case AttemptUpdate():
                pass

    def _transition(self, write: Transition, answer: Applied) -> None:
        party = self.parties[write.instance_id]
        for effect in write.effects:
            self._do(write.instance_id, effect, write.now)
        for op in write.withdrawn:
            party.waits.pop(op, None)
        replies = {reply.op: reply for reply in answer.replies}
        self._check_first(write, replies)
        for ask in write.store_calls:
            self._answer(write, ask, replies.get(ask.entry.op), first=not answer.replies)
        if write.recur is not None:
            party.waits.clear()
        if write.ending is not None and not answer.owned:  # held: it is cancelled, and does not know it yet
            self._end(write.instance_id)

    def _end(self, instance_id: str) -> None:
        party = self.parties[instance_id]
        party.ended = True
        party.waits.clear()
        for subscribers in self._subscribers.values():
            subscribers.pop(instance_id, None)
        for members in self._members.values():
            members.pop(instance_id, None)
        for key in [key for key in self._unread if key[0] == instance_id]:
            del self._unread[key]

    # --- what is said

    def _do(self, instance_id: str, effect: Effect, now: int) -> None:
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
        self._events.append(self._said(event.id, at, event.data, event))
        return True

    def _publish(self, message: Message, now: int) -> None:
        subscribers = self._subscribers[message.channel]
        if ChannelMode.BROADCAST in subscribers.values():
            self._deliver(message, [one for one, mode in subscribers.items() if mode is ChannelMode.BROADCAST], now)
        else:
            self._pools[message.channel].append(self._said(message.id, now, message.data))

    def _send(self, sent: SendTo, now: int) -> bool:
        target = self.parties.get(sent.target)
        if target is None or target.ended:
            return False
        self._deliver(sent.message, [sent.target], now)
        return True

    def _deliver(self, message: Message, recipients: Sequence[str], now: int) -> None:
        said = self._said(message.id, now, message.data)
        for recipient in recipients:
            self._unread[recipient, message.channel].append(said)

    def _said(self, id: str, at: int, raw: bytes | None, event: Event | None = None) -> Sent:
        data = None if raw is None else json.loads(raw)
        said = Sent(id, len(self.sent), at, data, event)
        if id in self.sent:
            self.fault(f"{id} was said twice")
        self.sent[id] = said
        self._check_order(said)
        return said

    def _check_order(self, said: Sent) -> None:
        """What one sender says in a row is said in that order."""
        sender, number = said.data["by"], said.data["n"]
        if self._order.get(sender, -1) >= number:
            self.fault(f"{sender} said number {number} after number {self._order[sender]}")
        self._order[sender] = number

    # --- what is asked

    def _answer(self, write: Transition, ask: StoreCall, reply: StoreReply | None, *, first: bool) -> None:
        instance_id, question = write.instance_id, ask.command
        match question:
            case WaitSelector():
                self._hear(write, ask, question, reply, first=first)
            case SendTo():
                if reply is None or self._send(question, write.now) != (reply.outcome is Outcome.OK):
                    self.fault(f"{ask.entry.op} of {instance_id} was answered {reply}")
            case Subscribe():
                if reply is not None and reply.outcome is Outcome.OK:
                    self._subscribers[question.channel][instance_id] = question.mode
            case LeaveGroup():
                self._members[question.group].pop(instance_id, None)
            case ListMembers():
                if reply is None or json.loads(reply.value or b"") != list(self._members[question.group]):
                    self.fault(f"the members of {question.group} are {list(self._members[question.group])}, not {reply}")

    def _check_first(self, write: Transition, replies: dict[str, StoreReply]) -> None:
        """Of several waits that are asked for together, the one gets something for which it came first."""
        waits = [ask for ask in write.store_calls if isinstance(ask.command, WaitSelector)]
        found = {ask.entry.op: next(self.available(write.instance_id, ask), None) for ask in waits}
        heard = [op for op in found if op in replies and replies[op].outcome is Outcome.OK]
        for op, sent in found.items():
            for other in heard if op not in heard else ():
                first = found[other]
                if sent is not None and first is not None and sent.at < first.at:
                    self.fault(f"{other} of {write.instance_id} got {first.id} although {sent.id} had come before for {op}")

    def _hear(
        self, write: Transition, ask: StoreCall, wanted: WaitSelector, reply: StoreReply | None, *, first: bool
    ) -> None:
        instance_id, op = write.instance_id, ask.entry.op
        waits, name = self.parties[instance_id].waits, f"{op} of {instance_id}"
        due = next(self.available(instance_id, ask), None)
        over = ask.due is not None and ask.due <= (write.now if ask.before is None else ask.before)
        if reply is None:
            if first:  # otherwise it is asked for again, unless the code does not want it any more
                self._wait(name, waits, ask, due, over=over)
            return
        waits.pop(op, None)
        if reply.outcome is Outcome.OK:
            self._take(instance_id, name, ask, json.loads(reply.value or b"")["id"], due)
        elif due is not None:
            self.fault(f"{name} was given up although {due.id} had come in time")
        elif not over:
            self.fault(f"{name} was given up before its time")

    def _wait(self, name: str, waits: dict[str, StoreCall], ask: StoreCall, due: Sent | None, *, over: bool) -> None:
        waits[ask.entry.op] = replace(ask, before=None)
        if due is not None:
            self.fault(f"{name} was left waiting although {due.id} is there")
        elif over:
            self.fault(f"{name} was left waiting although its time is over")

    def _take(self, instance_id: str, name: str, ask: StoreCall, id: str, due: Sent | None) -> None:
        party = self.parties[instance_id]
        if id in party.got:
            self.fault(f"{name} got {id} a second time")
        elif id in self._sole:
            self.fault(f"{name} got {id}, which somebody else had had")
        elif due is None or id != due.id:
            self.fault(f"{name} got {id}; {'nothing' if due is None else due.id} was due")
        party.got.append(id)
        if ask.entry.kind is Kind.EVENT:
            party.taken.add(id)
            return
        assert isinstance(ask.command, WaitSelector)
        pool, unread = self._pools[ask.command.key], self._unread[instance_id, ask.command.key]
        if any(one.id == id for one in pool):
            self._sole.add(id)
        pool[:] = [one for one in pool if one.id != id]
        unread[:] = [one for one in unread if one.id != id]

    def available(self, instance_id: str, ask: StoreCall) -> Iterator[Sent]:
        """What a wait may have, the oldest first."""
        wanted = ask.command
        assert isinstance(wanted, WaitSelector)
        if ask.entry.kind is Kind.EVENT:
            found = self._fitting(instance_id, wanted)
        else:
            found = self._lying_there(instance_id, wanted.key)
        times = [time for time in (ask.due, ask.before) if time is not None]
        return (one for one in found if all(one.at < time for time in times))

    def _fitting(self, instance_id: str, wanted: WaitSelector) -> Iterator[Sent]:
        party = self.parties[instance_id]
        match = {} if wanted.match is None else json.loads(wanted.match)
        for sent in self._events[party.born :]:
            event = sent.event
            assert event is not None
            if sent.id in party.taken or event.type != wanted.key or event.target not in (None, instance_id):
                continue
            if wanted.subject is not None and event.subject != wanted.subject:
                continue
            if all(sent.data.get(path) == value for path, value in match.items()):
                yield sent

    def _lying_there(self, instance_id: str, channel: str) -> Iterator[Sent]:
        found = list(self._unread[instance_id, channel])
        if self._subscribers[channel].get(instance_id) is ChannelMode.COMPETING:
            found += self._pools[channel]
        # Only the first of them: one that came too late keeps those behind it.
        return iter(sorted(found, key=lambda one: one.place)[:1])
