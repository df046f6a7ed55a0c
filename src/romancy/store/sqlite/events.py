"""Events: a log that everybody may read from, and who is called when something joins it.

Under the write lock either the event is in the log when a wait looks, or the wait is registered when the event comes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

from romancy.core.matching import matches
from romancy.model.talk import Event, Wanted
from romancy.serde.talk import event_json
from romancy.store.sqlite.calls import call, wake
from romancy.store.sqlite.keys import as_json, fetch
from romancy.store.sqlite.statements import one

_ALL = -1


def accept(cursor: sqlite3.Cursor, event: Event, now: int) -> tuple[int, list[str]] | None:
    """Put an event into the log and call those who wait for it: its place and who they are. None: it is known already."""
    body = event_json(event)
    values = {
        "source": event.source,
        "id": event.id,
        "type": event.type,
        "subject": event.subject,
        "target": event.target,
        "now": now,
        "body": body,
    }
    if cursor.execute(one("accept_event"), values).rowcount != 1:
        return None
    seq = cursor.lastrowid
    assert seq is not None
    (at,) = cursor.execute(one("accepted_at"), (seq,)).fetchone()
    waiting = "waits_for_event" if event.target is None else "waits_of_target"
    waits = cursor.execute(one(waiting), {**values, "at": at}).fetchall()
    met = [(instance_id, op) for instance_id, op, wish in waits if wish is None or _fits(body, wish)]
    called = call(cursor, met, seq)
    wake(cursor, called, now)
    return seq, called


def find(
    cursor: sqlite3.Cursor, instance_id: str, op: str, wanted: Wanted, before: int | None
) -> tuple[int, int, bytes] | None:
    """The oldest event that a wait may have, of those accepted before a time: its time, its place and itself."""
    values: dict[str, Any] = {
        "id": instance_id,
        "type": wanted.key,
        "subject": wanted.subject,
        "before": before,
        "wanted": _wish(wanted),
        "limit": 1 if wanted.match is None else _ALL,
    }
    values["after"] = _after(cursor, op, values)
    for seq, at, body in _candidates(cursor.connection, values):
        if wanted.match is None or _fits(body, wanted.match):
            return at, seq, body
    return None


def take(cursor: sqlite3.Cursor, instance_id: str, wanted: Wanted, seq: int) -> None:
    """An instance consumes an event."""
    cursor.execute(one("take_event"), (instance_id, seq, _wish(wanted)))
    cursor.execute(one("use_event"), (seq, instance_id))


def prune(cursor: sqlite3.Cursor, *, accepted_before: int, limit: int) -> int:
    """Forget events that are older than the promise."""
    old = fetch(cursor, "old_events", (accepted_before, limit))
    if old:
        cursor.execute(one("prune_events"), (as_json(old),))
        cursor.execute(one("prune_taken"), (as_json(old),))
    return len(old)


def _after(cursor: sqlite3.Cursor, op: str, values: dict[str, Any]) -> int:
    """Where to begin: at what the wait was called for, or where the last look for the same wish ended."""
    stored = cursor.execute(one("stored_wait"), (values["id"], op)).fetchone()
    if stored is not None and stored[0] is not None:
        return int(stored[0]) - 1
    return int(cursor.execute(one("looked_up_to"), values).fetchone()[0])


def _candidates(connection: sqlite3.Connection, values: dict[str, Any]) -> Iterator[tuple[int, int, bytes]]:
    shared = "events_for_all" if values["subject"] is None else "events_of_subject"
    return merge(connection.execute(one(shared), values), connection.execute(one("events_for_one"), values), key=_SEQ)


_SEQ = itemgetter(0)


def _fits(body: bytes, wish: bytes) -> bool:
    event = json.loads(body)
    return "data" in event and matches(event["data"], json.loads(wish))


def _wish(wanted: Wanted) -> str:
    match = None if wanted.match is None else json.loads(wanted.match)
    return json.dumps([wanted.key, wanted.subject, match], sort_keys=True)
