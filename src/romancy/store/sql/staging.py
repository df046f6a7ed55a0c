"""Starting and saying things in transactions of others, which may stay open for long: they lock nothing of the engine.

A new instance is a new row, and needs no lock. What is said concerns others: on a server it is staged, and said when the
transaction has committed, before anything else is. A SQLite file has one writer at a time: there it is said at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from romancy.codec import is_encoded
from romancy.model.status import Status
from romancy.model.talk import Deed, Publish, Said, SendEvent, SendTo, SendToGroup
from romancy.model.transition import Answer, Applied, Create, Refused
from romancy.serde.talk import event_json, event_of, message_json, message_of
from romancy.store.sql.cursor import Cursor, Line
from romancy.store.sql.talk import Talk
from romancy.store.sql.transitions import born, existing, start

_PAGE = 1000
_STAGED = ("staged",)


def begin(cursor: Cursor, create: Create) -> Answer:
    """A new instance, that nobody owns yet."""
    taken = cursor.first("status_of", (create.instance_id,))
    if taken is not None:
        return existing(cursor, create, taken[0])
    cursor.run("add_instances", born(create))
    cursor.run("add_payloads", (create.instance_id, create.input))
    cursor.first("hint")
    return Applied()


def say(cursor: Cursor, deed: Said, now: int) -> Refused | None:
    """Say something at once."""
    refused = _refusal(cursor, deed)
    if refused is None:
        Talk(cursor, now, start).do("", deed)
    return refused


def stage(cursor: Cursor, deed: Said, now: int) -> Refused | None:
    """Leave something to be said when this transaction has committed."""
    refused = _refusal(cursor, deed)
    if refused is None:
        kind, head, body = _written(deed, now)
        cursor.run("stage", (kind, head, cursor.coder.encode(body, _STAGED), now))
        cursor.first("hint")
    return refused


def drain(cursor: Cursor, now: int, fresh_id: Callable[[], str]) -> None:
    """Say what was staged by transactions that have committed, in order. What cannot be decoded here is left to others."""
    talk = Talk(cursor, now, start)
    more = True
    while more:
        page = cursor.rows("staged", (_PAGE,))
        said = [
            (seq, kind, head, body) for seq, kind, head, coded in page if not is_encoded(body := _decoded(cursor, coded))
        ]
        for line in said:
            talk.do("", _read(line, fresh_id))
        if said:
            cursor.run("unstage", (json.dumps([line[0] for line in said]),))
        more = bool(said)


def _decoded(cursor: Cursor, body: bytes) -> bytes:
    return cursor.coder.as_far_as_possible(body, _STAGED)


def _refusal(cursor: Cursor, deed: Deed) -> Refused | None:
    if not isinstance(deed, SendTo):
        return None
    found = cursor.first("status_of", (deed.target,))
    if found is None:
        return Refused()
    return Refused(Status(found[0])) if found[1] else None


def _written(deed: Said, now: int) -> tuple[str, str, bytes]:
    match deed:
        case SendEvent():
            return "event", json.dumps([deed.local, deed.brokers]), event_json(deed.event)
        case Publish():
            return "publish", "", message_json(deed.message, now)
        case SendTo():
            return "send_to", deed.target, message_json(deed.message, now)
        case SendToGroup():
            return "send_to_group", deed.group, message_json(deed.message, now)


def _read(line: Line, fresh_id: Callable[[], str]) -> Said:
    _, kind, head, body = line
    if kind == "event":
        local, brokers = json.loads(head)
        return SendEvent(event_of(body), fresh_id=fresh_id(), local=local, brokers=tuple(brokers))
    message = message_of(body)
    if kind == "publish":
        return Publish(message)
    return SendTo(message, head) if kind == "send_to" else SendToGroup(message, head)
