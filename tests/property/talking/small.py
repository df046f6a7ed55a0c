"""Small casts, of which every order is tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.property.talking.actors import Cast, Outsider, Spec

MODES = ("event", "addressed", "broadcast", "competing", "direct")


def listener(id: str, waits: Sequence[Spec], **more: Any) -> Spec:
    """Somebody who waits once, unless told otherwise."""
    spec = {"subscribe": [], "groups": [], "how": "each", "rounds": 1, "recur": 0, "heard": [], "generation": 1}
    return {"id": id, "waits": list(waits), **spec, **more}


def for_event(type: str, *, subject: str | None = None, match: Spec | None = None, timeout: float | None = None) -> Spec:
    """A wait for an event."""
    return {"on": "event", "type": type, "subject": subject, "match": match, "timeout": timeout}


def for_message(channel: str, *, timeout: float | None = None) -> Spec:
    """A wait for a message."""
    return {"on": "message", "channel": channel, "timeout": timeout}


def item(by: str, n: int, how: str, via: str = "outside", **more: Any) -> Spec:
    """Something to say."""
    return {"how": how, "via": via, "subject": None, "to": None, "again": False, "data": {"by": by, "n": n, "k": n % 2}, **more}


def small(name: str, mode: str, senders: int, listeners: int, via: str, *, rounds: int = 1, timeout: float | None = None) -> Cast:
    """So many senders who say one thing each, to so many who listen."""
    channel = f"{name}/c"
    ids = [f"{name}/l{number}" for number in range(listeners)]
    if mode in ("event", "addressed"):
        hearing: Sequence[Spec] = [listener(id, [for_event(channel, timeout=timeout)], rounds=rounds) for id in ids]
    else:
        hearing = [
            listener(id, [for_message(channel, timeout=timeout)], subscribe=[[channel, mode]], rounds=rounds) for id in ids
        ]
    said = [_said(f"{name}/s{number}", mode, via, channel, ids[number % listeners]) for number in range(senders)]
    if via == "outside" or via == "elsewhere":
        process = 0 if via == "outside" else 1
        return Cast(hearing, (), [Outsider(one["data"]["by"], process, [one]) for one in said])
    return Cast(hearing, [{"id": one["data"]["by"], "items": [one]} for one in said], ())


def _said(by: str, mode: str, via: str, channel: str, target: str) -> Spec:
    if mode in ("event", "addressed"):
        return item(by, 0, "event", via, type=channel, id=by, to=target if mode == "addressed" else None)
    if mode == "direct":
        return item(by, 0, "to", via, channel=channel, to=target)
    return item(by, 0, "publish", via, channel=channel)
