"""What a broker is: whoever takes events out of the outbox to others.

`App(broker=...)` takes one, several, or several by name; in the environment variable, or as a text, an address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from romancy.model.messaging import Event
from romancy.model.retry import RetryPolicy

DEFAULT_RETRY = RetryPolicy(max_attempts=0, max_interval=300.0, max_duration=3 * 86400.0)
"""How a broker's events are retried that says nothing else: for three days, at last every five minutes."""
DEFAULT_CONCURRENCY = 10
"""How many events are handed to such a broker at once."""


@runtime_checkable
class Broker(Protocol):
    """Hands events to others.

    An app starts its brokers when it starts and closes them when it stops; it may start them again after that. `send` is
    called for several events at once, for the same event again if it raised, and now and then although it did not: the
    event's source and id are the same each time.

    A broker may say how it is to be used by two more attributes: `retry`, a `RetryPolicy`, and `concurrency`, how many
    events are handed to it at once.
    """

    @property
    def name(self) -> str:
        """Which of the app's brokers it is. Rows of the outbox carry it: do not change it while there are some."""
        ...

    async def start(self) -> None:
        """Get ready. If it raises it is called again later."""
        ...

    async def send(self, event: Event) -> None:
        """Hand over an event; return when it is in safe hands.

        Raise `EventRejectedError` if trying again is useless; anything else is tried again.
        """
        ...

    async def close(self) -> None:
        """Let everything go."""
        ...


BrokerOption: TypeAlias = str | Broker | Sequence[Broker | str] | Mapping[str, Broker | str]
Brokers: TypeAlias = dict[str, "Broker | str"]
"""Brokers, or their addresses, by name."""

KINDS = {"http": "http", "https": "http", "nats": "nats", "tls": "nats", "kafka": "kafka"}
"""The scheme of an address, and what the broker behind it is called."""
_USAGE = "give a broker, e.g. HTTPBroker(url), an address (http:, nats: or kafka:), or several of them, by name if you like"


def read_brokers(given: Any) -> Brokers:
    """The option `broker`. Raises ValueError, never with what may be a password in it."""
    if isinstance(given, Mapping):
        named: Mapping[Any, Any] = given
        return {_name(name): _check_broker(broker) for name, broker in named.items()}
    several = list(given) if isinstance(given, list | tuple) else [given]
    found: Brokers = {}
    for broker in several:
        name = _name_of(_check_broker(broker))
        if name in found:
            raise ValueError(f"two brokers are called {name!r}; give one another name: HTTPBroker(url, name=...)")
        found[name] = broker
    return found


def _check_broker(broker: Any) -> Broker | str:
    if isinstance(broker, str):
        _kind(broker)
        return broker
    if isinstance(broker, Broker) and not isinstance(broker, type):
        return broker
    raise ValueError(_USAGE)


def _name_of(broker: Broker | str) -> str:
    return _kind(broker) if isinstance(broker, str) else _name(broker.name)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError("the name of a broker is a text that is not empty")
    return name


def _kind(address: str) -> str:
    try:
        return KINDS[urlsplit(address).scheme]
    except (KeyError, ValueError):
        raise ValueError(_USAGE) from None
