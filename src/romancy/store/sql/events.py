"""The event log: accepts events, wakes the instances that wait for them, and finds events for waits.

Accepting an event and registering a wait are serialized by the write lock. So either the event is in the log when the wait
searches it, or the wait is registered when the event is accepted: no wake-up is lost.
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
"""The encoding context of an event's body, in the log and in the histories of the instances that received it."""
_PAGE = 100
"""Events that are read at a time when their data must be compared with a `match`."""


def accept(cursor: Cursor, event: Event, now: int) -> tuple[list[str], list[str]] | None:
    """Append an event to the log and wake the instances that wait for it.

    Return all matched instances, and those of them that had not been matched before. None: the event is a duplicate.
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
    matched = [wait for wait in waits if may_match(cursor.codec, body, *wait[:3])]
    woken = match_waits(cursor, [(instance_id, op) for instance_id, op, *_ in matched], seq)
    wake(cursor, woken, now)
    return woken, list(dict.fromkeys(instance_id for instance_id, _, _, was_matched in matched if not was_matched))


def find(
    cursor: Cursor, instance_id: str, op: str, selector: WaitSelector, before: int | None
) -> tuple[int, int, bytes] | None:
    """Find the oldest event for a wait that was accepted before `before`; return its time, sequence number and body."""
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
    """Return the encoding context of a wait's `match`."""
    return "match", instance_id, op


def take(cursor: Cursor, instance_id: str, selector: WaitSelector, seq: int) -> None:
    """Mark an event as consumed by an instance."""
    cursor.run("consume_event", (instance_id, seq, selector_key(selector, cursor.codec)))
    cursor.run("mark_event_consumed", (seq, instance_id))


def prune(cursor: Cursor, *, accepted_before: int, limit: int) -> int:
    """Delete events that are older than the retention."""
    old = cursor.json_rows("old_events", (accepted_before, limit))
    if old:
        cursor.run("prune_events", (as_json(old),))
        cursor.run("prune_consumed_by_event", (as_json(old),))
    return len(old)


def _search_start(cursor: Cursor, op: str, values: dict[str, Any]) -> int:
    """Return the sequence number after which to search.

    That is just before the event that matched the wait, or else the last one that was consumed with the same selector.
    """
    stored = cursor.first("matched_seq_of", (values["id"], op))
    if stored is not None and stored[0] is not None:
        return int(stored[0]) - 1
    return int(cursor.only("search_start", values)[0])


def _candidates(cursor: Cursor, values: dict[str, Any]) -> Iterator[RawRow]:
    """Merge broadcast events and events addressed to this instance, oldest first."""
    shared = "events_for_all" if values["subject"] is None else "events_of_subject"
    return merge(_pages(cursor, shared, values), _pages(cursor, "events_for_one", values), key=itemgetter(0))


def _pages(cursor: Cursor, name: str, values: dict[str, Any]) -> Iterator[RawRow]:
    while page := cursor.rows(name, values):
        yield from page
        values = {**values, "after": page[-1][0]}


def may_match(codec: Codec, body: bytes, instance_id: str, op: str, match: bytes | None) -> bool:
    """Whether a new event may match a wait. If `match` cannot be decoded here, the waiting instance is woken to check."""
    if match is None:
        return True
    plain = codec.try_decode(match, match_context(instance_id, op))
    return is_encoded(plain) or matches_data(body, plain)


def matches_data(body: bytes, match: bytes) -> bool:
    """Whether the data of an event matches the `match` of a wait."""
    event = json.loads(body)
    return "data" in event and matches(event["data"], json.loads(match))


def selector_key(selector: WaitSelector, codec: Codec = NO_CODEC) -> str:
    """Return a key for the selector of a wait. It only marks where a search continues: under a new key it starts anew."""
    match = None if selector.match is None else json.loads(selector.match)
    text = json.dumps([selector.key, selector.subject, match], sort_keys=True)
    return text if match is None else codec.blind(text)
