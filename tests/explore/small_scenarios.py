"""Small casts, of which every order is tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.explore.participants import Cast, Outsider, Spec

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
    return {
        "how": how,
        "via": via,
        "subject": None,
        "to": None,
        "again": False,
        "data": {"by": by, "n": n, "k": n % 2},
        **more,
    }


def small(
    name: str, mode: str, senders: int, listeners: int, via: str, *, timeout: float | None = None, busy: bool = False
) -> Cast:
    """So many senders who say one thing each, to so many who listen, and who are busy meanwhile or not."""
    channel = f"{name}/c"
    ids = [f"{name}/l{number}" for number in range(listeners)]
    how = "beside" if busy else "each"
    if mode in ("event", "addressed"):
        hearing: Sequence[Spec] = [listener(id, [for_event(channel, timeout=timeout)], how=how) for id in ids]
    else:
        wait, subscribe = for_message(channel, timeout=timeout), [[channel, mode]]
        hearing = [listener(id, [wait], subscribe=subscribe, how=how) for id in ids]
    said = [_said(f"{name}/s{number}", mode, via, channel, ids[number % listeners]) for number in range(senders)]
    if via in ("outside", "elsewhere"):
        process = 0 if via == "outside" else 1
        return Cast(hearing, (), [Outsider(one["data"]["by"], process, [one]) for one in said])
    return Cast(hearing, [{"id": one["data"]["by"], "items": [one]} for one in said], ())


def one_ends(name: str, mode: str) -> Cast:
    """Two listen, and the first, who is called first, may be ended before it comes."""
    return _and(small(name, mode, 1, 2, "elsewhere"), item(f"{name}/e", 0, "terminate", to=f"{name}/l0"), process=1)


def one_is_cancelled(name: str, mode: str) -> Cast:
    """Somebody who listens, and is busy meanwhile, may be cancelled."""
    cast = small(name, mode, 1, 1, "elsewhere", busy=True)
    return _and(cast, item(f"{name}/e", 0, "cancel", to=f"{name}/l0"), process=0)


def _and(cast: Cast, more: Spec, *, process: int) -> Cast:
    return Cast(cast.listeners, cast.speakers, [*cast.outsiders, Outsider(more["data"]["by"], process, [more])])


def _said(by: str, mode: str, via: str, channel: str, target: str) -> Spec:
    if mode in ("event", "addressed"):
        return item(by, 0, "event", via, type=channel, id=by, to=target if mode == "addressed" else None)
    if mode == "direct":
        return item(by, 0, "to", via, channel=channel, to=target)
    return item(by, 0, "publish", via, channel=channel)
