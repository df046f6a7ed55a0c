"""Tests of the manager over HTTP: its results and its errors are those of the manager on the database."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.cli.sample_database import HOSTILE, CommandTarget

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

READ_CALLS: list[Callable[[Manager], Any]] = [
    lambda manager: manager.get_instance("failed-1"),
    lambda manager: manager.get_instance("rounds-1", generation=1),
    lambda manager: manager.list_instances("id:failed-*", limit=1),
    lambda manager: manager.get_history("rounds-1", generation=1),
    lambda manager: manager.get_source("waits-1"),
    lambda manager: manager.get_event_schema("waits-1", "paid:1"),
    lambda manager: manager.list_subscribers("news"),
    lambda manager: manager.list_members("listeners of news"),
    lambda manager: manager.list_outbox(dead=True),
    lambda manager: manager.preview(ActionKind.TERMINATE, "nap-1"),
    lambda manager: manager.apply(ActionKind.RETRY, ["done-1", "nothere", HOSTILE]),
    lambda manager: manager.apply(ActionKind.RETRY, []),
]


@pytest.mark.parametrize("look", range(len(READ_CALLS)))
async def test_the_results_are_those_of_the_database(look: int, served: CommandTarget) -> None:
    async with Client(str(served.folder / "shop.db"), workflows=[]) as client:
        assert await READ_CALLS[look](HttpManager(served.options[1])) == await READ_CALLS[look](DatabaseManager(client))


async def test_calls_that_no_command_makes(served: CommandTarget) -> None:
    manager = HttpManager(served.options[1])
    assert "order" in (await manager.overview()).workflows
    assert [one.name for one in (await manager.get_timeline("done-1")).spans if one.kind == "activity"] == ["charge"]
    assert isinstance((await manager.list_audit(limit=5)).items, list)
    schema = await manager.get_schema("pay")
    assert schema is not None
    assert "cents" in schema["properties"]


async def test_refusals_are_the_same_errors(served: CommandTarget) -> None:
    manager = HttpManager(served.options[1])
    with pytest.raises(WorkflowNotFoundError, match="nothere"):
        await manager.get_instance("nothere")
    with pytest.raises(ConfigurationError, match="not a status"):
        await manager.list_instances("status:foo")
    with pytest.raises(PayloadError, match="cents"):
        await manager.start("pay", {"cents": "many"})
    with pytest.raises(InvalidWorkflowStateError):
        await manager.publish("news", 1, to="done-1")
    with pytest.raises(ConfigurationError, match="surrogate"):
        await manager.get_instance("\ud800")


@pytest.fixture
def start_server() -> Iterator[Callable[[int, bytes, str], str]]:
    """A function that starts a server with one fixed response, and returns its URL."""
    servers: list[HTTPServer] = []

    def serve(status: int, body: bytes, kind: str = "application/json") -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Write no log."""

        server = HTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (200, b"{}", StoreError, "another release"),
        (200, b"no JSON", StoreError, "another release"),
        (401, b'{"error": "Who are you?"}', AccessError, "Who are you"),
        (403, b"", AccessError, "403"),
        (404, b"<html>", ConfigurationError, "no romancy API"),
        (409, b'{"error": "no", "error_type": "WorkflowNotCancellableError"}', InvalidWorkflowStateError, "no"),
        (400, b'{"error": "no", "error_type": "InputError", "fields": {"a": "b"}}', InputError, "no"),
        (400, b'{"error": "no", "error_type": "Exception"}', ConfigurationError, "no"),
        (500, b"", StoreError, "500"),
        (503, b'{"error": "later", "error_type": "StoreError"}', StoreError, "later"),
        (302, b"", ConfigurationError, "302"),
    ],
)
async def test_unexpected_responses(
    start_server: Callable[..., str], status: int, body: bytes, error: type[RomancyError], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        await HttpManager(start_server(status, body)).get_instance("x")
    assert getattr(raised.value, "retryable", False) is (status == 503)


async def test_an_html_page_is_refused(start_server: Callable[..., str]) -> None:
    with pytest.raises(ConfigurationError, match="not a romancy app"):
        await HttpManager(start_server(200, b"<html>", "text/html")).overview()


async def test_a_silent_server_times_out_and_the_call_can_be_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreError, match="did not respond within"):
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
    while part := line.recv(1000):  # ends when the client closes the connection
        received += part
    return received


def test_the_token_is_never_shown() -> None:
    assert "s3cret" not in repr(HttpManager("http://127.0.0.1:1", "s3cret"))
    with pytest.raises(ConfigurationError) as refused:
        HttpManager("http://127.0.0.1:1", "s3cret\n")
    assert "s3cret" not in str(refused.value)
