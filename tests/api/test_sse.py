"""Tests of server-sent events: one query for all watching clients, and the end of every stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.api.fake_manager import HOST, QUICK, FakeManager, ProgressSource, get, serve
from tests.http.asgi_client import scope_of

from romancy.api.watcher import Watcher, WatchSettings
from romancy.errors import StoreError
from romancy.http.types import ASGIApp, Message
from romancy.model.instance import InstanceProgress
from romancy.model.status import Status

SLOW_WATCH = WatchSettings(min_interval=0.0, poll_interval=3600, max_watches=3, ping_interval=3600, max_duration=3600)
HERE = InstanceProgress(1, 5, Status.RUNNING, 10)


class OpenStream:
    """A stream and the client that reads it."""

    def __init__(self) -> None:
        self.incoming = asyncio.Queue[Message]()
        self.sent = asyncio.Queue[Message]()
        self.incoming.put_nowait({"type": "http.request", "body": b""})

    async def next(self) -> str:
        """The next part of the body."""
        message = await self.sent.get()
        return str(message.get("body", b"").decode())

    def disconnect(self) -> None:
        """Disconnect the client."""
        self.incoming.put_nowait({"type": "http.disconnect"})


@asynccontextmanager
async def opened(app: ASGIApp, query: str = "", headers: Mapping[str, str] | None = None) -> AsyncIterator[OpenStream]:
    stream = OpenStream()
    scope = scope_of("/api/v1/stream", "GET", {"host": HOST, **(headers or {})}, query_string=query.encode())
    task = asyncio.ensure_future(app(scope, stream.incoming.get, stream.sent.put))
    try:
        start = await stream.sent.get()
        assert start["status"] == 200
        fields = {name.decode(): value.decode() for name, value in start["headers"]}
        assert fields["content-type"].startswith("text/event-stream")
        assert (fields["x-accel-buffering"], fields["cache-control"], "content-length" in fields) == (
            "no",
            "no-store",
            False,
        )
        assert await stream.next() == "retry: 1000\n\n"
        yield stream
    finally:
        stream.disconnect()
        await task


def parse_event(text: str) -> tuple[str, Any]:
    """The id and the data of a server-sent event."""
    lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
    assert lines["event"] == "changed"
    return lines.get("id", ""), json.loads(lines["data"])


async def test_an_instance_that_changes() -> None:
    source = ProgressSource({"a\nb": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    async with opened(serve(FakeManager(), watcher=watcher), "id=a%0Ab") as stream:
        state = {"instance_id": "a\nb", "generation": 1, "seq": 5, "status": "running"}
        assert parse_event(await stream.next()) == ("1:5:running", state)
        source.states["a\nb"] = HERE._replace(seq=6)
        watcher.notify()
        assert parse_event(await stream.next()) == ("1:6:running", {**state, "seq": 6})
        source.states["a\nb"] = HERE._replace(seq=6, status=Status.PAUSED)
        watcher.notify()
        assert parse_event(await stream.next()) == ("1:6:paused", {**state, "seq": 6, "status": "paused"})


async def test_a_reconnected_client_receives_only_new_events() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    app = serve(FakeManager(), watcher=watcher)
    async with opened(app, "id=a", {"last-event-id": "1:4:running"}) as stream:
        assert parse_event(await stream.next())[0] == "1:5:running"
    async with opened(app, "id=a", {"last-event-id": "1:5:running"}) as stream:
        source.states["a"] = HERE._replace(generation=2, seq=0)
        watcher.notify()
        assert parse_event(await stream.next())[0] == "2:0:running"


async def test_an_unchanged_instance_sends_no_event() -> None:
    source = ProgressSource({"a": HERE, "b": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    app = serve(FakeManager(), watcher=watcher)
    async with opened(app, "id=a", {"last-event-id": "1:5:running"}) as unchanged, opened(app, "id=b") as changing:
        await changing.next()
        source.states["b"] = HERE._replace(seq=6)
        watcher.notify()
        await changing.next()
        assert unchanged.sent.empty()


async def test_a_list_is_notified_of_changes() -> None:
    source = ProgressSource()
    watcher = Watcher(source.query, SLOW_WATCH)
    async with opened(serve(FakeManager(), watcher=watcher)) as stream:
        watcher.notify()
        assert parse_event(await stream.next()) == ("", {})
        assert source.queries == []


async def test_one_query_for_all_watching_clients() -> None:
    source = ProgressSource({"a": HERE, "b": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    app = serve(FakeManager(), watcher=watcher)
    async with opened(app, "id=a") as one, opened(app, "id=a") as two, opened(app, "id=b") as three:
        streams = (one, two, three)
        for stream in streams:
            await stream.next()
        source.queries.clear()
        source.states = {"a": HERE._replace(seq=6), "b": HERE._replace(seq=6)}
        watcher.notify()
        for stream in streams:
            await stream.next()
        assert source.queries == [["a", "b"]]


async def test_changes_in_between_become_one_event() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, replace(SLOW_WATCH, min_interval=0.01))
    async with opened(serve(FakeManager(), watcher=watcher), "id=a") as stream:
        await stream.next()
        source.queries.clear()
        for seq in range(6, 100):
            source.states["a"] = HERE._replace(seq=seq)
            watcher.notify()
        assert parse_event(await stream.next())[1]["seq"] == 99
        assert (len(source.queries), stream.sent.empty()) == (1, True)


async def test_a_change_without_a_notification_is_found_by_polling() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, replace(SLOW_WATCH, poll_interval=0.001))
    async with opened(serve(FakeManager(), watcher=watcher), "id=a") as stream:
        await stream.next()
        source.states["a"] = HERE._replace(seq=6)
        assert parse_event(await stream.next())[1]["seq"] == 6


async def test_a_stream_survives_errors_of_the_database() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, replace(SLOW_WATCH, poll_interval=0.001))
    async with opened(serve(FakeManager(), watcher=watcher), "id=a") as stream:
        await stream.next()
        source.error = StoreError("away")
        seen = len(source.queries)
        while len(source.queries) < seen + 2:
            await asyncio.sleep(0)
        source.error, source.states["a"] = None, HERE._replace(seq=6)
        assert parse_event(await stream.next())[1]["seq"] == 6


async def test_an_unknown_instance() -> None:
    answer = await get(serve(FakeManager(), watcher=Watcher(ProgressSource().query, QUICK)), "/api/v1/stream", id="missing")
    assert (answer.status, answer.json["error_type"]) == (404, "WorkflowNotFoundError")


# --- the end of a stream


async def test_a_silent_stream_is_kept_alive_and_then_ends() -> None:
    watcher = Watcher(ProgressSource({"a": HERE}).query, QUICK)
    app = serve(FakeManager(), watcher=watcher)
    answer = await get(app, "/api/v1/stream", id="a")
    assert answer.status == 200
    assert answer.body.startswith(b"retry: 1\n\nid: 1:5:running\n")
    assert b": still here\n\n" in answer.body
    assert (watcher.watch_count, watcher.is_running) == (0, False)


async def test_a_disconnected_client_leaves_no_watch() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    async with opened(serve(FakeManager(), watcher=watcher), "id=a"):
        assert (watcher.watch_count, watcher.is_running) == (1, True)
    assert (watcher.watch_count, watcher.is_running) == (0, False)


async def test_a_pruned_instance() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    async with opened(serve(FakeManager(), watcher=watcher), "id=a") as stream:
        await stream.next()
        source.states.clear()
        watcher.notify()
        assert await stream.sent.get() == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_at_shutdown_all_streams_end_and_new_ones_may_come() -> None:
    source = ProgressSource({"a": HERE})
    watcher = Watcher(source.query, SLOW_WATCH)
    app = serve(FakeManager(), watcher=watcher)
    async with opened(app) as one, opened(app, "id=a") as two:
        await two.next()
        watcher.end()
        for stream in (one, two):
            assert (await stream.sent.get())["more_body"] is False
    async with opened(app) as stream:
        watcher.notify()
        assert parse_event(await stream.next()) == ("", {})


async def test_the_number_of_streams_is_limited() -> None:
    watcher = Watcher(ProgressSource({"a": HERE}).query, SLOW_WATCH)
    app = serve(FakeManager(), watcher=watcher)
    async with opened(app), opened(app), opened(app, "id=a"):
        for query in ({}, {"id": "a"}):
            answer = await get(app, "/api/v1/stream", **query)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    async with opened(app):
        pass


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    watcher = Watcher(ProgressSource().query, replace(SLOW_WATCH, max_duration=0.01))
    started = asyncio.Event()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and message["more_body"]:
            started.set()
            await asyncio.get_running_loop().create_future()

    incoming = asyncio.Queue[Message]()
    await serve(FakeManager(), watcher=watcher)(scope_of("/api/v1/stream", "GET"), incoming.get, send)
    assert (started.is_set(), watcher.watch_count) == (True, 0)


@pytest.mark.parametrize("parameters", [{"id": ""}, {"what": "1"}])
async def test_invalid_parameters(parameters: dict[str, str]) -> None:
    assert (await get(serve(FakeManager()), "/api/v1/stream", **parameters)).status == 400


async def test_the_head_of_a_stream() -> None:
    watcher = Watcher(ProgressSource().query, SLOW_WATCH)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await serve(FakeManager(), watcher=watcher)(scope_of("/api/v1/stream", "HEAD"), asyncio.Queue[Message]().get, send)
    assert (sent[0]["status"], sent[-1]["more_body"], watcher.watch_count) == (200, False, 0)
