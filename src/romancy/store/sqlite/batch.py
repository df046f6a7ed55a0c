"""A batch of writes in one transaction; a write that cannot be made is answered alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from romancy.errors import StoreError
from romancy.model.transition import Accept, Answer, Beat, Create, Own, Post, Request, Transition, Write
from romancy.store.sqlite.failures import BAD_DATA, bad_write
from romancy.store.sqlite.ledger import Ledger
from romancy.store.sqlite.quick import Quick
from romancy.store.sqlite.requests import request
from romancy.store.sqlite.transitions import accept, beat, create, post, talks, transition


def write_whole(cursor: sqlite3.Cursor, batch: Sequence[Write]) -> list[Answer | StoreError]:
    """All writes at once. Raises what the driver raises if one of them cannot be stored."""
    quick = Quick(cursor)
    for index, write in enumerate(batch):
        quick.write(index, write)
    quick.flush()
    answers, late = quick.answers, sorted(quick.late)
    if late:
        answers |= zip(late, _write_deliberately(cursor, [batch[index] for index in late]), strict=True)
    return [answers[index] for index in range(len(batch))]


def _write_deliberately(cursor: sqlite3.Cursor, batch: Sequence[Write]) -> list[Answer]:
    """First what concerns one instance each, together; then what may concern others, one by one in order."""
    together = _independent(batch)
    answers = dict(zip(together, _write_together(cursor, list(together.values())), strict=True))
    for index, write in enumerate(batch):
        if index not in answers:
            answers[index] = _write_one(cursor, write)
    return [answers[index] for index in range(len(batch))]


def _independent(batch: Sequence[Write]) -> dict[int, Own]:
    """The writes that concern their instance only, and do not follow one of it that concerns others."""
    found: dict[int, Own] = {}
    later: set[str] = set()
    for index, write in enumerate(batch):
        if isinstance(write, Accept | Post):
            continue
        if write.instance_id in later or _concerns_others(write):
            later.add(write.instance_id)
        else:
            found[index] = write
    return found


def _concerns_others(write: Own) -> bool:
    return isinstance(write, Request) or (type(write) is Transition and talks(write))


def _write_together(cursor: sqlite3.Cursor, batch: Sequence[Own]) -> list[Answer]:
    """Read everything the writes hang on, decide, and write the result with few statements."""
    if not batch:
        return []
    ledger = Ledger(cursor, {write.instance_id: None for write in batch})
    answers: dict[int, Answer] = {}
    for layer in layers(batch):
        for index in layer:
            answers[index] = _decide(ledger, batch[index])
        ledger.flush()
    return [answers[index] for index in range(len(batch))]


def _write_one(cursor: sqlite3.Cursor, write: Write) -> Answer:
    match write:
        case Accept():
            return accept(cursor, write)
        case Post():
            return post(cursor, write)
        case _:
            return _write_together(cursor, [write])[0]


def write_singly(cursor: sqlite3.Cursor, batch: Sequence[Write], path: str) -> list[Answer | StoreError]:
    """Each write by itself, so that one whose data is refused leaves the others alone."""
    return [_write_alone(cursor, write, path) for write in batch]


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


def _write_alone(cursor: sqlite3.Cursor, write: Write, path: str) -> Answer | StoreError:
    cursor.execute("SAVEPOINT alone")
    try:
        answer = write_whole(cursor, [write])[0]
    except BAD_DATA as error:
        cursor.execute("ROLLBACK TO alone")
        answer = bad_write(error, path, _describe(write))
    cursor.execute("RELEASE alone")
    return answer


def _describe(write: Write) -> str:
    match write:
        case Accept():
            return "the events " + ", ".join(repr(event.id) for event in write.events)
        case Post():
            return f"the message for channel {write.deed.message.channel!r}"
        case _:
            return f"the {type(write).__name__.lower()} of instance {write.instance_id!r}"
