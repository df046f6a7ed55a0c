"""Starts and sends in the caller's own transaction are committed with the caller's rows, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pymysql
import pymysql.cursors
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from romancy import (
    App,
    Client,
    ConfigurationError,
    InstanceConflictError,
    InvalidWorkflowStateError,
    Status,
    WorkflowContext,
    WorkflowNotFoundError,
    receive,
    subscribe,
    wait_event,
    workflow,
)
from romancy.transaction import TransactionalClient

ADD = text("INSERT INTO orders (id) VALUES (:id)")


@workflow
async def handle_order(ctx: WorkflowContext, order: str) -> str:
    return f"handled {order}"


@workflow
async def listen(ctx: WorkflowContext) -> list[Any]:
    await subscribe(ctx, "news")
    first = (await receive(ctx, "news")).data
    if isinstance(first, bytes):
        first = first.hex()
    second = (await receive(ctx, "news")).data
    return [first, second, (await wait_event(ctx, "paid")).data]


async def listening(app: App) -> Any:
    handle = await app.start_workflow(listen)
    while await handle.status() is not Status.WAITING_FOR_MESSAGE:
        await asyncio.sleep(0.01)
    return handle


async def test_a_workflow_is_there_with_the_callers_rows(database: str, shop: AsyncEngine) -> None:
    async with App(database, workflows=[handle_order], poll_interval=0.1) as app:
        async with shop.begin() as connection:
            await connection.execute(ADD, {"id": "a"})
            handle = await app.using(connection).start_workflow(handle_order, "a")
            if database.startswith("postgres"):  # on SQLite, another connection does not see the uncommitted row either
                assert await app.get_instance(handle.instance_id) is None
        assert await handle.result(timeout=10) == "handled a"


async def test_what_is_rolled_back_never_was(database: str, shop: AsyncEngine) -> None:
    async with App(database, workflows=[handle_order, listen], poll_interval=0.1) as app:
        listener = await listening(app)
        async with AsyncSession(shop) as session:
            await session.execute(ADD, {"id": "a"})
            using = app.using(session)
            handle = await using.start_workflow(handle_order, "a")
            await using.publish("news", "lost")
            await using.send_event("paid", "shop", "lost")
            await session.rollback()
        await app.publish("news", 1)
        await app.publish("news", 2)
        await app.send_event("paid", "shop", "yes")
        assert await listener.result(timeout=10) == [1, 2, "yes"]
        assert await app.get_instance(handle.instance_id) is None


async def test_what_is_said_is_heard_after_the_commit_and_before_what_comes_later(database: str, shop: AsyncEngine) -> None:
    async with App(database, workflows=[listen], poll_interval=0.1) as app:
        listener = await listening(app)
        async with AsyncSession(shop) as session:
            await session.execute(ADD, {"id": "a"})
            await app.using(session).send_event("paid", "shop", {"order": "a"}, event_id="1")
            await app.using(session).publish("news", "first")
            await session.commit()
        await app.publish("news", "second")
        assert (await app.send_event("paid", "shop", {"order": "other"}, event_id="1")).duplicate
        assert await listener.result(timeout=10) == ["first", "second", {"order": "a"}]


async def test_messages_for_one_and_for_a_group(database: str, shop: AsyncEngine) -> None:
    async with App(database, workflows=[listen, handle_order], poll_interval=0.1) as app:
        listener = await listening(app)
        async with shop.begin() as connection:
            using = app.using(connection)
            await using.send_to(listener.instance_id, "news", b"\0bytes", metadata={"a": 1})
            await using.send_to_group("unknown", "news", "unheard")
            await using.send_to(listener.instance_id, "news", {"n": 2})
            await using.send_event("paid", "shop")
        assert await listener.result(timeout=10) == [b"\0bytes".hex(), {"n": 2}, None]
        async with shop.connect() as connection:
            with pytest.raises(WorkflowNotFoundError):
                await app.using(connection).send_to("unknown", "news", 1)
            with pytest.raises(InvalidWorkflowStateError):
                await app.using(connection).send_to(listener.instance_id, "news", 1)


async def test_an_event_starts_a_workflow(database: str, shop: AsyncEngine) -> None:
    started = asyncio.Event()

    @workflow(name="order.created", event_handler=True)
    async def on_created(ctx: WorkflowContext, order: str) -> None:
        started.set()

    async with App(database, workflows=[on_created], poll_interval=0.1) as app:
        async with shop.begin() as connection:
            await app.using(connection).send_event("order.created", "shop", {"order": "a"})
        await asyncio.wait_for(started.wait(), 10)


async def test_the_same_id_is_the_same_instance(database: str, shop: AsyncEngine) -> None:
    once = handle_order.with_options(instance_id="order-1")
    async with Client(database, workflows=[handle_order]) as client:
        for _ in range(2):
            async with shop.begin() as connection:
                handle = await client.using(connection).start_workflow(once, "a")
                assert handle.instance_id == "order-1"
        async with shop.begin() as connection:
            with pytest.raises(InstanceConflictError):
                await client.using(connection).start_workflow(once, "b")


async def test_a_plain_connection_of_sqlalchemy(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    engine = create_engine(f"sqlite:///{path}")
    async with App(str(path), workflows=[handle_order], poll_interval=0.1) as app:
        with engine.begin() as connection:
            handle = await app.using(connection).start_workflow(handle_order, "a")
        assert await handle.result(timeout=10) == "handled a"
    engine.dispose()


async def test_a_session_of_sqlalchemy_over_psycopg(postgres: str) -> None:
    engine = create_engine(postgres.replace("postgresql", "postgresql+psycopg"))
    async with App(postgres, workflows=[handle_order, listen], poll_interval=0.1) as app:
        listener = await listening(app)
        with Session(engine) as session:
            handle = await app.using(session).start_workflow(handle_order.with_options(instance_id="100%"), "a")
            await send_everything(app.using(session), listener.instance_id)
            session.commit()
        assert await handle.result(timeout=10) == "handled a"
        assert await listener.result(timeout=10) == ["one", "two", 3]
    engine.dispose()


async def send_everything(using: TransactionalClient, instance_id: str) -> None:
    """Send everything that `listen` waits for."""
    await using.publish("news", "one", metadata={"%s": "?"})
    await using.send_to(instance_id, "news", "two")
    await using.send_event("paid", "shop", 3)


@contextmanager
def connect_synchronously(database: str) -> Iterator[Any]:
    """A connection of a synchronous driver, whose rows are dictionaries."""
    if database.startswith("postgres"):
        with psycopg.Connection[Any].connect(database, row_factory=dict_row) as connection:
            yield connection
    elif database.startswith("mysql"):
        parts = urlsplit(database)
        where: dict[str, Any] = {"host": parts.hostname, "port": parts.port, "database": parts.path[1:]}
        login: dict[str, Any] = {
            "user": parts.username,
            "password": parts.password or "",
            "cursorclass": pymysql.cursors.DictCursor,
        }
        with pymysql.connect(**where, **login, charset="utf8mb4") as mariadb:
            yield mariadb
            mariadb.commit()
    else:
        with closing(sqlite3.connect(database)) as file, file:
            file.row_factory = sqlite3.Row
            yield file


async def test_a_connection_of_a_driver_that_knows_no_asyncio(database: str) -> None:
    async with App(database, workflows=[handle_order, listen], poll_interval=0.1) as app:
        listener = await listening(app)
        with connect_synchronously(database) as connection:
            handle = await app.using(connection).start_workflow(handle_order.with_options(instance_id="x"), "a")
            await send_everything(app.using(connection), listener.instance_id)
        assert await handle.result(timeout=10) == "handled a"
        assert await listener.result(timeout=10) == ["one", "two", 3]
        with connect_synchronously(database) as connection:
            await app.using(connection).start_workflow(handle_order.with_options(instance_id="x"), "a")  # the same instance
            with pytest.raises(InstanceConflictError):
                await app.using(connection).start_workflow(handle_order.with_options(instance_id="x"), "b")


async def test_a_client_that_never_ran_can_start_something(database: str) -> None:
    resting = Client(database, workflows=[handle_order])
    async with App(database, workflows=[handle_order], poll_interval=0.1) as app:
        with connect_synchronously(database) as connection:
            started = await resting.using(connection).start_workflow(handle_order, "a")
        assert await app.get_handle(started.instance_id).result(timeout=10) == "handled a"
        with pytest.raises(InvalidWorkflowStateError, match="This Client is not running"):
            await started.status()


async def test_an_asynchronous_connection_of_psycopg_is_refused(postgres: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres) as connection:
        with pytest.raises(ConfigurationError, match="using\\(\\) got AsyncConnection"):
            await Client(postgres, workflows=[handle_order]).using(connection).start_workflow(handle_order, "a")


async def test_a_connection_of_asyncpg(postgres: str) -> None:
    async with App(postgres, workflows=[handle_order, listen], poll_interval=0.1) as app:
        listener = await listening(app)
        connection = await asyncpg.connect(postgres)
        async with connection.transaction():
            handle = await app.using(connection).start_workflow(handle_order, "a")
            for word in ("one", "two"):
                await app.using(connection).publish("news", word)
            await app.using(connection).send_event("paid", "shop", 3)
        assert await handle.result(timeout=10) == "handled a"
        assert await listener.result(timeout=10) == ["one", "two", 3]
        await connection.close()


async def test_a_long_transaction_delays_no_other(postgres: str) -> None:
    async with App(postgres, workflows=[listen], poll_interval=0.1) as app:
        listener = await listening(app)
        connection = await asyncpg.connect(postgres)
        open_for_long = connection.transaction()
        await open_for_long.start()
        await app.using(connection).publish("news", "late")
        await asyncio.wait_for(app.publish("news", "early"), 10)
        await open_for_long.commit()
        await connection.close()
        await app.send_event("paid", "shop", 3)
        assert await listener.result(timeout=10) == ["early", "late", 3]


async def test_what_is_no_connection_and_another_database_are_refused(database: str, tmp_path: Path) -> None:
    async with Client(database, workflows=[handle_order]) as client:
        with pytest.raises(ConfigurationError, match="using\\(\\) got str"):
            await client.using("a connection").start_workflow(handle_order, "a")
        if database.startswith("postgres"):
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
            async with engine.connect() as connection:
                with pytest.raises(ConfigurationError, match="got a connection to a sqlite database"):
                    await client.using(connection).start_workflow(handle_order, "a")
            await engine.dispose()
