"""An HTTP server of the tests' own, with real sockets: it answers as it is told, or not at all."""

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
class Got:
    """A request, and which connection it came on."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def id(self) -> str:
        """The event's id, whichever mode it came in."""
        return str(self.headers["ce-id"] if "ce-id" in self.headers else json.loads(self.body)["id"])


@dataclass(frozen=True)
class Say:
    """An answer."""

    status: int = 202
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True)
class Drop:
    """Close the connection, after these bytes."""

    after: bytes = b""


@dataclass(frozen=True)
class Hang:
    """Say these bytes over and over, never an end."""

    drip: bytes = b""


Reply = Say | Drop | Hang
Answer = Callable[[Got, int], Reply]
"""What to reply to an event that comes for the nth time."""


class Receiver:
    """Listens on a port of the loopback. `with Receiver(answer) as receiver: ...`"""

    def __init__(self, answer: Answer | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.answer: Answer = answer or (lambda got, nth: Say())
        self.got: list[Got] = []
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
        """Its port."""
        port: int = self._server.server_address[1]
        return port

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/in"

    @property
    def times(self) -> Counter[str]:
        """How often each event came."""
        return Counter(got.id for got in self.got)

    def take(self, got: Got) -> Reply:
        """A request has come."""
        with self._changed:
            self.got.append(got)
            nth = self.times[got.id]
            self._changed.notify_all()
        return self.answer(got, nth)

    async def until(self, happened: Callable[[Counter[str]], bool]) -> None:
        """Wait until enough has come."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: happened(self.times), 50)

        assert await asyncio.to_thread(wait), self.times

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.cut()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    receiver: Receiver

    def __init__(self, *given: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*given)

    def cut(self) -> None:
        """Close what clients keep open: nobody waits for their next request."""
        for sock in list(self.open):
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


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
        if len(body) < length:  # the sender died in the middle of it
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self._server.receiver.take(Got(self.path, headers, body, self.client_address[1]))
        match reply:
            case Say():
                self._say(reply)
            case Drop():
                self.wfile.write(reply.after)
                self.close_connection = True
            case Hang():
                while not self._server.receiver.closing.wait(0.05):
                    self.wfile.write(reply.drip)

    def _say(self, reply: Say) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not here."""
