"""Brokers, which receive events from the outbox: HTTP, NATS JetStream, Kafka, and objects of users (`Broker`).

    outbox/relay ──► broker.send(event) ──► returns: delivered, the row is deleted
                                       ├──► raises EventRejectedError: dead, until an operator requeues it
                                       └──► raises any other exception: retried later

May import `serde` and below. Each broker translates the errors of its driver, and shows no passwords in messages.
"""

from romancy.brokers.base import Broker
from romancy.brokers.http import HTTPBroker
from romancy.brokers.kafka import KafkaBroker
from romancy.brokers.nats import NATSBroker
from romancy.errors import BrokerError, EventRejectedError
from romancy.model.messaging import Event

__all__ = ["Broker", "BrokerError", "Event", "EventRejectedError", "HTTPBroker", "KafkaBroker", "NATSBroker"]
