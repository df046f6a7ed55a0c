"""NATSBroker against a NATS server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import util
from typing import Any

import nats
import pytest
from tests.outbox.fake_broker import SOON
from tests.outbox.nats_server import PROGRAM, NATSServer

from romancy import App, BrokerError, ConfigurationError, EventRejectedError
from romancy.brokers import Event, NATSBroker
from romancy.brokers.nats import message_id

SAID = Event("e-1", "/shop", "order.paid", data=b'{"n":1}', subject="42", datacontenttype="application/json")


@pytest.fixture(scope="module")
def server() -> Iterator[NATSServer]:
    """A server with JetStream."""
    if PROGRAM is None:
        pytest.skip("there is no nats-server here (Debian: apt install nats-server)")
    with NATSServer() as server:
        yield server


@asynccontextmanager
async def stream(server: NATSServer, name: str = "SHOP", **more: Any) -> AsyncIterator[Any]:
    """An empty stream for the subjects `shop.*`; yields the JetStream context."""
    client = await nats.connect(server.address)
    context = client.jetstream()
    await context.add_stream(name=name, subjects=["shop.*"], **more)
    try:
        yield context
    finally:
        await context.delete_stream(name)
        await client.close()


async def messages(context: Any, count: int, name: str = "SHOP") -> list[Any]:
    """All messages of the stream, whose number is checked."""
    assert (await context.stream_info(name)).state.messages == count
    return [await context.get_msg(name, seq) for seq in range(1, count + 1)]


@asynccontextmanager
async def started(*given: Any, **more: Any) -> AsyncIterator[NATSBroker]:
    broker = NATSBroker(*given, **({"subject": "shop.events"} | more))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


async def test_an_event_is_in_the_stream_once_however_often_it_is_sent(server: NATSServer) -> None:
    async with stream(server) as context, started(server.address, stream="SHOP") as broker:
        for _ in range(3):
            await broker.send(SAID)
        (message,) = await messages(context, 1)
    assert message.subject == "shop.events"
    assert message.headers == {
        "Nats-Msg-Id": "/shop e-1",
        "content-type": "application/cloudevents+json; charset=UTF-8",
        "Nats-Expected-Stream": "SHOP",
    }
    assert json.loads(message.data) == {
        "specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.paid", "subject": "42",
        "datacontenttype": "application/json", "data": {"n": 1},
    }  # fmt: skip


async def test_the_subject_may_depend_on_the_event(server: NATSServer) -> None:
    async with stream(server) as context, started(server.address, subject=lambda event: f"shop.{event.id}") as broker:
        await broker.send(SAID)
        (message,) = await messages(context, 1)
    assert message.subject == "shop.e-1"


@pytest.mark.parametrize("one", [("/a b", "c"), ("/a", "b c"), ("/a\r\nX: y", "é"), ("/%20", "c")])
def test_ids_of_different_events_differ_and_fit_into_a_header(one: tuple[str, str]) -> None:
    source, event_id = one
    made = message_id(Event(event_id, source, "t"))
    assert made.isascii()
    assert made.isprintable()
    assert len(made.split(" ")) == 2
    others = [("/a b", "c"), ("/a", "b c"), ("/a\r\nX: y", "é"), ("/%20", "c")]
    assert [message_id(Event(id, other, "t")) for other, id in others].count(made) == 1


async def test_without_a_stream_it_is_tried_again(server: NATSServer) -> None:
    async with started(server.address, timeout=0.5) as broker:
        with pytest.raises(BrokerError, match="NoStreamResponse") as raised:
            await broker.send(SAID)
    assert not isinstance(raised.value, EventRejectedError)


async def test_another_stream_than_expected_does_not_count(server: NATSServer) -> None:
    async with stream(server) as context, started(server.address, stream="OTHER") as broker:
        with pytest.raises(BrokerError):
            await broker.send(SAID)
        await messages(context, 0)


async def test_what_is_too_large_is_rejected(server: NATSServer) -> None:
    async with stream(server), started(server.address) as broker:
        with pytest.raises(EventRejectedError, match="MaxPayload"):
            await broker.send(Event("e-1", "/shop", "film", data=bytes(2_000_000), binary=True))


async def test_an_unreachable_server_is_reported_without_the_password() -> None:
    broker = NATSBroker("nats://me:s3cret@127.0.0.1:1", subject="shop.events", timeout=0.3)
    with pytest.raises(BrokerError, match="no connection to NATS") as raised:
        await broker.start()
    assert "s3cret" not in str(raised.value)
    with pytest.raises(BrokerError, match="not started"):
        await broker.send(SAID)


@pytest.mark.parametrize("subject", ["", "shop.*", "shop.>", "shop events", 5])
def test_a_wrong_subject_is_told(subject: Any) -> None:
    with pytest.raises(ConfigurationError, match="subject"):
        NATSBroker("nats://h", subject=subject)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.brokers.nats.find_spec", lambda name: None if name == "nats" else util.find_spec(name))
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[nats\]'"):
        NATSBroker("nats://h", subject="s")


async def test_a_server_that_goes_away_and_comes_back_gets_everything_once(server: NATSServer, database: str) -> None:
    with NATSServer() as mine:
        broker = NATSBroker(
            mine.address, subject="shop.events", timeout=0.5, retry=SOON, options={"reconnect_time_wait": 0.05}
        )
        client = await nats.connect(mine.address)
        await client.jetstream().add_stream(name="SHOP", subjects=["shop.*"])
        await client.close()
        async with App(database, workflows=[], broker=broker) as app:
            await app.send_event("told", "/shop", event_id="e-1")
            while (await app.list_outbox()).items:
                await asyncio.sleep(0.01)
            mine.stop()
            await app.send_event("told", "/shop", event_id="e-2")
            while not [one for one in (await app.list_outbox()).items if one.last_error]:
                await asyncio.sleep(0.01)
            mine.start()
            while (await app.list_outbox()).items:
                await asyncio.sleep(0.01)
        client = await nats.connect(mine.address)
        found = await messages(client.jetstream(), 2)
        await client.close()
    assert [json.loads(one.data)["id"] for one in found] == ["e-1", "e-2"]
