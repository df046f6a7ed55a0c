"""Small scenarios of which every order is tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.explore.participants import ExternalSender, Participants, Spec

MODES = ("event", "addressed", "broadcast", "competing", "direct")


def listener(id: str, waits: Sequence[Spec], **more: Any) -> Spec:
    """A listener that waits once, unless `more` says otherwise."""
    spec = {"subscribe": [], "groups": [], "how": "each", "rounds": 1, "recur": 0, "received": [], "generation": 1}
    return {"id": id, "waits": list(waits), **spec, **more}


def for_event(type: str, *, subject: str | None = None, match: Spec | None = None, timeout: float | None = None) -> Spec:
    """A wait for an event."""
    return {"on": "event", "type": type, "subject": subject, "match": match, "timeout": timeout}


def for_message(channel: str, *, timeout: float | None = None) -> Spec:
    """A wait for a message."""
    return {"on": "message", "channel": channel, "timeout": timeout}


def item(by: str, n: int, how: str, via: str = "outside", **more: Any) -> Spec:
    """An item to be sent."""
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
) -> Participants:
    """Senders that send one item each to listeners, which run an activity meanwhile if `busy`."""
    channel = f"{name}/c"
    ids = [f"{name}/l{number}" for number in range(listeners)]
    how = "beside" if busy else "each"
    if mode in ("event", "addressed"):
        listening: Sequence[Spec] = [listener(id, [for_event(channel, timeout=timeout)], how=how) for id in ids]
    else:
        wait, subscribe = for_message(channel, timeout=timeout), [[channel, mode]]
        listening = [listener(id, [wait], subscribe=subscribe, how=how) for id in ids]
    items = [_item(f"{name}/s{number}", mode, via, channel, ids[number % listeners]) for number in range(senders)]
    if via in ("outside", "elsewhere"):
        process = 0 if via == "outside" else 1
        return Participants(listening, (), [ExternalSender(one["data"]["by"], process, [one]) for one in items])
    return Participants(listening, [{"id": one["data"]["by"], "items": [one]} for one in items], ())


def one_ends(name: str, mode: str) -> Participants:
    """Two listeners; the first one, which would be woken first, may be terminated before the message arrives."""
    return _and(small(name, mode, 1, 2, "elsewhere"), item(f"{name}/e", 0, "terminate", to=f"{name}/l0"), process=1)


def one_is_cancelled(name: str, mode: str) -> Participants:
    """A listener that runs an activity and may be cancelled."""
    participants = small(name, mode, 1, 1, "elsewhere", busy=True)
    return _and(participants, item(f"{name}/e", 0, "cancel", to=f"{name}/l0"), process=0)


def _and(participants: Participants, more: Spec, *, process: int) -> Participants:
    return Participants(
        participants.listeners,
        participants.senders,
        [*participants.external_senders, ExternalSender(more["data"]["by"], process, [more])],
    )


def _item(by: str, mode: str, via: str, channel: str, target: str) -> Spec:
    if mode in ("event", "addressed"):
        return item(by, 0, "event", via, type=channel, id=by, to=target if mode == "addressed" else None)
    if mode == "direct":
        return item(by, 0, "to", via, channel=channel, to=target)
    return item(by, 0, "publish", via, channel=channel)
