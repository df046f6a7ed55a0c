"""Reference model of a store, on plain dictionaries and without concurrency.

It follows the rules of the port and covers what other instances can observe: which writes are allowed, which instances are
woken, waits and unread messages. Payloads, times and journals are covered by the comparison of the databases.
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

NOT_RUNNABLE = (Status.PAUSED, Status.BLOCKED)


@dataclass
class StoredWait:
    """A registered wait."""

    op: str
    message: bool
    key: str
    subject: str | None
    match: bytes | None
    since: int
    due: int | None
    matched: bool = False


@dataclass
class StoredMessage:
    """A message or an event."""

    id: str
    position: int
    at: int
    what: Message | Event


@dataclass
class Instance:
    """The observable state of an instance."""

    id: str
    workflow: str
    version: str
    digest: bytes
    status: Status
    epoch: int
    owner: str | None
    wake_at: int | None
    created_at_position: int
    inbox_version: int = 0
    generation: int = 1
    ended_at: int | None = None
    input: bytes | None = b""
    """The input of its first generation; None once this generation is deleted."""
    first_ended_at: int | None = None
    """When its first generation ended and was archived."""
    cancelled: bool = False
    history: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    inbox: list[str] = field(default_factory=list[str])
    waits: dict[str, StoredWait] = field(default_factory=dict[str, StoredWait])
    consumed: set[str] = field(default_factory=set[str])
    memberships: tuple[dict[str, ChannelMode], list[str]] = field(default_factory=lambda: ({}, []))
    """The subscriptions and groups it had when it failed."""

    def is_runnable(self) -> bool:
        """Whether it may run: it is neither paused nor blocked."""
        return self.status not in NOT_RUNNABLE


class Model:
    """The state of a store."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self._events: list[StoredMessage] = []
        self._known: set[tuple[str, str]] = set()
        self._subscriptions: dict[str, dict[str, ChannelMode]] = {}
        self._members: dict[str, dict[str, int]] = {}
        self._unread: dict[tuple[str, str], list[StoredMessage]] = {}
        self._pools: dict[str, list[StoredMessage]] = {}
        self._handled: set[str] = set()
        self._workers: set[str] = set()
        self._position = 0
        self._now = 0
        self._woken: dict[str, None] = {}
        self._started: list[str] = []

    # --- writes

    def write(self, write: Write) -> WriteResult | StoreError:
        """Apply a write and return the expected answer."""
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
                raise AssertionError("not part of these scenarios")

    def _create(self, write: CreateInstance) -> WriteResult:
        existing = self._instances.get(write.instance_id)
        if existing is not None:
            known = existing.workflow != write.workflow or (existing.digest == write.digest and existing.digest)
            first = None if known else existing.input
            return Existing(existing.workflow, existing.version, existing.digest, existing.status, first)
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
            self._position,
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
            self._emit("", write.effect)
        return Applied(woken=tuple(self._woken))

    # --- transitions

    def _transition(self, write: Transition) -> WriteResult:
        self._now = write.now
        one = self._instances.get(write.instance_id)
        if one is None or not _may_write(one, write):
            return Refused(None if one is None else one.status)
        if write.ending and write.status is not Status.CANCELLED and one.cancelled and one.inbox_version != write.inbox_seen:
            compensating = one.status is Status.COMPENSATING
            status = Status.COMPENSATING if compensating else Status.RUNNING
            write = write._replace(ending=None, keep_owned=True, status=status)  # its cancellation was acknowledged
        for effect in write.effects:
            self._emit(one.id, effect)
        if write.ending is None or write.effects:
            self._withdraw(one, write.withdrawn)
        replies = self._ask(one, write)
        seen = write.inbox_seen
        caught_up = (
            bool(write.store_calls)
            and not write.consumed_items
            and not one.inbox
            and not any(w.matched for w in one.waits.values())
        )
        if caught_up:
            seen = one.inbox_version
        one.history += [(entry.op, entry.outcome) for entry in write.history]
        one.history += [(reply.op, reply.outcome) for reply in replies]
        one.epoch, one.wake_at = write.new_epoch, write.wake_at
        self._settle(one, write, kept=bool(replies) or one.inbox_version != seen)
        held = one.owner is not None
        return Applied(one.inbox_version, held, replies, tuple(self._woken), tuple(self._started), caught_up)

    def _settle(self, one: Instance, write: Transition, *, kept: bool) -> None:
        if write.recur is not None:
            self._wake_replacements([one.id])
            one.waits.clear()
            one.history.clear()
            if one.generation == 1:
                one.input, one.first_ended_at = (one.input, write.now) if write.recur.archive else (None, None)
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
            if not one.is_runnable():
                one.wake_at = None
                self._wake_replacements([one.id])
        if write.recur is None and write.ending is None:
            for wait in write.waits:
                one.waits[wait.op] = StoredWait(wait.op, False, wait.key, None, None, wait.since, wait.due)
                one.waits[wait.op].key = ""  # a timer: nothing is sent to it
        if write.consumed_items:
            one.inbox.clear()  # all items: these scenarios read the whole inbox

    def _end(self, one: Instance, status: Status) -> None:
        one.owner, one.status, one.wake_at, one.ended_at = None, status, None, self._now
        modes = {channel: found[one.id] for channel, found in self._subscriptions.items() if one.id in found}
        groups = [group for group, members in self._members.items() if one.id in members]
        if status is Status.FAILED:
            one.memberships = (modes, groups)
        self._wake_replacements([one.id])
        one.waits.clear()
        one.inbox.clear()
        for key in [key for key in self._unread if key[0] == one.id]:
            del self._unread[key]
        for channel in modes:
            del self._subscriptions[channel][one.id]
        for group in groups:
            del self._members[group][one.id]

    # --- effects

    def _emit(self, sender: str, effect: Effect) -> None:
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
                self._unsubscribe(self._instances[sender], effect.channel)
            case JoinGroup():
                self._members.setdefault(effect.group, {}).setdefault(sender, self._now)

    def _accept(self, sent: SendEvent) -> AcceptedEvent:
        event = sent.event
        if (event.source, event.id) in self._known:
            return AcceptedEvent(event.id, event.source, duplicate=True, instance_ids=())
        self._known.add((event.source, event.id))
        stored = self._store(event.id, event)
        self._events.append(stored)
        woken: list[str] = []
        named: list[str] = []
        for one in self._instances.values():
            waits = [wait for wait in one.waits.values() if self._is_for(one, wait, stored) and not _over(wait, stored.at)]
            named += [] if all(wait.matched for wait in waits) else [one.id]
            for wait in waits:
                wait.matched = True
            woken += [one.id] if waits else []
        self._wake(woken)
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
            self._pools.setdefault(message.channel, []).append(self._store(message.id, message))
            self._wake_next(message.channel)

    def _send(self, sent: SendTo) -> bool:
        target = self._instances.get(sent.target)
        if target is None or target.ended_at is not None:
            return False
        if not self._deliver(sent.message, [target.id]):
            target.inbox_version += 1
        return True

    def _deliver(self, message: Message, recipients: Sequence[str]) -> list[str]:
        stored = self._store(message.id, message)
        woken: list[str] = []
        for recipient in recipients:
            self._unread.setdefault((recipient, message.channel), []).append(stored)
            waits = self._instances[recipient].waits.values()
            meant = [w for w in waits if w.message and w.key == message.channel and not _over(w, self._now)]
            for wait in meant:
                wait.matched = True
            woken += [recipient] if meant else []
        self._wake(woken)
        return woken

    def _unsubscribe(self, one: Instance, channel: str) -> None:
        if one.id not in self._subscriptions.get(channel, {}):
            return
        own = [wait for wait in one.waits.values() if wait.message and wait.key == channel]
        if own:
            self._wake_next(channel, [one.id])
        self._unread.pop((one.id, channel), None)
        del self._subscriptions[channel][one.id]
        for wait in own:
            wait.matched = True
        if own:
            self._advance_inbox_version([one.id])

    def _store(self, id: str, what: Message | Event) -> StoredMessage:
        self._position += 1
        last = self._events[-1].at if self._events and isinstance(what, Event) else 0
        return StoredMessage(id, self._position, max(self._now, last), what)

    # --- waking

    def _wake(self, ids: Iterable[str]) -> None:
        """Wake the instances and report them to the writer."""
        ids = list(ids)
        self._advance_inbox_version(ids)
        self._woken.update(dict.fromkeys(ids))

    def _advance_inbox_version(self, ids: Iterable[str]) -> None:
        for id in ids:
            one = self._instances[id]
            one.inbox_version += 1
            if one.owner is None and one.is_runnable():
                one.wake_at = self._now

    def _wake_next(self, channel: str, without: Sequence[str] = ()) -> None:
        """Wake one instance for a message of a pool: the one that has waited longest and is not woken yet."""
        if not self._pools.get(channel):
            return
        modes = self._subscriptions.get(channel, {})
        waiting = [
            (wait.since, one.id.encode(), wait.op.encode(), one, wait)
            for one in self._instances.values()
            for wait in one.waits.values()
            if wait.message and wait.key == channel and not wait.matched and not _over(wait, self._now)
            if modes.get(one.id) is ChannelMode.COMPETING and one.is_runnable() and one.id not in without
        ]
        if waiting:
            *_, one, wait = min(waiting, key=lambda found: found[:3])
            wait.matched = True
            self._wake([one.id])

    def _wake_replacements(self, ids: Sequence[str], *, silently: bool = False) -> None:
        """Wake other instances for the messages that these had been woken for."""
        channels = {
            wait.key: None
            for id in ids
            for wait in self._instances[id].waits.values()
            if wait.message and wait.matched and self._subscriptions.get(wait.key, {}).get(id) is ChannelMode.COMPETING
        }
        for channel in channels:
            self._wake_next(channel, ids)

    def _withdraw(self, one: Instance, ops: Sequence[str]) -> None:
        gone = [wait for op in ops if (wait := one.waits.pop(op, None)) is not None]
        for channel in dict.fromkeys(wait.key for wait in gone if wait.message and wait.matched):
            self._wake_next(channel)

    # --- store calls

    def _ask(self, one: Instance, write: Transition) -> tuple[StoreReply, ...]:
        waits = [store_call for store_call in write.store_calls if isinstance(store_call.command, WaitSelector)]
        answered = [
            (store_call, self._decide(one, store_call)) for store_call in write.store_calls if store_call not in waits
        ]
        answered = answered or self._take_first_arrival(one, waits) or self._over(one, waits)
        seq = len(one.history) + len(write.history)
        return tuple(
            StoreReply(store_call.entry.op, seq + number, store_call.entry.at, outcome, value)
            for number, (store_call, (outcome, value)) in enumerate(answered, 1)
        )

    def _decide(self, one: Instance, store_call: StoreCall) -> tuple[Outcome, Any]:
        command = store_call.command
        right = True
        match command:
            case SendTo():
                right = self._send(command)
            case Subscribe():
                right = self._subscribe(one.id, command.channel, command.mode)
            case LeaveGroup():
                right = self._members.get(command.group, {}).pop(one.id, None) is not None
            case ListMembers():
                members = sorted(
                    self._members.get(command.group, {}).items(), key=lambda found: (found[1], found[0].encode())
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

    def _take_first_arrival(self, one: Instance, waits: Sequence[StoreCall]) -> list[tuple[StoreCall, tuple[Outcome, Any]]]:
        """Resolve at most one of the waits: the one with the earliest match."""
        found = [(stored, store_call) for store_call in waits if (stored := self._find(one, store_call)) is not None]
        if not found:
            return []
        stored, store_call = min(found, key=lambda pair: (pair[0].at, pair[0].position))
        assert isinstance(store_call.command, WaitSelector)
        one.waits.pop(store_call.entry.op, None)
        if store_call.entry.kind is Kind.EVENT:
            one.consumed.add(stored.id)
        else:
            for candidates in (
                self._unread.get((one.id, store_call.command.key), []),
                self._pools.get(store_call.command.key, []),
            ):
                if stored in candidates:
                    candidates.remove(stored)
            self._wake_next(store_call.command.key)
        return [(store_call, (Outcome.OK, stored.id))]

    def _find(self, one: Instance, store_call: StoreCall) -> StoredMessage | None:
        selector = store_call.command
        assert isinstance(selector, WaitSelector)
        if store_call.entry.kind is Kind.EVENT:
            wait = _stored_wait(store_call)
            candidates = [
                e
                for e in self._events
                if e.position > one.created_at_position and e.id not in one.consumed and self._is_for(one, wait, e)
            ]
        else:
            mode = self._subscriptions.get(selector.key, {}).get(one.id)
            candidates = [] if mode is None else list(self._unread.get((one.id, selector.key), []))
            candidates += self._pools.get(selector.key, []) if mode is ChannelMode.COMPETING else []
        first = min(candidates, key=lambda stored: stored.position, default=None)
        # A wait without a timeout takes whatever is there.
        until = None if store_call.due is None or store_call.due <= (store_call.entry.scheduled_at or 0) else store_call.due
        if store_call.entry.kind is Kind.EVENT:
            in_time = [stored for stored in candidates if until is None or stored.at < until]
            return min(in_time, key=lambda stored: stored.position, default=None)
        return first if first is not None and (until is None or first.at < until) else None

    def _over(self, one: Instance, waits: Sequence[StoreCall]) -> list[tuple[StoreCall, tuple[Outcome, Any]]]:
        """Resolve the waits that cannot succeed or have timed out, and register the others."""
        over: list[tuple[StoreCall, tuple[Outcome, Any]]] = []
        for store_call in waits:
            assert isinstance(store_call.command, WaitSelector)
            message = store_call.entry.kind is Kind.MESSAGE
            unsubscribed = message and one.id not in self._subscriptions.get(store_call.command.key, {})
            if unsubscribed or (store_call.due is not None and store_call.due <= self._now):
                one.waits.pop(store_call.entry.op, None)
                if message:
                    self._wake_next(store_call.command.key)
                over.append((store_call, (Outcome.ERROR, None)))
            else:
                one.waits[store_call.entry.op] = _stored_wait(store_call)
        return over

    def _is_for(self, one: Instance, wait: StoredWait, stored: StoredMessage) -> bool:
        event = stored.what
        if not isinstance(event, Event) or wait.message or wait.key != event.type or event.target not in (None, one.id):
            return False
        if wait.subject is not None and wait.subject != event.subject:
            return False
        return wait.match is None or matches(json.loads(event.data or b"null"), json.loads(wait.match))

    # --- control requests

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
            return Applied(one.inbox_version)
        if one.status is Status.COMPENSATING:
            return Refused(one.status)
        one.cancelled = True
        one.inbox.append("cancel")
        one.inbox_version += 1
        if one.owner is None and one.status is not Status.BLOCKED:
            one.wake_at = self._now
            one.status = Status.PENDING if one.status is Status.PAUSED else one.status
        return Applied(one.inbox_version)

    def _pause(self, one: Instance) -> WriteResult:
        if one.owner is not None and "pause" not in one.inbox and one.status is not Status.PAUSED:
            one.inbox.append("pause")
            one.inbox_version += 1
        elif one.owner is None and one.status is Status.BLOCKED:
            return Refused(one.status)
        elif one.owner is None and one.status is not Status.PAUSED:
            one.status, one.wake_at = Status.PAUSED, None
            self._wake_replacements([one.id])
        return Applied(one.inbox_version, woken=tuple(self._woken))

    def _resume(self, one: Instance) -> WriteResult:
        taken_back = "pause" in one.inbox
        one.inbox = [kind for kind in one.inbox if kind != "pause"]
        if taken_back and one.owner is not None:
            one.inbox_version += 1
        if one.owner is None and not one.is_runnable():
            one.status, one.wake_at = Status.PENDING, self._now
        elif not taken_back:
            return Refused(one.status)
        return Applied(one.inbox_version)

    def _terminate(self, one: Instance) -> WriteResult:
        one.epoch += 1
        self._end(one, Status.TERMINATED)
        return Applied(one.inbox_version, woken=tuple(self._woken))

    def _retry(self, one: Instance) -> WriteResult:
        if one.status is not Status.FAILED:
            return Refused(one.status)
        modes, groups = one.memberships
        for channel, mode in modes.items():
            self._subscribe(one.id, channel, mode)
        for group in groups:
            self._members.setdefault(group, {}).setdefault(one.id, self._now)
        one.history.append(("retry", "ok"))
        one.status, one.wake_at, one.ended_at, one.cancelled = Status.PENDING, self._now, None, False
        one.epoch += 1
        return Applied(one.inbox_version)

    # --- other calls of the port

    def handle(self, type: str, *, yes: bool) -> None:
        """Register a type of event as starting workflows, or unregister it."""
        (self._handled.add if yes else self._handled.discard)(type)

    def handles(self, type: str) -> bool:
        """Whether events of this type start workflows."""
        return type in self._handled

    def hold(self, step: Hold, now: int, returned: Any) -> None:
        """Register, claim, release or sweep; `returned` is what the store returned."""
        self._now = now
        match step.how:
            case "register":
                self._workers.add(step.worker)
            case "claim" | "claim blocked":
                self._claim(step, returned)
            case "release" | "sweep":
                owners = {step.worker}
                if step.how == "sweep":
                    owners |= {one.owner for one in self._instances.values() if one.owner} - (self._workers - owners)
                lost = [one for one in self._instances.values() if one.owner in owners]
                assert returned == len(lost), f"the store freed {returned} instances, not {len(lost)}"
                self._free(lost)
                self._workers.discard(step.worker)
            case _:
                self._mark_unrunnable(returned)

    def _claim(self, step: Hold, returned: list[InstanceRow]) -> None:
        ours = [one for one in self._instances.values() if one.workflow == "order" and one.owner is None]
        if step.how == "claim":
            due = [one for one in ours if one.wake_at is not None and one.wake_at <= self._now]
        else:
            due = [one for one in ours if one.status is Status.BLOCKED]
        due = [one for one in due if step.who is None or step.who == one.id]
        assert sorted(row.instance_id for row in returned) == sorted(one.id for one in due), (
            "the store claimed other instances"
        )
        for one in due:
            one.owner, one.epoch = step.worker, one.epoch + 1
            one.status = Status.RUNNING if one.status in (Status.PENDING, Status.BLOCKED) else one.status

    def _free(self, lost: Sequence[Instance]) -> None:
        # Free all of them first: a freed instance may replace another one that was woken.
        for one in lost:
            one.owner, one.epoch, one.wake_at = None, one.epoch + 1, self._now
            one.status = Status.PENDING if one.status is Status.RUNNING else one.status
        self._wake_replacements([one.id for one in lost])

    def _mark_unrunnable(self, returned: int) -> None:
        due = [
            one
            for one in self._instances.values()
            if one.workflow != "order" and one.owner is None and one.wake_at is not None and one.wake_at <= self._now
        ]
        assert returned == len(due), f"the store marked {returned} instances unrunnable, not {len(due)}"
        for one in due:
            one.status, one.wake_at = Status.BLOCKED, None

    def clean(self, how: str, before: int) -> None:
        """Delete old instances, events or messages."""
        if how == "prune":
            gone = [one.id for one in self._instances.values() if one.ended_at is not None and one.ended_at < before]
            for id in gone:
                del self._instances[id]
        elif how == "trim":
            for one in self._instances.values():
                if one.first_ended_at is not None and one.first_ended_at < before:
                    one.input = None
        elif how == "forget":
            old = [stored for stored in self._events if stored.at < before]
            self._events = [stored for stored in self._events if stored.at >= before]
            self._known -= {(stored.what.source, stored.id) for stored in old if isinstance(stored.what, Event)}
            for one in self._instances.values():
                one.consumed -= {stored.id for stored in old}
            for channel, candidates in self._pools.items():
                self._pools[channel] = [stored for stored in candidates if stored.at >= before]

    # --- comparison

    def facts(self) -> dict[str, Any]:
        """The facts that should be visible."""
        facts: dict[str, Any] = {}
        for one in self._instances.values():
            facts[f"{one.id!r}"] = (
                one.status,
                one.generation,
                one.epoch,
                one.owner,
                one.wake_at,
                one.inbox_version,
                one.cancelled,
            )
            facts[f"history of {one.id!r}"] = one.history
            facts[f"inbox of {one.id!r}"] = one.inbox
            facts[f"waits of {one.id!r}"] = {op: wait.matched for op, wait in one.waits.items()}
            facts[f"consumed by {one.id!r}"] = sorted(one.consumed)
        for (id, channel), candidates in self._unread.items():
            facts[f"unread by {id!r} in {channel!r}"] = [stored.id for stored in candidates]
        for channel, candidates in self._pools.items():
            facts[f"pool of {channel!r}"] = [stored.id for stored in candidates]
        for channel, modes in self._subscriptions.items():
            facts[f"subscribers of {channel!r}"] = dict(modes)
        for group, members in self._members.items():
            facts[f"members of {group!r}"] = dict(members)
        return {name: fact for name, fact in facts.items() if fact}

    def facts_of(self, tables: Tables) -> dict[str, Any]:
        """The facts that are visible in a database."""
        facts: dict[str, Any] = {}
        events = {row["seq"]: row["id"] for row in tables["events"]}
        message_ids = {row["seq"]: _id_of(row["body"]) for row in tables["messages"]}
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
            consumed = [events[one["seq"]] or "" for one in tables["consumed_events"] if one["instance_id"] == id]
            facts[f"consumed by {id!r}"] = sorted(consumed)
        for row in sorted(tables["deliveries"], key=lambda row: int(row["seq"] or 0)):
            name = f"unread by {row['instance_id']!r} in {row['channel']!r}"
            facts.setdefault(name, []).append(message_ids[row["seq"]])
        for row in tables["messages"]:
            if row["pooled"] == "1":
                facts.setdefault(f"pool of {row['channel']!r}", []).append(message_ids[row["seq"]])
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
        return write.new_epoch > write.epoch and one.is_runnable()
    return one.owner == write.worker


def _stored_wait(store_call: StoreCall) -> StoredWait:
    selector, entry = store_call.command, store_call.entry
    assert isinstance(selector, WaitSelector)
    message = entry.kind is Kind.MESSAGE
    return StoredWait(
        entry.op, message, selector.key, selector.subject, selector.match, entry.scheduled_at or 0, store_call.due
    )


def _over(wait: StoredWait, at: int) -> bool:
    return wait.due is not None and wait.due <= at


def _id_of(body: str | None) -> str:
    return str(json.loads(bytes.fromhex(body or ""))["id"])
