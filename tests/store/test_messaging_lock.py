"""The row of the messaging lock is deleted while stores are open: no write proceeds without the lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from tests import databases, mariadb, servers
from tests.store.conformance import builders
from tests.store.conformance.builders import started, transition, write

from romancy import ActivityContext, App, StoreError, WorkflowContext, activity, send_event, wait_event, workflow
from romancy.clock import SystemClock
from romancy.model.transition import Applied
from romancy.store.mysql.pool import MySqlPool, parse_address
from romancy.store.open import open_store
from romancy.store.port import Store

WAITING = {
    "postgres": "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mariadb": "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
LOST = ("TRUNCATE romancy_messaging_lock", "DELETE FROM romancy_messaging_lock")


@pytest.fixture(params=["postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of server."""
    if request.param == "mariadb" and (why_not := mariadb.why_not()):
        pytest.skip(why_not)
    return str(request.param)


@pytest.fixture
async def address(kind: str) -> str:
    """A database of its own, because the tests delete the row."""
    make = servers.new_postgres_database if kind == "postgres" else mariadb.new_database
    return await asyncio.to_thread(make)


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    """An open store."""
    one = open_store(address, clock=SystemClock())
    await one.open()
    yield one
    await one.close()


async def execute(address: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a connection of its own."""
    return await asyncio.to_thread(databases.execute, address, statement)


@asynccontextmanager
async def open_transaction(address: str) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """A function that runs statements in an open transaction."""
    if address.startswith("postgres"):
        connection = await asyncpg.connect(address)
        await connection.execute("BEGIN")
        yield connection.execute
        await connection.close()
    else:
        link = await MySqlPool(parse_address(address), 1).connect()
        link.defer(b"START TRANSACTION")
        yield lambda statement: link.execute(statement.encode())
        await link.close()


async def lock_rows(address: str) -> list[tuple[Any, ...]]:
    """The row of the messaging lock, if it exists."""
    return await execute(address, "SELECT id FROM romancy_messaging_lock")


@pytest.mark.parametrize("how", LOST)
async def test_it_is_put_back_before_anything_is_decided_and_said(
    address: str, store: Store, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await started(store, "a")
    await write(store, transition(store_calls=[builders.wait("paid")], length=0, has_messaging_state=True, keep_owned=False))
    await execute(address, how)
    (accepted,) = await write(store, builders.accept(builders.event(kind="paid")))
    assert accepted.woken == ("a",)  # type: ignore[union-attr]
    assert await lock_rows(address) == [(1,)]
    assert [line for line in caplog.messages if "was missing, and was put back" in line]


async def test_who_comes_while_it_is_put_back_waits_for_who_does(address: str, store: Store, kind: str) -> None:
    await execute(address, "DELETE FROM romancy_messaging_lock")
    async with open_transaction(address) as other:
        await other("INSERT INTO romancy_messaging_lock (id) VALUES (1)")
        writing = asyncio.create_task(write(store, builders.publish("one")))
        async with asyncio.timeout(30):
            while not await execute(address, WAITING[kind]):
                await asyncio.sleep(0.15)  # the server caches its answer about locks for 0.1 s
        assert not writing.done()
        await other("COMMIT")
        assert [type(answer) for answer in await writing] == [Applied]


@activity
async def send_without_lock(ctx: ActivityContext) -> None:
    """Send an event in a transaction without the row."""
    await ctx.session.execute(text("DELETE FROM romancy_messaging_lock"))
    await send_event(ctx, "paid", "shop", {})


@workflow
async def customer(ctx: WorkflowContext) -> str:
    """Wait for that event."""
    return (await wait_event(ctx, "paid")).source


@workflow
async def shop(ctx: WorkflowContext) -> None:
    """Run the activity."""
    await send_without_lock(ctx)


async def test_what_activities_say_in_transactions_of_their_own(address: str) -> None:
    async with App(address, workflows=[customer, shop]) as app:
        waiting = await app.start_workflow(customer)
        await (await app.start_workflow(shop)).result(timeout=60)
        assert await waiting.result(timeout=60) == "shop"
    assert await lock_rows(address) == [(1,)]


async def test_one_that_is_hidden_is_not_taken_for_one_that_is_free() -> None:
    address = await asyncio.to_thread(servers.new_postgres_database)
    one = open_store(address, clock=SystemClock())
    await one.open()
    await one.close()
    role = f"shop_{address.rpartition('/')[2]}"
    for statement in (
        f"CREATE ROLE {role} LOGIN",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
        "ALTER TABLE romancy_messaging_lock ENABLE ROW LEVEL SECURITY",
    ):
        await execute(address, statement)
    one = open_store(address.replace("romancy@", f"{role}@"), clock=SystemClock())
    with pytest.raises(StoreError, match="row-level security"):
        await one.open()
