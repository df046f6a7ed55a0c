"""Channels: delivers messages to their recipients, which are fixed when a message is published; reading deletes it.

A message has a delivery row for each recipient, or it lies in its channel's pool for the first competing consumer that
takes it. Each pooled message wakes one waiting instance, the longest waiting first. If a woken instance cannot take the
message, another one is woken in its place. So as long as an instance waits unwoken, every message of the pool has an
instance that was woken for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from romancy.model.messaging import ChannelMode, Message
from romancy.serde.messaging import message_json
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json
from romancy.store.sql.wakeups import match_waits, wake, wake_next, wake_replacements

MESSAGE_CONTEXT = ("message",)
"""The encoding context of a message's body, in its channel and in the histories of the instances that received it."""


def publish(cursor: Cursor, message: Message, now: int) -> list[str]:
    """Deliver a message to the subscribers of its channel, or put it into the pool; return the woken instances."""
    mode = cursor.first("mode_of", (message.channel,))
    if mode is None or mode[0] != ChannelMode.BROADCAST:
        _add_message(cursor, message, now, pooled=True)
        return wake_next(cursor, message.channel, now)
    seq = _add_message(cursor, message, now, pooled=False)
    cursor.run("deliver_to_subscribers", {"channel": message.channel, "seq": seq})
    return _wake_recipients(cursor, seq, now)


def send(cursor: Cursor, message: Message, target: str, now: int) -> list[str]:
    """Deliver a message to one instance, which the caller knows to be live; return the woken instances."""
    seq = _add_message(cursor, message, now, pooled=False)
    cursor.run("deliver", (target, message.channel, seq))
    woken = _wake_recipients(cursor, seq, now)
    if not woken:  # no wait to wake, but the end of the target must see that there is a delivery to delete
        cursor.run("bump_inbox_version", (target,))
    return woken


def send_to_group(cursor: Cursor, message: Message, group: str, now: int) -> list[str]:
    """Deliver a message to each member of a group; return the woken instances."""
    seq = _add_message(cursor, message, now, pooled=False)
    cursor.run("deliver_to_members", {"group": group, "channel": message.channel, "seq": seq})
    cursor.run("drop_messages", (as_json([seq]),))  # deletes it at once if the group has no members
    return _wake_recipients(cursor, seq, now)


def find(cursor: Cursor, instance_id: str, channel: str, mode: str, before: int | None) -> tuple[int, int, bytes] | None:
    """Find the oldest message for a subscriber; return its time, sequence number and body if it came before `before`."""
    (seq,) = cursor.only("first_delivery", (instance_id, channel))
    if mode == ChannelMode.COMPETING:
        pooled = cursor.first("first_of_pool", (channel,))
        seq = min((one for one in (seq, *(pooled or ())) if one is not None), default=None)
    if seq is None:
        return None
    at, body = cursor.only("message", (seq,))
    return (at, seq, body) if before is None or at < before else None


def take(cursor: Cursor, instance_id: str, channel: str, seq: int) -> None:
    """Delete the delivery of a message to an instance, and the message once it has no deliveries left."""
    cursor.run("drop_delivery", (instance_id, channel, seq))
    cursor.run("drop_messages", (as_json([seq]),))


def subscribe(cursor: Cursor, instance_id: str, channel: str, mode: ChannelMode, now: int) -> str | None:
    """Subscribe an instance to a channel. Return the mode that is in use if it conflicts, otherwise None."""
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
    """End a subscription and drop its unread messages; return the instances woken in place of this one.

    If the instance itself still waits for the channel, it is woken as well, but is not in the result.
    """
    if cursor.first("subscription", (channel, instance_id)) is None:
        return []  # messages that were sent to the instance stay until it subscribes
    own = cursor.rows("own_waits", (instance_id, channel))
    woken = wake_next(cursor, channel, now, [instance_id]) if own else []
    unread = cursor.json_rows("unsubscribed_messages", (instance_id, channel))
    cursor.run("drop_deliveries_of", (instance_id, channel))
    cursor.run("drop_messages", (as_json(unread),))
    cursor.run("unsubscribe", (channel, instance_id))
    wake(cursor, match_waits(cursor, own, 0), now)  # without a subscription the wait would never end: it must raise
    return woken


def clear(cursor: Cursor, ids: Sequence[str], now: int) -> list[str]:
    """Delete subscriptions, memberships and unread messages of ended instances; return instances woken in their place."""
    keys = as_json(ids)
    # First: it reads the subscriptions that are deleted below.
    woken = wake_replacements(cursor, ids, now)
    unread = cursor.json_rows("unread_of", (keys,))
    for name in ("clear_deliveries", "clear_subscriptions", "clear_members"):
        cursor.run(name, (keys,))
    if unread:
        cursor.run("drop_messages", (as_json(unread),))
    return woken


def prune(cursor: Cursor, *, created_before: int, limit: int) -> int:
    """Delete old messages that no instance has taken."""
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
    woken = match_waits(cursor, cursor.json_rows("waits_for_message", {"seq": seq, "now": now}), seq)
    wake(cursor, woken, now)
    return woken
