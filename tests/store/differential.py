"""Plays the same story on several stores, and compares what they answer and what is in their tables."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.store import Model
from tests.store import store_operations
from tests.store.conformance.builders import worker as worker_row
from tests.store.store_operations import Clean, Go, Handle, Hold, Start, Steer, Step, Tell, Together
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
class Place:
    """A store, and where its tables are."""

    name: str
    address: str
    store: Store


@dataclass
class Known:
    """What a worker knows of an instance."""

    worker: str = "w1"
    epoch: int = 1
    owned: bool = True
    generation: int = 1
    length: int = 0
    talked: bool = False
    pending: dict[str, tuple[store_operations.Wait, StoreCall]] = field(
        default_factory=dict[str, tuple[store_operations.Wait, StoreCall]]
    )
    timers: tuple[str, ...] = ()


Make = Callable[[Place], Awaitable[Write]]


class Player:
    """One story."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._model = Model()
        self._known: dict[str, Known] = {}
        self._now = 100
        self._number = 0
        self._last_event = ""
        self._signals = True
        """How often somebody was called is the same everywhere: not where many events are accepted at once."""

    async def play(self, story: Sequence[Step], look_every: int = 1) -> None:
        """Step by step, with a look at the tables every so many steps; raises at the first difference."""
        for number, step in enumerate(story, 1):
            self._now += _TICK
            try:
                await self._step(step)
                if number % look_every == 0 or number == len(story):
                    self._compare_tables()
            except AssertionError as error:
                raise AssertionError(f"step {number}, {step}:\n{error}") from None
        await self._compare_reads()

    async def _step(self, step: Step) -> None:
        match step:
            case Hold():
                await self._hold(step)
            case Clean():
                await self._clean(step)
            case Handle():
                for place in self._places:
                    await place.store.save_handlers([(step.type, "", step.yes)], now=self._now)
                self._model.handle(step.type, yes=step.yes)
            case Together():
                await self._together(step)
            case _:
                await self._commit([self._make(step)])

    async def _together(self, step: Together) -> None:
        events = [one.what for one in step.steps if isinstance(one, Tell)]
        if any(self._model.handles(event.type) for event in events if isinstance(event, store_operations.Event)):
            for one in step.steps:  # what starts workflows may come after what does not
                await self._commit([self._make(one)])
        else:
            self._signals = self._signals and not events
            await self._commit([self._make(one) for one in step.steps])

    # --- writing

    async def _commit(self, makes: Sequence[Make]) -> None:
        told: dict[str, list[Any]] = {}
        first: list[tuple[Write, WriteResult | StoreError]] = []
        for place in self._places:
            writes = [await make(place) for make in makes]
            answers = await place.store.commit(writes)
            told[place.name] = [_plain(answer, signals=self._signals) for answer in answers]
            first = first or list(zip(writes, answers, strict=True))
        _same(told)
        for write, answer in first:
            should, is_so = (_plain(one, signals=self._signals) for one in (self._model.write(write), _gist(answer)))
            assert should == is_so, f"should be {should}, is {is_so}"
            self._learn(write, answer)

    def _make(self, step: Start | Go | Tell | Steer) -> Make:
        match step:
            case Start():
                made: Write = self._start(step)
            case Tell():
                made = self._tell(step)
            case Steer():
                made = ControlRequest(step.who, ControlKind(step.kind), self._now, by="operator")
            case Go():
                return self._go(step)

        async def make(_: Place) -> Write:
            return made

        return make

    def _start(self, step: Start) -> CreateInstance:
        digest = b"other" if step.other else b"digest"
        ending = Ending(error=b"does not fit", fingerprint="f") if step.broken else None
        owner = None if step.broken else step.owner
        return CreateInstance(step.who, "order", "1", b"input", digest, self._now, owner, ending=ending)

    def _tell(self, step: Tell) -> Write:
        if isinstance(step.what, store_operations.Event):
            return AcceptEvents((self._event(step.what),), self._now, fresh_ids=(f"h{self._next()}",))
        effect = self._effect(step.what)
        assert isinstance(effect, Publish | SendTo | SendToGroup)
        return PostMessage(effect, self._now)

    def _go(self, step: Go) -> Make:
        known = self._known.get(step.who, Known())
        store_calls = () if step.then in _LAST else self._asks(known, step.store_calls)
        asked = {ask.entry.op for ask in store_calls}
        stored = [op for op in (*known.pending, *known.timers) if op not in asked]
        # An end names what is registered, as a run does.
        withdrawn = stored if step.then in (*_ENDS, "recur", "forget") else stored[:1] if step.withdraw else []
        timer = step.timer and step.release and step.then == ""
        withdrawn = [op for op in withdrawn if op != _TIMER or not timer]
        effects = tuple(self._effect(effect) for effect in step.effects)
        history = tuple(self._entry(known, number) for number in range(1, step.entries + 1))
        made = Transition(
            step.who,
            known.generation + (step.slip == "generation"),
            "stranger" if step.slip == "worker" else known.worker,
            known.epoch - (step.slip == "epoch"),
            known.epoch if known.owned else known.epoch + 1,
            self._status(step),
            self._now,
            keep_owned=step.then in ("recur", "forget", "compensate") or (step.then == "" and not step.release),
            inbox_seen=0,
            wake_at=self._now + 15 if timer else None,
            history=history,
            attempts=self._attempts(known, step),
            closed=("act",) if step.attempt == "closed" else (),
            waits=(Wait(_TIMER, WaitKind.TIMER, self._now, self._now + 15),) if timer else (),
            withdrawn=tuple(withdrawn),
            ending=Ending(b"output", None, "") if step.then in _ENDS else None,
            notes=(JournalNote("replayed", "some"),) if step.entries == 2 else (),
            blocked_by="code-0" if step.then == "block" else None,
            length=max(known.length - (step.slip == "length"), 0),
            effects=effects,
            store_calls=store_calls,
            has_messaging_state=known.talked or bool(effects or store_calls) or known.generation > 1,
            recur=Recurrence(b"next", step.then == "recur") if step.then in ("recur", "forget") else None,
        )

        async def make(place: Place) -> Write:
            inbox = await place.store.inbox(step.who)
            seen = max(inbox.inbox_version - step.unseen, 0)
            consumed = tuple(mail.id for mail in inbox.items) if step.consume and not step.unseen else ()
            return made._replace(inbox_seen=seen, consumed_items=consumed)

        return make

    def _status(self, step: Go) -> Status:
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

    def _attempts(self, known: Known, step: Go) -> tuple[AttemptRow, ...]:
        if step.attempt not in ("open", "failed"):
            return ()
        is_open = step.attempt == "open"
        error = None if is_open else b"error"
        return (AttemptRow("act", 1 + is_open, "act", is_open, known.worker, known.epoch, "app:1", 1, 2, error=error),)

    def _entry(self, known: Known, number: int) -> Entry:
        seq, op = known.length + number, f"act:{self._next()}"
        attempt = 2 if seq % 4 == 0 else 1  # most succeed at once
        done = Entry(seq, Kind.ACTIVITY, op, Outcome.OK, self._now, value=b"1", attempt=attempt)
        return done._replace(worker=known.worker, epoch=known.epoch)

    def _asks(self, known: Known, wanted: Sequence[store_operations.Ask]) -> tuple[StoreCall, ...]:
        store_calls: dict[str, StoreCall] = {}
        for one in wanted:
            if isinstance(one, store_operations.Wait):
                ask = next(
                    (ask for wait, ask in known.pending.values() if wait == one and ask.entry.op not in store_calls), None
                )
                ask = ask or self._wait(one)
            else:
                ask = self._question(one)
            store_calls[ask.entry.op] = replace(ask, entry=ask.entry._replace(at=self._now))
        return tuple(store_calls.values())

    def _wait(self, one: store_operations.Wait) -> StoreCall:
        kind = Kind.MESSAGE if one.message else Kind.EVENT
        match = json.dumps({"n": 1}).encode() if one.match else None
        wanted = WaitSelector(one.key, one.subject, match)
        due = None if one.due is None else self._now + one.due
        return StoreCall(self._bare(kind, f"wait:{self._next()}:{_Spec.of(one)}"), wanted, due)

    def _question(self, one: store_operations.Question) -> StoreCall:
        question: StoreCommand
        match one.how:
            case "subscribe":
                kind, question = Kind.SUBSCRIBE, Subscribe(one.what, ChannelMode(one.mode))
            case "leave":
                kind, question = Kind.LEAVE_GROUP, LeaveGroup(one.what)
            case "members":
                kind, question = Kind.MEMBERS, ListMembers(one.what)
            case _:
                kind, question = Kind.SEND_TO, SendTo(self._message("x"), one.what)
        return StoreCall(self._bare(kind, f"{one.how}:{self._next()}"), question)

    def _bare(self, kind: Kind, op: str) -> Entry:
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
            case store_operations.Bond(how="join"):
                return JoinGroup(effect.what)
            case store_operations.Bond():
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

    def _learn(self, write: Write, answer: WriteResult | StoreError) -> None:
        started = answer.started if isinstance(answer, Applied | Accepted) else ()
        self._known |= {one: Known(epoch=0, owned=False) for one in started}
        if not isinstance(answer, Applied):
            return
        if isinstance(write, CreateInstance):
            self._known[write.instance_id] = Known(write.owner or "w1", int(answer.owned), answer.owned)
        elif isinstance(write, Transition):
            self._learn_of_run(self._known[write.instance_id], write, answer)

    def _learn_of_run(self, known: Known, write: Transition, answer: Applied) -> None:
        known.epoch, known.owned = write.new_epoch, answer.owned
        known.length += len(write.history) + len(answer.replies)
        known.talked = known.talked or bool(write.effects or write.store_calls)
        answered = {reply.op for reply in answer.replies}
        for ask in write.store_calls:
            if isinstance(ask.command, WaitSelector):
                known.pending[ask.entry.op] = (_Spec.read(ask.entry.op), ask)
        for op in (*answered, *write.withdrawn):
            known.pending.pop(op, None)
        known.timers = () if _TIMER in write.withdrawn else known.timers
        known.timers = tuple(wait.op for wait in write.waits) or known.timers
        if write.recur is not None:
            known.generation, known.length, known.pending, known.timers = known.generation + 1, 0, {}, ()

    # --- other verbs

    async def _hold(self, step: Hold) -> None:
        told = {place.name: await self._hold_on(place.store, step) for place in self._places}
        _same(told)
        rows = next(iter(told.values()))
        self._model.hold(step, self._now, rows)
        if step.how.startswith("claim"):
            for row in rows:
                known = self._known.setdefault(row.instance_id, Known())
                known.worker, known.epoch, known.owned = step.worker, row.epoch, True
                known.generation, known.length = row.generation, row.length

    async def _hold_on(self, store: Store, step: Hold) -> Any:
        ids = None if step.who is None else [step.who]
        match step.how:
            case "claim" | "claim blocked":
                blocked = step.how != "claim"
                rows = await store.claim(step.worker, [ORDER], now=self._now, limit=99, ids=ids, blocked=blocked)
                return sorted((self._plain_row(row) for row in rows), key=lambda row: row.instance_id)
            case "enlist":
                return await store.register_worker(worker_row(step.worker, heartbeat_at=10))
            case "release":
                return await store.release(step.worker, now=self._now)
            case "sweep":
                return (await store.sweep([(step.worker, 10)], now=self._now, limit=99)).freed
            case _:
                kinds = [Runnable(type, "") for type in store_operations.TYPES]
                return await store.mark_unrunnable(kinds, due_before=self._now, now=self._now, limit=99)

    def _plain_row(self, row: InstanceRow) -> InstanceRow:
        return replace(row, updated_at=0, inbox_version=row.inbox_version if self._signals else 0)

    async def _clean(self, step: Clean) -> None:
        before = self._now - step.age * _TICK
        told = {place.name: await _clean_on(place.store, step.how, before) for place in self._places}
        _same(told)
        self._model.clean(step.how, before)

    # --- comparing

    def _compare_tables(self) -> None:
        tables = {place.name: read_tables(place.address) for place in self._places}
        facts, expected = self._model.facts_of(next(iter(tables.values()))), self._model.facts()
        different = {name: (expected.get(name), facts.get(name)) for name in {*expected, *facts}}
        assert facts == expected, "\n".join(
            f"{name}: should be {should}, is {is_so}"
            for name, (should, is_so) in sorted(different.items())
            if should != is_so
        )
        comparable = {name: compared(found, signals=self._signals) for name, found in tables.items()}
        for table in next(iter(comparable.values())):
            _same({name: found[table] for name, found in comparable.items()}, table)

    async def _compare_reads(self) -> None:
        for name, read in self._reads().items():
            _same({place.name: await read(place.store) for place in self._places}, name)

    def _reads(self) -> Mapping[str, Callable[[Store], Awaitable[Any]]]:
        reads: dict[str, Callable[[Store], Awaitable[Any]]] = {
            "list": lambda store: self._list(store, InstanceFilter()),
            "list, pending": lambda store: self._list(store, InstanceFilter(status=(Status.PENDING, Status.FAILED))),
            "list, page": lambda store: self._list(store, InstanceFilter(workflow="order", limit=2)),
            "kinds": lambda store: _ordered(store.kinds_waiting()),
            "workers": lambda store: store.workers(),
            "statuses": lambda store: store.statuses(list(store_operations.WHO)),
            "upcoming": lambda store: _ordered(store.upcoming([ORDER], until=self._now + 100, limit=99)),
            "undeliverable": _undeliverable,
        }
        for group in store_operations.GROUPS:
            reads[f"members of {group}"] = lambda store, group=group: store.members(group)  # type: ignore[misc]
        for worker in store_operations.WORKERS:
            reads[f"owned by {worker}"] = lambda store, worker=worker: _ordered(store.owned(worker))  # type: ignore[misc]
            reads[f"arrived for {worker}"] = lambda store, worker=worker: _ordered(store.with_unread_inbox(worker))  # type: ignore[misc]
        for who in self._known:
            reads[f"all of {who}"] = lambda store, who=who: self._all_of(store, who)  # type: ignore[misc]
        return reads

    async def _list(self, store: Store, query: InstanceFilter) -> list[Any]:
        return [replace(one, row=self._plain_row(one.row)) for one in await store.list(query)]

    async def _all_of(self, store: Store, who: str) -> list[Any]:
        loaded, stored, inbox = await store.load(who), await store.get(who), await store.inbox(who)
        mails = [(mail.kind, mail.op, mail.body, mail.at) for mail in inbox.items]
        if loaded is not None:
            loaded = replace(loaded, row=self._plain_row(loaded.row), waits=tuple(sorted(loaded.waits)), inbox=())
        if stored is not None:
            waits = tuple(sorted(stored.waits, key=lambda wait: wait.op))
            stored = replace(stored, row=self._plain_row(stored.row), waits=waits)
        history = await store.history(who, 1, after=0, limit=99)
        return [
            loaded,
            stored,
            mails,
            sorted(inbox.matched_waits),
            history,
            await store.attempts(who, 1),
            await store.journal(who),
        ]


class _Spec:
    """A wait as a part of its operation's name, so that a pending one is found again."""

    @staticmethod
    def of(wait: store_operations.Wait) -> str:
        return json.dumps([wait.key, wait.message, wait.subject, wait.match, wait.due])

    @staticmethod
    def read(op: str) -> store_operations.Wait:
        return store_operations.Wait(*json.loads(op.split(":", 2)[2]))


async def _clean_on(store: Store, how: str, before: int) -> int:
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


def _plain(answer: WriteResult | StoreError, *, signals: bool) -> Any:
    """An answer without what may differ: the order of those who are called."""
    match answer:
        case Applied():
            answer = answer._replace(woken=tuple(sorted(answer.woken)), started=tuple(sorted(answer.started)))
            return answer if signals else answer._replace(inbox_version=0)
        case Accepted():
            events = tuple(replace(one, instance_ids=tuple(sorted(one.instance_ids))) for one in answer.events)
            return replace(answer, events=events, woken=tuple(sorted(answer.woken)))
        case StoreError():
            return "an error"
        case _:
            return answer


def _gist(answer: WriteResult | StoreError) -> WriteResult | StoreError:
    """An answer with the ids of what was heard in place of its whole text."""
    if not isinstance(answer, Applied):
        return answer
    return answer._replace(replies=tuple(replace(reply, value=_word(reply)) for reply in answer.replies))


def _word(reply: StoreReply) -> Any:
    if reply.outcome is Outcome.ERROR or reply.value is None:
        return None
    body = json.loads(reply.value)
    return body["id"] if isinstance(body, dict) else body


def _same(told: Mapping[str, Any], what: str = "the answers") -> None:
    (first, one), *others = told.items()
    for name, other in others:
        if one != other:
            only = (f"{what} differ\n{first}:", *_only(one, other), f"{name}:", *_only(other, one))
            raise AssertionError("\n".join(only))


def _only(these: Any, those: Any) -> list[str]:
    if not isinstance(these, list) or not isinstance(those, list):
        return [repr(these)]
    return [repr(one) for place, one in enumerate(these) if those[place : place + 1] != [one]]
