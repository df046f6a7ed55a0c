"""TCP proxy that can cut its connections or block them in one or both directions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class TcpProxy:
    """Proxy from a port of its own to one target. While the target is unavailable it accepts and closes connections."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._to_target, self._to_client = asyncio.Event(), asyncio.Event()
        self._to_target.set()
        self._to_client.set()
        self._connected = True
        self.host, self.port = "127.0.0.1", 0

    async def open(self, host: str = "127.0.0.1") -> None:
        """Listen at an address of this host."""
        self.host = host
        self._server = await asyncio.start_server(self._serve, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the proxy and all connections."""
        if self._server is None:
            return
        self._server.close()
        self.cut()
        if self._connections:
            await asyncio.wait(set(self._connections))
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut all connections, and new ones until `restore`."""
        self._connected = False
        for connection in self._connections:
            connection.cancel()

    def freeze(self, *, there: bool = True, back: bool = True) -> None:
        """Block the traffic in these directions; both ends keep their connection."""
        if there:
            self._to_target.clear()
        if back:
            self._to_client.clear()

    def restore(self) -> None:
        """End all faults; blocked data is delivered now."""
        self._connected = True
        self._to_target.set()
        self._to_client.set()

    def over(self, address: str) -> str:
        """The same database address, through this proxy."""
        parts = urlsplit(address)
        user = f"{parts.username}@" if parts.username else ""
        return parts._replace(netloc=f"{user}{self.host}:{self.port}").geturl()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(asyncio.CancelledError, OSError):  # asyncio's streams would log them as errors
                await self._carry(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._connected:
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        directions = [
            asyncio.ensure_future(_pass_on(reader, far_writer, self._to_target)),
            asyncio.ensure_future(_pass_on(far_reader, writer, self._to_client)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            far_writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Copy bytes until one end closes the connection."""
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            await gate.wait()
            writer.write(chunk)
            await writer.drain()
        await gate.wait()
