"""The option `broker`: one broker, several, by name, and by address."""

from __future__ import annotations

from typing import Any

import pytest
from tests.outbox.fake_broker import Desk

from romancy import App, Client, ConfigurationError, HTTPBroker
from romancy.brokers import KafkaBroker, NATSBroker


def brokers(given: Any) -> dict[str, Any]:
    return App(workflows=[], broker=given)._brokers


def test_one_several_or_named() -> None:
    a, b = Desk(name="a"), Desk(name="b")
    assert brokers(a) == {"a": a}
    assert brokers([a, b]) == {"a": a, "b": b}
    assert brokers({"x": a, "y": a}) == {"x": a, "y": a}
    assert brokers(None) == {}
    assert brokers([]) == {}


@pytest.mark.parametrize(
    ("address", "name", "kind"),
    [
        ("http://h/in", "http", HTTPBroker),
        ("https://me:s3cret@h/in", "http", HTTPBroker),
        ("nats://h:4222/shop.events", "nats", NATSBroker),
        ("kafka://h:9092,i:9092/shop-events", "kafka", KafkaBroker),
    ],
)
def test_an_address(address: str, name: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = brokers(address).values()
    assert isinstance(found, kind)
    assert list(brokers({"mine": address})) == ["mine"]
    monkeypatch.setenv("ROMANCY_BROKER", address)
    for app in (App(workflows=[]), Client()):
        assert list(app._brokers) == [name]


@pytest.mark.parametrize(
    "wrong",
    [
        5,
        "",
        "s3cret",
        "amqp://me:s3cret@h",
        HTTPBroker,
        [5],
        {"": Desk()},
        {5: Desk()},
        {"a": 5},
        [Desk(), Desk()],
        Desk(name=""),
        "http://me:s3cret@/",
        "nats://me:s3cret@h",
        "kafka://h:9092",
        "kafka://me:s3cret@h:9092/shop-events",
    ],
)
def test_a_wrong_one_is_told_without_secrets(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"broker|HTTPBroker") as raised:
        brokers(wrong)
    assert "s3cret" not in str(raised.value)


def test_two_of_one_name_are_told() -> None:
    with pytest.raises(ConfigurationError, match="two brokers are named 'http'"):
        brokers([HTTPBroker("http://a/"), HTTPBroker("http://b/")])
