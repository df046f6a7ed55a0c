"""Serves an app with uvicorn on loopback, and posts events to it.

Server and client run on the app's own event loop: the client's cost counts against romancy.
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
    """Serve the app, and return the port; the server's lifespan starts and stops the app."""
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
    """Posts events on one persistent connection, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, subject: str) -> None:
        """Post an event, and wait for the response."""
        event = {"specversion": "1.0", "id": f"e{next(_numbers)}", "source": "/bench", "type": "wakeup", "subject": subject}
        body = json.dumps(event).encode()
        self._writer.write(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        response = await self._reader.readuntil(b"\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 202 "), response
        length = next(line for line in response.lower().splitlines() if line.startswith(b"content-length:"))
        await self._reader.readexactly(int(length.split(b":")[1]))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


@asynccontextmanager
async def connected(port: int, senders: int) -> AsyncIterator[list[Sender]]:
    """Open `senders` connections."""
    made = [Sender(*(await asyncio.open_connection("127.0.0.1", port))) for _ in range(senders)]
    try:
        yield made
    finally:
        for sender in made:
            sender.close()
