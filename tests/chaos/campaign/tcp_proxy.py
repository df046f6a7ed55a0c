"""A line that carries bytes, whatever they mean, until somebody cuts it, or lets it stand still, one way or both."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 1 << 16


class Cable:
    """Connections from a port of its own to one target. It takes them also while the target is away, and drops them then."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._there.set()
        self._back.set()
        self._whole = True
        self.host, self.port = "127.0.0.1", 0

    async def open(self, host: str = "127.0.0.1") -> None:
        """Take connections at an address of this machine."""
        self.host = host
        self._server = await asyncio.start_server(self._serve, host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Hang up for good."""
        if self._server is None:
            return
        self._server.close()
        self.cut()
        if self._lines:
            await asyncio.wait(set(self._lines))
        await self._server.wait_closed()

    def cut(self) -> None:
        """Every connection breaks, and no new one holds until it is mended."""
        self._whole = False
        for line in self._lines:
            line.cancel()

    def freeze(self, *, there: bool = True, back: bool = True) -> None:
        """Nothing gets through any more, that way; both ends believe that it holds."""
        if there:
            self._there.clear()
        if back:
            self._back.clear()

    def mend(self) -> None:
        """As if nothing had been: what was held up arrives now."""
        self._whole = True
        self._there.set()
        self._back.set()

    def over(self, address: str) -> str:
        """The same address, by way of this cable."""
        parts = urlsplit(address)
        user = f"{parts.username}@" if parts.username else ""
        return parts._replace(netloc=f"{user}{self.host}:{self.port}").geturl()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        try:
            with suppress(asyncio.CancelledError, OSError):  # asyncio's streams would report them as errors
                await self._carry(reader, writer)
        finally:
            self._lines.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.ensure_future(_pass_on(reader, far_writer, self._there)),
            asyncio.ensure_future(_pass_on(far_reader, writer, self._back)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Until one end hangs up."""
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            await gate.wait()
            writer.write(piece)
            await writer.drain()
        await gate.wait()
