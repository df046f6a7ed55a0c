"""A batch of writes in one transaction; a write that cannot be made is answered alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from romancy.errors import StoreError
from romancy.model.transition import Answer, Beat, Create, Request, Transition, Write
from romancy.store.sqlite.failures import BAD_DATA, bad_write
from romancy.store.sqlite.ledger import Ledger
from romancy.store.sqlite.quick import Quick
from romancy.store.sqlite.requests import request
from romancy.store.sqlite.transitions import beat, create, transition


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
    """Read everything the writes hang on, decide, and write the result with few statements."""
    ledger = Ledger(cursor, {write.instance_id: None for write in batch})
    answers: dict[int, Answer] = {}
    for layer in layers(batch):
        for index in layer:
            answers[index] = _decide(ledger, batch[index])
        ledger.flush()
    return [answers[index] for index in range(len(batch))]


def write_singly(cursor: sqlite3.Cursor, batch: Sequence[Write], path: str) -> list[Answer | StoreError]:
    """Each write by itself, so that one whose data is refused leaves the others alone."""
    return [_write_alone(cursor, write, path) for write in batch]


def layers(batch: Sequence[Write]) -> Iterator[list[int]]:
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


def _decide(ledger: Ledger, write: Write) -> Answer:
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
        answer = bad_write(error, path, f"the {type(write).__name__.lower()} of instance {write.instance_id!r}")
    cursor.execute("RELEASE alone")
    return answer
