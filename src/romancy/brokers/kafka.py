"""`KafkaBroker`: writes events to a topic of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from romancy.brokers.base import DEFAULT_RETRY
from romancy.brokers.formats import (
    STRUCTURED,
    Mode,
    attributes,
    check_mode,
    content_type,
    describe_error,
    positive,
    structured,
)
from romancy.errors import BrokerError, ConfigurationError, EventRejectedError
from romancy.model.messaging import Event
from romancy.model.retry import RetryPolicy

_EXTRA = "KafkaBroker needs aiokafka: pip install 'romancy[kafka]'"


class Record(NamedTuple):
    """An event as a record for Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class KafkaBroker:
    """Writes each event to a topic, and waits until all in-sync replicas have it.

    The key of the record is the event's extension `partitionkey`, or else its subject, so that events with one subject stay
    in one partition. `topic` is a string, or a function of the event that returns one. `options` are passed to
    `AIOKafkaProducer`: credentials, TLS. A repeated event is a second record: consumers recognize it by source and id.

    Tested with the mock cluster of librdkafka, not with a Kafka cluster.

    >>> KafkaBroker("localhost:9092", "shop-events")
    KafkaBroker('shop-events', name='kafka')
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str | Callable[[Event], str],
        mode: Mode = "structured",
        *,
        timeout: float = 10.0,
        name: str = "kafka",
        retry: RetryPolicy = DEFAULT_RETRY,
        concurrency: int = 100,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        _require_aiokafka()
        self.name = name
        self.retry = retry
        self.concurrency = positive("KafkaBroker", "concurrency", concurrency, whole=True)
        self._servers = bootstrap_servers if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
        self._topic = topic
        self._mode = check_mode(mode, "KafkaBroker")
        self._timeout = positive("KafkaBroker", "timeout", timeout)
        self._options = dict(options or {})
        self._secrets = [
            value for name, value in self._options.items() if "password" in name and isinstance(value, str) and value
        ]
        self._producer: Any = None

    def __repr__(self) -> str:
        topic = "..." if callable(self._topic) else self._topic
        return f"KafkaBroker({topic!r}, name={self.name!r})"

    async def start(self) -> None:
        """Connect. The driver reconnects by itself."""
        producer = self._new_producer()
        try:
            await producer.start()
        except Exception as error:
            await producer.stop()
            raise BrokerError(f"no connection to Kafka: {describe_error(error, self._secrets)}") from error
        self._producer = producer

    async def close(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def send(self, event: Event) -> None:
        """Write an event; return when the replicas have it. Raises `EventRejectedError` or `BrokerError`."""
        from aiokafka import errors  # pyright: ignore[reportMissingTypeStubs]

        if self._producer is None:
            raise BrokerError(f"{self!r} is not started.")
        record = self.record(event)
        try:
            await self._producer.send_and_wait(record.topic, record.value, key=record.key, headers=record.headers)
        except (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.InvalidTopicError) as error:
            raise EventRejectedError(f"Kafka: {describe_error(error, self._secrets)}") from error
        except Exception as error:
            raise BrokerError(f"Kafka: {describe_error(error, self._secrets)}") from error

    def record(self, event: Event) -> Record:
        """Return the record for an event: structured, or with its attributes in `ce_` headers."""
        topic = self._topic(event) if callable(self._topic) else self._topic
        chosen = event.extensions.get("partitionkey", event.subject)
        key = None if chosen is None else str(chosen).encode()
        if self._mode == "structured":
            return Record(topic, key, structured(event), [("content-type", STRUCTURED.encode())])
        headers = [(f"ce_{name}", value.encode()) for name, value in attributes(event).items()]
        kind = content_type(event)
        return Record(topic, key, event.data, headers + ([("content-type", kind.encode())] if kind is not None else []))

    def _new_producer(self) -> Any:
        from aiokafka import AIOKafkaProducer  # pyright: ignore[reportMissingTypeStubs]

        given: dict[str, Any] = {
            "bootstrap_servers": self._servers,
            "acks": "all",
            "enable_idempotence": True,  # retries of the driver itself do not write a second record
            "request_timeout_ms": round(self._timeout * 1000),
        }
        return AIOKafkaProducer(**(given | self._options))


def _require_aiokafka() -> None:
    if find_spec("aiokafka") is None:
        raise ConfigurationError(_EXTRA)
