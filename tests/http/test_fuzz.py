"""Fuzz tests of the HTTP interface: thousands of broken requests cause no 500 or hang and store only accepted events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import databases
from tests.http.asgi_client import STRUCTURED, Answer, Recorder, binary, call, event, serve, structured
from tests.property.hypothesis_settings import examples, unhurried

from romancy import App, WorkflowContext, workflow
from romancy.http.types import Message
from romancy.model.messaging import AcceptedEvent, Event

Pairs = list[tuple[str, str]]
KNOWN = {202, 200, 400, 401, 403, 404, 405, 408, 409, 413, 415}
AT_ONCE = 50


@workflow(event_handler=True)
async def paid(ctx: WorkflowContext, /, **data: object) -> None:
    """Do nothing: every accepted event starts an instance."""


@dataclass
class Request:
    """A request to send."""

    method: str
    path: str
    headers: Pairs
    body: list[Message]


class StoreRecorder:
    """An app, and a record of the events that it has stored."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.answers = 0
        self.stored: set[tuple[str, str]] = set()

    async def accept_events(self, events: Any, /) -> list[AcceptedEvent]:
        accepted: list[AcceptedEvent] = await self._app.accept_events(events)
        self.answers += 1
        self.stored |= {(one.source, one.id) for one in accepted}
        return accepted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


# --- valid requests, damaged


def valid_request(rng: random.Random, number: int) -> tuple[Pairs, bytes]:
    """The headers and the body of a request that would be accepted."""
    whole = event(id=f"{number}-{rng.random()}", subject="s", time="2026-01-31T12:00:00Z", ext=5)
    match rng.randrange(3):
        case 0:
            return [("content-type", "application/cloudevents+json")], json.dumps(whole).encode()
        case 1:
            return [("content-type", "application/cloudevents-batch+json")], json.dumps(
                [whole, {**whole, "id": "b"}]
            ).encode()
        case _:
            return [("content-type", "application/json"), *binary(id=whole["id"]).items()], b'{"a": [1, 2.5, "x", null]}'


PIECES = [
    b"{",
    b"[" * 200,
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"\x00",
    b"\xff",
    b"NaN",
    b"1e999",
    b",",
    b'"id":"1",',
    b"\xef\xbb\xbf",
    b"null",
]
NAMES = [
    "ce-id",
    "ce-x",
    "ce-data",
    "ce-",
    "content-type",
    "content-length",
    "ce-Type",
    "authorization",
    "host",
    "origin",
    "cé",
]
VALUES = [
    "",
    "%",
    "%00",
    "%ff",
    "%C3%BC",
    '"',
    '"a\\',
    "1.0",
    "application/json;charset=utf-16",
    "application/cloudevents",
    "-1",
    "9" * 30,
    "\xff",
]


def break_body(rng: random.Random, body: bytes) -> bytes:
    """Cut a body, double it, or insert or replace some bytes."""
    at = rng.randrange(len(body) + 1)
    match rng.randrange(4):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + rng.choice(PIECES) + body[at:]
        case 2:
            return body[:at] + rng.randbytes(1) + body[at + 1 :]
        case _:
            return body[at:] + body


def break_headers(rng: random.Random, headers: Pairs) -> Pairs:
    """Remove a header, add one, or change the value of one."""
    at = rng.randrange(len(headers))
    match rng.randrange(3):
        case 0:
            return headers[:at] + headers[at + 1 :]
        case 1:
            return [*headers, (rng.choice(NAMES), rng.choice(VALUES))]
        case _:
            return [*headers[:at], (headers[at][0], rng.choice(VALUES)), *headers[at + 1 :]]


def in_parts(rng: random.Random, body: bytes) -> list[Message]:
    """A body in two parts; one client in twenty disconnects after the first."""
    at = rng.randrange(len(body) + 1)
    parts: list[Message] = [
        {"type": "http.request", "body": body[:at], "more_body": True},
        {"type": "http.request", "body": body[at:], "more_body": False},
    ]
    return parts if rng.random() > 0.05 else [parts[0], {"type": "http.disconnect"}]


def request_of(rng: random.Random, number: int) -> Request:
    """A request with up to three damages."""
    headers, body = valid_request(rng, number)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        if rng.random() < 0.5:
            body = break_body(rng, body)
        elif headers:
            headers = break_headers(rng, headers)
    path = rng.choice(["/", "/events", "/events", "/cancel/x", "/cancel/\ud800/\n", "/nowhere", "/health/ready/"])
    return Request(rng.choice(["POST"] * 9 + ["GET"]), path, headers, in_parts(rng, body))


# --- generated requests


@st.composite
def generated_request(draw: Callable[[Any], Any]) -> Request:
    """A request with generated headers and a generated body."""
    attributes = st.sampled_from(
        ["specversion", "id", "source", "type", "time", "subject", "data", "data_base64", "ext", "datacontenttype"]
    )
    values = (
        st.sampled_from(["1.0", "x", "application/json"]) | st.text() | st.integers() | st.none() | st.lists(st.floats())
    )
    bodies = st.binary() | st.dictionaries(attributes, values).map(
        lambda one: json.dumps(one).encode("utf-8", "surrogatepass")
    )
    names = st.sampled_from(["content-type", "ce-id", "ce-specversion", "ce-type", "ce-source", "content-length", "ce-x"])
    types = st.sampled_from(
        ["application/cloudevents+json", "application/json", "application/cloudevents-batch+json", "1.0"]
    )
    headers = st.lists(st.tuples(names, types | st.text(st.characters(max_codepoint=255))), max_size=6)
    path = st.sampled_from(["/", "/events"]) | st.text().map(lambda text: f"/cancel/{text}") | st.text()
    return Request("POST", draw(path), draw(headers), [{"type": "http.request", "body": draw(bodies)}])


# --- checks


@contextmanager
def running(service: Any) -> Iterator[tuple[asyncio.Runner, Any]]:
    """An event loop, and the HTTP interface of a service on it."""
    with asyncio.Runner() as runner:
        yield runner, serve(service, max_body_size=100_000)
        runner.run(service.shutdown())


async def send(app: Any, request: Request) -> Answer:
    async with asyncio.timeout(60):
        return await call(app, request.path, request.body, request.method, headers=request.headers)


def check(request: Request, answer: Answer) -> None:
    """Check that a response has an expected status and is JSON; a client that disconnected gets none."""
    if answer.status == 0:
        assert request.body[-1]["type"] == "http.disconnect"
        return
    assert answer.status in KNOWN, (request, answer)
    body = answer.json
    assert "status" in body if answer.status < 300 else body["retryable"] is (answer.status == 408), (request, answer)


@pytest.mark.parametrize("name", ["type", "source", "id", "subject"])
def test_a_name_too_long_for_the_database_is_refused(database: str, name: str) -> None:
    """The response is not retryable, because a sender would repeat the event forever."""
    with running(App(database, workflows=[paid])) as (runner, app):
        answer = runner.run(call(app, "/", structured(**{name: "é" * 511}), headers=STRUCTURED))
    if database.startswith("mysql"):
        assert (answer.status, answer.json["error_type"]) == (400, "RefusedDataError")
        assert answer.json["retryable"] is False
    else:
        assert answer.status == 202


@pytest.mark.slow
def test_broken_requests_to_a_real_app(database: str) -> None:
    """Fifty requests at a time; at the end the database holds exactly the accepted events."""
    recorder = StoreRecorder(App(database, workflows=[paid]))
    acknowledged = 0
    with running(recorder) as (runner, app):

        @unhurried(examples(300))
        @given(st.integers(0, 2**64))
        def check_seed(seed: int) -> None:
            nonlocal acknowledged
            rng = random.Random(seed)
            requests = [request_of(rng, number) for number in range(AT_ONCE)]

            async def all_of_them() -> list[Answer]:
                return await asyncio.gather(*(send(app, one) for one in requests))

            for request, answer in zip(requests, runner.run(all_of_them()), strict=True):
                check(request, answer)
                acknowledged += answer.status == 202
            assert recorder.answers == acknowledged  # an empty batch, which stores nothing, is never among them

        check_seed()
    assert acknowledged > 3 * examples(300)
    assert set(databases.execute(database, "SELECT source, id FROM romancy_events")) == recorder.stored


def test_generated_requests() -> None:
    service = Recorder()
    with running(service) as (runner, app):

        @unhurried(examples(1500))
        @given(generated_request())
        def asking(request: Request) -> None:
            before = len(service.stored)
            answer = runner.run(send(app, request))
            check(request, answer)
            assert (len(service.stored) > before) == (answer.status == 202 and _is_no_empty_batch(request))

        asking()


def _is_no_empty_batch(request: Request) -> bool:
    return bytes(request.body[0]["body"]).strip() != b"[]"


def is_stored_as(found: Event, sent: dict[str, Any]) -> bool:
    """Whether a stored event equals the event that was sent."""
    same = (found.id, found.source, found.type, found.subject) == (
        sent["id"],
        sent["source"],
        sent["type"],
        sent.get("subject"),
    )
    return same and json.loads(found.data or b"null") == sent.get("data")


text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"]), min_size=1, max_size=50)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_good_events_are_stored_as_they_were_sent() -> None:
    service = Recorder()
    with running(service) as (runner, app):

        @unhurried(examples(500))
        @given(text, text, text, json_values)
        def sending(id: str, source: str, kind: str, data: Any) -> None:
            sent = event(id=id, source=source, type=kind) | {"data": data}
            body: list[Message] = [{"type": "http.request", "body": json.dumps(sent).encode()}]
            headers = [("content-type", "application/cloudevents+json")]
            assert runner.run(send(app, Request("POST", "/", headers, body))).status == 202
            assert is_stored_as(service.stored[-1], sent)

        sending()
