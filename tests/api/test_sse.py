"""Server-sent events: one look for all who watch, and an end to every stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.api.fake_manager import HOST, QUICK, Asked, Places, get, serve
from tests.http.asgi_client import scope_of

from romancy.api.watcher import Watcher, WatchSettings
from romancy.errors import StoreError
from romancy.http.types import ASGIApp, Message
from romancy.model.instance import InstanceProgress
from romancy.model.status import Status

PATIENT = WatchSettings(min_interval=0.0, poll_interval=3600, max_watches=3, ping_interval=3600, max_duration=3600)
HERE = InstanceProgress(1, 5, Status.RUNNING, 10)


class Open:
    """A stream that somebody reads."""

    def __init__(self) -> None:
        self.incoming = asyncio.Queue[Message]()
        self.sent = asyncio.Queue[Message]()
        self.incoming.put_nowait({"type": "http.request", "body": b""})

    async def next(self) -> str:
        """What is said next."""
        message = await self.sent.get()
        return str(message.get("body", b"").decode())

    def leave(self) -> None:
        """Close the page."""
        self.incoming.put_nowait({"type": "http.disconnect"})


@asynccontextmanager
async def opened(app: ASGIApp, query: str = "", headers: Mapping[str, str] | None = None) -> AsyncIterator[Open]:
    stream = Open()
    scope = scope_of("/api/v1/stream", "GET", {"host": HOST, **(headers or {})}, query_string=query.encode())
    task = asyncio.ensure_future(app(scope, stream.incoming.get, stream.sent.put))
    try:
        start = await stream.sent.get()
        assert start["status"] == 200
        said = {name.decode(): value.decode() for name, value in start["headers"]}
        assert said["content-type"].startswith("text/event-stream")
        assert (said["x-accel-buffering"], said["cache-control"], "content-length" in said) == ("no", "no-store", False)
        assert await stream.next() == "retry: 1000\n\n"
        yield stream
    finally:
        stream.leave()
        await task


def told(text: str) -> tuple[str, Any]:
    """The id and the data of an event."""
    lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
    assert lines["event"] == "changed"
    return lines.get("id", ""), json.loads(lines["data"])


async def test_an_instance_that_moves() -> None:
    places = Places({"a\nb": HERE})
    watcher = Watcher(places.look, PATIENT)
    async with opened(serve(Asked(), watcher=watcher), "id=a%0Ab") as stream:
        where = {"instance_id": "a\nb", "generation": 1, "seq": 5, "status": "running"}
        assert told(await stream.next()) == ("1:5:running", where)
        places.of["a\nb"] = HERE._replace(seq=6)
        watcher.notify()
        assert told(await stream.next()) == ("1:6:running", {**where, "seq": 6})
        places.of["a\nb"] = HERE._replace(seq=6, status=Status.PAUSED)
        watcher.notify()
        assert told(await stream.next()) == ("1:6:paused", {**where, "seq": 6, "status": "paused"})


async def test_whoever_comes_back_is_told_only_what_is_new() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, PATIENT)
    app = serve(Asked(), watcher=watcher)
    async with opened(app, "id=a", {"last-event-id": "1:4:running"}) as stream:
        assert told(await stream.next())[0] == "1:5:running"
    async with opened(app, "id=a", {"last-event-id": "1:5:running"}) as stream:
        places.of["a"] = HERE._replace(generation=2, seq=0)
        watcher.notify()
        assert told(await stream.next())[0] == "2:0:running"


async def test_one_that_does_not_move_says_nothing() -> None:
    places = Places({"a": HERE, "b": HERE})
    watcher = Watcher(places.look, PATIENT)
    app = serve(Asked(), watcher=watcher)
    async with opened(app, "id=a", {"last-event-id": "1:5:running"}) as still, opened(app, "id=b") as moving:
        await moving.next()
        places.of["b"] = HERE._replace(seq=6)
        watcher.notify()
        await moving.next()
        assert still.sent.empty()


async def test_a_list_is_told_that_something_has_changed() -> None:
    places = Places()
    watcher = Watcher(places.look, PATIENT)
    async with opened(serve(Asked(), watcher=watcher)) as stream:
        watcher.notify()
        assert told(await stream.next()) == ("", {})
        assert places.looks == []


async def test_one_look_for_all_who_watch() -> None:
    places = Places({"a": HERE, "b": HERE})
    watcher = Watcher(places.look, PATIENT)
    app = serve(Asked(), watcher=watcher)
    async with opened(app, "id=a") as one, opened(app, "id=a") as two, opened(app, "id=b") as three:
        streams = (one, two, three)
        for stream in streams:
            await stream.next()
        places.looks.clear()
        places.of = {"a": HERE._replace(seq=6), "b": HERE._replace(seq=6)}
        watcher.notify()
        for stream in streams:
            await stream.next()
        assert places.looks == [["a", "b"]]


async def test_what_happens_meanwhile_becomes_one_event() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, replace(PATIENT, min_interval=0.01))
    async with opened(serve(Asked(), watcher=watcher), "id=a") as stream:
        await stream.next()
        places.looks.clear()
        for seq in range(6, 100):
            places.of["a"] = HERE._replace(seq=seq)
            watcher.notify()
        assert told(await stream.next())[1]["seq"] == 99
        assert (len(places.looks), stream.sent.empty()) == (1, True)


async def test_what_nobody_tells_is_found_all_the_same() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, replace(PATIENT, poll_interval=0.001))
    async with opened(serve(Asked(), watcher=watcher), "id=a") as stream:
        await stream.next()
        places.of["a"] = HERE._replace(seq=6)
        assert told(await stream.next())[1]["seq"] == 6


async def test_a_database_that_is_away_ends_nothing() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, replace(PATIENT, poll_interval=0.001))
    async with opened(serve(Asked(), watcher=watcher), "id=a") as stream:
        await stream.next()
        places.trouble = StoreError("away")
        seen = len(places.looks)
        while len(places.looks) < seen + 2:
            await asyncio.sleep(0)
        places.trouble, places.of["a"] = None, HERE._replace(seq=6)
        assert told(await stream.next())[1]["seq"] == 6


async def test_there_is_no_such_instance() -> None:
    answer = await get(serve(Asked(), watcher=Watcher(Places().look, QUICK)), "/api/v1/stream", id="nobody")
    assert (answer.status, answer.json["error_type"]) == (404, "WorkflowNotFoundError")


# --- ends


async def test_a_silent_stream_is_kept_alive_and_then_ends() -> None:
    watcher = Watcher(Places({"a": HERE}).look, QUICK)
    app = serve(Asked(), watcher=watcher)
    answer = await get(app, "/api/v1/stream", id="a")
    assert answer.status == 200
    assert answer.body.startswith(b"retry: 1\n\nid: 1:5:running\n")
    assert b": still here\n\n" in answer.body
    assert (watcher.watch_count, watcher.is_running) == (0, False)


async def test_when_the_client_goes_nothing_is_left() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, PATIENT)
    async with opened(serve(Asked(), watcher=watcher), "id=a"):
        assert (watcher.watch_count, watcher.is_running) == (1, True)
    assert (watcher.watch_count, watcher.is_running) == (0, False)


async def test_one_that_was_pruned() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, PATIENT)
    async with opened(serve(Asked(), watcher=watcher), "id=a") as stream:
        await stream.next()
        places.of.clear()
        watcher.notify()
        assert await stream.sent.get() == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_at_shutdown_all_streams_end_and_new_ones_may_come() -> None:
    places = Places({"a": HERE})
    watcher = Watcher(places.look, PATIENT)
    app = serve(Asked(), watcher=watcher)
    async with opened(app) as one, opened(app, "id=a") as two:
        await two.next()
        watcher.end()
        for stream in (one, two):
            assert (await stream.sent.get())["more_body"] is False
    async with opened(app) as stream:
        watcher.notify()
        assert told(await stream.next()) == ("", {})


async def test_only_so_many() -> None:
    watcher = Watcher(Places({"a": HERE}).look, PATIENT)
    app = serve(Asked(), watcher=watcher)
    async with opened(app), opened(app), opened(app, "id=a"):
        for query in ({}, {"id": "a"}):
            answer = await get(app, "/api/v1/stream", **query)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    async with opened(app):
        pass


async def test_a_client_that_reads_nothing_is_left() -> None:
    watcher = Watcher(Places().look, replace(PATIENT, max_duration=0.01))
    started = asyncio.Event()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and message["more_body"]:
            started.set()
            await asyncio.get_running_loop().create_future()

    incoming = asyncio.Queue[Message]()
    await serve(Asked(), watcher=watcher)(scope_of("/api/v1/stream", "GET"), incoming.get, send)
    assert (started.is_set(), watcher.watch_count) == (True, 0)


@pytest.mark.parametrize("question", [{"id": ""}, {"what": "1"}])
async def test_a_wrong_question(question: dict[str, str]) -> None:
    assert (await get(serve(Asked()), "/api/v1/stream", **question)).status == 400


async def test_the_head_of_a_stream() -> None:
    watcher = Watcher(Places().look, PATIENT)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await serve(Asked(), watcher=watcher)(scope_of("/api/v1/stream", "HEAD"), asyncio.Queue[Message]().get, send)
    assert (sent[0]["status"], sent[-1]["more_body"], watcher.watch_count) == (200, False, 0)
