"""The app behind uvicorn on loopback, and a client that posts events to it.

Both are on the app's own event loop: what the client costs counts against us.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from uvicorn import Config, Server

from romancy import App

_numbers = count(1)
_HEAD = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\n"


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[int]:
    """The port on which a server serves the app; the server's lifespan starts and stops it."""
    config = Config(
        app, host="127.0.0.1", port=0, loop="asyncio", http="h11", lifespan="on", log_level="warning", access_log=False
    )
    server = Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        if task.done():
            await task
            raise RuntimeError("the server did not start")
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


class Sender:
    """One connection that is kept; one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ring(self, subject: str) -> None:
        """Post an event; returns with its answer."""
        event = {"specversion": "1.0", "id": f"e{next(_numbers)}", "source": "/bench", "type": "ring", "subject": subject}
        body = json.dumps(event).encode()
        self._writer.write(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 202 "), answer
        length = next(line for line in answer.lower().splitlines() if line.startswith(b"content-length:"))
        await self._reader.readexactly(int(length.split(b":")[1]))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@asynccontextmanager
async def connected(port: int, senders: int) -> AsyncIterator[list[Sender]]:
    """So many connections."""
    made = [Sender(*(await asyncio.open_connection("127.0.0.1", port))) for _ in range(senders)]
    try:
        yield made
    finally:
        for sender in made:
            sender.close()
