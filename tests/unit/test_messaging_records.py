"""Events and messages: what can be sent, how it is stored, and what the receiver gets."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from tests.unit.instance_driver import BEGIN, Drive, charge, message, replay_anew
from typing_extensions import TypedDict

import romancy
from romancy import (
    ActivityContext,
    ConfigurationError,
    PayloadError,
    ReceivedEvent,
    WorkflowContext,
    publish,
    send_event,
    wait_event,
)
from romancy.model.messaging import (
    Event,
    Message,
    SendEvent,
)
from romancy.serde.messaging import (
    digest_of,
    event_json,
    event_of,
    external_data,
    message_json,
    received_event,
    received_message,
)


class Payment(BaseModel):
    order_id: str = Field(alias="orderId")
    amount: Decimal


# --- what can be sent

A = ActivityContext()
loose: Any = romancy  # most of the following calls are wrong for a type checker


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ctx: loose.wait_event(ctx, ""), "The type given to wait_event"),
        (lambda ctx: loose.wait_event(ctx, 3), "The type given to wait_event"),
        (lambda ctx: loose.wait_event(ctx, "a", timeout="3"), "give seconds"),
        (lambda ctx: loose.wait_event(ctx, "a", timeout=math.nan), "give seconds"),
        (lambda ctx: loose.wait_event(ctx, "a", subject=""), "The subject of"),
        (lambda ctx: loose.wait_event(ctx, "a", event_id=3), "The event_id of"),
        (lambda ctx: loose.wait_event(ctx, "a", match=[1]), "give a mapping of paths to values"),
        (lambda ctx: loose.wait_event(ctx, "a", match={"": 1}), "A path in the match"),
        (lambda ctx: loose.wait_event(ctx, "a", match={1: 1}), "A path in the match"),
        (lambda ctx: loose.wait_event(ctx, "a", match={"a": [1]}), "has \\[1\\] for 'a'"),
        (lambda ctx: loose.wait_event(ctx, "a", match={"a": math.nan}), "has nan for 'a'"),
        (lambda ctx: loose.wait_event(ctx, "a", match={"a": datetime(2030, 1, 1)}), "for 'a'"),
        (lambda ctx: loose.wait_event(ctx, "a", model="Payment"), "not its name"),
        (lambda ctx: loose.wait_event(ctx, "a", model=object()), "not a type that pydantic"),
        (lambda ctx: loose.receive(ctx, ""), "The channel given to receive"),
        (lambda ctx: loose.receive(ctx, "a", timeout=True), "give seconds"),
        (lambda ctx: loose.receive(ctx, "a", model=threading.Thread), "not a type that pydantic"),
        (lambda ctx: loose.subscribe(ctx, None), "The channel given to subscribe"),
        (lambda ctx: loose.subscribe(ctx, "a", "all"), "'broadcast', 'competing', 'direct'"),
        (lambda ctx: loose.unsubscribe(ctx, 3), "The channel given to unsubscribe"),
        (lambda ctx: loose.publish(ctx, "", 1), "The channel given to publish"),
        (lambda ctx: loose.publish(ctx, "a", 1, metadata=[1]), "give a mapping of names to values"),
        (lambda ctx: loose.publish(ctx, "a", 1, metadata={1: 1}), "give a mapping of names to values"),
        (lambda ctx: loose.send_to(ctx, "", "a", 1), "The instance_id given"),
        (lambda ctx: loose.send_to_group(ctx, "", "a", 1), "The group given to send_to_group"),
        (lambda ctx: loose.join_group(ctx, ""), "The group given to join_group"),
        (lambda ctx: loose.leave_group(ctx, b"a"), "The group given to leave_group"),
        (lambda ctx: loose.get_group_members(ctx, ""), "The group given to get_group_members"),
        (lambda ctx: loose.send_event(ctx, "", "/s"), "The type of the event"),
        (lambda ctx: loose.send_event(ctx, "a", ""), "The source of"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", subject=""), "The subject of"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", event_id=""), "The event_id of"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", content_type=3), "The content_type of"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", local=1), "True or False"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions=[1]), "give a mapping of names to values"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"Trace": "x"}), "lower-case letters and digits"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"a_b": "x"}), "lower-case letters and digits"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"": "x"}), "lower-case letters and digits"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"subject": "x"}), "an attribute"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"data": "x"}), "an attribute"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"a": 1.5}), "a string, an integer"),
        (lambda ctx: loose.send_event(ctx, "a", "/s", extensions={"a": None}), "a string, an integer"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(call: Callable[[Any], object], words: str, drive: Drive) -> None:
    async def body(ctx: WorkflowContext) -> None:
        with pytest.raises(ConfigurationError, match=words):
            _ = call(ctx)

    driver = drive(body)
    assert driver.start() == []
    assert driver.result is None
    assert driver.effects == []
    assert driver.history == []


@dataclass
class Box:
    inner: object


class Loose(BaseModel):
    number: float = 1.0
    inside: Any = None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": [1, math.nan]}, "a.1 is nan"),
        (-math.inf, "it is -inf"),
        (Loose(number=math.nan), "number is nan"),
        (Loose(inside={"x": math.inf}), "inside.x is inf"),
        (Box([math.nan]), "inner.0 is nan"),
        ({"a": "\ud800"}, "a contains a lone surrogate"),
        ("\ud800", "it contains a lone surrogate"),
        ({"\udfff": 1}, "'\\\\udfff' contains a lone surrogate"),
        (object(), "unknown type"),
        ({"s": SecretStr("x")}, "s is a SecretStr"),
        ({"b": b"\xff"}, "utf-8"),
    ],
)
def test_data_that_cannot_be_sent_is_named(data: Any, words: str) -> None:
    with pytest.raises(PayloadError, match=f"the data of event 'paid' cannot be stored: .*{words}"):
        _ = send_event(A, "paid", "/shop", data)
    with pytest.raises(PayloadError, match=f"the data of a message to channel 'orders' cannot be stored: .*{words}"):
        _ = publish(A, "orders", data)
    with pytest.raises(PayloadError, match=f"metadata of a message to channel 'orders' cannot be stored: .*{words[-6:]}"):
        _ = publish(A, "orders", 1, metadata={"m": data})
    assert A._effects == []


def test_what_contains_itself_cannot_be_sent() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(PayloadError, match="contains itself"):
        _ = publish(A, "orders", circle)


def test_names_that_no_text_can_hold_are_refused() -> None:
    with pytest.raises(PayloadError, match="a lone surrogate"):
        _ = publish(A, "\ud800", 1)


@pytest.mark.parametrize(
    ("data", "raw"),
    [
        (Payment(orderId="42", amount=Decimal("1.10")), b'{"orderId":"42","amount":"1.10"}'),
        (Box([(1, 2)]), b'{"inner":[[1,2]]}'),
        (datetime(2030, 1, 1, tzinfo=UTC), b'"2030-01-01T00:00:00Z"'),
        ("über\0", '"über\\u0000"'.encode()),
        (None, b"null"),
        (10**30, b"1" + b"0" * 30),
    ],
)
def test_data_is_sent_as_pydantic_writes_it(data: Any, raw: bytes) -> None:
    assert external_data(data, "it") == (raw, False, True)


def test_sets_are_said_in_any_order() -> None:
    data = external_data(Box({"x", "y"}), "it")
    assert not data.ordered
    raw = b'{"inner":["x","y"]}'
    other = b'{"inner":["y","x"]}'
    assert data.raw in (raw, other)
    assert digest_of(raw, ordered=False) == digest_of(other, ordered=False)
    assert digest_of(raw) != digest_of(other)


@pytest.mark.parametrize("data", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_are_sent_as_they_are(data: Any) -> None:
    assert external_data(data, "it") == (b"\x00\xff", True, True)


def test_the_content_type_follows_the_data() -> None:
    ctx = ActivityContext()
    _ = send_event(ctx, "a", "/s", {"n": 1}), send_event(ctx, "a", "/s", b"x"), send_event(ctx, "a", "/s")
    _ = send_event(ctx, "a", "/s", "x", content_type="text/plain")
    types = [effect.event.datacontenttype for effect in ctx._effects if isinstance(effect, SendEvent)]
    assert types == ["application/json", "application/octet-stream", None, "text/plain"]


PAID = Event("e-1", "/shop", "paid", b'{"orderId":"42","amount":"1.10"}', subject="42", time="2024-05-01T10:00:00Z")

# --- what is received


def test_an_event_is_written_as_cloudevents_say() -> None:
    event = Event("1", "/s", "t", b'{"a":1}', extensions={"traceid": "x", "n": 3, "flag": True}, datacontenttype="a/b")
    assert event_json(event) == (
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"a/b","traceid":"x","n":3,"flag":true,'
        b'"data":{"a":1}}'
    )


EVENTS = [
    PAID,
    Event("1", "/s", "t"),
    Event("1", "/s", "t", b"null"),
    Event("1", "/s", "t", b"", binary=True),
    Event("1", "/s", "t", b"\x00\xff", binary=True, dataschema="http://x", extensions={"a": True, "b": 1, "c": "x"}),
    Event("1", "/s", "t", b'["\xc3\xbc",1.5,null]', specversion="1.0", datacontenttype="application/json"),
]


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_written_is_read_back(event: Event) -> None:
    assert event_of(event_json(event)) == event


def test_an_event_of_an_external_sender_is_read() -> None:
    raw = b'{ "data" : {"a": 1.0} , "type":"t", "subject":null, "source":"/s","id":"1","specversion":"1.0","ext":null}'
    assert event_of(raw) == Event("1", "/s", "t", b'{"a":1.0}')


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"source":"/s","type":"t"}', "no id"),
        (b'{"id":"","source":"/s","type":"t"}', "no id"),
        (b'{"id":1,"source":"/s","type":"t"}', "id is 1"),
        (b'{"id":"1","source":"/s","type":"t","x":1.5}', "extension x"),
        (b'{"id":"1","source":"/s","type":"t","data_base64":"%"}', "not base64"),
        (b'{"id":"1","source":"/s","type":"t","data_base64":3}', "not base64"),
    ],
)
def test_what_is_no_event_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(PayloadError, match=words):
        event_of(raw)


def test_an_event_is_received_with_all_its_attributes() -> None:
    received = received_event(event_json(PAID), Payment)
    assert received == ReceivedEvent(
        id="e-1",
        type="paid",
        source="/shop",
        specversion="1.0",
        subject="42",
        time=datetime(2024, 5, 1, 10, tzinfo=UTC),
        datacontenttype=None,
        dataschema=None,
        data=Payment(orderId="42", amount=Decimal("1.10")),
        extensions={},
    )
    extended = Event("1", "/s", "t", dataschema="http://x", extensions={"traceid": "x"}, datacontenttype="a/b")
    other = received_event(event_json(extended))
    assert (other.time, other.data, other.dataschema, other.datacontenttype) == (None, None, "http://x", "a/b")
    assert other.extensions == {"traceid": "x"}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-05-01T10:00:00.25+02:00", datetime(2024, 5, 1, 8, 0, 0, 250_000, tzinfo=UTC)),
        ("2024-05-01t10:00:00z", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-05-01T10:00:00", None),
        ("yesterday", None),
        (None, None),
    ],
)
def test_the_time_of_an_event_is_aware_or_none(text: str | None, time: datetime | None) -> None:
    assert received_event(event_json(Event("1", "/s", "t", time=text))).time == time


class Pair(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("data", "binary", "model", "value"),
    [
        (b'{"a":1}', False, None, {"a": 1}),
        (b"null", False, None, None),
        (None, False, None, None),
        (b"\xff", True, None, b"\xff"),
        (b"\xff", True, bytes, b"\xff"),
        (b"\xff", True, bytes | None, b"\xff"),
        (None, False, Payment | None, None),
        (b'{"a":"1"}', False, Pair, {"a": 1}),
        (b'[{"a":1}]', False, list[Pair], [{"a": 1}]),
        (b'{"inner":1}', False, Box, Box(1)),
        (b'{"orderId":"1","amount":2}', False, Payment | int, Payment(orderId="1", amount=Decimal(2))),
        (b'"2030-01-01T00:00:00Z"', False, datetime, datetime(2030, 1, 1, tzinfo=UTC)),
    ],
)
def test_data_comes_as_the_model_or_as_json_gave_it(data: bytes | None, binary: bool, model: Any, value: object) -> None:
    event = received_event(event_json(Event("1", "/s", "t", data, binary)), model)
    assert event.data == value
    assert type(event.data) is type(value)
    if data is not None:
        raw = message_json(Message("1", "c", data, binary), BEGIN)
        assert received_message(raw, model).data == value


def test_the_order_of_a_union_counts() -> None:
    """Models that compare as equal can be different models."""
    raw = event_json(Event("1", "/s", "t", b'{"orderId":"1","amount":2}'))

    class First(BaseModel):
        amount: int

    class Second(BaseModel):
        amount: int

    assert type(received_event(raw, First | Second).data) is First
    assert type(received_event(raw, Second | First).data) is Second


@pytest.mark.parametrize(
    ("data", "binary", "model"),
    [
        (b'{"order_id":"42","amount":"1"}', False, Payment),
        (b'{"orderId":"42"}', False, Payment),
        (b"\xff", True, Payment),
        (None, False, Payment),
        (b"3.5", False, int),
    ],
)
def test_data_that_does_not_fit_is_an_error_in_the_workflow_live_and_replayed(
    data: bytes | None, binary: bool, model: Any, drive: Drive
) -> None:
    async def body(ctx: WorkflowContext) -> str:
        try:
            await wait_event(ctx, "paid", model=model)
        except PayloadError as error:
            await charge(ctx, 1)
            return str(error)
        return "fits"

    driver = drive(body)
    driver.start()
    assert driver.answer(("paid:1", event_json(Event("e-7", "/shop", "paid", data, binary)))) == ["charge:1"]
    driver.ok("charge:1")
    assert "the data of event 'paid' (/shop, e-7) is not a valid" in driver.result
    assert replay_anew(drive, driver).result == driver.result


def test_a_validator_that_raises_anything_is_an_error_of_the_payload() -> None:
    class Fragile(BaseModel):
        def __init__(self, **fields: Any) -> None:
            raise RuntimeError("no")

    with pytest.raises(PayloadError, match="RuntimeError: no"):
        received_event(event_json(Event("1", "/s", "t", b"{}")), Fragile)


def test_a_message_keeps_its_bytes_and_its_sender() -> None:
    received = received_message(message(b"\x00", binary=True), bytes)
    assert (received.data, received.sender_instance_id, received.metadata) == (b"\x00", "order-7", {"a": [1]})
    assert received_message(message_json(Message("1", "c", b"1"), BEGIN)).sender_instance_id is None
