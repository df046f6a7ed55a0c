"""The manager over HTTP: it answers as the one on the database does, and its refusals are the same errors."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.cli.sample_database import HOSTILE, Place

from romancy import Client
from romancy.admin.local import DatabaseManager
from romancy.admin.port import Manager
from romancy.admin.records import ActionKind, InputError
from romancy.admin.remote import AccessError, HttpManager
from romancy.errors import (
    ConfigurationError,
    InvalidWorkflowStateError,
    PayloadError,
    RomancyError,
    StoreError,
    WorkflowNotFoundError,
)

LOOKS: list[Callable[[Manager], Any]] = [
    lambda manager: manager.get_instance("failed-1"),
    lambda manager: manager.get_instance("rounds-1", generation=1),
    lambda manager: manager.list_instances("id:failed-*", limit=1),
    lambda manager: manager.get_history("rounds-1", generation=1),
    lambda manager: manager.get_source("waits-1"),
    lambda manager: manager.get_event_schema("waits-1", "paid:1"),
    lambda manager: manager.list_subscribers("news"),
    lambda manager: manager.list_members("crowd of news"),
    lambda manager: manager.list_outbox(dead=True),
    lambda manager: manager.preview(ActionKind.TERMINATE, "nap-1"),
    lambda manager: manager.apply(ActionKind.RETRY, ["done-1", "nothere", HOSTILE]),
    lambda manager: manager.apply(ActionKind.RETRY, []),
]


@pytest.mark.parametrize("look", range(len(LOOKS)))
async def test_it_answers_as_the_database_does(look: int, served: Place) -> None:
    async with Client(str(served.folder / "shop.db"), workflows=[]) as client:
        assert await LOOKS[look](HttpManager(served.where[1])) == await LOOKS[look](DatabaseManager(client))


async def test_what_the_command_line_does_not_ask(served: Place) -> None:
    manager = HttpManager(served.where[1])
    assert "order" in (await manager.overview()).workflows
    assert [one.name for one in (await manager.get_timeline("done-1")).spans if one.kind == "activity"] == ["charge"]
    assert isinstance((await manager.list_audit(limit=5)).items, list)
    schema = await manager.get_schema("pay")
    assert schema is not None
    assert "cents" in schema["properties"]


async def test_refusals_are_the_same_errors(served: Place) -> None:
    manager = HttpManager(served.where[1])
    with pytest.raises(WorkflowNotFoundError, match="nothere"):
        await manager.get_instance("nothere")
    with pytest.raises(ConfigurationError, match="no status"):
        await manager.list_instances("status:foo")
    with pytest.raises(PayloadError, match="cents"):
        await manager.start("pay", {"cents": "many"})
    with pytest.raises(InvalidWorkflowStateError):
        await manager.publish("news", 1, to="done-1")
    with pytest.raises(ConfigurationError, match="surrogate"):
        await manager.get_instance("\ud800")


@pytest.fixture
def answering() -> Iterator[Callable[[int, bytes, str], str]]:
    """A server that always gives the answer it was told."""
    servers: list[HTTPServer] = []

    def serve(status: int, body: bytes, kind: str = "application/json") -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        server = HTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (200, b"{}", StoreError, "another release"),
        (200, b"no JSON", StoreError, "another release"),
        (401, b'{"error": "Who are you?"}', AccessError, "Who are you"),
        (403, b"", AccessError, "403"),
        (404, b"<html>", ConfigurationError, "no API"),
        (409, b'{"error": "no", "error_type": "WorkflowNotCancellableError"}', InvalidWorkflowStateError, "no"),
        (400, b'{"error": "no", "error_type": "InputError", "fields": {"a": "b"}}', InputError, "no"),
        (400, b'{"error": "no", "error_type": "Exception"}', ConfigurationError, "no"),
        (500, b"", StoreError, "500"),
        (503, b'{"error": "later", "error_type": "StoreError"}', StoreError, "later"),
        (302, b"", ConfigurationError, "302"),
    ],
)
async def test_strange_answers(
    answering: Callable[..., str], status: int, body: bytes, error: type[RomancyError], said: str
) -> None:
    with pytest.raises(error, match=said) as raised:
        await HttpManager(answering(status, body)).get_instance("x")
    assert getattr(raised.value, "retryable", False) is (status == 503)


async def test_a_page_is_no_answer(answering: Callable[..., str]) -> None:
    with pytest.raises(ConfigurationError, match="no app of romancy"):
        await HttpManager(answering(200, b"<html>", "text/html")).overview()


async def test_silence_has_an_end_and_can_be_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreError, match="does not answer within"):
            await HttpManager(url, timeout=0.05).overview()
        asking = asyncio.ensure_future(HttpManager(url, timeout=60).overview())
        first, _ = await asyncio.to_thread(silent.accept)
        first.close()
        line, _ = await asyncio.to_thread(silent.accept)
        with line:
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            received = await asyncio.to_thread(_all, line)
    assert received.startswith(b"GET /api/v1/overview")


def _all(line: socket.socket) -> bytes:
    received = b""
    while part := line.recv(1000):  # ends because the other side has let go
        received += part
    return received


def test_the_token_is_never_shown() -> None:
    assert "s3cret" not in repr(HttpManager("http://127.0.0.1:1", "s3cret"))
    with pytest.raises(ConfigurationError) as refused:
        HttpManager("http://127.0.0.1:1", "s3cret\n")
    assert "s3cret" not in str(refused.value)
