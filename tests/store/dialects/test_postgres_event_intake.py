"""Events that are accepted with one statement wake every matching wait, whatever the settings of the database."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests import servers
from tests.store.conformance.builders import accept, event, wait, write
from tests.store.conformance.driver import new_instances

from romancy.clock import SystemClock
from romancy.model.messaging import AcceptedEvent
from romancy.model.transition import Accepted
from romancy.store.open import ServerOptions, open_store

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def address() -> str:
    return servers.new_postgres_database()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_who_begins_to_wait_while_an_event_waits_for_its_turn_is_called(address: str, isolation: str) -> None:
    rival = await asyncpg.connect(address)
    name = await rival.fetchval("SELECT current_database()")
    await rival.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    store = open_store(address, clock=SystemClock(), server=ServerOptions(listen_notify=False))
    await store.open()
    try:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        await rival.execute("UPDATE romancy_waits SET key = 'something else'")

        await rival.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT FROM romancy_messaging_lock WHERE id = 1 FOR UPDATE"
        )
        sender = asyncio.create_task(write(store, accept(event("e-1"))))
        while not await rival.fetchval(BLOCKED):
            await asyncio.sleep(0.005)
        await rival.execute("UPDATE romancy_waits SET key = 'paid'; COMMIT")

        called = AcceptedEvent("e-1", "shop", duplicate=False, instance_ids=("a",))
        assert await sender == [Accepted((called,), ("a",))]
    finally:
        await store.close()
        await rival.close()
