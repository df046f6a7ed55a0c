"""What a store should do, on plain dictionaries: no rows, no statements, one thing after another.

It is written from the port's rules. What matters for others is here (who may write, who is called, what waits and unread
messages there are); payloads, times and journals are left to the comparison of the databases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.store.store_operations import Hold
from tests.store.table_snapshot import Tables

from romancy.core.matcher import matches
from romancy.errors import StoreError
from romancy.model.history import Kind, Outcome
from romancy.model.instance import InstanceRow
from romancy.model.messaging import (
    AcceptedEvent,
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
from romancy.model.status import Status
from romancy.model.transition import (
    Accepted,
    AcceptEvents,
    Applied,
    AttemptUpdate,
    ControlKind,
    ControlRequest,
    CreateInstance,
    Existing,
    PostMessage,
    Refused,
    Transition,
    Write,
    WriteResult,
)

AT_REST = (Status.PAUSED, Status.BLOCKED)


@dataclass
class Waiting:
    """A wait that is registered."""

    op: str
    message: bool
    key: str
    subject: str | None
    match: bytes | None
    since: int
    due: int | None
    met: bool = False


@dataclass
class Letter:
    """A message, or an event."""

    id: str
    place: int
    at: int
    what: Message | Event


@dataclass
class Instance:
    """An instance, as far as it concerns others."""

    id: str
    workflow: str
    version: str
    digest: bytes
    status: Status
    epoch: int
    owner: str | None
    wake_at: int | None
    born: int
    signal: int = 0
    generation: int = 1
    ended_at: int | None = None
    input: bytes = b""
    """What it was started with; its first generation is kept in these stories."""
    cancelled: bool = False
    history: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    inbox: list[str] = field(default_factory=list[str])
    waits: dict[str, Waiting] = field(default_factory=dict[str, Waiting])
    taken: set[str] = field(default_factory=set[str])
    bonds: tuple[dict[str, ChannelMode], list[str]] = field(default_factory=lambda: ({}, []))
    """What it belonged to when it failed."""

    def comes_when_called(self) -> bool:
        """Neither an operator nor its code keeps it from running."""
        return self.status not in AT_REST


class Model:
    """A store's state."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self._events: list[Letter] = []
        self._known: set[tuple[str, str]] = set()
        self._subscriptions: dict[str, dict[str, ChannelMode]] = {}
        self._members: dict[str, dict[str, int]] = {}
        self._unread: dict[tuple[str, str], list[Letter]] = {}
        self._pools: dict[str, list[Letter]] = {}
        self._handled: set[str] = set()
        self._workers: set[str] = set()
        self._places = 0
        self._now = 0
        self._woken: dict[str, None] = {}
        self._started: list[str] = []

    # --- what is written

    def write(self, write: Write) -> WriteResult | StoreError:
        """Do it; what should be answered."""
        self._woken, self._started = {}, []
        match write:
            case CreateInstance():
                return self._create(write)
            case Transition():
                return self._transition(write)
            case ControlRequest():
                return self._request(write)
            case AcceptEvents():
                self._now = write.now
                events = [self._accept(SendEvent(*one)) for one in zip(write.events, ((),), write.fresh_ids, strict=True)]
                return Accepted(tuple(events), tuple(self._woken), tuple(self._started))
            case PostMessage():
                return self._post(write)
            case AttemptUpdate():
                raise AssertionError("not a part of these stories")

    def _create(self, write: CreateInstance) -> WriteResult:
        taken = self._instances.get(write.instance_id)
        if taken is not None:
            known = taken.workflow != write.workflow or (taken.digest == write.digest and taken.digest)
            first = None if known else taken.input
            return Existing(taken.workflow, taken.version, taken.digest, taken.status, first)
        held = write.owner is not None
        status, wake_at = (Status.RUNNING, None) if held else (Status.PENDING, write.now)
        if write.ending is not None:
            status, wake_at = Status.FAILED, None
        self._instances[write.instance_id] = Instance(
            write.instance_id,
            write.workflow,
            write.version,
            write.digest,
            status,
            int(held),
            write.owner,
            wake_at,
            self._places,
            ended_at=None if write.ending is None else write.now,
            input=write.input,
        )
        return Applied(0, held)

    def _post(self, write: PostMessage) -> WriteResult:
        self._now = write.now
        if isinstance(write.effect, SendTo) and not self._send(write.effect):
            target = self._instances.get(write.effect.target)
            return Refused(None if target is None else target.status)
        if not isinstance(write.effect, SendTo):
            self._do("", write.effect)
        return Applied(woken=tuple(self._woken))

    # --- transitions

    def _transition(self, write: Transition) -> WriteResult:
        self._now = write.now
        one = self._instances.get(write.instance_id)
        if one is None or not _may_write(one, write):
            return Refused(None if one is None else one.status)
        if write.ending and write.status is not Status.CANCELLED and one.cancelled and one.signal != write.inbox_seen:
            compensating = one.status is Status.COMPENSATING
            status = Status.COMPENSATING if compensating else Status.RUNNING
            write = write._replace(ending=None, keep_owned=True, status=status)  # its cancellation was promised to somebody
        for effect in write.effects:
            self._do(one.id, effect)
        if write.ending is None or write.effects:
            self._withdraw(one, write.withdrawn)
        replies = self._ask(one, write)
        seen = write.inbox_seen
        caught_up = (
            bool(write.store_calls)
            and not write.consumed_items
            and not one.inbox
            and not any(w.met for w in one.waits.values())
        )
        if caught_up:
            seen = one.signal
        one.history += [(entry.op, entry.outcome) for entry in write.history]
        one.history += [(reply.op, reply.outcome) for reply in replies]
        one.epoch, one.wake_at = write.new_epoch, write.wake_at
        self._settle(one, write, kept=bool(replies) or one.signal != seen)
        held = one.owner is not None
        return Applied(one.signal, held, replies, tuple(self._woken), tuple(self._started), caught_up)

    def _settle(self, one: Instance, write: Transition, *, kept: bool) -> None:
        if write.recur is not None:
            self._pass_on([one.id])
            one.waits.clear()
            one.history.clear()
            one.generation += 1
            one.owner, one.status, one.wake_at = write.worker, Status.RUNNING, None
        elif write.ending is not None:
            self._end(one, write.status)
        elif write.keep_owned:
            one.owner, one.status = write.worker, write.status
        elif kept:
            back = Status.COMPENSATING in (one.status, write.status)
            one.owner, one.status = write.worker, Status.COMPENSATING if back else Status.RUNNING
        else:
            one.owner, one.status = None, Status.PENDING if write.status is Status.RUNNING else write.status
            if not one.comes_when_called():
                one.wake_at = None
                self._pass_on([one.id])
        if write.recur is None and write.ending is None:
            for wait in write.waits:
                one.waits[wait.op] = Waiting(wait.op, False, wait.key, None, None, wait.since, wait.due)
                one.waits[wait.op].key = ""  # a timer: nothing comes for it
        if write.consumed_items:
            one.inbox.clear()  # all of it, in these stories

    def _end(self, one: Instance, status: Status) -> None:
        one.owner, one.status, one.wake_at, one.ended_at = None, status, None, self._now
        modes = {channel: found[one.id] for channel, found in self._subscriptions.items() if one.id in found}
        groups = [group for group, members in self._members.items() if one.id in members]
        if status is Status.FAILED:
            one.bonds = (modes, groups)
        self._pass_on([one.id])
        one.waits.clear()
        one.inbox.clear()
        for key in [key for key in self._unread if key[0] == one.id]:
            del self._unread[key]
        for channel in modes:
            del self._subscriptions[channel][one.id]
        for group in groups:
            del self._members[group][one.id]

    # --- what is said

    def _do(self, speaker: str, effect: Effect) -> None:
        match effect:
            case SendEvent():
                self._accept(effect)
            case Publish():
                self._publish(effect.message)
            case SendTo():
                self._send(effect)
            case SendToGroup():
                self._deliver(effect.message, list(self._members.get(effect.group, {})))
            case Unsubscribe():
                self._unsubscribe(self._instances[speaker], effect.channel)
            case JoinGroup():
                self._members.setdefault(effect.group, {}).setdefault(speaker, self._now)

    def _accept(self, sent: SendEvent) -> AcceptedEvent:
        event = sent.event
        if (event.source, event.id) in self._known:
            return AcceptedEvent(event.id, event.source, duplicate=True, instance_ids=())
        self._known.add((event.source, event.id))
        letter = self._letter(event.id, event)
        self._events.append(letter)
        called: list[str] = []
        named: list[str] = []
        for one in self._instances.values():
            waits = [wait for wait in one.waits.values() if self._is_for(one, wait, letter) and not _over(wait, letter.at)]
            named += [] if all(wait.met for wait in waits) else [one.id]
            for wait in waits:
                wait.met = True
            called += [one.id] if waits else []
        self._wake(called)
        if event.type in self._handled and event.target is None:
            self._create(CreateInstance(sent.fresh_id, event.type, "", b"", b"", self._now))
            self._started.append(sent.fresh_id)
            named.append(sent.fresh_id)
        return AcceptedEvent(event.id, event.source, duplicate=False, instance_ids=tuple(named))

    def _publish(self, message: Message) -> None:
        subscribers = self._subscriptions.get(message.channel, {})
        if ChannelMode.BROADCAST in subscribers.values():
            self._deliver(message, [one for one, mode in subscribers.items() if mode is ChannelMode.BROADCAST])
        else:
            self._pools.setdefault(message.channel, []).append(self._letter(message.id, message))
            self._call_next(message.channel)

    def _send(self, sent: SendTo) -> bool:
        target = self._instances.get(sent.target)
        if target is None or target.ended_at is not None:
            return False
        if not self._deliver(sent.message, [target.id]):
            target.signal += 1
        return True

    def _deliver(self, message: Message, recipients: Sequence[str]) -> list[str]:
        letter = self._letter(message.id, message)
        called: list[str] = []
        for recipient in recipients:
            self._unread.setdefault((recipient, message.channel), []).append(letter)
            waits = self._instances[recipient].waits.values()
            meant = [w for w in waits if w.message and w.key == message.channel and not _over(w, self._now)]
            for wait in meant:
                wait.met = True
            called += [recipient] if meant else []
        self._wake(called)
        return called

    def _unsubscribe(self, one: Instance, channel: str) -> None:
        if one.id not in self._subscriptions.get(channel, {}):
            return
        own = [wait for wait in one.waits.values() if wait.message and wait.key == channel]
        if own:
            self._call_next(channel, [one.id])
        self._unread.pop((one.id, channel), None)
        del self._subscriptions[channel][one.id]
        for wait in own:
            wait.met = True
        if own:
            self._stir([one.id])

    def _letter(self, id: str, what: Message | Event) -> Letter:
        self._places += 1
        last = self._events[-1].at if self._events and isinstance(what, Event) else 0
        return Letter(id, self._places, max(self._now, last), what)

    # --- who is called

    def _wake(self, ids: Iterable[str]) -> None:
        """They look for what has come, and whoever wrote is told of them."""
        ids = list(ids)
        self._stir(ids)
        self._woken.update(dict.fromkeys(ids))

    def _stir(self, ids: Iterable[str]) -> None:
        for id in ids:
            one = self._instances[id]
            one.signal += 1
            if one.owner is None and one.comes_when_called():
                one.wake_at = self._now

    def _call_next(self, channel: str, without: Sequence[str] = ()) -> None:
        """For a message of a pool one is called: who has waited longest, and was not called yet."""
        if not self._pools.get(channel):
            return
        modes = self._subscriptions.get(channel, {})
        line = [
            (wait.since, one.id.encode(), wait.op.encode(), one, wait)
            for one in self._instances.values()
            for wait in one.waits.values()
            if wait.message and wait.key == channel and not wait.met and not _over(wait, self._now)
            if modes.get(one.id) is ChannelMode.COMPETING and one.comes_when_called() and one.id not in without
        ]
        if line:
            *_, one, wait = min(line, key=lambda found: found[:3])
            wait.met = True
            self._wake([one.id])

    def _pass_on(self, ids: Sequence[str], *, silently: bool = False) -> None:
        """What they were called for, others may have sooner."""
        channels = {
            wait.key: None
            for id in ids
            for wait in self._instances[id].waits.values()
            if wait.message and wait.met and self._subscriptions.get(wait.key, {}).get(id) is ChannelMode.COMPETING
        }
        for channel in channels:
            self._call_next(channel, ids)

    def _withdraw(self, one: Instance, ops: Sequence[str]) -> None:
        gone = [wait for op in ops if (wait := one.waits.pop(op, None)) is not None]
        for channel in dict.fromkeys(wait.key for wait in gone if wait.message and wait.met):
            self._call_next(channel)

    # --- what is asked

    def _ask(self, one: Instance, write: Transition) -> tuple[StoreReply, ...]:
        waits = [ask for ask in write.store_calls if isinstance(ask.command, WaitSelector)]
        answered = [(ask, self._decide(one, ask)) for ask in write.store_calls if ask not in waits]
        answered = answered or self._first_to_come(one, waits) or self._over(one, waits)
        seq = len(one.history) + len(write.history)
        return tuple(
            StoreReply(ask.entry.op, seq + number, ask.entry.at, outcome, value)
            for number, (ask, (outcome, value)) in enumerate(answered, 1)
        )

    def _decide(self, one: Instance, ask: StoreCall) -> tuple[Outcome, Any]:
        question = ask.command
        right = True
        match question:
            case SendTo():
                right = self._send(question)
            case Subscribe():
                right = self._subscribe(one.id, question.channel, question.mode)
            case LeaveGroup():
                right = self._members.get(question.group, {}).pop(one.id, None) is not None
            case ListMembers():
                members = sorted(
                    self._members.get(question.group, {}).items(), key=lambda found: (found[1], found[0].encode())
                )
                return Outcome.OK, [id for id, _ in members]
            case WaitSelector():
                raise AssertionError
        return (Outcome.OK if right else Outcome.ERROR), None

    def _subscribe(self, id: str, channel: str, mode: ChannelMode) -> bool:
        modes = self._subscriptions.setdefault(channel, {})
        others = {found for found in modes.values() if found is not ChannelMode.DIRECT}
        if id in modes:
            return modes[id] is mode
        if mode is not ChannelMode.DIRECT and others - {mode}:
            return False
        modes[id] = mode
        return True

    def _first_to_come(self, one: Instance, waits: Sequence[StoreCall]) -> list[tuple[StoreCall, tuple[Outcome, Any]]]:
        """Only one gets something: for which it came first."""
        found = [(letter, ask) for ask in waits if (letter := self._find(one, ask)) is not None]
        if not found:
            return []
        letter, ask = min(found, key=lambda pair: (pair[0].at, pair[0].place))
        assert isinstance(ask.command, WaitSelector)
        one.waits.pop(ask.entry.op, None)
        if ask.entry.kind is Kind.EVENT:
            one.taken.add(letter.id)
        else:
            for letters in (self._unread.get((one.id, ask.command.key), []), self._pools.get(ask.command.key, [])):
                if letter in letters:
                    letters.remove(letter)
            self._call_next(ask.command.key)
        return [(ask, (Outcome.OK, letter.id))]

    def _find(self, one: Instance, ask: StoreCall) -> Letter | None:
        wanted = ask.command
        assert isinstance(wanted, WaitSelector)
        if ask.entry.kind is Kind.EVENT:
            wait = _waiting(ask)
            letters = [
                e for e in self._events if e.place > one.born and e.id not in one.taken and self._is_for(one, wait, e)
            ]
        else:
            mode = self._subscriptions.get(wanted.key, {}).get(one.id)
            letters = [] if mode is None else list(self._unread.get((one.id, wanted.key), []))
            letters += self._pools.get(wanted.key, []) if mode is ChannelMode.COMPETING else []
        first = min(letters, key=lambda letter: letter.place, default=None)
        # Without patience a wait takes whatever is there.
        until = None if ask.due is None or ask.due <= (ask.entry.scheduled_at or 0) else ask.due
        if ask.entry.kind is Kind.EVENT:
            in_time = [letter for letter in letters if until is None or letter.at < until]
            return min(in_time, key=lambda letter: letter.place, default=None)
        return first if first is not None and (until is None or first.at < until) else None

    def _over(self, one: Instance, waits: Sequence[StoreCall]) -> list[tuple[StoreCall, tuple[Outcome, Any]]]:
        """What is in vain ends; the others wait."""
        over: list[tuple[StoreCall, tuple[Outcome, Any]]] = []
        for ask in waits:
            assert isinstance(ask.command, WaitSelector)
            message = ask.entry.kind is Kind.MESSAGE
            deaf = message and one.id not in self._subscriptions.get(ask.command.key, {})
            if deaf or (ask.due is not None and ask.due <= self._now):
                one.waits.pop(ask.entry.op, None)
                if message:
                    self._call_next(ask.command.key)
                over.append((ask, (Outcome.ERROR, None)))
            else:
                one.waits[ask.entry.op] = _waiting(ask)
        return over

    def _is_for(self, one: Instance, wait: Waiting, letter: Letter) -> bool:
        event = letter.what
        if not isinstance(event, Event) or wait.message or wait.key != event.type or event.target not in (None, one.id):
            return False
        if wait.subject is not None and wait.subject != event.subject:
            return False
        return wait.match is None or matches(json.loads(event.data or b"null"), json.loads(wait.match))

    # --- requests

    def _request(self, write: ControlRequest) -> WriteResult:
        self._now = write.now
        one = self._instances.get(write.instance_id)
        if one is None or (one.ended_at is not None and write.kind is not ControlKind.RETRY):
            return Refused(None if one is None else one.status)
        return {
            ControlKind.CANCEL: self._cancel,
            ControlKind.PAUSE: self._pause,
            ControlKind.RESUME: self._resume,
            ControlKind.TERMINATE: self._terminate,
            ControlKind.RETRY: self._retry,
        }[write.kind](one)

    def _cancel(self, one: Instance) -> WriteResult:
        if one.cancelled:
            return Applied(one.signal)
        if one.status is Status.COMPENSATING:
            return Refused(one.status)
        one.cancelled = True
        one.inbox.append("cancel")
        one.signal += 1
        if one.owner is None and one.status is not Status.BLOCKED:
            one.wake_at = self._now
            one.status = Status.PENDING if one.status is Status.PAUSED else one.status
        return Applied(one.signal)

    def _pause(self, one: Instance) -> WriteResult:
        if one.owner is not None and "pause" not in one.inbox and one.status is not Status.PAUSED:
            one.inbox.append("pause")
            one.signal += 1
        elif one.owner is None and one.status is Status.BLOCKED:
            return Refused(one.status)
        elif one.owner is None and one.status is not Status.PAUSED:
            one.status, one.wake_at = Status.PAUSED, None
            self._pass_on([one.id])
        return Applied(one.signal, woken=tuple(self._woken))

    def _resume(self, one: Instance) -> WriteResult:
        taken_back = "pause" in one.inbox
        one.inbox = [kind for kind in one.inbox if kind != "pause"]
        if taken_back and one.owner is not None:
            one.signal += 1
        if one.owner is None and not one.comes_when_called():
            one.status, one.wake_at = Status.PENDING, self._now
        elif not taken_back:
            return Refused(one.status)
        return Applied(one.signal)

    def _terminate(self, one: Instance) -> WriteResult:
        one.epoch += 1
        self._end(one, Status.TERMINATED)
        return Applied(one.signal, woken=tuple(self._woken))

    def _retry(self, one: Instance) -> WriteResult:
        if one.status is not Status.FAILED:
            return Refused(one.status)
        modes, groups = one.bonds
        for channel, mode in modes.items():
            self._subscribe(one.id, channel, mode)
        for group in groups:
            self._members.setdefault(group, {}).setdefault(one.id, self._now)
        one.history.append(("retry", "ok"))
        one.status, one.wake_at, one.ended_at, one.cancelled = Status.PENDING, self._now, None, False
        one.epoch += 1
        return Applied(one.signal)

    # --- other verbs

    def handle(self, type: str, *, yes: bool) -> None:
        """Events of a type start workflows, or no more."""
        (self._handled.add if yes else self._handled.discard)(type)

    def handles(self, type: str) -> bool:
        """Events of a type start workflows."""
        return type in self._handled

    def hold(self, step: Hold, now: int, told: Any) -> None:
        """Workers take and leave; what should be told."""
        self._now = now
        match step.how:
            case "enlist":
                self._workers.add(step.worker)
            case "claim" | "claim blocked":
                self._claim(step, told)
            case "release" | "sweep":
                owners = {step.worker}
                if step.how == "sweep":
                    owners |= {one.owner for one in self._instances.values() if one.owner} - (self._workers - owners)
                lost = [one for one in self._instances.values() if one.owner in owners]
                assert told == len(lost), f"{told} were freed, not {len(lost)}"
                self._free(lost)
                self._workers.discard(step.worker)
            case _:
                self._strand(told)

    def _claim(self, step: Hold, told: list[InstanceRow]) -> None:
        ours = [one for one in self._instances.values() if one.workflow == "order" and one.owner is None]
        if step.how == "claim":
            due = [one for one in ours if one.wake_at is not None and one.wake_at <= self._now]
        else:
            due = [one for one in ours if one.status is Status.BLOCKED]
        due = [one for one in due if step.who is None or step.who == one.id]
        assert sorted(row.instance_id for row in told) == sorted(one.id for one in due), "others were claimed"
        for one in due:
            one.owner, one.epoch = step.worker, one.epoch + 1
            one.status = Status.RUNNING if one.status in (Status.PENDING, Status.BLOCKED) else one.status

    def _free(self, lost: Sequence[Instance]) -> None:
        # First all of them, then the calls: a freed one may be called in place of another.
        for one in lost:
            one.owner, one.epoch, one.wake_at = None, one.epoch + 1, self._now
            one.status = Status.PENDING if one.status is Status.RUNNING else one.status
        self._pass_on([one.id for one in lost])

    def _strand(self, told: int) -> None:
        due = [
            one
            for one in self._instances.values()
            if one.workflow != "order" and one.owner is None and one.wake_at is not None and one.wake_at <= self._now
        ]
        assert told == len(due), f"{told} were stranded, not {len(due)}"
        for one in due:
            one.status, one.wake_at = Status.BLOCKED, None

    def clean(self, how: str, before: int) -> None:
        """Old things go."""
        if how == "prune":
            gone = [one.id for one in self._instances.values() if one.ended_at is not None and one.ended_at < before]
            for id in gone:
                del self._instances[id]
        elif how == "forget":
            old = [letter for letter in self._events if letter.at < before]
            self._events = [letter for letter in self._events if letter.at >= before]
            self._known -= {(letter.what.source, letter.id) for letter in old if isinstance(letter.what, Event)}
            for one in self._instances.values():
                one.taken -= {letter.id for letter in old}
            for channel, letters in self._pools.items():
                self._pools[channel] = [letter for letter in letters if letter.at >= before]

    # --- facts

    def facts(self) -> dict[str, Any]:
        """What should be visible."""
        facts: dict[str, Any] = {}
        for one in self._instances.values():
            facts[f"{one.id!r}"] = (one.status, one.generation, one.epoch, one.owner, one.wake_at, one.signal, one.cancelled)
            facts[f"history of {one.id!r}"] = one.history
            facts[f"inbox of {one.id!r}"] = one.inbox
            facts[f"waits of {one.id!r}"] = {op: wait.met for op, wait in one.waits.items()}
            facts[f"taken by {one.id!r}"] = sorted(one.taken)
        for (id, channel), letters in self._unread.items():
            facts[f"unread by {id!r} in {channel!r}"] = [letter.id for letter in letters]
        for channel, letters in self._pools.items():
            facts[f"pool of {channel!r}"] = [letter.id for letter in letters]
        for channel, modes in self._subscriptions.items():
            facts[f"subscribers of {channel!r}"] = dict(modes)
        for group, members in self._members.items():
            facts[f"members of {group!r}"] = dict(members)
        return {name: fact for name, fact in facts.items() if fact}

    def facts_of(self, tables: Tables) -> dict[str, Any]:
        """What is visible in a database."""
        facts: dict[str, Any] = {}
        events = {row["seq"]: row["id"] for row in tables["events"]}
        letters = {row["seq"]: _id_of(row["body"]) for row in tables["messages"]}
        for row in tables["instances"]:
            id, generation = row["id"], row["generation"]
            numbers = [None if row[name] is None else int(row[name] or 0) for name in ("wake_at", "inbox_version")]
            head = (Status(row["status"] or ""), int(generation or 0), int(row["epoch"] or 0), row["owner"])
            facts[f"{id!r}"] = (*head, *numbers, row["cancel_requested_at"] is not None)
            entries = [one for one in tables["history"] if (one["instance_id"], one["generation"]) == (id, generation)]
            entries.sort(key=lambda one: int(one["seq"] or 0))
            facts[f"history of {id!r}"] = [(one["op"], one["outcome"]) for one in entries]
            facts[f"inbox of {id!r}"] = [one["kind"] for one in tables["inbox"] if one["instance_id"] == id]
            waits = [one for one in tables["waits"] if one["instance_id"] == id]
            facts[f"waits of {id!r}"] = {one["op"]: one["matched_seq"] is not None for one in waits}
            taken = [events[one["seq"]] or "" for one in tables["consumed_events"] if one["instance_id"] == id]
            facts[f"taken by {id!r}"] = sorted(taken)
        for row in sorted(tables["deliveries"], key=lambda row: int(row["seq"] or 0)):
            name = f"unread by {row['instance_id']!r} in {row['channel']!r}"
            facts.setdefault(name, []).append(letters[row["seq"]])
        for row in tables["messages"]:
            if row["pooled"] == "1":
                facts.setdefault(f"pool of {row['channel']!r}", []).append(letters[row["seq"]])
        for row in tables["subscriptions"]:
            facts.setdefault(f"subscribers of {row['channel']!r}", {})[row["instance_id"]] = row["mode"]
        for row in tables["group_members"]:
            facts.setdefault(f"members of {row['name']!r}", {})[row["instance_id"]] = int(row["since"] or 0)
        return {name: fact for name, fact in facts.items() if fact}


def _may_write(one: Instance, write: Transition) -> bool:
    if (one.generation, one.epoch, len(one.history)) != (write.generation, write.epoch, write.length):
        return False
    if one.ended_at is not None:
        return False
    if one.owner is None:
        return write.new_epoch > write.epoch and one.comes_when_called()
    return one.owner == write.worker


def _waiting(ask: StoreCall) -> Waiting:
    wanted, entry = ask.command, ask.entry
    assert isinstance(wanted, WaitSelector)
    message = entry.kind is Kind.MESSAGE
    return Waiting(entry.op, message, wanted.key, wanted.subject, wanted.match, entry.scheduled_at or 0, ask.due)


def _over(wait: Waiting, at: int) -> bool:
    return wait.due is not None and wait.due <= at


def _id_of(body: str | None) -> str:
    return str(json.loads(bytes.fromhex(body or ""))["id"])
