"""Bulk operations: accepts many events, or resolves many waits for events, with a handful of statements for all of them.

Such writes do not conflict: an event is broadcast, and an instance that consumes it takes it from no other instance. The
results are those that `messaging` would give one by one.
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
    """Whether its events go to no broker and, as far as the sender knows, start no workflow."""
    return write.local and not write.brokers and not any(write.starts)


WokenByEvent: TypeAlias = Mapping[int, Mapping[str, bool]]
"""For each event, by its sequence number: the woken instances, and whether it is the first match of one of their waits."""


class EventBatch:
    """Events that are accepted together, and the results for their senders."""

    def __init__(self, writes: Mapping[int, AcceptEvents]) -> None:
        self._writes = writes
        self._events = [event for write in writes.values() for event in write.events]
        self.write_indices = [index for index, write in writes.items() for _ in write.events]
        """For each event, the index of its write in the batch."""
        self.bodies = [event_json(event) for event in self._events]
        self.now = max((write.now for write in writes.values()), default=0)

    def __bool__(self) -> bool:
        return bool(self._events)

    def values(self, codec: Codec) -> dict[str, Any]:
        """Return the events as columns, as the bulk statement takes them."""
        columns = zip(*[(e.source, e.id, e.type, e.subject, e.target) for e in self._events], strict=True)
        named = zip(("source", "id", "type", "subject", "target"), map(list, columns), strict=True)
        return dict(named) | {"body": [codec.encode(body, EVENT_CONTEXT) for body in self.bodies], "now": self.now}

    def index_by_id(self, left_out: Set[int] = frozenset()) -> dict[tuple[str, str], int]:
        """Return the position of the first event with each source and id, without the writes in `left_out`."""
        kept = [position for position, write in enumerate(self.write_indices) if write not in left_out]
        # Reversed: of two events with the same source and id the first one is new, and the second one a duplicate.
        return {(self._events[position].source, self._events[position].id): position for position in reversed(kept)}

    def answers(self, new: Mapping[int, int], woken_by_event: WokenByEvent) -> dict[int, WriteResult]:
        """Return the result of each write. `new` maps positions of new events to their sequence numbers."""
        answers: dict[int, WriteResult] = {}
        position = 0
        for index, write in self._writes.items():
            accepted: list[AcceptedEvent] = []
            woken: dict[str, None] = {}
            for event in write.events:
                known = position not in new
                matched = {} if known else woken_by_event.get(new[position], {})
                ids = tuple(instance_id for instance_id, is_first in matched.items() if is_first)
                accepted.append(AcceptedEvent(event.id, event.source, duplicate=known, instance_ids=ids))
                woken.update(dict.fromkeys(matched))
                position += 1
            answers[index] = Accepted(tuple(accepted), tuple(woken))
        return answers


def accept_bulk(cursor: Cursor, writes: Mapping[int, AcceptEvents]) -> dict[int, WriteResult]:
    """Append events to the log and wake the instances that wait for them.

    A write with an event that starts a workflow gets no result: the statement leaves it out, and it is applied alone.
    """
    events = EventBatch(writes)
    if not events:
        return {}
    rows = cursor.rows("accept_events", events.values(cursor.codec) | {"write": events.write_indices})
    left_out = {int(write) for seq, _, write, *_ in rows if seq is None}
    positions = events.index_by_id(left_out)
    new = {positions[source, id]: seq for seq, source, id, *_ in rows if source is not None}
    log = {seq: events.bodies[position] for position, seq in new.items()}
    woken = _wake_matched(cursor, [(seq, *wait) for seq, _, _, *wait in rows if wait[0] is not None], log, events.now)
    return {index: answer for index, answer in events.answers(new, woken).items() if index not in left_out}


def _wake_matched(cursor: Cursor, waits: Sequence[Any], bodies: Mapping[int, bytes], now: int) -> WokenByEvent:
    """Wake the instances whose waits match new events, unless the statement has woken them; return who was woken by which.

    A row of `waits`: event, instance, operation, match, whether the instance is woken, whether the wait was matched before.
    """
    first: dict[tuple[str, str], int] = {}
    woken: dict[int, dict[str, bool]] = {}
    seen: set[tuple[str, str]] = set()
    for seq, instance_id, op, match, is_woken, was_matched in waits:
        if is_woken or may_match(cursor.codec, bodies[seq], instance_id, op, match):
            if not is_woken:
                first.setdefault((instance_id, op), seq)
            matched = woken.setdefault(seq, {})
            matched[instance_id] = matched.get(instance_id, False) or not (was_matched or (instance_id, op) in seen)
            seen.add((instance_id, op))
    if first:
        matches = [(*wait, seq) for wait, seq in first.items()]
        ids = dict.fromkeys(instance_id for instance_id, _ in first)
        cursor.run("match_and_wake", {"waits": as_json(matches), "ids": as_json(ids), "now": now})
    return woken


# --- waits


class _FoundEvent(NamedTuple):
    """The event found for a wait, if there is one (`seq`), and the state of its instance's inbox."""

    has_unread: bool
    """The instance has other unread arrivals."""
    seq: int | None
    at: int
    body: bytes
    addressed: bool


def is_plain_wait(write: Transition) -> bool:
    """Whether its only store call is a wait for an event without `match`, and it concerns no other instance."""
    if (
        write.effects
        or write.withdrawn
        or write.recur is not None
        or write.ending is not None
        or len(write.store_calls) != 1
    ):
        return False
    store_call = write.store_calls[0]
    selector = store_call.command
    plain = (
        isinstance(selector, WaitSelector)
        and selector.match is None
        and store_call.entry.kind is Kind.EVENT
        and store_call.before is None
    )
    return plain and write.status not in (Status.PAUSED, Status.BLOCKED)


def resolve_waits(cursor: Cursor, writes: Mapping[int, Transition]) -> dict[int, WriteResult]:
    """Resolve each wait with its event, if there is one, or register it."""
    if not writes:
        return {}
    unit = UnitOfWork(cursor, {write.instance_id: None for write in writes.values()})
    found = _find_events(cursor, writes)
    answers = {index: _answer_wait(unit, write, found.get(index)) for index, write in writes.items()}
    unit.flush()
    return answers


def _find_events(cursor: Cursor, writes: Mapping[int, Transition]) -> dict[int, _FoundEvent]:
    waits = [_wait_columns(index, write) for index, write in writes.items()]
    return {index: _FoundEvent(*rest) for index, *rest in cursor.rows("find_events", (json.dumps(waits),))}


def _wait_columns(index: int, write: Transition) -> tuple[Any, ...]:
    store_call = write.store_calls[0]
    selector = store_call.command
    assert isinstance(selector, WaitSelector)
    return (
        index,
        write.instance_id,
        store_call.entry.op,
        selector.key,
        selector.subject,
        store_call.due,
        selector_key(selector),
    )


def _answer_wait(unit: UnitOfWork, write: Transition, found: _FoundEvent | None) -> WriteResult:
    state = unit.states.get(write.instance_id)
    if state is None or found is None:
        return Refused()
    if not may_write(state, write):
        return Refused(Status(state.status))
    store_call = write.store_calls[0]
    decided = _resolve_wait(unit, state, write, found)
    replies: tuple[Any, ...] = ()
    if decided is not None:
        unit.withdraw_waits(state, (store_call.entry.op,))
        entry, reply = make_reply(store_call.entry, state.length + len(write.history) + 1, decided)
        unit.add_history(state, (entry,))
        replies = (reply,)
    caught_up = not write.consumed_items and not found.has_unread
    if caught_up:
        write = write._replace(inbox_seen=state.inbox_version)
    conclude(unit, state, write, has_replies=bool(replies))
    return Applied(state.inbox_version, state.owner is not None, replies, caught_up=caught_up)


def _resolve_wait(unit: UnitOfWork, state: InstanceState, write: Transition, found: _FoundEvent) -> StoreDecision | None:
    store_call = write.store_calls[0]
    selector = store_call.command
    assert isinstance(selector, WaitSelector)
    if found.seq is not None:
        unit.consume_event(state, found.seq, selector_key(selector), addressed=found.addressed)
        return StoreDecision.ok(found.body)
    if store_call.due is not None and store_call.due <= write.now:
        return StoreDecision.error(timeout_error(store_call.entry, selector))
    unit.register_wait(wait_row(state.id, store_call, None))
    return None
