"""Proxies that disturb connections to a database server where a test wants it.

`Proxy` understands enough of PostgreSQL's protocol to see what the client requests: a simple query, or the statement that is
bound. A request extends to the server's "ready": `COMMIT`, or one execution of a prepared statement.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit


class Cut(StrEnum):
    """How a connection is disturbed at a request."""

    BEFORE = "before"
    """The connection breaks; the request does not reach the server."""
    AFTER = "after"
    """The connection breaks after the server has processed the request; the answer is lost."""
    DURING = "during"
    """The connection breaks after the request was sent, without waiting for the server."""
    STALL = "stall"
    """The connection does not break, but carries no more data; both ends keep it."""


When = Callable[[str, int], Cut | None]
"""Decides about a request by its text and its number, counted from 1 over all connections."""


def nowhere(text: str, number: int) -> Cut | None:
    """Disturb no request."""
    return None


def once(pattern: str, cut: Cut) -> When:
    """Disturb the first request that matches the pattern."""
    left = [cut]

    def when(text: str, number: int) -> Cut | None:
        return left.pop() if left and re.search(pattern, text) else None

    return when


def at(place: int, cut: Cut) -> When:
    """Disturb the request with this number."""
    return lambda text, number: cut if number == place else None


@dataclass
class Proxy:
    """A proxy between a client and a PostgreSQL server on the loopback."""

    target: tuple[str, int]
    when: When = nowhere
    ignored: Callable[[str], bool] = field(default=lambda text: False)
    """Requests that are neither counted nor disturbed."""
    requests: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def address(self, database: str) -> str:
        """The same database address, through the proxy."""
        parts = urlsplit(database)
        user = f"{parts.username}@" if parts.username else ""
        return f"postgresql://{user}127.0.0.1:{self.port}{parts.path}?sslmode=disable"

    def expect(self, when: When) -> None:
        """Disturb these requests from now on, and count from 1 again."""
        self.when = when
        self.requests.clear()
        self.cuts.clear()

    def decide(self, text: str) -> Cut | None:
        """Count a request and decide what to do with it."""
        if self.ignored(text):
            return None
        self.requests.append(text)
        cut = self.when(text, len(self.requests))
        if cut is not None:
            self.cuts.append(text)
        return cut

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(asyncio.CancelledError):  # asyncio's streams would log it as an error
                await _ProxiedConnection(self, reader, writer).run()
        finally:
            self._tasks.discard(task)

    async def hang_up(self) -> None:
        """Break all connections."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))


@asynccontextmanager
async def proxy_to(database: str, when: When = nowhere) -> AsyncIterator[Proxy]:
    """A proxy to the server of a database address."""
    parts = urlsplit(database)
    assert parts.hostname is not None
    proxy = Proxy((parts.hostname, parts.port or 5432), when)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await asyncio.sleep(0.001)  # lets connections arrive that were just opened
        await proxy.hang_up()
        await server.wait_closed()


class _ConnectionCut(Exception):
    """The connection is to break now."""


class _ProxiedConnection:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._statements: dict[bytes, str] = {}
        self._drops_answers = asyncio.Event()
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Forward until one end closes the connection, or it is cut."""
        reader, writer = self._client
        try:
            upstream = await asyncio.open_connection(*self._proxy.target)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, OSError):
                return
            raise
        directions = [
            asyncio.ensure_future(self._ask(reader, upstream[1])),
            asyncio.ensure_future(self._answer(upstream[0], writer)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in (writer, upstream[1]):
                side.transport.abort()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        """Forward requests from the client to the server, one at a time."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, _ConnectionCut):
            server.write(await _read_startup(reader))
            while True:
                text, raw = await self._request(reader)
                await self._pass_on(text, raw, server)

    async def _pass_on(self, text: str | None, raw: bytes, server: asyncio.StreamWriter) -> None:
        cut = None if text is None else self._proxy.decide(text)
        if cut is Cut.BEFORE:
            raise _ConnectionCut
        if cut is Cut.STALL:
            await asyncio.Event().wait()  # until one end closes the connection
        if cut is Cut.AFTER:
            self._drops_answers.set()
            self._ready.clear()
        server.write(raw)
        await server.drain()
        if cut is Cut.AFTER:
            await self._ready.wait()
        if cut is not None:
            raise _ConnectionCut

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str | None, bytes]:
        """The text and the bytes of the next request; no text for requests that change nothing."""
        text, raw = None, b""
        while True:
            kind, body = await _message(reader)
            raw += kind + struct.pack("!I", len(body) + 4) + body
            if kind == b"P":
                name, _, rest = body.partition(b"\0")
                self._statements[name] = rest.partition(b"\0")[0].decode()
            elif kind == b"B":
                text = self._statements.get(body.split(b"\0")[1], "?")
            elif kind == b"Q":
                return body.rstrip(b"\0").decode(), raw
            elif kind not in b"DEC":  # describe, execute, close: more messages of the request follow
                return text, raw

    async def _answer(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward answers from the server to the client, unless they are to be lost."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, body = await _message(server)
                if not self._drops_answers.is_set():
                    writer.write(kind + struct.pack("!I", len(body) + 4) + body)
                    await writer.drain()
                if kind == b"Z":
                    self._ready.set()


async def _read_startup(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack("!I", head)[0] - 4)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    (size,) = struct.unpack("!I", await reader.readexactly(4))
    return kind, await reader.readexactly(size - 4)


def short(text: str) -> str:
    """A statement, shortened for the name of a test or a message."""
    return re.sub(r"\s+", " ", text).strip()[:60]


class SilentProxy:
    """A proxy to any server that can become silent: no data passes, and both ends keep their connections."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    def address(self, database: str) -> str:
        """The same database address, through the proxy."""
        parts = urlsplit(database)
        user = f"{parts.username}@" if parts.username else ""
        return f"{parts.scheme}://{user}127.0.0.1:{self.port}{parts.path}"

    def silence(self) -> None:
        """Pass no more data; new connections get no greeting."""
        self._open.clear()

    def resume(self) -> None:
        """Pass data again, including what was held back."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server: asyncio.StreamWriter | None = None
        try:
            with suppress(asyncio.CancelledError, ConnectionError):
                await self._open.wait()
                answers, server = await asyncio.open_connection(*self._target)
                directions = [
                    asyncio.ensure_future(self._pass(reader, server)),
                    asyncio.ensure_future(self._pass(answers, writer)),
                ]
                try:
                    await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for direction in directions:
                        direction.cancel()
                    await asyncio.gather(*directions, return_exceptions=True)
        finally:
            for side in (writer, server):
                if side is not None:
                    side.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def hang_up(self) -> None:
        """Break all connections."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))


@asynccontextmanager
async def silent_proxy_to(database: str) -> AsyncIterator[SilentProxy]:
    """A proxy to the server of a database address."""
    parts = urlsplit(database)
    assert parts.hostname is not None
    assert parts.port is not None
    line = SilentProxy((parts.hostname, parts.port))
    server = await asyncio.start_server(line._serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        await asyncio.sleep(0.001)
        await line.hang_up()
        await server.wait_closed()
