"""HTTPBroker against a server with real sockets that is slow, refuses, and breaks off."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.outbox.fake_broker import SOON
from tests.outbox.receiver import Drop, Hang, ReceivedRequest, Receiver, Reply, Respond

from romancy import App, BrokerError, ConfigurationError, EventRejectedError, HTTPBroker
from romancy.brokers import Event
from romancy.http.cloudevents import parse

EVENT = Event(
    "e-1",
    "/shop",
    "order.paid",
    data=b'{"n":1.5,"s":"\xc3\xa9"}',
    subject='caf\u00e9 "42" 100%',
    time="2026-01-31T12:00:00Z",
    datacontenttype="application/json",
    dataschema="https://example/schema",
    extensions={"trace": "a b", "count": 7, "flag": True},
)
BYTES = Event("e-2", "/shop", "photo", data=bytes(range(256)), binary=True, datacontenttype="image/png")
EMPTY = Event("e-3", "/shop", "nothing")


@asynccontextmanager
async def started(url: str, **more: Any) -> AsyncIterator[HTTPBroker]:
    broker = HTTPBroker(url, **more)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


async def sent(reply: Reply, **more: Any) -> Receiver:
    """Send an event to a server with this reply."""
    with Receiver(lambda request, nth: reply) as receiver:
        async with started(receiver.url, **more) as broker:
            await broker.send(EVENT)
    return receiver


def read(request: ReceivedRequest) -> Event:
    """The event in a request, as romancy's own HTTP interface parses it."""
    (event,) = parse([(name.encode(), value.encode("latin-1")) for name, value in request.headers.items()], request.body)
    return event


# --- requests


@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize("event", [EVENT, BYTES, EMPTY], ids=["json", "bytes", "no data"])
async def test_what_is_sent_is_what_was_said(mode: Any, event: Event) -> None:
    with Receiver() as receiver:
        async with started(receiver.url, mode=mode) as broker:
            await broker.send(event)
    request = read(receiver.requests[0])
    extensions = {name: str(value).lower() for name, value in event.extensions.items()}
    expected = event.extensions if mode == "structured" else extensions
    assert (request.id, request.source, request.type, request.subject, request.time) == (
        event.id, event.source, event.type, event.subject, event.time
    )  # fmt: skip
    assert (request.data, request.binary, request.datacontenttype) == (event.data, event.binary, event.datacontenttype)
    assert (request.dataschema, request.extensions) == (event.dataschema, expected)


async def test_structured_is_one_document_and_binary_is_headers_and_data() -> None:
    with Receiver() as receiver:
        async with started(receiver.url) as one, started(receiver.url, mode="binary") as two:
            await one.send(EVENT)
            await two.send(EVENT)
    structured, binary = receiver.requests
    assert structured.headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
    assert json.loads(structured.body)["data"] == {"n": 1.5, "s": "é"}
    assert binary.body == EVENT.data
    assert binary.headers["content-type"] == "application/json"
    assert binary.headers["ce-subject"] == "caf%C3%A9%20%2242%22%20100%25"
    assert binary.headers["ce-flag"] == "true"


async def test_the_address_and_the_headers_are_as_given() -> None:
    with Receiver() as receiver:
        url = f"http://me:p%40ss@127.0.0.1:{receiver.port}/a%20b?key=1"
        async with started(url, headers={"X-Shop": "eu"}) as broker:
            await broker.send(EVENT)
    (request,) = receiver.requests
    assert (request.path, request.headers["x-shop"]) == ("/a%20b?key=1", "eu")
    assert request.headers["authorization"] == "Basic bWU6cEBzcw=="


async def test_a_large_event_arrives_whole() -> None:
    large = Event("e-1", "/shop", "film", data=bytes(10_000_000), binary=True)
    with Receiver() as receiver:
        async with started(receiver.url, mode="binary") as broker:
            await broker.send(large)
    assert receiver.requests[0].body == large.data


async def test_a_connection_is_used_again_and_a_closed_one_replaced() -> None:
    with Receiver() as receiver:
        async with started(receiver.url) as broker:
            await broker.send(EVENT)
            await broker.send(BYTES)
            receiver._server.close_connections()  # as a server does with idle connections
            await broker.send(EMPTY)
    first, second, third = (request.connection for request in receiver.requests)
    assert first == second != third


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    with Receiver(lambda request, nth: Respond(200, body=bytes(1_000_000))) as receiver:
        async with started(receiver.url) as broker:
            await broker.send(EVENT)
            await broker.send(BYTES)
    first, second = (request.connection for request in receiver.requests)
    assert first != second


# --- responses


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_it_is_delivered(status: int) -> None:
    assert (await sent(Respond(status))).times == {"e-1": 1}


@pytest.mark.parametrize("status", [400, 405, 409, 410, 413, 415, 422])
async def test_it_is_rejected_for_good(status: int) -> None:
    with pytest.raises(EventRejectedError, match=f"answered {status} .*: it says why"):
        await sent(Respond(status, body=b"it says\r\nwhy"))


@pytest.mark.parametrize("status", [401, 403, 404, 407, 408, 425, 429, 500, 502, 503, 504])
async def test_it_may_work_later(status: int) -> None:
    with pytest.raises(BrokerError, match=f"answered {status}") as raised:
        await sent(Respond(status))
    assert not isinstance(raised.value, EventRejectedError)
    assert raised.value.retry_after is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    with Receiver() as other:
        with pytest.raises(BrokerError, match=r"redirects are not followed. This one leads to http://127.*/in") as raised:
            await sent(Respond(status, {"Location": other.url}))
        assert not isinstance(raised.value, EventRejectedError)
    assert other.requests == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Sat, 31 Jan 2026 12:00:30 GMT", "Date": "Sat, 31 Jan 2026 12:00:00 GMT"}, 30.0),
        ({"Retry-After": "Sat, 31 Jan 1970 12:00:30 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": ""}, None),
    ],
)
async def test_it_says_when(headers: dict[str, str], seconds: float | None) -> None:
    with pytest.raises(BrokerError) as raised:
        await sent_bare(503, headers)
    assert raised.value.retry_after == seconds


async def sent_bare(status: int, headers: dict[str, str]) -> None:
    """Send an event to a server that responds with no other headers."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    await sent(Drop(f"HTTP/1.1 {status} No\r\n{lines}Content-Length: 0\r\n\r\n".encode()))


# --- no response


@pytest.mark.parametrize(
    "reply",
    [
        Drop(),
        Drop(b"HTTP/1.1 20"),
        Drop(b"this is no HTTP\r\n\r\n"),
        Hang(),
        Hang(b"x"),
    ],
    ids=["nothing", "half a line", "nonsense", "silence", "drip"],
)
async def test_who_does_not_answer_gets_it_again(reply: Reply) -> None:
    with pytest.raises(BrokerError) as raised:
        await sent(reply, timeout=0.5)
    assert not isinstance(raised.value, EventRejectedError)


@pytest.mark.parametrize("rest", [b"", b"\r\nContent-Le", b"\r\nContent-Length: 10\r\n\r\nhalf"])
async def test_who_dies_after_having_said_yes_has_said_yes(rest: bytes) -> None:
    with Receiver(lambda request, nth: Drop(b"HTTP/1.1 200 OK" + rest)) as receiver:
        async with started(receiver.url) as broker:
            await broker.send(EVENT)
            await broker.send(BYTES)
    assert receiver.times == {"e-1": 1, "e-2": 1}


async def test_no_server() -> None:
    async with started(f"http://127.0.0.1:{servers.free_port()}/") as broker:
        with pytest.raises(BrokerError, match="ConnectionRefusedError"):
            await broker.send(EVENT)


async def test_no_such_host() -> None:
    async with started("http://no-such-host.invalid/") as broker:
        with pytest.raises(BrokerError, match="gaierror"):
            await broker.send(EVENT)


async def test_closing_cuts_what_is_under_way() -> None:
    with Receiver(lambda request, nth: Hang()) as receiver:
        broker = HTTPBroker(receiver.url, timeout=60)
        await broker.start()
        sending = asyncio.create_task(broker.send(EVENT))
        await receiver.until(lambda times: times["e-1"] == 1)
        await broker.close()
        with pytest.raises(BrokerError):
            await sending


async def test_a_broker_that_is_not_started_says_so() -> None:
    with pytest.raises(BrokerError, match="not started"):
        await HTTPBroker("http://x/").send(EVENT)


# --- TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl here to make a certificate with")
    made = tmp_path / "server.pem"
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", made, "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    with made.open("ab") as file:
        file.write((tmp_path / "cert.pem").read_bytes())
    return made


async def test_over_tls_the_server_must_be_who_it_says(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Receiver(tls=context) as receiver:
        async with started(receiver.url) as broker:
            with pytest.raises(BrokerError, match="CERTIFICATE_VERIFY_FAILED"):
                await broker.send(EVENT)
        assert receiver.requests == []
        trusting_context = ssl.create_default_context(cafile=str(certificate))
        async with started(receiver.url, ssl_context=trusting_context) as broker:
            await broker.send(EVENT)
            await broker.send(BYTES)
    assert receiver.times == {"e-1": 1, "e-2": 1}


# --- secrets


async def test_no_secret_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """This holds even if the server repeats the request in its response."""

    def echo(request: ReceivedRequest, nth: int) -> Reply:
        return Respond(
            400 if nth == 1 else 302, {"Location": request.path}, f"{request.path} {dict(request.headers)}".encode()
        )

    with Receiver(echo) as receiver:
        url = f"http://me:s3cret@127.0.0.1:{receiver.port}/in?key=t0ken"
        async with started(url, headers={"X-Key": "Bearer hush"}) as broker:
            shown = repr(broker)
            for _ in range(2):
                with pytest.raises(BrokerError) as raised:
                    await broker.send(EVENT)
                shown += str(raised.value) + repr(raised.value.__cause__)
        async with started(f"http://me:s3cret@127.0.0.1:{servers.free_port()}/in?key=t0ken") as broker:
            with pytest.raises(BrokerError) as raised:
                await broker.send(EVENT)
            shown += str(raised.value)
    for secret in ("s3cret", "t0ken", "hush", "bWU6czNjcmV0"):
        assert secret not in shown + caplog.text
    assert "/in" in shown


@pytest.mark.parametrize(
    "url", ["", "ftp://me:s3cret@h/", "http://", "http://me:s3cret@h:99999/", "http://h/s3cret x", "s3cret", 5, None]
)
def test_a_wrong_address_is_told_without_it(url: Any) -> None:
    with pytest.raises(ConfigurationError, match="the address is wrong") as raised:
        HTTPBroker(url)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"mode": "batch"}, "mode"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": {"a": "c\r\nx: y"}}, "headers"),
    ],
)
def test_a_wrong_option_is_told(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        HTTPBroker("http://h/", **wrong)


# --- with an app


async def test_from_the_app_to_the_server_and_back_to_the_dead(database: str) -> None:
    def answer(request: ReceivedRequest, nth: int) -> Reply:
        if request.id == "gone":
            return Respond(410)
        replies: list[Reply] = [Drop(), Respond(503), Respond(429, {"Retry-After": "0"}), Respond(202)]
        return replies[min(nth, 4) - 1]

    with Receiver(answer) as receiver:
        async with App(database, workflows=[], broker=HTTPBroker(receiver.url, retry=SOON)) as app:
            await app.send_event("told", "/shop", {"n": 1}, event_id="e-1")
            await app.send_event("told", "/shop", {"n": 2}, event_id="gone")
            await receiver.until(lambda times: times["e-1"] == 4 and times["gone"] == 1)
            while len((await app.list_outbox()).items) != 1:
                await asyncio.sleep(0.005)
            (dead,) = (await app.list_outbox(dead=True)).items
    assert (dead.event.id, dead.attempts) == ("gone", 1)
    assert "answered 410 Gone" in str(dead.last_error)
    assert len({request.body for request in receiver.requests if request.id == "e-1"}) == 1, "each attempt has the same body"
