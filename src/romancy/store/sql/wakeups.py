"""Wakes instances when an event or a message has arrived for one of their waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json


def match_waits(cursor: Cursor, waits: Sequence[tuple[str, str]], seq: int) -> list[str]:
    """Mark waits (instance and operation) as matched by an event or message; return the instances, each once."""
    if waits:
        cursor.run("match_waits", {"seq": seq, "waits": as_json(waits)})
    return list(dict.fromkeys(instance_id for instance_id, _ in waits))


def wake(cursor: Cursor, ids: Iterable[str], now: int) -> None:
    """Wake instances: raise their inbox versions and make unowned ones due.

    The owner of an owned instance sees the new version before it can release the instance.
    """
    if ids := list(ids):
        cursor.run("wake", {"now": now, "ids": as_json(ids)})


def wake_next(cursor: Cursor, channel: str, now: int, without: Sequence[str] = ()) -> list[str]:
    """Wake the instance that has waited longest for a channel's pool, if there is a message in it."""
    first = cursor.first("first_of_pool", (channel,))
    if first is None:
        return []
    values = {"channel": channel, "now": now, "without": as_json(without)}
    waits = cursor.rows("next_waiter", values)
    woken = match_waits(cursor, waits, first[0])
    wake(cursor, woken, now)
    return woken


def wake_replacements(cursor: Cursor, ids: Sequence[str], now: int) -> list[str]:
    """Wake other instances in place of these, which may not take the messages that they were woken for.

    The waits of these instances stay matched: if they run after all, they search for everything that they wait for.
    """
    channels: list[str] = cursor.json_rows("matched_channels", {"ids": as_json(ids)})
    return [woken for channel in channels for woken in wake_next(cursor, channel, now, ids)]


def members(cursor: Cursor, group: str) -> list[str]:
    """List the members of a group, in the order they joined."""
    found: list[str] = cursor.json_rows("members_of", (group,))
    return found
