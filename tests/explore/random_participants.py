"""Random participants: listeners of every kind, and senders."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.explore.participants import ExternalSender, Participants, Spec
from tests.explore.small_scenarios import for_event, for_message, item, listener

_MODES = ("broadcast", "competing", "direct")
_VIAS = ("workflow", "activity", "flaky activity")


def random_participants(name: str, rng: random.Random) -> Participants:
    """Random participants; their names begin with `name`."""
    return _Maker(name, rng).participants()


class _Maker:
    def __init__(self, name: str, rng: random.Random) -> None:
        self._name = name
        self._rng = rng
        self._types = [f"{name}/t{number}" for number in range(rng.choice([1, 2]))]
        self._channels = {f"{name}/c{number}": rng.choice(_MODES) for number in range(rng.choice([1, 2]))}
        self._group = f"{name}/g"
        self._event_share = rng.choice([0.2, 0.5, 0.8])
        """The share of events, as opposed to messages."""
        self._listeners = [f"{name}/l{number}" for number in range(rng.choice([1, 2, 3]))]

    def participants(self) -> Participants:
        rng = self._rng
        senders = [self._sender(f"{self._name}/s{number}") for number in range(rng.choice([0, 1, 2]))]
        external_senders = [self._external_sender(f"{self._name}/o{number}", number) for number in range(rng.choice([1, 2]))]
        return Participants([self._listener(id) for id in self._listeners], senders, external_senders)

    # --- listeners

    def _listener(self, id: str) -> Spec:
        rng = self._rng
        waits = [self._wait() for _ in range(rng.choice([1, 1, 2, 3]))]
        patient = all(wait["timeout"] is None for wait in waits)
        groups = [self._group] if rng.random() < 0.3 else []
        return listener(
            id,
            waits,
            subscribe=[list(pair) for pair in self._channels.items()],
            groups=groups,
            how=rng.choice(["each", "all", "first", "first", "beside", "beside"]),
            rounds=rng.choice([1, 2, 3, *([None, None, None] if patient else [])]),
            recur=rng.choice([0, 0, 1, 2]),
        )

    def _wait(self) -> Spec:
        rng = self._rng
        timeout = rng.choice([None, None, None, 1.0, 5.0])
        if rng.random() >= self._event_share:
            return for_message(rng.choice(list(self._channels)), timeout=timeout)
        subject = rng.choice([None, None, "x"])
        match = rng.choice([None, None, {"k": 1}])
        return for_event(rng.choice(self._types), subject=subject, match=match, timeout=timeout)

    # --- senders

    def _sender(self, id: str) -> Spec:
        return {"id": id, "items": self._items(id, _VIAS, 3)}

    def _external_sender(self, name: str, process: int) -> ExternalSender:
        return ExternalSender(name, process, self._items(name, ("outside",), 4))

    def _items(self, by: str, vias: Sequence[str], most: int) -> list[Spec]:
        rng = self._rng
        return [self._item(by, n, rng.choice(vias)) for n in range(rng.randint(1, most))]

    def _item(self, by: str, n: int, via: str) -> Spec:
        rng = self._rng
        channel = rng.choice(list(self._channels))
        if rng.random() < self._event_share:
            return self._event(by, n, via)
        match rng.choice(["publish", "publish", "to", "group"]):
            case "publish":
                return item(by, n, "publish", via, channel=channel)
            case "group":
                return item(by, n, "group", via, channel=channel, group=self._group)
            case _:
                return item(by, n, "to", via, channel=channel, to=rng.choice(self._listeners))

    def _event(self, by: str, n: int, via: str) -> Spec:
        rng = self._rng
        return item(
            by,
            n,
            "event",
            via,
            id=f"{by}:{n}",
            again=rng.random() < 0.3,
            type=rng.choice(self._types),
            subject=rng.choice([None, "x", "y"]),
            to=rng.choice([None, None, None, rng.choice(self._listeners)]),
        )
