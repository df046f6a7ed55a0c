"""From the address of a broker to the broker."""

from __future__ import annotations

from urllib.parse import urlsplit

from romancy.brokers.base import KINDS, Broker, Brokers
from romancy.brokers.http import HTTPBroker
from romancy.brokers.kafka import KafkaBroker
from romancy.brokers.nats import NATSBroker
from romancy.errors import ConfigurationError


def make_brokers(brokers: Brokers | None) -> dict[str, Broker]:
    """Brokers by name; those that are addresses are made."""
    return {name: _make_broker(one, name) if isinstance(one, str) else one for name, one in (brokers or {}).items()}


def _make_broker(address: str, name: str) -> Broker:
    """http(s)://..., nats://host:4222/subject, kafka://host:9092,host:9092/topic."""
    parts = urlsplit(address)
    kind, path = KINDS[parts.scheme], parts.path.strip("/")
    if kind == "http":
        return HTTPBroker(address, name=name)
    if not parts.netloc or not path:
        raise ConfigurationError(f"broker: write {_EXAMPLES[kind]}.")
    if kind == "kafka" and "@" in parts.netloc:  # it would be taken for a host, and shown
        raise ConfigurationError(
            "broker: an address of Kafka has no user and password: KafkaBroker(options=...) takes them."
        )
    if kind == "nats":
        return NATSBroker(f"{parts.scheme}://{parts.netloc}", subject=path, name=name)
    return KafkaBroker(parts.netloc.split(","), path, name=name)


_EXAMPLES = {"nats": "nats://host:4222/subject", "kafka": "kafka://host:9092/topic"}
