"""A batch of writes in one transaction, decided one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.errors import RefusedDataError
from romancy.model.transition import Accept, Answer, Applied, Beat, Create, Own, Post, Request, Transition, Write
from romancy.store.sql.crowds import accept_together, ask_together, is_plain_accept, is_plain_ask
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.ledger import Ledger
from romancy.store.sql.requests import request
from romancy.store.sql.transitions import accept, beat, create, is_plain_end, post, talks, transition


def write_deliberately(cursor: Cursor, batch: Sequence[Write]) -> list[Answer]:
    """First what concerns one instance each, together; then what may concern others.

    Of that, what cannot get into each other's way is decided together too: events, waits for events, ends. The rest is done
    one by one, in order. Writes of different instances may change places; nobody has been told of any.
    """
    together = _independent(batch)
    answers = dict(zip(together, _write_together(cursor, list(together.values())), strict=True))
    rest = {index: write for index, write in enumerate(batch) if index not in answers}
    groups = _groups(cursor, rest)
    answers |= accept_together(cursor, groups.accepts)
    singles = groups.singles | {index: write for index, write in groups.accepts.items() if index not in answers}
    for index in sorted(singles):
        answers[index] = _write_one(cursor, singles[index])
    answers |= ask_together(cursor, groups.asks)
    answers |= zip(groups.ends, _write_together(cursor, list(groups.ends.values())), strict=True)
    return [answers[index] for index in range(len(batch))]


@dataclass(slots=True)
class _Groups:
    accepts: dict[int, Accept] = field(default_factory=dict[int, Accept])
    asks: dict[int, Transition] = field(default_factory=dict[int, Transition])
    ends: dict[int, Transition] = field(default_factory=dict[int, Transition])
    singles: dict[int, Write] = field(default_factory=dict[int, Write])


def _groups(cursor: Cursor, writes: Mapping[int, Write]) -> _Groups:
    groups = _Groups()
    times = Counter(write.instance_id for write in writes.values() if not isinstance(write, Accept | Post))
    for index, write in writes.items():
        if isinstance(write, Accept) and cursor.many_at_once and is_plain_accept(write):
            groups.accepts[index] = write
        elif type(write) is not Transition or times[write.instance_id] > 1:
            groups.singles[index] = write
        elif is_plain_end(write):
            groups.ends[index] = write
        elif cursor.many_at_once and is_plain_ask(write):
            groups.asks[index] = write
        else:
            groups.singles[index] = write
    return groups


def _independent(batch: Sequence[Write]) -> dict[int, Own]:
    """The writes that concern their instance only, and do not follow one of it that concerns others."""
    found: dict[int, Own] = {}
    later: set[str] = set()
    for index, write in enumerate(batch):
        if isinstance(write, Accept | Post):
            continue
        if write.instance_id in later or concerns_others(write):
            later.add(write.instance_id)
        else:
            found[index] = write
    return found


def concerns_others(write: Write) -> bool:
    """More instances than the write's own may be changed by it."""
    return isinstance(write, Request | Accept | Post) or (type(write) is Transition and talks(write))


def write_apart(cursor: Cursor, batch: Sequence[Write]) -> dict[int, Answer]:
    """What concerns one instance each, without waiting for anybody.

    What is about an instance that somebody else holds, or that is not there, has no answer: it must wait for its turn.
    """
    own = _independent(batch)
    ledger = Ledger(cursor, {write.instance_id: None for write in own.values()}, look="look_apart")
    free = {index: write for index, write in own.items() if write.instance_id in ledger.states}
    indices = list(free)
    return dict(zip(indices, _decide_all(ledger, list(free.values())), strict=True))


def _write_together(cursor: Cursor, batch: Sequence[Own]) -> list[Answer]:
    """Read everything the writes hang on, decide, and write the result with few statements."""
    if not batch:
        return []
    return _decide_all(Ledger(cursor, {write.instance_id: None for write in batch}), batch)


def _decide_all(ledger: Ledger, batch: Sequence[Own]) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for layer in layers(batch):
        for index in layer:
            answers[index] = _decide(ledger, batch[index])
        if called := ledger.flush():
            _tell(answers, layer, called)
    return [answers[index] for index in range(len(batch))]


def _tell(answers: dict[int, Answer], layer: Sequence[int], called: Sequence[str]) -> None:
    """Somebody was called in place of one that ended: one of the answers says so."""
    for index in layer:
        answer = answers[index]
        if isinstance(answer, Applied):
            answers[index] = answer._replace(woken=(*answer.woken, *called))
            return


def _write_one(cursor: Cursor, write: Write) -> Answer:
    match write:
        case Accept():
            return accept(cursor, write)
        case Post():
            return post(cursor, write)
        case _:
            return _write_together(cursor, [write])[0]


def layers(batch: Sequence[Own]) -> Iterator[list[int]]:
    """The batch's indices in layers, so that no layer holds two writes of one instance and their order is kept.

    Writes of different instances do not meet; a whole layer can be decided before any of it is written.
    """
    rest = list(range(len(batch)))
    while rest:
        seen: set[str] = set()
        layer: list[int] = []
        later: list[int] = []
        for index in rest:
            instance_id = batch[index].instance_id
            (later if instance_id in seen else layer).append(index)
            seen.add(instance_id)
        yield layer
        rest = later


def _decide(ledger: Ledger, write: Own) -> Answer:
    match write:
        case Transition():
            return transition(ledger, write)
        case Create():
            return create(ledger, write)
        case Request():
            return request(ledger, write)
        case Beat():
            return beat(ledger, write)


def refused(label: str, write: Write, why: str, cause: BaseException | None) -> RefusedDataError:
    """What is said of one write whose data the database refuses."""
    error = RefusedDataError(f"The database {label} cannot store {_described(write)}: {why}. Nothing of it was written.")
    error.__cause__ = cause
    return error


def _described(write: Write) -> str:
    match write:
        case Accept():
            return "the events " + ", ".join(repr(event.id) for event in write.events)
        case Post():
            return f"the message for channel {write.deed.message.channel!r}"
        case _:
            return f"the {type(write).__name__.lower()} of instance {write.instance_id!r}"
