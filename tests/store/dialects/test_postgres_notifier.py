"""A process without peers notifies seldom; each process soon knows whether it has peers."""

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
    """A notifier with its pool, which counts its notifications."""

    def __init__(self, address: str) -> None:
        self.connections = PostgresPool(address, 2)
        self.notifier = PostgresNotifier(self.connections, None, self._on_notified)
        self.polls = 0
        """The number of notifications."""

    def _on_notified(self) -> None:
        self.polls += 1


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
    listener.notifier.start(listen=listen)
    try:
        assert not listen or await listener.notifier.probe()
        yield listener
    finally:
        await listener.notifier.stop()
        await listener.connections.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_process_that_hears_no_other_has_no_peers_and_one_that_does_not_listen_assumes_some(address: str) -> None:
    async with listening(address) as one, listening(address, listen=False) as not_listening:
        await asyncio.sleep(0.3)
        assert not one.notifier.has_peers
        assert not_listening.notifier.has_peers


async def test_those_who_listen_know_of_each_other_without_a_hint_and_forget_who_has_gone(address: str) -> None:
    async with listening(address) as one:
        await until(lambda: not one.notifier.has_peers)
        async with AsyncExitStack() as stack:
            other = await stack.enter_async_context(listening(address))
            await until(lambda: one.notifier.has_peers and other.notifier.has_peers)
            polls = one.polls, other.polls
            one.notifier._peers.clear()
            await until(lambda: one.notifier.has_peers)  # it announces itself again and again
            assert (one.polls, other.polls) == polls  # an announcement does not cause a poll
        await until(lambda: not one.notifier.has_peers)


async def test_who_is_new_is_answered_by_one_who_had_said_that_it_is_there_long_ago(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PRESENCE_INTERVAL", 3600.0)
    async with listening(address), listening(address) as new:
        await until(lambda: new.notifier.has_peers)


async def test_a_hint_is_heard_by_the_others(address: str) -> None:
    async with listening(address) as one, listening(address) as other:
        await until(lambda: one.notifier.has_peers and other.notifier.has_peers)
        before = other.polls
        one.notifier.notify()
        await until(lambda: other.polls > before)
        assert one.polls <= 2  # the start of the LISTEN, and the probe of the other process


async def test_who_does_not_hear_itself_any_more_listens_anew(
    address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a switch-over: a server that became read-only keeps its connections, but sends no notification."""
    made: list[Any] = []
    connect = PostgresPool.connect_to_listen

    async def recorded(self: PostgresPool, dsn: str | None) -> Any:
        made.append(await connect(self, dsn))
        return made[-1]

    monkeypatch.setattr(PostgresPool, "connect_to_listen", recorded)
    async with listening(address) as one:
        not_listening = made[-1]
        await not_listening.execute("UNLISTEN *")
        await until(lambda: "listening anew" in caplog.text and made[-1] is not not_listening and one.notifier.is_listening)
        assert await one.notifier.probe()
        await until(not_listening.is_closed)
