"""The `Broker` protocol, and the option `broker`.

`App(broker=...)` takes a broker, a list of brokers, or a dict of brokers by name. A broker may also be given as an address,
which is the only form in the environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from romancy.model.messaging import Event
from romancy.model.retry import RetryPolicy

DEFAULT_RETRY = RetryPolicy(max_attempts=0, max_interval=300.0, max_duration=3 * 86400.0)
"""The retry policy for a broker without the attribute `retry`: for three days, with intervals of up to five minutes."""
DEFAULT_CONCURRENCY = 10
"""The number of events that are sent at a time to a broker without the attribute `concurrency`."""


@runtime_checkable
class Broker(Protocol):
    """Delivers events to a system outside.

    An app starts its brokers when it starts, and closes them when it stops; it may start them again after that. `send` is
    called for several events concurrently. It is called again for an event if it raised, and sometimes although it returned:
    the event's source and id are the same each time.

    A broker may have two more attributes: `retry`, a `RetryPolicy`, and `concurrency`, the number of events that are sent to
    it at a time.
    """

    @property
    def name(self) -> str:
        """The name of the broker in its app. Rows of the outbox contain it: do not change it while there are such rows."""
        ...

    async def start(self) -> None:
        """Prepare for sending, e.g. connect. If this raises, it is called again later."""
        ...

    async def send(self, event: Event) -> None:
        """Deliver an event; return when the receiver has stored it or has taken responsibility for it.

        Raise `EventRejectedError` if a retry is useless; after any other exception, the event is retried.
        """
        ...

    async def close(self) -> None:
        """Release connections and other resources."""
        ...


BrokerOption: TypeAlias = str | Broker | Sequence[Broker | str] | Mapping[str, Broker | str]
Brokers: TypeAlias = dict[str, "Broker | str"]
"""Brokers, or their addresses, by name."""

KINDS = {"http": "http", "https": "http", "nats": "nats", "tls": "nats", "kafka": "kafka"}
"""The schemes of addresses, and the default names of their brokers."""
_USAGE = "give a broker, e.g. HTTPBroker(url), an address (http:, nats: or kafka:), or several of them, optionally by name"


def read_brokers(given: Any) -> Brokers:
    """Read the option `broker`. Raises ValueError, without addresses in the message, since they may contain passwords."""
    if isinstance(given, Mapping):
        named: Mapping[Any, Any] = given
        return {_name(name): _check_broker(broker) for name, broker in named.items()}
    several = list(given) if isinstance(given, list | tuple) else [given]
    found: Brokers = {}
    for broker in several:
        name = _name_of(_check_broker(broker))
        if name in found:
            raise ValueError(
                f"two brokers are named {name!r}: give one of them another name, as in HTTPBroker(url, name=...)"
            )
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
        raise ValueError("the name of a broker must be a non-empty string")
    return name


def _kind(address: str) -> str:
    try:
        return KINDS[urlsplit(address).scheme]
    except (KeyError, ValueError):
        raise ValueError(_USAGE) from None
