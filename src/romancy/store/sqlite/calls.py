"""Calling instances: something has come for a wait of theirs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from romancy.store.sqlite.keys import as_json, fetch
from romancy.store.sqlite.statements import one


def call(cursor: sqlite3.Cursor, waits: Sequence[tuple[str, str]], seq: int) -> list[str]:
    """Note at each wait (instance and operation) what has come for it; the instances, each once."""
    if waits:
        cursor.execute(one("meet_waits"), {"seq": seq, "waits": as_json(waits)})
    return list(dict.fromkeys(instance_id for instance_id, _ in waits))


def wake(cursor: sqlite3.Cursor, ids: Iterable[str], now: int) -> None:
    """Let instances look for what has come; whoever has one in hand looks before letting go of it."""
    if ids := list(ids):
        cursor.execute(one("wake"), {"now": now, "ids": as_json(ids)})


def call_next(cursor: sqlite3.Cursor, channel: str, now: int, without: Sequence[str] = ()) -> list[str]:
    """Call one of those who wait for the messages of a channel's pool, if there is a message."""
    first = cursor.execute(one("first_of_pool"), (channel,)).fetchone()
    if first is None:
        return []
    values = {"channel": channel, "now": now, "without": as_json(without)}
    waits = cursor.execute(one("next_in_line"), values).fetchall()
    called = call(cursor, waits, first[0])
    wake(cursor, called, now)
    return called


def pass_on(cursor: sqlite3.Cursor, ids: Sequence[str], now: int) -> list[str]:
    """These instances may not come for what they were called for: call others in their place.

    They stay called: if they come after all they look for everything they wait for.
    """
    channels: list[str] = fetch(cursor, "called_channels", {"ids": as_json(ids)})
    return [called for channel in channels for called in call_next(cursor, channel, now, ids)]


def members(cursor: sqlite3.Cursor, group: str) -> list[str]:
    """Who is in a group."""
    found: list[str] = json.loads(cursor.execute(one("members_of"), (group,)).fetchone()[0])
    return found
