"""An HTTP server with real sockets for the tests, whose replies a test determines."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class ReceivedRequest:
    """A request, and the number of its connection."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def id(self) -> str:
        """The id of the event, in either content mode."""
        return str(self.headers["ce-id"] if "ce-id" in self.headers else json.loads(self.body)["id"])


@dataclass(frozen=True)
class Respond:
    """A complete response."""

    status: int = 202
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True)
class Drop:
    """Closes the connection, after these bytes."""

    after: bytes = b""


@dataclass(frozen=True)
class Hang:
    """Sends these bytes again and again, without an end."""

    chunk: bytes = b""


Reply = Respond | Drop | Hang
Answer = Callable[[ReceivedRequest, int], Reply]
"""The reply to the nth request with an event."""


class Receiver:
    """A server on a loopback port: `with Receiver(answer) as receiver: ...`"""

    def __init__(self, answer: Answer | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.answer: Answer = answer or (lambda request, nth: Respond())
        self.requests: list[ReceivedRequest] = []
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.receiver = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._tls = tls is not None
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def port(self) -> int:
        """The port of the server."""
        port: int = self._server.server_address[1]
        return port

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/in"

    @property
    def times(self) -> Counter[str]:
        """The number of requests with each event."""
        return Counter(request.id for request in self.requests)

    def take(self, request: ReceivedRequest) -> Reply:
        """Record a request, and return the reply."""
        with self._changed:
            self.requests.append(request)
            nth = self.times[request.id]
            self._changed.notify_all()
        return self.answer(request, nth)

    async def until(self, condition: Callable[[Counter[str]], bool]) -> None:
        """Wait until the counts satisfy the condition."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: condition(self.times), 50)

        assert await asyncio.to_thread(wait), self.times

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    receiver: Receiver

    def __init__(self, *given: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*given)

    def close_connections(self) -> None:
        """Close the connections that clients keep open."""
        for sock in list(self.open):
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _server(self) -> _Server:
        assert isinstance(self.server, _Server)
        return self.server

    def setup(self) -> None:
        super().setup()
        self._server.open.add(self.connection)

    def finish(self) -> None:
        self._server.open.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length)
        if len(body) < length:  # the sender died in the middle of its request
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self._server.receiver.take(ReceivedRequest(self.path, headers, body, self.client_address[1]))
        match reply:
            case Respond():
                self._respond(reply)
            case Drop():
                self.wfile.write(reply.after)
                self.close_connection = True
            case Hang():
                while not self._server.receiver.closing.wait(0.05):
                    self.wfile.write(reply.chunk)

    def _respond(self, reply: Respond) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""
