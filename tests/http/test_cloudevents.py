"""Tests of the parser of CloudEvents: which requests become events, and how others are refused."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from tests.http.asgi_client import BATCH, STRUCTURED, binary, event, structured

from romancy.http import cloudevents, strict_json
from romancy.http.cloudevents import MAX_BATCH, MAX_KEY
from romancy.http.problems import BodyTooLargeError, MalformedEventError, UnsupportedContentTypeError
from romancy.model.messaging import Event


def parse(headers: dict[str, str], body: bytes) -> list[Event]:
    return cloudevents.parse([(name.encode(), value.encode()) for name, value in headers.items()], body)


def one(headers: dict[str, str], body: bytes) -> Event:
    (found,) = parse(headers, body)
    return found


# --- accepted requests


def test_a_structured_event() -> None:
    whole = event(
        subject="order-1",
        time="2026-01-31T12:00:00.5+01:00",
        datacontenttype="application/json",
        dataschema="https://example.com/schema",
        romancyinstanceid="i-1",
        priority=3,
        urgent=True,
    )
    assert one(STRUCTURED, json.dumps(whole).encode()) == Event(
        id="1",
        source="shop",
        type="paid",
        data=b'{"amount":99.99}',
        subject="order-1",
        time="2026-01-31T12:00:00.5+01:00",
        datacontenttype="application/json",
        dataschema="https://example.com/schema",
        extensions={"romancyinstanceid": "i-1", "priority": 3, "urgent": True},
    )


def test_the_target_of_an_event() -> None:
    assert one(STRUCTURED, structured(romancyinstanceid="i-1")).target == "i-1"


def test_null_attributes_are_absent() -> None:
    body = json.dumps({**event(), "subject": None, "priority": None}).encode()
    assert one(STRUCTURED, body) == one(STRUCTURED, structured())


@pytest.mark.parametrize(("data", "stored"), [(None, b"null"), ([1, "ü"], '[1,"ü"]'.encode()), ("", b'""'), (0, b"0")])
def test_any_json_is_data(data: Any, stored: bytes) -> None:
    found = one(STRUCTURED, json.dumps({**event(), "data": data}).encode())
    assert (found.data, found.binary) == (stored, False)


def test_an_event_without_data() -> None:
    assert one(STRUCTURED, structured(data=None)).data is None
    assert one(binary(), b"").data is None
    assert one({**binary(), "content-type": "application/json"}, b"").data is None


def test_base64_data_is_bytes_unless_it_is_json() -> None:
    raw = base64.b64encode(b"\x00\xff").decode()
    assert one(STRUCTURED, structured(data=None, data_base64=raw)).data == b"\x00\xff"
    assert one(STRUCTURED, structured(data=None, data_base64=raw)).binary
    text = base64.b64encode(b'{"a": 1}').decode()
    found = one(STRUCTURED, structured(data=None, data_base64=text, datacontenttype="application/json"))
    assert (found.data, found.binary) == (b'{"a":1}', False)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/vnd.x+json; charset=UTF-8", "text/json", "Application/JSON"]
)
def test_binary_mode_reads_json(content_type: str) -> None:
    found = one({**binary(), "content-type": content_type}, b' { "a" : 1 } ')
    assert (found.data, found.binary, found.datacontenttype) == (b'{"a":1}', False, content_type)


@pytest.mark.parametrize(
    "content_type", ["text/plain; charset=latin-1", "application/octet-stream", "application/jsonlines"]
)
def test_binary_mode_keeps_other_bytes(content_type: str) -> None:
    found = one({**binary(), "content-type": content_type}, b"\xff\x00")
    assert (found.data, found.binary, found.datacontenttype) == (b"\xff\x00", True, content_type)


def test_header_values_are_unquoted_and_percent_decoded_once() -> None:
    headers = binary(subject='"a \\"b\\" %C3%BC %2525"', note="Euro%20%E2%82%AC", plain="ü")
    found = one(headers, b"")
    assert found.subject == 'a "b" ü %25'
    assert found.extensions == {"note": "Euro €", "plain": "ü"}


def test_a_batch() -> None:
    assert [found.id for found in parse(BATCH, json.dumps([event(id="a"), event(id="b")]).encode())] == ["a", "b"]
    assert parse(BATCH, b"[]") == []


@given(
    st.dictionaries(
        st.sampled_from(["subject", "note", "ext1"]),
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"]), min_size=1),
    ),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.booleans() | st.none(), max_size=3),
)
def test_events_of_the_official_sdk_are_accepted_in_both_modes(attributes: dict[str, str], data: dict[str, Any]) -> None:
    attributes = {name: value.strip() or "x" for name, value in attributes.items()}
    sent = CloudEvent(
        {
            "type": "t",
            "source": "/s",
            "id": "i",
            "time": datetime(2026, 1, 31, tzinfo=UTC),
            "datacontenttype": "application/json",
            **attributes,
        },
        data,
    )
    found = [one(message.headers, message.body) for message in (sdk.to_structured_event(sent), sdk.to_binary_event(sent))]
    assert found[0] == found[1]
    assert {**found[0].extensions, **({"subject": found[0].subject} if found[0].subject else {})} == attributes
    assert json.loads(found[0].data or b"") == data


# --- refused requests


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"specversion": None}, "specversion"),
        ({"specversion": "0.3"}, "specversion"),
        ({"specversion": 1.0}, "specversion"),
        ({"id": None}, "id is missing"),
        ({"source": ""}, "source"),
        ({"type": 5}, "type"),
        ({"subject": ""}, "subject"),
        ({"id": "a\x00b"}, "U+0000"),
        ({"source": "a\nb"}, "U+000A"),
        ({"subject": "\ud800"}, "U+D800"),
        ({"id": "x" * (MAX_KEY + 1)}, "longer"),
        ({"time": "yesterday"}, "RFC 3339"),
        ({"time": "2026-02-30T00:00:00Z"}, "RFC 3339"),
        ({"time": "2026-01-31 12:00:00Z"}, "RFC 3339"),
        ({"time": "2026-01-31T12:00:00"}, "RFC 3339"),
        ({"datacontenttype": "json"}, "media type"),
        ({"dataschema": ""}, "dataschema"),
        ({"Upper": "x"}, "not an attribute name"),
        ({"with-dash": "x"}, "not an attribute name"),
        ({"": "x"}, "not an attribute name"),
        ({"ext": 1.5}, "extension ext"),
        ({"ext": [1]}, "extension ext"),
        ({"ext": 2**63}, "extension ext"),
        ({"ext": "a\tb"}, "U+0009"),
        ({"romancyinstanceid": ""}, "romancyinstanceid"),
        ({"romancyinstanceid": 5}, "romancyinstanceid"),
        ({"data_base64": "AA=="}, "not both"),
        ({"data": None, "data_base64": "A"}, "base64"),
        ({"data": None, "data_base64": 5}, "base64"),
        ({"data": None, "data_base64": "ü"}, "base64"),
        ({"data": "\ud800"}, "surrogate"),
        ({"data": {"\udfff": 1}}, "surrogate"),
    ],
)
def test_a_wrong_attribute_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedEventError) as refused:
        parse(STRUCTURED, structured(**changes))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b'"x"', "a string"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"type":"x"}', "specversion"),
        (b'{"id":"1","id":"2"}', "'id' appears twice"),
        (b'{"data":{"a":{"b":1,"b":2}}}', "'b' appears twice"),
        (b'{"data":NaN}', "NaN"),
        (b'{"data":-Infinity}', "-Infinity"),
        (structured().replace(b"99.99", b"1e999"), "too large"),
        (structured().replace(b"99.99", b"9" * 5000), "limit"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\x00"}', "not JSON"),
        (b"{}\x00", "not JSON"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"[" * 100_000, "deeper"),
        (b'{"a":' * 100_000, "deeper"),
    ],
)
def test_a_wrong_body_is_explained(body: bytes, message: str) -> None:
    with pytest.raises(MalformedEventError) as refused:
        parse(STRUCTURED, body)
    assert message in str(refused.value)


def test_nesting_is_counted_outside_of_strings() -> None:
    deep = f'"{"[" * 500}\\"{"{" * 500}"'.encode()
    assert strict_json.read(b"[" * 99 + deep + b"]" * 99)
    with pytest.raises(ValueError, match="deeper"):
        strict_json.read(b"[" * 101 + deep + b"]" * 101)


def test_millions_of_arrays_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python decodes JSON in one call, so a body with very many arrays would block the whole process."""
    most = strict_json.MAX_CONTAINERS - 1
    in_a_text = b'"' + b"[{" * strict_json.MAX_CONTAINERS + b'",'
    assert len(strict_json.read(b"[" + in_a_text + b"[]," * (most - 1) + b"{}]")) == most + 1
    monkeypatch.setattr(strict_json, "_DECODER", None)
    for one in (b"[]", b"{}"):
        with pytest.raises(ValueError, match="arrays and objects"):
            strict_json.read(b"[" + (one + b",") * most + one + b"]")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("rest", [b'\\"', b"\\", b'"', b'\\\\"', b'"\\'])
def test_how_long_reading_takes_grows_with_the_text_alone(rest: bytes) -> None:
    """An unterminated string full of quotes: the check would take hours if it started again at each quote."""
    with pytest.raises(ValueError):
        strict_json.read(b"[" * 101 + b'"' + rest * 2_000_000)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"ce-specversion": "1.0"}, "id is missing"),
        (binary(specversion="2.0"), "specversion"),
        (binary(subject="100%"), "%25"),
        (binary(subject="%zz"), "%25"),
        (binary(subject="%ff"), "not UTF-8"),
        (binary(subject="%00"), "U+0000"),
        (binary(subject=""), "subject"),
        (binary(datacontenttype="text/plain"), "Content-Type"),
        (binary(data="x"), "body"),
        (binary(**{"my-ext": "x"}), "not an attribute name"),
        ({**binary(), "content-type": "nonsense"}, "media type"),
    ],
)
def test_wrong_headers_are_explained(headers: dict[str, str], message: str) -> None:
    with pytest.raises(MalformedEventError) as refused:
        parse(headers, b"x")
    assert message in str(refused.value)


def test_a_header_that_stands_twice() -> None:
    pairs = [(name.encode(), value.encode()) for name, value in binary().items()]
    with pytest.raises(MalformedEventError, match="ce-id appears twice"):
        cloudevents.parse([*pairs, (b"CE-ID", b"2")], b"")
    with pytest.raises(MalformedEventError, match="Content-Type appears twice"):
        cloudevents.parse([*pairs, (b"content-type", b"a/b"), (b"Content-Type", b"c/d")], b"")


def test_broken_json_in_binary_mode() -> None:
    with pytest.raises(MalformedEventError, match="data cannot be read"):
        parse({**binary(), "content-type": "application/json"}, b"{")


def test_one_bad_event_spoils_the_batch() -> None:
    with pytest.raises(MalformedEventError, match="Event 2 of the batch: The attribute id"):
        parse(BATCH, json.dumps([event(), event(id=None)]).encode())
    with pytest.raises(MalformedEventError, match="array"):
        parse(BATCH, structured())
    with pytest.raises(BodyTooLargeError, match="split it"):
        parse(BATCH, json.dumps([event()] * (MAX_BATCH + 1)).encode())


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "text/json"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/cloudevents+xml"},
        {"content-type": "application/cloudevents-batch+avro"},
        {"content-type": "application/cloudevents+json; charset=utf-16"},
        {"content-type": 'application/cloudevents-batch+json; Charset="latin-1"'},
        {**binary(), "content-type": "application/json; charset=iso-8859-1"},
    ],
)
def test_an_unknown_content_type_or_charset(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedContentTypeError):
        parse(headers, structured())


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=UTF-8"])
def test_plain_json_with_a_specversion_is_an_event(content_type: str) -> None:
    assert one({"content-type": content_type}, structured()) == one(STRUCTURED, structured())
    with pytest.raises(MalformedEventError, match="source is missing"):
        parse({"content-type": content_type}, structured(source=None))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"specversion"', b'{"amount": 99.99}', b'[{"specversion": "1.0"}]'])
def test_json_without_an_event_is_refused_with_advice(body: bytes) -> None:
    with pytest.raises(UnsupportedContentTypeError, match=r"application/cloudevents\+json"):
        parse({"content-type": "application/json"}, body)
