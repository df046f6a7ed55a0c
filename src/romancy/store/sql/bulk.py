"""Many at once: events that are accepted, and instances that ask for one, with a handful of statements for all of them.

Such writes do not get into each other's way: an event is for everybody, and who takes it changes nothing for others. They
are decided as `talk` decides them one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from romancy.codec import Codec
from romancy.model.history import Kind
from romancy.model.messaging import AcceptedEvent, WaitSelector
from romancy.model.status import Status
from romancy.model.transition import Accepted, AcceptEvents, Applied, Refused, Transition, WriteResult
from romancy.serde.messaging import event_json
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.events import EVENT_CONTEXT, may_match, selector_key
from romancy.store.sql.json_params import as_json
from romancy.store.sql.messaging import StoreDecision, make_reply, timeout_error, wait_row
from romancy.store.sql.transitions import conclude, may_write
from romancy.store.sql.unit_of_work import InstanceState, UnitOfWork

# --- events


def is_plain_accept(write: AcceptEvents) -> bool:
    """Its events are for this database alone and, as far as its sender knows, start nothing."""
    return write.local and not write.brokers and not any(write.starts)


WokenByEvent: TypeAlias = Mapping[int, Mapping[str, bool]]
"""Who was called for which event, by its number, and whether it is the first that came for a wait of theirs."""


class EventBatch:
    """Events that are accepted together, and what their senders are told."""

    def __init__(self, writes: Mapping[int, AcceptEvents]) -> None:
        self._writes = writes
        self._events = [event for write in writes.values() for event in write.events]
        self.write_indices = [index for index, write in writes.items() for _ in write.events]
        """The write that each event belongs to."""
        self.bodies = [event_json(event) for event in self._events]
        self.now = max((write.now for write in writes.values()), default=0)

    def __bool__(self) -> bool:
        return bool(self._events)

    def values(self, codec: Codec) -> dict[str, Any]:
        """The events as columns."""
        columns = zip(*[(e.source, e.id, e.type, e.subject, e.target) for e in self._events], strict=True)
        named = zip(("source", "id", "type", "subject", "target"), map(list, columns), strict=True)
        return dict(named) | {"body": [codec.encode(body, EVENT_CONTEXT) for body in self.bodies], "now": self.now}

    def index_by_id(self, left_out: Set[int] = frozenset()) -> dict[tuple[str, str], int]:
        """Where each event comes first, by source and id; writes that are left out do not count."""
        kept = [place for place, owner in enumerate(self.write_indices) if owner not in left_out]
        return {(self._events[place].source, self._events[place].id): place for place in reversed(kept)}

    def answers(self, new: Mapping[int, int], woken_by_event: WokenByEvent) -> dict[int, WriteResult]:
        """Which events are new, by their places, with their numbers; and who was called for which number."""
        answers: dict[int, WriteResult] = {}
        place = 0
        for index, write in self._writes.items():
            accepted: list[AcceptedEvent] = []
            woken: dict[str, None] = {}
            for event in write.events:
                known = place not in new
                those = {} if known else woken_by_event.get(new[place], {})
                ids = tuple(instance_id for instance_id, is_first in those.items() if is_first)
                accepted.append(AcceptedEvent(event.id, event.source, duplicate=known, instance_ids=ids))
                woken.update(dict.fromkeys(those))
                place += 1
            answers[index] = Accepted(tuple(accepted), tuple(woken))
        return answers


def accept_bulk(cursor: Cursor, writes: Mapping[int, AcceptEvents]) -> dict[int, WriteResult]:
    """Put events into the log and call those who wait for them. Writes with events that start workflows are left out."""
    events = EventBatch(writes)
    if not events:
        return {}
    rows = cursor.rows("accept_events", events.values(cursor.codec) | {"write": events.write_indices})
    left_out = {int(write) for seq, _, write, *_ in rows if seq is None}
    places = events.index_by_id(left_out)
    new = {places[source, id]: seq for seq, source, id, *_ in rows if source is not None}
    log = {seq: events.bodies[place] for place, seq in new.items()}
    called = _wake_matched(cursor, [(seq, *wait) for seq, _, _, *wait in rows if wait[0] is not None], log, events.now)
    return {index: answer for index, answer in events.answers(new, called).items() if index not in left_out}


def _wake_matched(cursor: Cursor, waits: Sequence[Any], bodies: Mapping[int, bytes], now: int) -> WokenByEvent:
    """Call those who wait for new events (seq, instance, operation, match), if they were not; who was called for which."""
    first: dict[tuple[str, str], int] = {}
    called: dict[int, dict[str, bool]] = {}
    seen: set[tuple[str, str]] = set()
    for seq, instance_id, op, match, is_called, is_met in waits:
        if is_called or may_match(cursor.codec, bodies[seq], instance_id, op, match):
            if not is_called:
                first.setdefault((instance_id, op), seq)
            those = called.setdefault(seq, {})
            those[instance_id] = those.get(instance_id, False) or not (is_met or (instance_id, op) in seen)
            seen.add((instance_id, op))
    if first:
        met = [(*wait, seq) for wait, seq in first.items()]
        ids = dict.fromkeys(instance_id for instance_id, _ in first)
        cursor.run("match_and_wake", {"waits": as_json(met), "ids": as_json(ids), "now": now})
    return called


# --- waits


class _FoundEvent(NamedTuple):
    """What there is for one who asks."""

    has_unread: bool
    """Something else has come that it has not looked at."""
    seq: int | None
    at: int
    body: bytes
    addressed: bool


def is_plain_wait(write: Transition) -> bool:
    """It asks for one event, and nothing else that could concern others."""
    if (
        write.effects
        or write.withdrawn
        or write.recur is not None
        or write.ending is not None
        or len(write.store_calls) != 1
    ):
        return False
    ask = write.store_calls[0]
    wanted = ask.command
    plain = isinstance(wanted, WaitSelector) and wanted.match is None and ask.entry.kind is Kind.EVENT and ask.before is None
    return plain and write.status not in (Status.PAUSED, Status.BLOCKED)


def resolve_waits(cursor: Cursor, writes: Mapping[int, Transition]) -> dict[int, WriteResult]:
    """Give everybody the event it asks for, if there is one, or register its wait."""
    if not writes:
        return {}
    unit = UnitOfWork(cursor, {write.instance_id: None for write in writes.values()})
    found = _find_events(cursor, writes)
    answers = {index: _answer_wait(unit, write, found.get(index)) for index, write in writes.items()}
    unit.flush()
    return answers


def _find_events(cursor: Cursor, writes: Mapping[int, Transition]) -> dict[int, _FoundEvent]:
    asked = [_wait_columns(index, write) for index, write in writes.items()]
    return {index: _FoundEvent(*rest) for index, *rest in cursor.rows("find_events", (json.dumps(asked),))}


def _wait_columns(index: int, write: Transition) -> tuple[Any, ...]:
    ask = write.store_calls[0]
    wanted = ask.command
    assert isinstance(wanted, WaitSelector)
    return (index, write.instance_id, ask.entry.op, wanted.key, wanted.subject, ask.due, selector_key(wanted))


def _answer_wait(unit: UnitOfWork, write: Transition, found: _FoundEvent | None) -> WriteResult:
    state = unit.states.get(write.instance_id)
    if state is None or found is None:
        return Refused()
    if not may_write(state, write):
        return Refused(Status(state.status))
    ask = write.store_calls[0]
    decided = _resolve_wait(unit, state, write, found)
    replies: tuple[Any, ...] = ()
    if decided is not None:
        unit.withdraw_waits(state, (ask.entry.op,))
        entry, reply = make_reply(ask.entry, state.length + len(write.history) + 1, decided)
        unit.add_history(state, (entry,))
        replies = (reply,)
    caught_up = not write.consumed_items and not found.has_unread
    if caught_up:
        write = write._replace(inbox_seen=state.inbox_version)
    conclude(unit, state, write, has_replies=bool(replies))
    return Applied(state.inbox_version, state.owner is not None, replies, caught_up=caught_up)


def _resolve_wait(unit: UnitOfWork, state: InstanceState, write: Transition, found: _FoundEvent) -> StoreDecision | None:
    ask = write.store_calls[0]
    wanted = ask.command
    assert isinstance(wanted, WaitSelector)
    if found.seq is not None:
        unit.consume_event(state, found.seq, selector_key(wanted), addressed=found.addressed)
        return StoreDecision.ok(found.body)
    if ask.due is not None and ask.due <= write.now:
        return StoreDecision.error(timeout_error(ask.entry, wanted))
    unit.register_wait(wait_row(state.id, ask, None))
    return None
