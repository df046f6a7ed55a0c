"""Many at once: events that are accepted, and instances that ask for one, with a handful of statements for all of them.

Such writes do not get into each other's way: an event is for everybody, and who takes it changes nothing for others. They
are decided as `talk` decides them one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from romancy.codec import Coder
from romancy.model.history import Kind
from romancy.model.status import Status
from romancy.model.talk import AcceptedEvent, Wanted
from romancy.model.transition import Accept, Accepted, Answer, Applied, Refused, Transition
from romancy.serde.talk import event_json
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.events import EVENT, concerns, wish
from romancy.store.sql.keys import as_json
from romancy.store.sql.ledger import Ledger, State
from romancy.store.sql.talk import Decided, expired, record, registration
from romancy.store.sql.transitions import conclude, may_write

# --- events


def is_plain_accept(write: Accept) -> bool:
    """Its events are for this database alone and, as far as its sender knows, start nothing."""
    return write.local and not write.brokers and not any(write.starts)


Called: TypeAlias = Mapping[int, Mapping[str, bool]]
"""Who was called for which event, by its number, and whether it is the first that came for a wait of theirs."""


class Gathering:
    """Events that are accepted together, and what their senders are told."""

    def __init__(self, writes: Mapping[int, Accept]) -> None:
        self._writes = writes
        self._events = [event for write in writes.values() for event in write.events]
        self.owners = [index for index, write in writes.items() for _ in write.events]
        """The write that each event belongs to."""
        self.bodies = [event_json(event) for event in self._events]
        self.now = max((write.now for write in writes.values()), default=0)

    def __bool__(self) -> bool:
        return bool(self._events)

    def values(self, coder: Coder) -> dict[str, Any]:
        """The events as columns."""
        columns = zip(*[(e.source, e.id, e.type, e.subject, e.target) for e in self._events], strict=True)
        named = zip(("source", "id", "type", "subject", "target"), map(list, columns), strict=True)
        return dict(named) | {"body": [coder.encode(body, EVENT) for body in self.bodies], "now": self.now}

    def places(self, left_out: Set[int] = frozenset()) -> dict[tuple[str, str], int]:
        """Where each event comes first, by source and id; writes that are left out do not count."""
        kept = [place for place, owner in enumerate(self.owners) if owner not in left_out]
        return {(self._events[place].source, self._events[place].id): place for place in reversed(kept)}

    def answers(self, new: Mapping[int, int], called: Called) -> dict[int, Answer]:
        """Which events are new, by their places, with their numbers; and who was called for which number."""
        answers: dict[int, Answer] = {}
        place = 0
        for index, write in self._writes.items():
            accepted: list[AcceptedEvent] = []
            woken: dict[str, None] = {}
            for event in write.events:
                known = place not in new
                those = {} if known else called.get(new[place], {})
                ids = tuple(instance_id for instance_id, is_first in those.items() if is_first)
                accepted.append(AcceptedEvent(event.id, event.source, duplicate=known, instance_ids=ids))
                woken.update(dict.fromkeys(those))
                place += 1
            answers[index] = Accepted(tuple(accepted), tuple(woken))
        return answers


def accept_together(cursor: Cursor, writes: Mapping[int, Accept]) -> dict[int, Answer]:
    """Put events into the log and call those who wait for them. Writes with events that start workflows are left out."""
    events = Gathering(writes)
    if not events:
        return {}
    rows = cursor.rows("accept_events", events.values(cursor.coder) | {"write": events.owners})
    left_out = {int(write) for seq, _, write, *_ in rows if seq is None}
    places = events.places(left_out)
    new = {places[source, id]: seq for seq, source, id, *_ in rows if source is not None}
    log = {seq: events.bodies[place] for place, seq in new.items()}
    called = _call(cursor, [(seq, *wait) for seq, _, _, *wait in rows if wait[0] is not None], log, events.now)
    return {index: answer for index, answer in events.answers(new, called).items() if index not in left_out}


def _call(cursor: Cursor, waits: Sequence[Any], bodies: Mapping[int, bytes], now: int) -> Called:
    """Call those who wait for new events (seq, instance, operation, match), if they were not; who was called for which."""
    first: dict[tuple[str, str], int] = {}
    called: dict[int, dict[str, bool]] = {}
    seen: set[tuple[str, str]] = set()
    for seq, instance_id, op, match, is_called, is_met in waits:
        if is_called or concerns(cursor.coder, bodies[seq], instance_id, op, match):
            if not is_called:
                first.setdefault((instance_id, op), seq)
            those = called.setdefault(seq, {})
            those[instance_id] = those.get(instance_id, False) or not (is_met or (instance_id, op) in seen)
            seen.add((instance_id, op))
    if first:
        met = [(*wait, seq) for wait, seq in first.items()]
        ids = dict.fromkeys(instance_id for instance_id, _ in first)
        cursor.run("call_many", {"waits": as_json(met), "ids": as_json(ids), "now": now})
    return called


# --- waits


class _Found(NamedTuple):
    """What there is for one who asks."""

    left: bool
    """Something else has come that it has not looked at."""
    seq: int | None
    at: int
    body: bytes
    addressed: bool


def is_plain_ask(write: Transition) -> bool:
    """It asks for one event, and nothing else that could concern others."""
    if write.deeds or write.withdrawn or write.recur is not None or write.ending is not None or len(write.asks) != 1:
        return False
    ask = write.asks[0]
    wanted = ask.question
    plain = isinstance(wanted, Wanted) and wanted.match is None and ask.entry.kind is Kind.EVENT and ask.before is None
    return plain and write.status not in (Status.PAUSED, Status.BLOCKED)


def ask_together(cursor: Cursor, writes: Mapping[int, Transition]) -> dict[int, Answer]:
    """Give everybody the event it asks for, if there is one, or register its wait."""
    if not writes:
        return {}
    ledger = Ledger(cursor, {write.instance_id: None for write in writes.values()})
    found = _find(cursor, writes)
    answers = {index: _answer(ledger, write, found.get(index)) for index, write in writes.items()}
    ledger.flush()
    return answers


def _find(cursor: Cursor, writes: Mapping[int, Transition]) -> dict[int, _Found]:
    asked = [_asked(index, write) for index, write in writes.items()]
    return {index: _Found(*rest) for index, *rest in cursor.rows("find_events", (json.dumps(asked),))}


def _asked(index: int, write: Transition) -> tuple[Any, ...]:
    ask = write.asks[0]
    wanted = ask.question
    assert isinstance(wanted, Wanted)
    return (index, write.instance_id, ask.entry.op, wanted.key, wanted.subject, ask.due, wish(wanted))


def _answer(ledger: Ledger, write: Transition, found: _Found | None) -> Answer:
    state = ledger.states.get(write.instance_id)
    if state is None or found is None:
        return Refused()
    if not may_write(state, write):
        return Refused(Status(state.status))
    ask = write.asks[0]
    decided = _decide(ledger, state, write, found)
    replies: tuple[Any, ...] = ()
    if decided is not None:
        ledger.withdraw_waits(state, (ask.entry.op,))
        entry, reply = record(ask.entry, state.length + len(write.history) + 1, decided)
        ledger.add_history(state, (entry,))
        replies = (reply,)
    caught_up = not write.consumed and not found.left
    if caught_up:
        write = write._replace(seen=state.signal)
    conclude(ledger, state, write, asked=bool(replies))
    return Applied(state.signal, state.owner is not None, replies, caught_up=caught_up)


def _decide(ledger: Ledger, state: State, write: Transition, found: _Found) -> Decided | None:
    ask = write.asks[0]
    wanted = ask.question
    assert isinstance(wanted, Wanted)
    if found.seq is not None:
        ledger.take_event(state, found.seq, wish(wanted), addressed=found.addressed)
        return Decided.of(found.body)
    if ask.due is not None and ask.due <= write.now:
        return Decided.error(expired(ask.entry, wanted))
    ledger.register(registration(state.id, ask, None))
    return None
