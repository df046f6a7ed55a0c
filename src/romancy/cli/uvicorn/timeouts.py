"""uvicorn's HTTP protocol with read timeouts.

uvicorn itself waits forever for the rest of a request's headers, and for the rest of a body that the app no longer reads. A
client that sends a byte from time to time could therefore hold any number of connections.
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
"""Additional seconds for a body: the app has its own timeout, and answers 408 with an explanation."""


class TimeoutProtocol(H11Protocol):
    """A connection with a timeout for the headers of a request, and one for its body.

    Data from the client does not restart a timer, because a slow client could then hold the connection forever.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.app, App)
        self._read_timeout: float = self.app._options["request_timeout"]
        self._awaited_state: object = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        # asyncio sets this only on sockets that it has opened itself. Without it, the second packet of a response waits for
        # the acknowledgement of the first one, which clients delay by 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._update_timer()
        if _stopping():
            self.shutdown()

    def shutdown(self) -> None:
        """Stop, and end the streams: they would delay the shutdown of the server."""
        super().shutdown()
        assert isinstance(self.app, App)
        self.app._end_streams()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._set_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process the data, and set the timeout for what is read next."""
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """Set the timeout for the rest of the body. Between requests, uvicorn's own keep-alive timeout applies."""
        super().on_response_complete()
        self._update_timer()

    def _update_timer(self) -> None:
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
    """Return whether the server is stopping.

    uvicorn shuts down the connections that exist when it stops, but not one that is being accepted then. Its client
    could continue to send requests, and so delay the end of the server.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return isinstance(server, Server) and server.should_exit
