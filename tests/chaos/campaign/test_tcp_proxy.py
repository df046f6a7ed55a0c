"""Tests of a proxy that is cut, blocked in one or both directions, and restored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.chaos.campaign.tcp_proxy import TcpProxy

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Echo:
    """A server that returns what it receives, and keeps it."""

    def __init__(self) -> None:
        self.received = asyncio.Queue[bytes]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        while piece := await reader.read(100):
            self.received.put_nowait(piece)
            writer.write(piece)
        writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    one = TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1])
    await one.open()
    yield one
    await one.close()
    server.close()
    await server.wait_closed()


@pytest.fixture
async def dial(proxy: TcpProxy) -> AsyncIterator[Dial]:
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        opened.append(writer)
        return reader, writer

    yield connect
    for writer in opened:
        writer.transport.abort()


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def test_it_forwards_in_both_directions(dial: Dial) -> None:
    reader, writer = await dial()
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"


async def test_a_cut_breaks_connections_until_the_proxy_is_restored(proxy: TcpProxy, dial: Dial) -> None:
    reader, writer = await dial()
    writer.write(b"a")
    await reader.readexactly(1)
    proxy.cut()
    assert await _ends(reader)
    assert await _ends((await dial())[0])
    proxy.restore()
    reader, writer = await dial()
    writer.write(b"b")
    assert await reader.readexactly(1) == b"b"


async def test_blocked_data_arrives_when_the_proxy_is_restored(proxy: TcpProxy, dial: Dial, echo: Echo) -> None:
    reader, writer = await dial()
    proxy.freeze(back=False)
    writer.write(b"a")
    await writer.drain()
    for _ in range(20):
        await asyncio.sleep(0)
    assert echo.received.empty()
    proxy.restore()
    assert await reader.readexactly(1) == b"a"


async def test_a_blocked_answer_is_lost_with_its_connection(proxy: TcpProxy, dial: Dial, echo: Echo) -> None:
    reader, writer = await dial()
    proxy.freeze(there=False)
    writer.write(b"a")
    assert await echo.received.get() == b"a"
    proxy.cut()
    proxy.restore()
    assert await _ends(reader)


async def test_it_closes_connections_while_the_target_is_unavailable() -> None:
    nowhere = await asyncio.start_server(Echo().serve, "127.0.0.1", 0)
    port = nowhere.sockets[0].getsockname()[1]
    nowhere.close()
    await nowhere.wait_closed()
    proxy = TcpProxy("127.0.0.1", port)
    await proxy.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await _ends(reader)
    writer.transport.abort()
    await proxy.close()


@pytest.mark.parametrize(
    ("address", "over"),
    [
        ("postgresql://romancy@127.0.0.1:5/postgres", "postgresql://romancy@127.0.0.1:9/postgres"),
        ("mysql://root@127.0.0.1:5/test", "mysql://root@127.0.0.1:9/test"),
    ],
)
def test_the_address_of_the_proxy(address: str, over: str) -> None:
    proxy = TcpProxy("127.0.0.1", 5)
    proxy.port = 9
    assert proxy.over(address) == over
