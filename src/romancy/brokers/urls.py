"""Makes brokers from their addresses."""

from __future__ import annotations

from urllib.parse import urlsplit

from romancy.brokers.base import KINDS, Broker, Brokers
from romancy.brokers.http import HTTPBroker
from romancy.brokers.kafka import KafkaBroker
from romancy.brokers.nats import NATSBroker
from romancy.errors import ConfigurationError


def make_brokers(brokers: Brokers | None) -> dict[str, Broker]:
    """Return the brokers by name; those that were given as addresses are made."""
    return {
        name: _make_broker(broker, name) if isinstance(broker, str) else broker for name, broker in (brokers or {}).items()
    }


def _make_broker(address: str, name: str) -> Broker:
    """http(s)://..., nats://host:4222/subject, kafka://host:9092,host:9092/topic."""
    parts = urlsplit(address)
    kind, path = KINDS[parts.scheme], parts.path.strip("/")
    if kind == "http":
        return HTTPBroker(address, name=name)
    if not parts.netloc or not path:
        raise ConfigurationError(f"broker: the address is not valid; write {_EXAMPLES[kind]}.")
    if kind == "kafka" and "@" in parts.netloc:  # the driver would take the password for a host, and show it
        raise ConfigurationError(
            "broker: the address of Kafka cannot have a user and password: pass them with KafkaBroker(options=...)."
        )
    if kind == "nats":
        return NATSBroker(f"{parts.scheme}://{parts.netloc}", subject=path, name=name)
    return KafkaBroker(parts.netloc.split(","), path, name=name)


_EXAMPLES = {"nats": "nats://host:4222/subject", "kafka": "kafka://host:9092/topic"}
