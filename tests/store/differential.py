"""Runs the same operations on several stores, and compares their answers and tables."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.store import Model
from tests.store import store_operations
from tests.store.conformance.builders import worker as worker_row
from tests.store.store_operations import Advance, Batch, Control, Hold, Prune, SendExternal, SetHandler, Start, Step
from tests.store.table_snapshot import compared, read_tables

from romancy.errors import StoreError
from romancy.model.history import AttemptRow, Entry, Kind, Outcome
from romancy.model.instance import InstanceFilter, InstanceRow
from romancy.model.messaging import (
    TARGET,
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
    StoreCommand,
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
    ControlKind,
    ControlRequest,
    CreateInstance,
    Ending,
    JournalNote,
    PostMessage,
    Recurrence,
    Transition,
    Wait,
    WaitKind,
    Write,
    WriteResult,
)
from romancy.store.port import Runnable, Store

ORDER = Runnable("order", "1", "code-1")
_TICK = 10
_TIMER = "timer"
_ENDS = {"complete": Status.COMPLETED, "fail": Status.FAILED, "cancel": Status.CANCELLED}
_LAST = {*_ENDS, "pause", "block", "recur", "forget"}


@dataclass(frozen=True)
class StoreUnderTest:
    """A store, and the address of its tables."""

    name: str
    address: str
    store: Store


@dataclass
class InstanceView:
    """An instance as its worker knows it."""

    worker: str = "w1"
    epoch: int = 1
    owned: bool = True
    generation: int = 1
    length: int = 0
    uses_messaging: bool = False
    pending: dict[str, tuple[store_operations.Wait, StoreCall]] = field(
        default_factory=dict[str, tuple[store_operations.Wait, StoreCall]]
    )
    timers: tuple[str, ...] = ()


Make = Callable[[StoreUnderTest], Awaitable[Write]]


class DifferentialRun:
    """One run of a sequence of operations."""

    def __init__(self, targets: Sequence[StoreUnderTest]) -> None:
        self._targets = targets
        self._model = Model()
        self._views: dict[str, InstanceView] = {}
        self._now = 100
        self._number = 0
        self._last_event = ""
        self._compares_versions = True
        """Whether inbox versions are compared: how often they grow is not specified if one batch accepts many events."""

    async def run(self, steps: Sequence[Step], compare_every: int = 1) -> None:
        """Run the steps, and compare the tables after every so many; raises at the first difference."""
        for number, step in enumerate(steps, 1):
            self._now += _TICK
            try:
                await self._step(step)
                if number % compare_every == 0 or number == len(steps):
                    self._compare_tables()
            except AssertionError as error:
                raise AssertionError(f"step {number}, {step}:\n{error}") from None
        await self._compare_reads()

    async def _step(self, step: Step) -> None:
        match step:
            case Hold():
                await self._hold(step)
            case Prune():
                await self._prune(step)
            case SetHandler():
                for target in self._targets:
                    await target.store.save_handlers([(step.type, "", step.yes)], now=self._now)
                self._model.handle(step.type, yes=step.yes)
            case Batch():
                await self._batch(step)
            case _:
                await self._commit([self._make(step)])

    async def _batch(self, step: Batch) -> None:
        events = [one.what for one in step.steps if isinstance(one, SendExternal)]
        if any(self._model.handles(event.type) for event in events if isinstance(event, store_operations.Event)):
            for one in step.steps:  # a store may process events that start workflows after the others
                await self._commit([self._make(one)])
        else:
            self._compares_versions = self._compares_versions and not events
            await self._commit([self._make(one) for one in step.steps])

    # --- writing

    async def _commit(self, makes: Sequence[Make]) -> None:
        results: dict[str, list[Any]] = {}
        first: list[tuple[Write, WriteResult | StoreError]] = []
        for target in self._targets:
            writes = [await make(target) for make in makes]
            answers = await target.store.commit(writes)
            results[target.name] = [_comparable(answer, inbox_versions=self._compares_versions) for answer in answers]
            first = first or list(zip(writes, answers, strict=True))
        _check_equal(results)
        for write, answer in first:
            expected, actual = (
                _comparable(one, inbox_versions=self._compares_versions)
                for one in (self._model.write(write), _abridge(answer))
            )
            assert expected == actual, f"expected {expected}, got {actual}"
            self._record_answer(write, answer)

    def _make(self, step: Start | Advance | SendExternal | Control) -> Make:
        match step:
            case Start():
                made: Write = self._start(step)
            case SendExternal():
                made = self._send_external(step)
            case Control():
                made = ControlRequest(step.who, ControlKind(step.kind), self._now, by="operator")
            case Advance():
                return self._advance(step)

        async def make(_: StoreUnderTest) -> Write:
            return made

        return make

    def _start(self, step: Start) -> CreateInstance:
        digest = b"other" if step.other else b"digest"
        ending = Ending(error=b"does not fit", fingerprint="f") if step.broken else None
        owner = None if step.broken else step.owner
        return CreateInstance(step.who, "order", "1", b"input", digest, self._now, owner, ending=ending)

    def _send_external(self, step: SendExternal) -> Write:
        if isinstance(step.what, store_operations.Event):
            return AcceptEvents((self._event(step.what),), self._now, fresh_ids=(f"h{self._next()}",))
        effect = self._effect(step.what)
        assert isinstance(effect, Publish | SendTo | SendToGroup)
        return PostMessage(effect, self._now)

    def _advance(self, step: Advance) -> Make:
        view = self._views.get(step.who, InstanceView())
        store_calls = () if step.then in _LAST else self._store_calls(view, step.store_calls)
        issued = {call.entry.op for call in store_calls}
        stored = [op for op in (*view.pending, *view.timers) if op not in issued]
        # A transition that ends names every stored operation, as a runner's does.
        withdrawn = stored if step.then in (*_ENDS, "recur", "forget") else stored[:1] if step.withdraw else []
        timer = step.timer and step.release and step.then == ""
        withdrawn = [op for op in withdrawn if op != _TIMER or not timer]
        effects = tuple(self._effect(effect) for effect in step.effects)
        history = tuple(self._entry(view, number) for number in range(1, step.entries + 1))
        made = Transition(
            step.who,
            view.generation + (step.mistake == "generation"),
            "unknown" if step.mistake == "worker" else view.worker,
            view.epoch - (step.mistake == "epoch"),
            view.epoch if view.owned else view.epoch + 1,
            self._status(step),
            self._now,
            keep_owned=step.then in ("recur", "forget", "compensate") or (step.then == "" and not step.release),
            inbox_seen=0,
            wake_at=self._now + 15 if timer else None,
            history=history,
            attempts=self._attempts(view, step),
            closed=("act",) if step.attempt == "closed" else (),
            waits=(Wait(_TIMER, WaitKind.TIMER, self._now, self._now + 15),) if timer else (),
            withdrawn=tuple(withdrawn),
            ending=Ending(b"output", None, "") if step.then in _ENDS else None,
            notes=(JournalNote("replayed", "some"),) if step.entries == 2 else (),
            blocked_by="code-0" if step.then == "block" else None,
            length=max(view.length - (step.mistake == "length"), 0),
            effects=effects,
            store_calls=store_calls,
            has_messaging_state=view.uses_messaging or bool(effects or store_calls) or view.generation > 1,
            recur=Recurrence(b"next", step.then == "recur") if step.then in ("recur", "forget") else None,
        )

        async def make(target: StoreUnderTest) -> Write:
            inbox = await target.store.inbox(step.who)
            seen = max(inbox.inbox_version - step.unseen, 0)
            consumed = tuple(item.id for item in inbox.items) if step.consume and not step.unseen else ()
            return made._replace(inbox_seen=seen, consumed_items=consumed)

        return make

    def _status(self, step: Advance) -> Status:
        match step.then:
            case "pause":
                return Status.PAUSED
            case "block":
                return Status.BLOCKED
            case "compensate":
                return Status.COMPENSATING
            case "":
                return Status.WAITING_FOR_EVENT if step.release else Status.RUNNING
            case _:
                return _ENDS.get(step.then, Status.RUNNING)

    def _attempts(self, view: InstanceView, step: Advance) -> tuple[AttemptRow, ...]:
        if step.attempt not in ("open", "failed"):
            return ()
        is_open = step.attempt == "open"
        error = None if is_open else b"error"
        return (AttemptRow("act", 1 + is_open, "act", is_open, view.worker, view.epoch, "app:1", 1, 2, error=error),)

    def _entry(self, view: InstanceView, number: int) -> Entry:
        seq, op = view.length + number, f"act:{self._next()}"
        attempt = 2 if seq % 4 == 0 else 1  # most succeed at once
        done = Entry(seq, Kind.ACTIVITY, op, Outcome.OK, self._now, value=b"1", attempt=attempt)
        return done._replace(worker=view.worker, epoch=view.epoch)

    def _store_calls(self, view: InstanceView, wanted: Sequence[store_operations.Call]) -> tuple[StoreCall, ...]:
        store_calls: dict[str, StoreCall] = {}
        for one in wanted:
            if isinstance(one, store_operations.Wait):
                call = next(
                    (call for wait, call in view.pending.values() if wait == one and call.entry.op not in store_calls), None
                )
                call = call or self._wait(one)
            else:
                call = self._command(one)
            store_calls[call.entry.op] = replace(call, entry=call.entry._replace(at=self._now))
        return tuple(store_calls.values())

    def _wait(self, one: store_operations.Wait) -> StoreCall:
        kind = Kind.MESSAGE if one.message else Kind.EVENT
        match = json.dumps({"n": 1}).encode() if one.match else None
        wanted = WaitSelector(one.key, one.subject, match)
        due = None if one.due is None else self._now + one.due
        return StoreCall(self._entry_of_call(kind, f"wait:{self._next()}:{_WaitName.of(one)}"), wanted, due)

    def _command(self, one: store_operations.Command) -> StoreCall:
        command: StoreCommand
        match one.how:
            case "subscribe":
                kind, command = Kind.SUBSCRIBE, Subscribe(one.what, ChannelMode(one.mode))
            case "leave":
                kind, command = Kind.LEAVE_GROUP, LeaveGroup(one.what)
            case "members":
                kind, command = Kind.MEMBERS, ListMembers(one.what)
            case _:
                kind, command = Kind.SEND_TO, SendTo(self._message("x"), one.what)
        return StoreCall(self._entry_of_call(kind, f"{one.how}:{self._next()}"), command)

    def _entry_of_call(self, kind: Kind, op: str) -> Entry:
        return Entry(0, kind, op, Outcome.OK, self._now, name=op, site="app.py:7", scheduled_at=self._now)

    def _effect(self, effect: store_operations.Effect) -> Effect:
        match effect:
            case store_operations.Event():
                return SendEvent(self._event(effect), fresh_id=f"h{self._next()}")
            case store_operations.Message(how="publish"):
                return Publish(self._message(effect.channel))
            case store_operations.Message(how="send"):
                return SendTo(self._message(effect.channel), effect.to)
            case store_operations.Message():
                return SendToGroup(self._message(effect.channel), effect.to)
            case store_operations.Membership(how="join"):
                return JoinGroup(effect.what)
            case store_operations.Membership():
                return Unsubscribe(effect.what)

    def _event(self, event: store_operations.Event) -> Event:
        if not (event.again and self._last_event):
            self._last_event = f"e{self._next()}"
        data = json.dumps({"n": self._number % 2}).encode()
        extensions: dict[str, str | int | bool] = {} if event.to is None else {TARGET: event.to}
        return Event(self._last_event, "shop", event.type, data, subject=event.subject, extensions=extensions)

    def _message(self, channel: str) -> Message:
        return Message(f"m{self._next()}", channel, b"1")

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _record_answer(self, write: Write, answer: WriteResult | StoreError) -> None:
        started = answer.started if isinstance(answer, Applied | Accepted) else ()
        self._views |= {one: InstanceView(epoch=0, owned=False) for one in started}
        if not isinstance(answer, Applied):
            return
        if isinstance(write, CreateInstance):
            self._views[write.instance_id] = InstanceView(write.owner or "w1", int(answer.owned), answer.owned)
        elif isinstance(write, Transition):
            self._record_transition(self._views[write.instance_id], write, answer)

    def _record_transition(self, view: InstanceView, write: Transition, answer: Applied) -> None:
        view.epoch, view.owned = write.new_epoch, answer.owned
        view.length += len(write.history) + len(answer.replies)
        view.uses_messaging = view.uses_messaging or bool(write.effects or write.store_calls)
        answered = {reply.op for reply in answer.replies}
        for call in write.store_calls:
            if isinstance(call.command, WaitSelector):
                view.pending[call.entry.op] = (_WaitName.read(call.entry.op), call)
        for op in (*answered, *write.withdrawn):
            view.pending.pop(op, None)
        view.timers = () if _TIMER in write.withdrawn else view.timers
        view.timers = tuple(wait.op for wait in write.waits) or view.timers
        if write.recur is not None:
            view.generation, view.length, view.pending, view.timers = view.generation + 1, 0, {}, ()

    # --- other store calls

    async def _hold(self, step: Hold) -> None:
        results = {target.name: await self._hold_store(target.store, step) for target in self._targets}
        _check_equal(results)
        rows = next(iter(results.values()))
        self._model.hold(step, self._now, rows)
        if step.how.startswith("claim"):
            for row in rows:
                view = self._views.setdefault(row.instance_id, InstanceView())
                view.worker, view.epoch, view.owned = step.worker, row.epoch, True
                view.generation, view.length = row.generation, row.length

    async def _hold_store(self, store: Store, step: Hold) -> Any:
        ids = None if step.who is None else [step.who]
        match step.how:
            case "claim" | "claim blocked":
                blocked = step.how != "claim"
                rows = await store.claim(step.worker, [ORDER], now=self._now, limit=99, ids=ids, blocked=blocked)
                return sorted((self._comparable_row(row) for row in rows), key=lambda row: row.instance_id)
            case "register":
                return await store.register_worker(worker_row(step.worker, heartbeat_at=10))
            case "release":
                return await store.release(step.worker, now=self._now)
            case "sweep":
                return (await store.sweep([(step.worker, 10)], now=self._now, limit=99)).freed
            case _:
                kinds = [Runnable(type, "") for type in store_operations.TYPES]
                return await store.mark_unrunnable(kinds, due_before=self._now, now=self._now, limit=99)

    def _comparable_row(self, row: InstanceRow) -> InstanceRow:
        return replace(row, updated_at=0, inbox_version=row.inbox_version if self._compares_versions else 0)

    async def _prune(self, step: Prune) -> None:
        before = self._now - step.age * _TICK
        results = {target.name: await _prune_store(target.store, step.how, before) for target in self._targets}
        _check_equal(results)
        self._model.clean(step.how, before)

    # --- comparing

    def _compare_tables(self) -> None:
        tables = {target.name: read_tables(target.address) for target in self._targets}
        facts, expected = self._model.facts_of(next(iter(tables.values()))), self._model.facts()
        different = {name: (expected.get(name), facts.get(name)) for name in {*expected, *facts}}
        assert facts == expected, "\n".join(
            f"{name}: expected {expected}, got {actual}"
            for name, (expected, actual) in sorted(different.items())
            if expected != actual
        )
        comparable = {name: compared(found, inbox_versions=self._compares_versions) for name, found in tables.items()}
        for table in next(iter(comparable.values())):
            _check_equal({name: found[table] for name, found in comparable.items()}, table)

    async def _compare_reads(self) -> None:
        for name, read in self._reads().items():
            _check_equal({target.name: await read(target.store) for target in self._targets}, name)

    def _reads(self) -> Mapping[str, Callable[[Store], Awaitable[Any]]]:
        reads: dict[str, Callable[[Store], Awaitable[Any]]] = {
            "list": lambda store: self._list(store, InstanceFilter()),
            "list, pending": lambda store: self._list(store, InstanceFilter(status=(Status.PENDING, Status.FAILED))),
            "list, page": lambda store: self._list(store, InstanceFilter(workflow="order", limit=2)),
            "kinds": lambda store: _ordered(store.kinds_waiting()),
            "workers": lambda store: store.workers(),
            "statuses": lambda store: store.statuses(list(store_operations.INSTANCES)),
            "upcoming": lambda store: _ordered(store.upcoming([ORDER], until=self._now + 100, limit=99)),
            "undeliverable": _undeliverable,
        }
        for group in store_operations.GROUPS:
            reads[f"members of {group}"] = lambda store, group=group: store.members(group)  # type: ignore[misc]
        for worker in store_operations.WORKERS:
            reads[f"owned by {worker}"] = lambda store, worker=worker: _ordered(store.owned(worker))  # type: ignore[misc]
            reads[f"arrived for {worker}"] = lambda store, worker=worker: _ordered(store.with_unread_inbox(worker))  # type: ignore[misc]
        for who in self._views:
            reads[f"all of {who}"] = lambda store, who=who: self._all_of(store, who)  # type: ignore[misc]
        return reads

    async def _list(self, store: Store, query: InstanceFilter) -> list[Any]:
        return [replace(one, row=self._comparable_row(one.row)) for one in await store.list(query)]

    async def _all_of(self, store: Store, who: str) -> list[Any]:
        loaded, stored, inbox = await store.load(who), await store.get(who), await store.inbox(who)
        items = [(item.kind, item.op, item.body, item.at) for item in inbox.items]
        if loaded is not None:
            loaded = replace(loaded, row=self._comparable_row(loaded.row), waits=tuple(sorted(loaded.waits)), inbox=())
        if stored is not None:
            waits = tuple(sorted(stored.waits, key=lambda wait: wait.op))
            stored = replace(stored, row=self._comparable_row(stored.row), waits=waits)
        history = await store.history(who, 1, after=0, limit=99)
        return [
            loaded,
            stored,
            items,
            sorted(inbox.matched_waits),
            history,
            await store.attempts(who, 1),
            await store.journal(who),
        ]


class _WaitName:
    """The fields of a wait as a part of its operation's name, from which a pending wait is found again."""

    @staticmethod
    def of(wait: store_operations.Wait) -> str:
        return json.dumps([wait.key, wait.message, wait.subject, wait.match, wait.due])

    @staticmethod
    def read(op: str) -> store_operations.Wait:
        return store_operations.Wait(*json.loads(op.split(":", 2)[2]))


async def _prune_store(store: Store, how: str, before: int) -> int:
    match how:
        case "prune":
            return await store.prune_instances(ended_before=before, limit=99)
        case "forget":
            return await store.prune_messaging(events_before=before, messages_before=before, limit=99)
        case _:
            return await store.prune_generations(over_before=before, limit=99)


async def _ordered(found: Awaitable[Sequence[Any]]) -> list[Any]:
    return sorted(await found)


async def _undeliverable(store: Store) -> list[Any]:
    return [(at, body) for _, at, body in await store.undeliverable(after=0, limit=99)]


def _comparable(answer: WriteResult | StoreError, *, inbox_versions: bool) -> Any:
    """An answer without its unspecified parts: the order of woken instances, and inbox versions if they are not compared."""
    match answer:
        case Applied():
            answer = answer._replace(woken=tuple(sorted(answer.woken)), started=tuple(sorted(answer.started)))
            return answer if inbox_versions else answer._replace(inbox_version=0)
        case Accepted():
            events = tuple(replace(one, instance_ids=tuple(sorted(one.instance_ids))) for one in answer.events)
            return replace(answer, events=events, woken=tuple(sorted(answer.woken)))
        case StoreError():
            return "an error"
        case _:
            return answer


def _abridge(answer: WriteResult | StoreError) -> WriteResult | StoreError:
    """An answer with the ids of received events and messages in place of their whole texts."""
    if not isinstance(answer, Applied):
        return answer
    return answer._replace(replies=tuple(replace(reply, value=_abridged_value(reply)) for reply in answer.replies))


def _abridged_value(reply: StoreReply) -> Any:
    if reply.outcome is Outcome.ERROR or reply.value is None:
        return None
    body = json.loads(reply.value)
    return body["id"] if isinstance(body, dict) else body


def _check_equal(results: Mapping[str, Any], what: str = "the answers") -> None:
    (first, one), *others = results.items()
    for name, other in others:
        if one != other:
            only = (f"{what} differ\n{first}:", *_differences(one, other), f"{name}:", *_differences(other, one))
            raise AssertionError("\n".join(only))


def _differences(these: Any, those: Any) -> list[str]:
    if not isinstance(these, list) or not isinstance(those, list):
        return [repr(these)]
    return [repr(one) for index, one in enumerate(these) if those[index : index + 1] != [one]]
