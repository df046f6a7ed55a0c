"""Random participants: listeners of every kind, and senders."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.explore.participants import ExternalSender, Participants, Spec
from tests.explore.small_scenarios import for_event, for_message, item, listener

_MODES = ("broadcast", "competing", "direct")
_VIAS = ("workflow", "activity", "flaky activity")


def random_participants(name: str, chance: random.Random) -> Participants:
    """Random participants; their names begin with `name`."""
    return _Maker(name, chance).participants()


class _Maker:
    def __init__(self, name: str, chance: random.Random) -> None:
        self._name = name
        self._chance = chance
        self._types = [f"{name}/t{number}" for number in range(chance.choice([1, 2]))]
        self._channels = {f"{name}/c{number}": chance.choice(_MODES) for number in range(chance.choice([1, 2]))}
        self._group = f"{name}/g"
        self._event_share = chance.choice([0.2, 0.5, 0.8])
        """The share of events, as opposed to messages."""
        self._listeners = [f"{name}/l{number}" for number in range(chance.choice([1, 2, 3]))]

    def participants(self) -> Participants:
        chance = self._chance
        senders = [self._sender(f"{self._name}/s{number}") for number in range(chance.choice([0, 1, 2]))]
        external_senders = [
            self._external_sender(f"{self._name}/o{number}", number) for number in range(chance.choice([1, 2]))
        ]
        return Participants([self._listener(id) for id in self._listeners], senders, external_senders)

    # --- listeners

    def _listener(self, id: str) -> Spec:
        chance = self._chance
        waits = [self._wait() for _ in range(chance.choice([1, 1, 2, 3]))]
        patient = all(wait["timeout"] is None for wait in waits)
        groups = [self._group] if chance.random() < 0.3 else []
        return listener(
            id,
            waits,
            subscribe=[list(pair) for pair in self._channels.items()],
            groups=groups,
            how=chance.choice(["each", "all", "first", "first", "beside", "beside"]),
            rounds=chance.choice([1, 2, 3, *([None, None, None] if patient else [])]),
            recur=chance.choice([0, 0, 1, 2]),
        )

    def _wait(self) -> Spec:
        chance = self._chance
        timeout = chance.choice([None, None, None, 1.0, 5.0])
        if chance.random() >= self._event_share:
            return for_message(chance.choice(list(self._channels)), timeout=timeout)
        subject = chance.choice([None, None, "x"])
        match = chance.choice([None, None, {"k": 1}])
        return for_event(chance.choice(self._types), subject=subject, match=match, timeout=timeout)

    # --- senders

    def _sender(self, id: str) -> Spec:
        return {"id": id, "items": self._items(id, _VIAS, 3)}

    def _external_sender(self, name: str, process: int) -> ExternalSender:
        return ExternalSender(name, process, self._items(name, ("outside",), 4))

    def _items(self, by: str, vias: Sequence[str], most: int) -> list[Spec]:
        chance = self._chance
        return [self._item(by, n, chance.choice(vias)) for n in range(chance.randint(1, most))]

    def _item(self, by: str, n: int, via: str) -> Spec:
        chance = self._chance
        channel = chance.choice(list(self._channels))
        if chance.random() < self._event_share:
            return self._event(by, n, via)
        match chance.choice(["publish", "publish", "to", "group"]):
            case "publish":
                return item(by, n, "publish", via, channel=channel)
            case "group":
                return item(by, n, "group", via, channel=channel, group=self._group)
            case _:
                return item(by, n, "to", via, channel=channel, to=chance.choice(self._listeners))

    def _event(self, by: str, n: int, via: str) -> Spec:
        chance = self._chance
        return item(
            by,
            n,
            "event",
            via,
            id=f"{by}:{n}",
            again=chance.random() < 0.3,
            type=chance.choice(self._types),
            subject=chance.choice([None, "x", "y"]),
            to=chance.choice([None, None, None, chance.choice(self._listeners)]),
        )
