"""Tests of the responses of the HTTP interface, and of the lifespan of the app behind it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.http.asgi_client import BATCH, STRUCTURED, Recorder, binary, call, event, lifespan, scope_of, serve, structured

from romancy.auth import Token
from romancy.clock import SystemClock
from romancy.errors import ConfigurationError, InvalidWorkflowStateError, PayloadError, RefusedDataError, StoreError
from romancy.http.body import FREE, Bodies
from romancy.http.lazy_gateway import open_http
from romancy.http.problems import UnavailableError
from romancy.http.types import HTTPSettings, Message, Receive
from romancy.model.messaging import AcceptedEvent, Event

# --- events


@pytest.mark.parametrize("path", ["/", "/events", "/events/", ""])
async def test_an_event_is_accepted_once_it_is_stored(path: str) -> None:
    service = Recorder()
    answer = await call(serve(service), path, structured(), headers=STRUCTURED)
    assert (answer.status, answer.json) == (202, {"status": "accepted", "instance_ids": ["a", "b"]})
    assert [one.id for one in service.stored] == ["1"]


async def test_binary_and_batch() -> None:
    service = Recorder()
    assert (await call(serve(service), "/", b"x", headers=binary())).status == 202
    answer = await call(serve(service), "/", json.dumps([event(), event(id="2")]).encode(), headers=BATCH)
    assert (answer.status, answer.json["instance_ids"]) == (202, ["a", "b"])
    assert (await call(serve(service), "/", b"[]", headers=BATCH)).json["instance_ids"] == []
    assert len(service.stored) == 3


async def test_a_duplicate_is_reported() -> None:
    class Known(Recorder):
        async def accept_events(self, events: Sequence[Event], /) -> list[AcceptedEvent]:
            return [AcceptedEvent(one.id, one.source, one.id == "1", ()) for one in events]

    app = serve(Known())
    answer = await call(app, "/", structured(), headers=STRUCTURED)
    assert (answer.status, answer.json) == (202, {"status": "accepted", "instance_ids": [], "duplicate": True})
    answer = await call(app, "/", json.dumps([event(), event(id="2")]).encode(), headers=BATCH)
    assert answer.json == {"status": "accepted", "instance_ids": []}, "one of them is new"


async def test_not_before_it_is_stored() -> None:
    gate = asyncio.Event()

    class Slow(Recorder):
        async def accept_events(self, events: Sequence[Event], /) -> list[AcceptedEvent]:
            await gate.wait()
            return await super().accept_events(events)

    asking = asyncio.create_task(call(serve(Slow()), "/", structured(), headers=STRUCTURED))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asking.done()
    gate.set()
    assert (await asking).status == 202


@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        (STRUCTURED, b"{", 400, "MalformedEventError"),
        ({"content-type": "application/json"}, b'{"amount": 99.99}', 415, "UnsupportedContentTypeError"),
        ({"content-type": "application/json"}, structured(source=""), 400, "MalformedEventError"),
        ({}, b"", 415, "UnsupportedContentTypeError"),
    ],
)
async def test_a_refusal_says_why(headers: dict[str, str], body: bytes, status: int, kind: str) -> None:
    answer = await call(serve(Recorder()), "/", body, headers=headers)
    assert answer.status == status
    assert answer.json["error_type"] == kind
    assert answer.json["retryable"] is False
    assert answer.json["error"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidWorkflowStateError("This App is not running."), 503),
        (PayloadError("The event is too large for MySQL."), 400),
    ],
)
async def test_errors_of_the_app(error: Exception, status: int) -> None:
    answer = await call(serve(Recorder(error=error)), "/", structured(), headers=STRUCTURED)
    assert answer.status == status
    assert answer.json == {"error": str(error), "error_type": type(error).__name__, "retryable": status == 503}
    assert ("retry-after" in answer.headers) == (status == 503)


@pytest.mark.parametrize("error", [StoreError("postgresql://ada@db.internal/shop"), ConfigurationError("/srv/shop.db")])
async def test_what_the_database_says_is_not_for_everybody(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The message may name hosts, users and paths: it is logged, and sent only to callers that may read."""
    tokens = [Token("e" * 20, role="events"), Token("a" * 20)]
    shown = await call(serve(Recorder(error=error)), "/", structured(), headers=STRUCTURED)
    sender = {**STRUCTURED, "authorization": f"Bearer {'e' * 20}"}
    same = await call(serve(Recorder(error=error), tokens), "/", structured(), headers=sender)
    assert shown.json == same.json
    assert (shown.status, shown.json["error_type"], shown.json["retryable"]) == (503, type(error).__name__, True)
    assert str(error) not in shown.json["error"]
    assert caplog.text.count(str(error)) == 2
    admin = {**STRUCTURED, "authorization": f"Bearer {'a' * 20}"}
    detailed = await call(serve(Recorder(error=error), tokens), "/", structured(), headers=admin)
    assert detailed.json["error"] == str(error)


async def test_data_that_the_database_refuses_is_an_error_of_the_sender() -> None:
    """The response is not retryable, because a sender would repeat the event forever."""
    error = RefusedDataError("The database db.internal cannot store event 'order.paid'.")
    shown = await call(serve(Recorder(error=error)), "/", structured(), headers=STRUCTURED)
    assert (shown.status, shown.json["error_type"], shown.json["retryable"]) == (400, "RefusedDataError", False)
    assert "db.internal" not in shown.json["error"]
    admin = {**STRUCTURED, "authorization": f"Bearer {'a' * 20}"}
    detailed = await call(serve(Recorder(error=error), [Token("a" * 20)]), "/", structured(), headers=admin)
    assert (detailed.status, detailed.json["error"], detailed.json["retryable"]) == (400, str(error), False)


async def test_a_fault_of_ours_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    answer = await call(serve(Recorder(error=ZeroDivisionError("secret"))), "/", structured(), headers=STRUCTURED)
    assert (answer.status, answer.json["retryable"]) == (500, True)
    assert "secret" not in answer.json["error"]
    assert "secret" in caplog.text


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/", "/events", "/cancel/one", "/health/live", "/health/ready", "/metrics", "/nowhere"])
async def test_every_response_restricts_browsers(method: str, path: str) -> None:
    answer = await call(serve(Recorder()), path, structured(), method, headers=STRUCTURED)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


# --- address and headers


@pytest.mark.parametrize(
    "more",
    [
        {"headers": [("x-a", "1")] * 501},
        {"headers": [("x-a", "1" * 70_000)]},
        {"headers": [("x" * 70_000, "1")]},
        {"query_string": b"a" * 70_000},
    ],
)
async def test_headers_that_are_too_large(more: dict[str, Any]) -> None:
    """Not every server limits the size of the headers."""
    service = Recorder()
    answer = await call(serve(service), "/events", structured(), **more)
    assert (answer.status, answer.json["error_type"]) == (431, "HeadTooLargeError")
    assert service.starts == 0


async def test_a_path_that_is_too_long() -> None:
    assert (await call(serve(Recorder()), "/cancel/" + "a" * 70_000)).status == 431


# --- bodies


def parts(*sizes: int, more: bool = False) -> list[Message]:
    return [
        {"type": "http.request", "body": b" " * size, "more_body": more or number < len(sizes)}
        for number, size in enumerate(sizes, 1)
    ]


@pytest.mark.parametrize("body", [parts(11), parts(5, 6), parts(5, 5, 1, more=True)])
async def test_a_body_that_is_too_large(body: list[Message]) -> None:
    answer = await call(serve(Recorder(), max_body_size=10), "/", body, headers=STRUCTURED)
    assert (answer.status, answer.json["error_type"]) == (413, "BodyTooLargeError")
    assert "max_body_size" in answer.json["error"]


@pytest.mark.parametrize("announced", ["11", "9" * 5000])
async def test_a_body_announced_as_too_large_is_refused_at_once(announced: str) -> None:
    headers = {**STRUCTURED, "content-length": announced}
    assert (await call(serve(Recorder(), max_body_size=10), "/", [], headers=headers)).status == 413


async def test_the_largest_body() -> None:
    body = structured()
    service = Recorder()
    assert (await call(serve(service, max_body_size=len(body)), "/", body, headers=STRUCTURED)).status == 202


async def test_a_large_body_is_parsed_beside_the_loop() -> None:
    service = Recorder()
    assert (await call(serve(service), "/", structured(data="x" * 200_000), headers=STRUCTURED)).status == 202
    assert len(service.stored[0].data or b"") == 200_002


async def test_a_body_that_does_not_arrive() -> None:
    service = Recorder()
    answer = await call(serve(service, request_timeout=0.01), "/", parts(1, more=True), headers=STRUCTURED)
    assert (answer.status, answer.json["error_type"]) == (408, "RequestTimeoutError")
    assert answer.headers["connection"] == "close"
    assert service.stored == []


async def test_a_client_that_goes_away() -> None:
    service = Recorder()
    half: list[Message] = [{"type": "http.request", "body": structured(), "more_body": True}, {"type": "http.disconnect"}]
    answer = await call(serve(service), "/", half, headers=STRUCTURED)
    assert (answer.status, service.stored) == (0, [])


async def test_all_bodies_together_are_bounded() -> None:
    size = 2 * FREE  # one half of it counts against the limit
    app = serve(Recorder(), max_body_size=size, request_timeout=0.05)
    slow = [asyncio.create_task(call(app, "/", parts(size, more=True), headers=STRUCTURED)) for _ in range(9)]
    answers = [await one for one in slow]
    assert sorted(one.status for one in answers) == [408] * 8 + [503]
    assert (await call(app, "/", parts(100), headers=STRUCTURED)).status == 400  # the memory was released


# --- cancellation


async def test_cancel() -> None:
    service = Recorder()
    answer = await call(serve(service), "/cancel/one", b'{"reason": "changed my mind"}')
    assert (answer.status, answer.json) == (200, {"status": "cancelled", "instance_id": "one"})
    await call(serve(service), "/cancel/two")
    await call(serve(service), "/cancel/three", b'{"reason": null}')
    assert service.cancelled == [("one", "changed my mind"), ("two", None), ("three", None)]


@pytest.mark.parametrize("instance_id", ["a/b", "/a", "a/", "a b", "ü", "a%2Fb", "?", "a\n", "x" * 1024, ".."])
async def test_ids_are_passed_unchanged(instance_id: str) -> None:
    service = Recorder()
    answer = await call(serve(service), f"/cancel/{instance_id}")
    assert (answer.status, service.cancelled) == (200, [(instance_id, None)])


@pytest.mark.parametrize(
    ("instance_id", "status"), [("missing", 404), ("ended", 409), ("", 404), ("\ud800", 404), ("\0", 404)]
)
async def test_what_cannot_be_cancelled(instance_id: str, status: int) -> None:
    answer = await call(serve(Recorder()), f"/cancel/{instance_id}")
    assert answer.status == status
    assert answer.json["retryable"] is False


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"reason": 5}', b'"x"', b"\xff", b'{"reason": "\\ud800"}', b'{"reason": "%s"}' % (b"x" * 5000)]
)
async def test_a_wrong_reason(body: bytes) -> None:
    answer = await call(serve(Recorder()), "/cancel/one", body)
    assert (answer.status, answer.json["error_type"]) == (400, "MalformedRequestError")


# --- health, paths, methods


async def test_health() -> None:
    assert (await call(serve(Recorder()), "/health/live", method="GET")).json == {"status": "alive"}
    assert (await call(serve(Recorder()), "/health/ready", method="GET")).json == {"status": "ready"}
    answer = await call(serve(Recorder(not_ready="claiming has stalled")), "/health/ready", method="GET")
    assert (answer.status, answer.json["error"]) == (503, "claiming has stalled")


async def test_being_alive_does_not_start_the_app() -> None:
    service = Recorder()
    assert (await call(serve(service), "/health/live", method="GET")).status == 200
    assert service.starts == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/nowhere", 404),
        ("GET", "/", 405),
        ("PUT", "/events", 405),
        ("GET", "/cancel/x", 405),
        ("POST", "/health/live", 405),
        ("OPTIONS", "*", 404),
    ],
)
async def test_wrong_paths_and_methods(method: str, path: str, status: int) -> None:
    answer = await call(serve(Recorder()), path, method=method)
    assert answer.status == status
    assert answer.json["retryable"] is False
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("root", "path"), [("/x", "/x/events"), ("/x", "/events"), ("/x/", "/x/events"), ("/x", "/x"), ("/x/y", "/x/y/")]
)
async def test_under_a_root_path(root: str, path: str) -> None:
    """Some servers repeat the root path in the path, others do not."""
    assert (await call(serve(Recorder()), path, structured(), headers=STRUCTURED, root_path=root)).status == 202


async def test_a_root_path_hides_no_guarded_path() -> None:
    answer = await call(serve(Recorder()), "/x/cancel/one", root_path="/x", client=("10.0.0.1", 1))
    assert answer.status == 403


# --- websockets and the lifespan protocol


async def test_a_websocket_is_refused() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await serve(Recorder())({**scope_of("/"), "type": "websocket"}, receive, send)
    assert [one["type"] for one in sent] == ["websocket.close"]


async def test_a_lifespan_starts_and_stops_the_app() -> None:
    service = Recorder()
    app = serve(service)

    async def post() -> None:
        assert (await call(app, "/", structured(), headers=STRUCTURED)).status == 202

    messages = await lifespan(app, post)
    assert [one["type"] for one in messages] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (service.starts, service.stops) == (1, 1)


async def test_after_the_lifespan_the_app_is_not_started_again() -> None:
    service = Recorder()
    app = serve(service)
    await lifespan(app)
    assert (await call(app, "/", structured(), headers=STRUCTURED)).status == 503
    assert service.starts == 1


def test_an_app_may_be_started_twice_on_different_loops() -> None:
    service = Recorder()
    app = serve(service)
    for _ in range(2):
        asyncio.run(lifespan(app, lambda: call(app, "/", structured(), headers=STRUCTURED)))
    assert (service.starts, service.stops, len(service.stored)) == (2, 2, 2)


async def test_a_failed_start_is_reported_to_the_server() -> None:
    class Broken(Recorder):
        async def startup(self) -> None:
            raise StoreError("The file is no database.")

    (messages,) = await lifespan(serve(Broken()))
    assert messages == {"type": "lifespan.startup.failed", "message": "StoreError: The file is no database."}


async def test_a_failed_stop_is_reported_to_the_server() -> None:
    class Broken(Recorder):
        async def shutdown(self) -> None:
            raise RuntimeError("stuck")

    messages = await lifespan(serve(Broken()))
    assert messages[-1]["type"] == "lifespan.shutdown.failed"


async def test_without_a_lifespan_the_first_request_starts_the_app_once() -> None:
    service = Recorder()
    app = serve(service)
    answers = await asyncio.gather(*(call(app, "/", structured(id=str(n)), headers=STRUCTURED) for n in range(20)))
    assert {one.status for one in answers} == {202}
    assert service.starts == 1


async def test_a_failed_start_is_repeated_by_the_next_request() -> None:
    class Late(Recorder):
        async def startup(self) -> None:
            await super().startup()
            if self.starts == 1:
                raise StoreError("Not yet.")

    service = Late()
    app = serve(service)
    first = await asyncio.gather(*(call(app, "/", structured(), headers=STRUCTURED) for _ in range(3)))
    assert {one.status for one in first} == {503}
    assert (await call(app, "/", structured(), headers=STRUCTURED)).status == 202


async def test_a_cancelled_request_does_not_stop_the_start() -> None:
    gate = asyncio.Event()

    class Slow(Recorder):
        async def startup(self) -> None:
            await gate.wait()
            await super().startup()

    service = Slow()
    app = serve(service)
    first = asyncio.create_task(call(app, "/", structured(), headers=STRUCTURED))
    second = asyncio.create_task(call(app, "/", structured(), headers=STRUCTURED))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    assert (await second).status == 202
    assert service.starts == 1


def test_a_request_on_another_loop_is_refused() -> None:
    app = serve(Recorder())
    asyncio.run(call(app, "/", structured(), headers=STRUCTURED))
    answer = asyncio.run(call(app, "/", structured(), headers=STRUCTURED))
    assert answer.status == 503
    assert "another event loop" in answer.json["error"]


async def test_a_request_that_the_server_cancels_gets_a_response() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        await serve(Recorder())(scope_of("/", headers=STRUCTURED), asyncio.Queue[Message]().get, send)

    waiting = asyncio.create_task(ask())
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sent[0]["status"] == 503


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one == "romancy.http.gateway"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.exceptions", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[http\]'"):
        open_http(Recorder(), HTTPSettings(), SystemClock())


async def test_only_large_bodies_count_against_the_memory_limit() -> None:
    limit = 4 * 200_000
    bodies = Bodies(200_000, 30.0)
    async with AsyncExitStack() as held:
        for size, admitted in ((65_536, 100), (200_000, limit // (200_000 - 65_536)), (65_536, 100)):
            for _ in range(admitted):
                await held.enter_async_context(bodies.read({}, receive_of(size)))
        with pytest.raises(UnavailableError, match="too many large requests"):
            await held.enter_async_context(bodies.read({}, receive_of(200_000)))
    assert bodies._room == limit, "all memory was released"


def receive_of(size: int) -> Receive:
    """A body of a size, in parts of 1000 bytes."""
    parts = [b"x" * 1000] * (size // 1000) + [b"x" * (size % 1000)]
    messages = iter(
        [{"type": "http.request", "body": part, "more_body": True} for part in parts] + [{"type": "http.request"}]
    )

    async def receive() -> Message:
        return next(messages)

    return receive
