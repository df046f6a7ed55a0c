"""A cable that is cut, stands still, one way or both, and is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.chaos.campaign.tcp_proxy import Cable

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Echo:
    """Says what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = asyncio.Queue[bytes]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while piece := await reader.read(100):
            self.heard.put_nowait(piece)
            writer.write(piece)
        writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def cable(echo: Echo) -> AsyncIterator[Cable]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    one = Cable("127.0.0.1", server.sockets[0].getsockname()[1])
    await one.open()
    yield one
    await one.close()
    server.close()
    await server.wait_closed()


@pytest.fixture
async def dial(cable: Cable) -> AsyncIterator[Dial]:
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", cable.port)
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


async def test_it_carries_both_ways(dial: Dial) -> None:
    reader, writer = await dial()
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"


async def test_cut_it_breaks_and_takes_nobody_until_it_is_mended(cable: Cable, dial: Dial) -> None:
    reader, writer = await dial()
    writer.write(b"a")
    await reader.readexactly(1)
    cable.cut()
    assert await _ends(reader)
    assert await _ends((await dial())[0])
    cable.mend()
    reader, writer = await dial()
    writer.write(b"b")
    assert await reader.readexactly(1) == b"b"


async def test_what_is_held_up_there_arrives_when_it_is_mended(cable: Cable, dial: Dial, echo: Echo) -> None:
    reader, writer = await dial()
    cable.freeze(back=False)
    writer.write(b"a")
    await writer.drain()
    for _ in range(20):
        await asyncio.sleep(0)
    assert echo.heard.empty()
    cable.mend()
    assert await reader.readexactly(1) == b"a"


async def test_an_answer_that_is_held_up_is_lost_with_the_line(cable: Cable, dial: Dial, echo: Echo) -> None:
    reader, writer = await dial()
    cable.freeze(there=False)
    writer.write(b"a")
    assert await echo.heard.get() == b"a"
    cable.cut()
    cable.mend()
    assert await _ends(reader)


async def test_it_drops_who_comes_while_the_target_is_away() -> None:
    nowhere = await asyncio.start_server(Echo().serve, "127.0.0.1", 0)
    port = nowhere.sockets[0].getsockname()[1]
    nowhere.close()
    await nowhere.wait_closed()
    cable = Cable("127.0.0.1", port)
    await cable.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", cable.port)
    assert await _ends(reader)
    writer.transport.abort()
    await cable.close()


@pytest.mark.parametrize(
    ("address", "over"),
    [
        ("postgresql://romancy@127.0.0.1:5/postgres", "postgresql://romancy@127.0.0.1:9/postgres"),
        ("mysql://root@127.0.0.1:5/town", "mysql://root@127.0.0.1:9/town"),
    ],
)
def test_an_address_leads_over_it(address: str, over: str) -> None:
    cable = Cable("127.0.0.1", 5)
    cable.port = 9
    assert cable.over(address) == over
