"""Calling instances: something has come for a wait of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json


def match_waits(cursor: Cursor, waits: Sequence[tuple[str, str]], seq: int) -> list[str]:
    """Note at each wait (instance and operation) what has come for it; the instances, each once."""
    if waits:
        cursor.run("match_waits", {"seq": seq, "waits": as_json(waits)})
    return list(dict.fromkeys(instance_id for instance_id, _ in waits))


def wake(cursor: Cursor, ids: Iterable[str], now: int) -> None:
    """Let instances look for what has come; whoever has one in hand looks before letting go of it."""
    if ids := list(ids):
        cursor.run("wake", {"now": now, "ids": as_json(ids)})


def wake_next(cursor: Cursor, channel: str, now: int, without: Sequence[str] = ()) -> list[str]:
    """Call one of those who wait for the messages of a channel's pool, if there is a message."""
    first = cursor.first("first_of_pool", (channel,))
    if first is None:
        return []
    values = {"channel": channel, "now": now, "without": as_json(without)}
    waits = cursor.rows("next_waiter", values)
    woken = match_waits(cursor, waits, first[0])
    wake(cursor, woken, now)
    return woken


def wake_replacements(cursor: Cursor, ids: Sequence[str], now: int) -> list[str]:
    """These instances may not come for what they were called for: call others in their place.

    They stay called: if they come after all they look for everything they wait for.
    """
    channels: list[str] = cursor.json_rows("matched_channels", {"ids": as_json(ids)})
    return [called for channel in channels for called in wake_next(cursor, channel, now, ids)]


def members(cursor: Cursor, group: str) -> list[str]:
    """Who is in a group."""
    found: list[str] = cursor.json_rows("members_of", (group,))
    return found
