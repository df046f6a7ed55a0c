"""Channels: who gets a message is decided when it is published; it is gone when it was read.

A message has a delivery for each of its recipients, or it lies in its channel's pool for whoever takes it first. For one
message of a pool one of those who wait is called, the longest waiting first; who is called and cannot come is replaced.
So as long as anybody waits uncalled, there are no more messages in the pool than were called for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from romancy.model.talk import ChannelMode, Message
from romancy.serde.talk import message_json
from romancy.store.sqlite.calls import call, call_next, pass_on, wake
from romancy.store.sqlite.keys import as_json, fetch
from romancy.store.sqlite.statements import one


def publish(cursor: sqlite3.Cursor, message: Message, now: int) -> list[str]:
    """Hand a message to the subscribers of its channel, or to its pool; the instances called for it."""
    mode = cursor.execute(one("mode_of"), (message.channel,)).fetchone()
    if mode is None or mode[0] != ChannelMode.BROADCAST:
        _add(cursor, message, now, pooled=True)
        return call_next(cursor, message.channel, now)
    seq = _add(cursor, message, now, pooled=False)
    cursor.execute(one("deliver_to_subscribers"), {"channel": message.channel, "seq": seq})
    return _call_recipients(cursor, seq, now)


def send(cursor: sqlite3.Cursor, message: Message, target: str, now: int) -> list[str]:
    """Hand a message to one instance, which is known to live."""
    seq = _add(cursor, message, now, pooled=False)
    cursor.execute(one("deliver"), (target, message.channel, seq))
    called = _call_recipients(cursor, seq, now)
    if not called:
        cursor.execute(one("mark"), (target,))
    return called


def send_to_group(cursor: sqlite3.Cursor, message: Message, group: str, now: int) -> list[str]:
    """Hand a message to each member of a group."""
    seq = _add(cursor, message, now, pooled=False)
    cursor.execute(one("deliver_to_members"), {"group": group, "channel": message.channel, "seq": seq})
    cursor.execute(one("drop_messages"), (as_json([seq]),))  # to nobody, if there is none
    return _call_recipients(cursor, seq, now)


def find(
    cursor: sqlite3.Cursor, instance_id: str, channel: str, mode: str, before: int | None
) -> tuple[int, int, bytes] | None:
    """The oldest message for a subscriber, if it came before a time: its time, its place and itself."""
    (seq,) = cursor.execute(one("first_delivery"), (instance_id, channel)).fetchone()
    if mode == ChannelMode.COMPETING:
        pooled = cursor.execute(one("first_of_pool"), (channel,)).fetchone()
        seq = min((place for place in (seq, *(pooled or ())) if place is not None), default=None)
    if seq is None:
        return None
    at, body = cursor.execute(one("message"), (seq,)).fetchone()
    return (at, seq, body) if before is None or at < before else None


def take(cursor: sqlite3.Cursor, instance_id: str, channel: str, seq: int) -> None:
    """An instance consumes a message: its own delivery, or one of the pool."""
    cursor.execute(one("drop_delivery"), (instance_id, channel, seq))
    cursor.execute(one("drop_messages"), (as_json([seq]),))


def subscribe(cursor: sqlite3.Cursor, instance_id: str, channel: str, mode: ChannelMode, now: int) -> str | None:
    """Subscribe; the mode that stands in the way, if one does."""
    own = cursor.execute(one("subscription"), (channel, instance_id)).fetchone()
    if own is not None:
        return None if own[0] == mode else str(own[0])
    if mode is not ChannelMode.DIRECT:
        other = cursor.execute(one("mode_of"), (channel,)).fetchone()
        if other is not None and other[0] != mode:
            return str(other[0])
    cursor.execute(one("subscribe"), (channel, instance_id, mode, now))
    return None


def unsubscribe(cursor: sqlite3.Cursor, instance_id: str, channel: str, now: int) -> list[str]:
    """Let go of a channel and of what was not read; the instances called instead of this one, itself if it waits still."""
    own = cursor.execute(one("own_waits"), (instance_id, channel)).fetchall()
    called = call_next(cursor, channel, now, [instance_id]) if own else []
    unread = fetch(cursor, "unsubscribed_messages", (instance_id, channel))
    cursor.execute(one("drop_deliveries_of"), (instance_id, channel))
    cursor.execute(one("drop_messages"), (as_json(unread),))
    cursor.execute(one("unsubscribe"), (channel, instance_id))
    wake(cursor, call(cursor, own, 0), now)  # a wait of its own would never end: it looks, and is told why
    return called


def clear(cursor: sqlite3.Cursor, ids: Sequence[str], now: int) -> list[str]:
    """Instances have ended: they hear nothing more. The instances called in their place."""
    keys = as_json(ids)
    called = pass_on(cursor, ids, now)
    unread = fetch(cursor, "unread_of", (keys,))
    for name in ("clear_deliveries", "clear_subscriptions", "clear_members"):
        cursor.execute(one(name), (keys,))
    if unread:
        cursor.execute(one("drop_messages"), (as_json(unread),))
    return called


def prune(cursor: sqlite3.Cursor, *, created_before: int, limit: int) -> int:
    """Forget messages that nobody took."""
    old = fetch(cursor, "old_messages", (created_before, limit))
    if old:
        cursor.execute(one("prune_messages"), (as_json(old),))
    return len(old)


def _add(cursor: sqlite3.Cursor, message: Message, now: int, *, pooled: bool) -> int:
    cursor.execute(one("add_message"), (message.channel, pooled, now, message_json(message, now)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _call_recipients(cursor: sqlite3.Cursor, seq: int, now: int) -> list[str]:
    called = call(cursor, fetch(cursor, "waits_for_message", {"seq": seq, "now": now}), seq)
    wake(cursor, called, now)
    return called
