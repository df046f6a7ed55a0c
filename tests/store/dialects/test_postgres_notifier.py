"""Who is alone rings seldom; who is not is known to be there, by all and soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests import servers

from romancy.store.postgres import notifier as module
from romancy.store.postgres.notifier import PostgresNotifier
from romancy.store.postgres.pool import PostgresPool


class Listener:
    """A process, as far as it rings and hears."""

    def __init__(self, address: str) -> None:
        self.connections = PostgresPool(address, 2)
        self.bell = PostgresNotifier(self.connections, None, self._hear)
        self.looks = 0
        """How often it was told to look."""

    def _hear(self) -> None:
        self.looks += 1


@pytest.fixture
def address() -> str:
    return servers.shared_postgres_database()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PRESENCE_INTERVAL", 0.1)
    monkeypatch.setattr(module, "_PEER_TIMEOUT", 1.0)
    monkeypatch.setattr(module, "_ANSWER_WINDOW", 0.0)


@asynccontextmanager
async def listening(address: str, *, listen: bool = True) -> AsyncIterator[Listener]:
    listener = Listener(address)
    listener.bell.start(listen=listen)
    try:
        assert not listen or await listener.bell.probe()
        yield listener
    finally:
        await listener.bell.stop()
        await listener.connections.close()


async def comes(about: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not about():
            await asyncio.sleep(0.01)


async def test_who_hears_nobody_is_alone_and_who_cannot_hear_does_not_count_on_it(address: str) -> None:
    async with listening(address) as one, listening(address, listen=False) as deaf:
        await asyncio.sleep(0.3)
        assert not one.bell.has_peers
        assert deaf.bell.has_peers


async def test_those_who_listen_know_of_each_other_without_a_hint_and_forget_who_has_gone(address: str) -> None:
    async with listening(address) as one:
        await comes(lambda: not one.bell.has_peers)
        async with AsyncExitStack() as visit:
            other = await visit.enter_async_context(listening(address))
            await comes(lambda: one.bell.has_peers and other.bell.has_peers)
            looks = one.looks, other.looks
            one.bell._peers.clear()
            await comes(lambda: one.bell.has_peers)  # it says again and again that it is there
            assert (one.looks, other.looks) == looks  # and nobody looks for anything because of that
        await comes(lambda: not one.bell.has_peers)


async def test_who_is_new_is_answered_by_one_who_had_said_that_it_is_there_long_ago(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PRESENCE_INTERVAL", 3600.0)
    async with listening(address), listening(address) as new:
        await comes(lambda: new.bell.has_peers)


async def test_a_hint_is_heard_by_the_others(address: str) -> None:
    async with listening(address) as one, listening(address) as other:
        await comes(lambda: one.bell.has_peers and other.bell.has_peers)
        before = other.looks
        one.bell.notify()
        await comes(lambda: other.looks > before)
        assert one.looks <= 2  # as it began to listen, and what the other had to try out


async def test_who_does_not_hear_itself_any_more_listens_anew(
    address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a switch-over: a server that only became read-only keeps its connections, and nobody speaks there."""
    made: list[Any] = []
    connect = PostgresPool.connect_to_listen

    async def noted(self: PostgresPool, dsn: str | None) -> Any:
        made.append(await connect(self, dsn))
        return made[-1]

    monkeypatch.setattr(PostgresPool, "connect_to_listen", noted)
    async with listening(address) as one:
        deaf = made[-1]
        await deaf.execute("UNLISTEN *")
        await comes(lambda: "listening anew" in caplog.text and made[-1] is not deaf and one.bell.is_listening)
        assert await one.bell.probe()
        await comes(deaf.is_closed)
