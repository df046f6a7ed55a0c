"""Where events go from the outbox: HTTP, NATS JetStream, Kafka, and whatever has the calls of a `Broker`.

    outbox/relay ──► broker.send(event) ──► returns: delivered, the row is deleted
                                       ├──► raises EventRejectedError: dead, a person has to look
                                       └──► raises anything else: tried again later

May import `serde` and below. Each broker translates the errors of its driver once, and shows no password.
"""

from romancy.brokers.base import Broker
from romancy.brokers.http import HTTPBroker
from romancy.brokers.kafka import KafkaBroker
from romancy.brokers.nats import NATSBroker
from romancy.errors import BrokerError, EventRejectedError
from romancy.model.messaging import Event

__all__ = ["Broker", "BrokerError", "Event", "EventRejectedError", "HTTPBroker", "KafkaBroker", "NATSBroker"]
