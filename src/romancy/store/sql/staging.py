"""Creates instances and sends events and messages in callers' transactions, without locking rows of the engine.

A caller's transaction may stay open for long. A new instance is a new row and needs no lock. An event or message concerns
other instances: on a server it is staged, and the next serialized transaction after the commit emits it before its own
work. A SQLite file has one writer at a time, so there it is emitted at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from romancy.codec import is_encoded
from romancy.model.messaging import Effect, Publish, Sendable, SendEvent, SendTo, SendToGroup
from romancy.model.status import Status
from romancy.model.transition import Applied, CreateInstance, Refused, WriteResult
from romancy.serde.messaging import event_json, event_of, message_json, message_of
from romancy.store.sql.cursor import Cursor, RawRow
from romancy.store.sql.messaging import MessagingTransaction
from romancy.store.sql.transitions import instance_columns, read_existing, start

_PAGE = 1000
_STAGED_CONTEXT = ("staged",)


def create_instance(cursor: Cursor, create: CreateInstance) -> WriteResult:
    """Create an instance without an owner."""
    taken = cursor.first("status_of", (create.instance_id,))
    if taken is not None:
        return read_existing(cursor, create, taken[0])
    cursor.run("add_instances", instance_columns(create))
    cursor.run("add_payloads", (create.instance_id, create.input))
    cursor.first("notify_on_commit")
    return Applied()


def emit(cursor: Cursor, effect: Sendable, now: int) -> Refused | None:
    """Send an event or a message at once."""
    refused = _refusal(cursor, effect)
    if refused is None:
        MessagingTransaction(cursor, now, start).emit("", effect)
    return refused


def stage(cursor: Cursor, effect: Sendable, now: int) -> Refused | None:
    """Stage an event or a message, to be sent once this transaction has committed."""
    refused = _refusal(cursor, effect)
    if refused is None:
        kind, head, body = _serialize(effect, now)
        cursor.run("stage", (kind, head, cursor.codec.encode(body, _STAGED_CONTEXT), now))
        cursor.first("notify_on_commit")
    return refused


def emit_staged(cursor: Cursor, now: int, fresh_id: Callable[[], str]) -> None:
    """Emit what committed transactions have staged, in order. Rows that this process cannot decode stay for others."""
    messaging = MessagingTransaction(cursor, now, start)
    more = True
    while more:
        page = cursor.rows("staged", (_PAGE,))
        rows = [(seq, kind, head, body) for seq, kind, head, coded in page if not is_encoded(body := _decode(cursor, coded))]
        for row in rows:
            messaging.emit("", _deserialize(row, fresh_id))
        if rows:
            cursor.run("unstage", (json.dumps([row[0] for row in rows]),))
        more = bool(rows)


def _decode(cursor: Cursor, body: bytes) -> bytes:
    return cursor.codec.try_decode(body, _STAGED_CONTEXT)


def _refusal(cursor: Cursor, effect: Effect) -> Refused | None:
    if not isinstance(effect, SendTo):
        return None
    found = cursor.first("status_of", (effect.target,))
    if found is None:
        return Refused()
    return Refused(Status(found[0])) if found[1] else None


def _serialize(effect: Sendable, now: int) -> tuple[str, str, bytes]:
    match effect:
        case SendEvent():
            return "event", json.dumps([effect.local, effect.brokers]), event_json(effect.event)
        case Publish():
            return "publish", "", message_json(effect.message, now)
        case SendTo():
            return "send_to", effect.target, message_json(effect.message, now)
        case SendToGroup():
            return "send_to_group", effect.group, message_json(effect.message, now)


def _deserialize(row: RawRow, fresh_id: Callable[[], str]) -> Sendable:
    _, kind, head, body = row
    if kind == "event":
        local, brokers = json.loads(head)
        return SendEvent(event_of(body), fresh_id=fresh_id(), local=local, brokers=tuple(brokers))
    message = message_of(body)
    if kind == "publish":
        return Publish(message)
    return SendTo(message, head) if kind == "send_to" else SendToGroup(message, head)
