"""uvicorn's HTTP protocol with an end to waiting.

uvicorn waits for ever for the rest of a request's headers, and for the rest of a body that nobody reads any more. A client
that sends a byte now and then could hold as many connections as it likes.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

import h11
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from romancy.app import App

_LONGER = 1.0
"""Seconds more for a body: by then the app has answered 408 itself, with a sentence."""


class TimeoutProtocol(H11Protocol):
    """One connection. While the client owes something, the clock runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.app, App)
        self._read_timeout: float = self.app._options["request_timeout"]
        self._awaited_state: object = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request is owed."""
        super().connection_made(transport)
        # asyncio does this only for sockets that it has opened itself. Without it the second packet of an answer waits for
        # the client's acknowledgement of the first, which clients hold back for 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._restart_timer()
        if _stopping():
            self.shutdown()

    def shutdown(self) -> None:
        """The server stops. Whoever watches a stream would hold it up."""
        super().shutdown()
        assert isinstance(self.app, App)
        self.app._end_streams()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is owed any more."""
        self._set_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something of what is owed."""
        super().data_received(data)
        self._restart_timer()

    def on_response_complete(self) -> None:
        """The rest of the body is owed still, or the next request; for that uvicorn has a timer of its own."""
        super().on_response_complete()
        self._restart_timer()

    def _restart_timer(self) -> None:
        state = self.conn.their_state
        idle = state is h11.IDLE and self.timeout_keep_alive_task is not None
        self._set_timer(None if idle or state not in (h11.IDLE, h11.SEND_BODY) else state)

    def _set_timer(self, state: object) -> None:
        if state is self._awaited_state:
            return
        self._awaited_state = state
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._read_timeout + (_LONGER if state is h11.SEND_BODY else 0)
        self._timer = None if state is None else self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        if self.conn.our_state is h11.IDLE:
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        self.transport.close()


def _stopping() -> bool:
    """Whether the server stops. uvicorn tells the connections that it has then, but not one that is just being accepted:
    its client could go on asking, and the end would have to wait for it."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return isinstance(server, Server) and server.should_exit
