"""KafkaBroker against the mock cluster of librdkafka, which uses Kafka's protocol on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import util
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests import servers
from tests.outbox.fake_broker import SOON

from romancy import App, BrokerError, ConfigurationError, EventRejectedError
from romancy.brokers import Event, KafkaBroker

EVENT = Event(
    "e-1",
    "/shop",
    "order.paid",
    data=b'{"n":1}',
    subject="caf\u00e9",
    datacontenttype="application/json",
    extensions={"count": 7, "flag": True},
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a mock cluster, which exists as long as its client."""
    client = AdminClient({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1, "log_level": 3})
    (broker,) = client.list_topics(timeout=30).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del client


@asynccontextmanager
async def started(*given: Any, **more: Any) -> AsyncIterator[KafkaBroker]:
    broker = KafkaBroker(*given, **more)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


def consumed(cluster: str, topic: str, count: int) -> list[Any]:
    """The first records of a topic."""
    consumer = Consumer({
        "bootstrap.servers": cluster, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 3,
    })  # fmt: skip
    # Assigned, not subscribed: the mock cluster does not always complete the formation of a group.
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    try:
        found: list[Any] = []
        while len(found) < count:
            record = consumer.poll(30)
            assert record is not None
            if record.error() is None:
                found.append(record)
        return found
    finally:
        consumer.close()


async def test_an_event_is_in_the_topic(cluster: str) -> None:
    async with started(cluster, "structured") as broker:
        await broker.send(EVENT)
    (record,) = consumed(cluster, "structured", 1)
    assert (record.key(), record.headers()) == (
        "café".encode(),
        [("content-type", b"application/cloudevents+json; charset=UTF-8")],
    )
    assert json.loads(record.value())["data"] == {"n": 1}


async def test_in_binary_mode_its_attributes_are_headers(cluster: str) -> None:
    async with started([cluster], lambda event: f"binary.{event.type}", mode="binary") as broker:
        await broker.send(EVENT)
    (record,) = consumed(cluster, "binary.order.paid", 1)
    assert record.value() == EVENT.data
    assert dict(record.headers()) == {
        "ce_specversion": b"1.0", "ce_id": b"e-1", "ce_source": b"/shop", "ce_type": b"order.paid",
        "ce_subject": "café".encode(), "ce_count": b"7", "ce_flag": b"true", "content-type": b"application/json",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("event", "key"),
    [
        (Event("e", "/s", "t", subject="a", extensions={"partitionkey": "b"}), b"b"),
        (Event("e", "/s", "t", subject="a"), b"a"),
        (Event("e", "/s", "t"), None),
    ],
)
def test_what_belongs_together_has_one_key(event: Event, key: bytes | None) -> None:
    assert KafkaBroker("h:1", "t").record(event).key == key


async def test_an_app_sends_to_it(cluster: str, database: str) -> None:
    topic = f"app-{database.rpartition('/')[2]}"
    async with App(database, workflows=[], broker=KafkaBroker(cluster, topic, retry=SOON)) as app:
        for n in range(20):
            await app.send_event("told", "/shop", {"n": n}, event_id=f"e-{n}", subject="one")
        while (await app.list_outbox()).items:
            await asyncio.sleep(0.01)
    records = await asyncio.to_thread(consumed, cluster, topic, 20)
    assert {json.loads(record.value())["id"] for record in records} == {f"e-{n}" for n in range(20)}


async def test_what_is_too_large_is_rejected(cluster: str) -> None:
    async with started(cluster, "large") as broker:
        with pytest.raises(EventRejectedError, match="MessageSizeTooLarge"):
            await broker.send(Event("e-1", "/shop", "film", data=bytes(2_000_000), binary=True))


async def test_no_cluster() -> None:
    broker = KafkaBroker(f"127.0.0.1:{servers.free_port()}", "t", timeout=0.5)
    with pytest.raises(BrokerError, match="no connection to Kafka"):
        await broker.start()
    with pytest.raises(BrokerError, match="not started"):
        await broker.send(EVENT)


class FailingProducer:
    """A producer that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def send_and_wait(self, topic: str, value: bytes | None, **more: Any) -> None:
        raise self.error


@pytest.mark.parametrize("name", ["KafkaTimeoutError", "NotLeaderForPartitionError", "TopicAuthorizationFailedError"])
async def test_other_trouble_may_pass(name: str) -> None:
    from aiokafka import errors

    broker = KafkaBroker("h:1", "t", options={"sasl_plain_password": "s3cret"})
    broker._producer = FailingProducer(getattr(errors, name)("about s3cret"))
    with pytest.raises(BrokerError, match=name) as raised:
        await broker.send(EVENT)
    assert not isinstance(raised.value, EventRejectedError)
    assert "s3cret" not in str(raised.value)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.brokers.kafka.find_spec", lambda name: None if name == "aiokafka" else util.find_spec(name))
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[kafka\]'"):
        KafkaBroker("h:1", "t")
