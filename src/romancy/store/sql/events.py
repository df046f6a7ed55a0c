"""Events: a log that everybody may read from, and who is called when something joins it.

Under the write lock either the event is in the log when a wait looks, or the wait is registered when the event comes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

from romancy.codec import NO_CODEC, Codec, is_encoded
from romancy.core.matcher import matches
from romancy.model.messaging import Event, WaitSelector
from romancy.serde.messaging import event_json
from romancy.store.sql.cursor import Cursor, RawRow
from romancy.store.sql.json_params import as_json
from romancy.store.sql.wakeups import match_waits, wake

EVENT_CONTEXT = ("event",)
"""The place of an event's body, in the log and in the histories of those who took it."""
_PAGE = 100
"""Events that are looked through at a time, where only their data tells whether they fit."""


def accept(cursor: Cursor, event: Event, now: int) -> tuple[list[str], list[str]] | None:
    """Put an event into the log and call those who wait for it: all of them, and those whom it is the first to wake.

    None: it is known already.
    """
    body = event_json(event)
    values = {
        "source": event.source,
        "id": event.id,
        "type": event.type,
        "subject": event.subject,
        "target": event.target,
        "now": now,
        "body": cursor.codec.encode(body, EVENT_CONTEXT),
    }
    seq = cursor.insert("accept_event", values)
    if seq is None:
        return None
    (at,) = cursor.only("accepted_at", (seq,))
    waiting = "waits_for_event" if event.target is None else "waits_of_target"
    waits = cursor.rows(waiting, {**values, "at": at})
    met = [wait for wait in waits if may_match(cursor.codec, body, *wait[:3])]
    called = match_waits(cursor, [(instance_id, op) for instance_id, op, *_ in met], seq)
    wake(cursor, called, now)
    return called, list(dict.fromkeys(instance_id for instance_id, _, _, is_met in met if not is_met))


def find(
    cursor: Cursor, instance_id: str, op: str, selector: WaitSelector, before: int | None
) -> tuple[int, int, bytes] | None:
    """The oldest event that a wait may have, of those accepted before a time: its time, its place and itself."""
    values: dict[str, Any] = {
        "id": instance_id,
        "type": selector.key,
        "subject": selector.subject,
        "before": before,
        "selector": selector_key(selector, cursor.codec),
        "limit": 1 if selector.match is None else _PAGE,
    }
    values["after"] = _search_start(cursor, op, values)
    for seq, at, body in _candidates(cursor, values):
        if selector.match is None or matches_data(
            cursor.codec.decode(body, EVENT_CONTEXT, f"an event {selector.key!r}"), selector.match
        ):
            return at, seq, body
    return None


def match_context(instance_id: str, op: str) -> tuple[str, ...]:
    """The place of what a wait matches."""
    return "match", instance_id, op


def take(cursor: Cursor, instance_id: str, selector: WaitSelector, seq: int) -> None:
    """An instance consumes an event."""
    cursor.run("consume_event", (instance_id, seq, selector_key(selector, cursor.codec)))
    cursor.run("mark_event_consumed", (seq, instance_id))


def prune(cursor: Cursor, *, accepted_before: int, limit: int) -> int:
    """Forget events that are older than the promise."""
    old = cursor.json_rows("old_events", (accepted_before, limit))
    if old:
        cursor.run("prune_events", (as_json(old),))
        cursor.run("prune_consumed_by_event", (as_json(old),))
    return len(old)


def _search_start(cursor: Cursor, op: str, values: dict[str, Any]) -> int:
    """Where to begin: at what the wait was called for, or where the last look for the same wish ended."""
    stored = cursor.first("matched_seq_of", (values["id"], op))
    if stored is not None and stored[0] is not None:
        return int(stored[0]) - 1
    return int(cursor.only("search_start", values)[0])


def _candidates(cursor: Cursor, values: dict[str, Any]) -> Iterator[RawRow]:
    """Events for everybody and those for this instance alone, oldest first."""
    shared = "events_for_all" if values["subject"] is None else "events_of_subject"
    return merge(_pages(cursor, shared, values), _pages(cursor, "events_for_one", values), key=itemgetter(0))


def _pages(cursor: Cursor, name: str, values: dict[str, Any]) -> Iterator[RawRow]:
    while page := cursor.rows(name, values):
        yield from page
        values = {**values, "after": page[-1][0]}


def may_match(codec: Codec, body: bytes, instance_id: str, op: str, match: bytes | None) -> bool:
    """A new event may be what somebody waits for. If the wish cannot be decoded here, he is called, and looks himself."""
    if match is None:
        return True
    plain = codec.try_decode(match, match_context(instance_id, op))
    return is_encoded(plain) or matches_data(body, plain)


def matches_data(body: bytes, match: bytes) -> bool:
    """The data of an event is what a wait wishes for."""
    event = json.loads(body)
    return "data" in event and matches(event["data"], json.loads(match))


def selector_key(selector: WaitSelector, codec: Codec = NO_CODEC) -> str:
    """What a wait wishes for, as a key. It is only where a look goes on: by another key it begins anew."""
    match = None if selector.match is None else json.loads(selector.match)
    text = json.dumps([selector.key, selector.subject, match], sort_keys=True)
    return text if match is None else codec.blind(text)
