"""Channels: who gets a message is decided when it is published; it is gone when it was read.

A message has a delivery for each of its recipients, or it lies in its channel's pool for whoever takes it first. For one
message of a pool one of those who wait is called, the longest waiting first; who is called and cannot come is replaced.
So as long as anybody waits uncalled, there are no more messages in the pool than were called for.
"""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.messaging import ChannelMode, Message
from romancy.serde.messaging import message_json
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json
from romancy.store.sql.wakeups import match_waits, wake, wake_next, wake_replacements

MESSAGE_CONTEXT = ("message",)
"""The place of a message's body, in its channel and in the histories of those who took it."""


def publish(cursor: Cursor, message: Message, now: int) -> list[str]:
    """Hand a message to the subscribers of its channel, or to its pool; the instances called for it."""
    mode = cursor.first("mode_of", (message.channel,))
    if mode is None or mode[0] != ChannelMode.BROADCAST:
        _add_message(cursor, message, now, pooled=True)
        return wake_next(cursor, message.channel, now)
    seq = _add_message(cursor, message, now, pooled=False)
    cursor.run("deliver_to_subscribers", {"channel": message.channel, "seq": seq})
    return _wake_recipients(cursor, seq, now)


def send(cursor: Cursor, message: Message, target: str, now: int) -> list[str]:
    """Hand a message to one instance, which is known to live."""
    seq = _add_message(cursor, message, now, pooled=False)
    cursor.run("deliver", (target, message.channel, seq))
    called = _wake_recipients(cursor, seq, now)
    if not called:
        cursor.run("bump_inbox_version", (target,))
    return called


def send_to_group(cursor: Cursor, message: Message, group: str, now: int) -> list[str]:
    """Hand a message to each member of a group."""
    seq = _add_message(cursor, message, now, pooled=False)
    cursor.run("deliver_to_members", {"group": group, "channel": message.channel, "seq": seq})
    cursor.run("drop_messages", (as_json([seq]),))  # to nobody, if there is none
    return _wake_recipients(cursor, seq, now)


def find(cursor: Cursor, instance_id: str, channel: str, mode: str, before: int | None) -> tuple[int, int, bytes] | None:
    """The oldest message for a subscriber, if it came before a time: its time, its place and itself."""
    (seq,) = cursor.only("first_delivery", (instance_id, channel))
    if mode == ChannelMode.COMPETING:
        pooled = cursor.first("first_of_pool", (channel,))
        seq = min((place for place in (seq, *(pooled or ())) if place is not None), default=None)
    if seq is None:
        return None
    at, body = cursor.only("message", (seq,))
    return (at, seq, body) if before is None or at < before else None


def take(cursor: Cursor, instance_id: str, channel: str, seq: int) -> None:
    """An instance consumes a message: its own delivery, or one of the pool."""
    cursor.run("drop_delivery", (instance_id, channel, seq))
    cursor.run("drop_messages", (as_json([seq]),))


def subscribe(cursor: Cursor, instance_id: str, channel: str, mode: ChannelMode, now: int) -> str | None:
    """Subscribe; the mode that stands in the way, if one does."""
    own = cursor.first("subscription", (channel, instance_id))
    if own is not None:
        return None if own[0] == mode else str(own[0])
    if mode is not ChannelMode.DIRECT:
        other = cursor.first("mode_of", (channel,))
        if other is not None and other[0] != mode:
            return str(other[0])
    cursor.run("subscribe", (channel, instance_id, mode, now))
    return None


def unsubscribe(cursor: Cursor, instance_id: str, channel: str, now: int) -> list[str]:
    """Let go of a channel and of what was not read; the instances called instead of this one, itself if it waits still."""
    if cursor.first("subscription", (channel, instance_id)) is None:
        return []  # what was sent to it lies there until it subscribes
    own = cursor.rows("own_waits", (instance_id, channel))
    called = wake_next(cursor, channel, now, [instance_id]) if own else []
    unread = cursor.json_rows("unsubscribed_messages", (instance_id, channel))
    cursor.run("drop_deliveries_of", (instance_id, channel))
    cursor.run("drop_messages", (as_json(unread),))
    cursor.run("unsubscribe", (channel, instance_id))
    wake(cursor, match_waits(cursor, own, 0), now)  # a wait of its own would never end: it looks, and is told why
    return called


def clear(cursor: Cursor, ids: Sequence[str], now: int) -> list[str]:
    """Instances have ended: they hear nothing more. The instances called in their place."""
    keys = as_json(ids)
    called = wake_replacements(cursor, ids, now)
    unread = cursor.json_rows("unread_of", (keys,))
    for name in ("clear_deliveries", "clear_subscriptions", "clear_members"):
        cursor.run(name, (keys,))
    if unread:
        cursor.run("drop_messages", (as_json(unread),))
    return called


def prune(cursor: Cursor, *, created_before: int, limit: int) -> int:
    """Forget messages that nobody took."""
    old = cursor.json_rows("old_messages", (created_before, limit))
    if old:
        cursor.run("prune_messages", (as_json(old),))
    return len(old)


def _add_message(cursor: Cursor, message: Message, now: int, *, pooled: bool) -> int:
    body = cursor.codec.encode(message_json(message, now), MESSAGE_CONTEXT)
    seq = cursor.insert("add_message", (message.channel, int(pooled), now, body))
    assert seq is not None
    return seq


def _wake_recipients(cursor: Cursor, seq: int, now: int) -> list[str]:
    called = match_waits(cursor, cursor.json_rows("waits_for_message", {"seq": seq, "now": now}), seq)
    wake(cursor, called, now)
    return called
