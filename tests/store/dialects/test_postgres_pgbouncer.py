"""PgBouncer in transaction mode between the store and the server: everything works as without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from tests import servers
from tests.store.conformance import *  # noqa: F403
from tests.store.conftest import MakeStore, Open

from romancy import (
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    WorkflowContext,
    activity,
    receive,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.clock import SystemClock
from romancy.store.open import ServerOptions, open_store
from romancy.store.port import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(servers.bouncer_program() is None, reason="PgBouncer is not installed (apt-get install pgbouncer)"),
]


@pytest.fixture(scope="module")
def bouncer() -> Iterator[servers.PgBouncer]:
    one = servers.PgBouncer(servers.postgres())
    yield one
    one.remove()


@pytest.fixture
def direct() -> str:
    """The address of the server."""
    return servers.shared_postgres_database()


@pytest.fixture
def pooled(bouncer: servers.PgBouncer, direct: str) -> str:
    """The address of the same database through the pooler."""
    return bouncer.over(direct)


# --- the conformance suite


@pytest.fixture
def new_store(pooled: str, direct: str) -> Open:
    return lambda: open_store(pooled, clock=SystemClock(), server=ServerOptions(listen_dsn=direct))


@pytest.fixture
async def store(new_store: Open, direct: str) -> AsyncIterator[Store]:
    await servers.empty_postgres(direct)
    one = new_store()
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def make_store(new_store: Open, store: Store) -> AsyncIterator[MakeStore]:
    opened: list[Store] = []

    async def make() -> Store:
        opened.append(new_store())
        await opened[-1].open()
        return opened[-1]

    yield make
    for one in opened:
        await one.close()


# --- an app


@activity
async def double(ctx: ActivityContext, number: int) -> int:
    """An activity."""
    return 2 * number


@workflow
async def many_kinds(ctx: WorkflowContext, number: int) -> list[object]:
    """Uses activities, events, timers and messages."""
    await subscribe(ctx, "desk", "direct")
    doubled = await asyncio.gather(*(double(ctx, number + n) for n in range(3)))
    event = await wait_event(ctx, "paid", subject=str(number))
    await sleep(ctx, 0.02)
    message = await receive(ctx, "desk")
    return [*doubled, event.data, message.data]


NEVER = 3600
"""A poll interval, so long that only a notification can have woken the worker."""


@pytest.fixture
async def _empty(direct: str) -> None:
    store = open_store(direct, clock=SystemClock())
    await store.open()
    await store.close()
    await servers.empty_postgres(direct)


@pytest.mark.usefixtures("_empty")
async def test_workflows_run_through_it(pooled: str, direct: str) -> None:
    async with (
        App(pooled, workflows=[many_kinds], listen_dsn=direct) as app,
        Client(pooled, workflows=[many_kinds]) as client,
    ):
        names = [f"talk-{number}" for number in range(50)]
        for number, name in enumerate(names):
            caller = (app, client)[number % 2]
            await caller.start_workflow(many_kinds.with_options(instance_id=name), number)
        for number, name in enumerate(names):
            await client.send_event("paid", "shop", number, subject=str(number))
            await client.send_to(name, "desk", f"hello {number}")
        for number, name in enumerate(names):
            result = await app.get_handle(name).result(timeout=60)
            assert result == [*(2 * (number + n) for n in range(3)), number, f"hello {number}"]


@pytest.mark.usefixtures("_empty")
async def test_with_another_address_to_listen_hints_get_through(
    pooled: str, direct: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(pooled, workflows=[many_kinds], listen_dsn=direct, listen_notify=True, poll_interval=NEVER)
    async with app, Client(direct, workflows=[many_kinds]) as client:
        handle = await client.start_workflow(many_kinds.with_options(instance_id="talk"), 1)
        await client.send_event("paid", "shop", "much", subject="1")
        await client.send_to("talk", "desk", "hello")
        assert await app.get_handle(handle.instance_id).result(timeout=60) == [2, 4, 6, "much", "hello"]
    assert "LISTEN" not in caplog.text


@pytest.mark.usefixtures("_empty")
async def test_without_one_workers_look_and_say_so_once(pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with App(pooled, workflows=[many_kinds], poll_interval=0.05) as app:
        warnings = [one for one in caplog.messages if "LISTEN does not work" in one]
        assert len(warnings) == 1
        assert "Give the address of the server itself as listen_dsn=" in warnings[0]
        async with Client(pooled, workflows=[many_kinds]) as client:
            handle = await client.start_workflow(many_kinds.with_options(instance_id="talk"), 1)
            await client.send_event("paid", "shop", "much", subject="1")
            await client.send_to("talk", "desk", "hello")
            assert await app.get_handle(handle.instance_id).result(timeout=60) == [2, 4, 6, "much", "hello"]


async def test_who_insists_on_hints_is_refused(pooled: str) -> None:
    with pytest.raises(ConfigurationError, match="a pooler assigns") as caught:
        async with App(pooled, workflows=[many_kinds], listen_notify=True):
            pass
    assert "listen_dsn=" in str(caught.value)


async def test_who_wants_no_hints_is_not_warned(pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    async with App(pooled, workflows=[many_kinds], listen_notify=False):
        pass
    assert "LISTEN" not in caplog.text


async def test_nothing_is_prepared_that_the_next_transaction_could_miss(pooled: str, direct: str) -> None:
    """With more callers than server connections, each transaction may get another connection."""
    store = open_store(pooled, clock=SystemClock(), server=ServerOptions(pool_size=20, listen_notify=False))
    await store.open()
    for _ in range(5):
        found = await asyncio.gather(*(store.statuses([f"unknown-{n}"]) for n in range(60)))
        assert found == [{}] * 60
    await store.close()
