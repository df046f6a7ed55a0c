"""The errors of PostgreSQL and of wrong addresses, in plain words and never with a password."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests import servers
from tests.machine_clock import Machine
from tests.store.conformance.builders import create, publish, write

from romancy import ActivityContext, App, Client, WorkflowContext, activity, sleep, workflow
from romancy import publish as publish_message
from romancy.clock import MICROS, SystemClock, to_micros
from romancy.errors import ConfigurationError, StoreError
from romancy.model.transition import Applied
from romancy.store.open import ServerOptions, open_store
from romancy.store.port import NotWrittenError, Store
from romancy.store.postgres import schema
from romancy.store.postgres.database import PostgresDatabase
from romancy.store.postgres.dsn import check_dsn, redact_dsn, split_hosts
from romancy.store.postgres.errors import translate
from romancy.store.sql import server as engine

SECRET = "s3cr3t"
LONG_TIMEOUT = ServerOptions(listen_notify=False)


@pytest.fixture
def address() -> str:
    return servers.shared_postgres_database()


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_RETRY_TIMEOUT", 0.1)


@pytest.fixture
def server() -> Iterator[servers.Postgres]:
    """A server that the test may stop."""
    one = servers.Postgres()
    yield one
    one.remove()


@pytest.fixture(scope="module")
def guarded() -> Iterator[servers.Postgres]:
    """A server that requires passwords."""
    one = servers.Postgres()
    one.ask(
        f"CREATE ROLE clerk LOGIN PASSWORD '{SECRET}'",
        "CREATE ROLE reader LOGIN PASSWORD 'r3ad'",
        "CREATE DATABASE orders OWNER clerk",
    )
    one.require_passwords()
    yield one
    one.remove()


def store_on(address: str, **more: Any) -> Store:
    return open_store(address, clock=SystemClock(), server=LONG_TIMEOUT, **more)


async def refused(store: Store) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await store.open()
    await store.close()
    return caught.value


@asynccontextmanager
async def opened(address: str, **more: Any) -> AsyncIterator[Store]:
    store = store_on(address, **more)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# --- addresses


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:{SECRET}/x@host/db",
        f"postgresql://user:{SECRET}#x@host/db",
        f"postgresql://user:{SECRET}?x@host/db",
        f"postgresql://user:x@{SECRET}@host/db",
        f"postgresql://user:{SECRET}@host:port/db",
        f"postgresql://user:{SECRET}@host:99999/db",
        f"postgresql://user:{SECRET}@[::1/db",
        f"postgresql://user:{SECRET}@host/db?sslmode",
        f"postgres://{SECRET}:{SECRET}",
        f"postgresql+psycopg://user:{SECRET}@host/db",
        f"mysql2://user:{SECRET}@host/db",
    ],
)
def test_an_address_that_cannot_be_read(address: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(address, clock=SystemClock())
    seen: BaseException | None = caught.value
    while seen is not None:
        assert SECRET not in str(seen)
        seen = seen.__cause__ or seen.__context__
    with pytest.raises(ConfigurationError):
        open_store("postgresql://host/db", clock=SystemClock(), server=ServerOptions(listen_dsn=address))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"postgresql://user:{SECRET}@host:5433/db", "postgresql://user@host:5433/db"),
        (f"postgres://user:{SECRET}@host/db", "postgresql://user@host/db"),
        (f"postgresql+asyncpg://user:{SECRET}@host/db", "postgresql://user@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql:///db", "postgresql:///db"),
        (f"postgresql://u:{SECRET}@h1:1,h2:2/db?target_session_attrs=primary", "postgresql://u@h1:1,h2:2/db"),
        (f"postgresql://u@h/db?password={SECRET}&sslmode=disable", "postgresql://u@h/db"),
        (f"postgresql://u:{SECRET}@/db?host=/run/pg&port=5433", "postgresql://u@/db?host=/run/pg&port=5433"),
        (f"postgresql:///db?host=/run/pg&user=u&password={SECRET}", "postgresql://u@/db?host=/run/pg"),
        (f"postgresql://u:{SECRET}@[::1]:5433/db", "postgresql://u@[::1]:5433/db"),
        (f"postgresql://u%40corp:p%40{SECRET}@h/db", "postgresql://u%40corp@h/db"),
        (f"postgresql://u:{SECRET}@h/db?options=-c%20search_path%3Dx", "postgresql://u@h/db"),
    ],
)
def test_what_is_shown_of_an_address(address: str, shown: str) -> None:
    assert redact_dsn(check_dsn(address)) == shown


def test_each_of_several_servers_has_its_address() -> None:
    assert split_hosts("postgresql://u:p@h1:1,h2,[::1]:3/db?sslmode=disable&target_session_attrs=any") == [
        f"postgresql://u:p@{host}/db?sslmode=disable&target_session_attrs=any" for host in ("h1:1", "h2", "[::1]:3")
    ]
    assert split_hosts("postgresql://h1,h2/db") == [
        f"postgresql://{host}/db?target_session_attrs=read-write" for host in ("h1", "h2")
    ]
    assert split_hosts("postgresql:///db?host=/tmp") == ["postgresql:///db?host=/tmp"]


async def test_a_socket_in_a_folder_is_an_address(server: servers.Postgres) -> None:
    address = f"postgresql://romancy@/postgres?host={server.folder}&port={server.port}"
    async with opened(address) as store:
        assert await write(store, create()) == [Applied(0, owned=True)]


async def test_a_name_of_the_application_is_kept(address: str) -> None:
    for asked, shown in (("", "romancy"), ("?application_name=orders", "orders")):
        async with opened(address + asked) as store:
            connection = await store._database._connections.connect()  # type: ignore[attr-defined]
            assert await connection.fetchval("SELECT current_setting('application_name')") == shown
            await connection.close()


def test_no_driver() -> None:
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from romancy.clock import SystemClock\n"
        "from romancy.store.open import open_store\n"
        "open_store(sys.argv[1], clock=SystemClock())"
    )
    command = [sys.executable, "-c", script, f"postgresql://u:{SECRET}@h/db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "ConfigurationError: A PostgreSQL database needs asyncpg: pip install 'romancy[postgres]'" in done.stderr
    assert SECRET not in done.stderr


# --- unreachable servers


async def test_a_host_that_does_not_exist(short_timeout: None) -> None:
    error = await refused(store_on(f"postgresql://user:{SECRET}@no-such-host.invalid/db"))
    assert "postgresql://user@no-such-host.invalid/db cannot be reached" in str(error)
    assert error.retryable
    assert isinstance(error.__cause__, OSError)
    assert SECRET not in str(error)


async def test_a_port_without_a_server(short_timeout: None) -> None:
    error = await refused(store_on(f"postgresql://user:{SECRET}@127.0.0.1:{servers.free_port()}/db"))
    assert "cannot be reached. Check that its server runs" in str(error)
    assert error.retryable


async def test_a_server_that_is_no_postgresql(short_timeout: None) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    error = await refused(store_on(f"postgresql://user:{SECRET}@127.0.0.1:{port}/db"))
    assert SECRET not in str(error)
    other.close()
    await other.wait_closed()


async def test_a_server_that_says_nothing(short_timeout: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.store.postgres.pool._CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = await refused(store_on(f"postgresql://user@127.0.0.1:{mute.getsockname()[1]}/db"))
    assert "cannot be reached" in str(error)
    assert error.retryable


async def test_the_next_server_is_tried_when_one_says_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.store.postgres.pool._CONNECT_EACH_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        head, _, tail = address.rpartition("@")
        both = f"{head}@127.0.0.1:{mute.getsockname()[1]},{tail}"
        async with opened(both) as store:
            assert await store.statuses([]) == {}


async def test_a_server_that_comes_back_in_time(server: servers.Postgres, caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.to_thread(server.stop)
    store = store_on(server.address)
    opening = asyncio.ensure_future(store.open())
    await said(caplog, "cannot be reached")
    await asyncio.to_thread(server.start)
    await opening

    for hard in (False, True):
        caplog.clear()
        await asyncio.to_thread(server.stop, hard=hard)
        writing = asyncio.ensure_future(write(store, create(f"hard-{hard}"), create(f"harder-{hard}", owner=None)))
        looking = asyncio.ensure_future(store.statuses(["other"]))
        await said(caplog, "Trying again for 30 s")
        await asyncio.to_thread(server.start)
        assert await writing == [Applied(0, owned=True), Applied(0, owned=False)]
        assert await looking == {}
        assert len([one for one in caplog.messages if "Trying again" in one]) == 1, "logged once"
    await store.close()


async def said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(20):
        while words not in caplog.text:
            await asyncio.sleep(0.01)


async def test_a_server_that_does_not_come_back(server: servers.Postgres, short_timeout: None) -> None:
    store = store_on(server.address)
    await store.open()
    heartbeat = store.heartbeat("worker-1")
    assert not await asyncio.to_thread(heartbeat.renew, 10)
    await asyncio.to_thread(server.stop, hard=True)
    for call in (
        lambda: store.commit([create()]),
        lambda: store.statuses(["a"]),
        lambda: store.claim("w", [], now=1, limit=1),
        lambda: asyncio.to_thread(heartbeat.renew, 11),
    ):
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            await call()
        assert caught.value.retryable
    await asyncio.to_thread(server.start)
    assert await write(store, create()) == [Applied(0, owned=True)], "the error was retryable"
    assert not await asyncio.to_thread(heartbeat.renew, 12)
    await asyncio.to_thread(heartbeat.close)
    await store.close()


# --- refusals


async def test_a_wrong_password(guarded: servers.Postgres, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = f"postgresql://clerk:wrong-{SECRET}@127.0.0.1:{guarded.port}/orders"
    error = await refused(store_on(wrong))
    assert "refuses the user or the password" in str(error)
    assert f"postgresql://clerk@127.0.0.1:{guarded.port}/orders" in str(error)
    assert not error.retryable
    error = await refused(store_on(f"postgresql://unknown:{SECRET}@127.0.0.1:{guarded.port}/orders"))
    assert "refuses the user or the password" in str(error)
    assert SECRET not in str(error) + str(error.__cause__) + caplog.text


async def test_no_password(guarded: servers.Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    error = await refused(store_on(f"postgresql://clerk@127.0.0.1:{guarded.port}/orders"))
    assert "refuses the user or the password" in str(error)
    assert not error.retryable


async def test_the_right_password_is_shown_nowhere(guarded: servers.Postgres, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    address = f"postgresql://clerk:{SECRET}@127.0.0.1:{guarded.port}/orders"
    async with App(address, workflows=[nap], listen_dsn=address) as app:
        await (await app.start_workflow(nap, 0.01)).result(timeout=30)
        assert SECRET not in repr(app)
    error = await refused(store_on(address.replace("/orders", "/missing")))
    assert "does not exist on its server. Create it first" in str(error)
    assert not error.retryable
    assert SECRET not in str(error) + str(error.__cause__) + caplog.text


async def test_who_may_only_read(guarded: servers.Postgres) -> None:
    owner = f"postgresql://clerk:{SECRET}@127.0.0.1:{guarded.port}/orders"
    reader = f"postgresql://reader:r3ad@127.0.0.1:{guarded.port}/orders"
    async with opened(owner) as store:
        await write(store, create("mine"))
    connection = await asyncpg.connect(owner)
    await connection.execute("GRANT USAGE ON SCHEMA public TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    await connection.close()
    for auto_migrate in (True, False):
        async with opened(reader, auto_migrate=auto_migrate) as store:
            assert set(await store.statuses(["mine"])) == {"mine"}, "it may read"
            with pytest.raises(StoreError, match=r"does not grant its user a required privilege\. Grant the user") as caught:
                await store.commit([create()])
            assert not caught.value.retryable


async def test_who_may_not_create_tables(guarded: servers.Postgres) -> None:
    await asyncio.to_thread(guarded.ask, "DROP DATABASE IF EXISTS bare", "CREATE DATABASE bare")
    await asyncio.to_thread(
        asyncio.run,
        servers._execute(servers.named_database(guarded.address, "bare"), "REVOKE CREATE ON SCHEMA public FROM public"),
    )
    reader = f"postgresql://reader:r3ad@127.0.0.1:{guarded.port}/bare"
    error = await refused(store_on(reader))
    assert "Grant the user USAGE and CREATE on the schema" in str(error)
    assert not error.retryable
    error = await refused(store_on(reader, auto_migrate=False))
    assert "is behind this release of romancy" in str(error)
    assert "r3ad" not in str(error)


async def test_an_old_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "OLDEST", 99)
    error = await refused(store_on(address))
    assert "romancy needs 99 or newer" in str(error)
    assert not error.retryable


async def test_an_old_server_is_known_by_its_version(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = asyncpg.types.ServerVersion(12, 22, 0, "final", 0)
    monkeypatch.setattr(asyncpg.Connection, "get_server_version", lambda self: old)
    error = await refused(store_on(address))
    assert "is PostgreSQL 12; romancy needs 14 or newer" in str(error)


async def test_a_newer_release_has_been_here(server: servers.Postgres) -> None:
    async with opened(server.address):
        pass
    await asyncio.to_thread(server.ask, "INSERT INTO romancy_migrations VALUES (9999, 'from_the_future', 0)")
    error = await refused(store_on(server.address))
    assert "was changed by a newer release of romancy" in str(error)


@pytest.fixture(scope="module")
def few_connections() -> Iterator[servers.Postgres]:
    """A server with few connections."""
    one = servers.Postgres("max_connections=8", "superuser_reserved_connections=0", "reserved_connections=0")
    yield one
    one.remove()


async def test_too_many_connections(
    few_connections: servers.Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connections: list[asyncpg.Connection[Any]] = []
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            connections.append(await asyncpg.connect(few_connections.address))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_RETRY_TIMEOUT", 0.1)
        error = await refused(store_on(few_connections.address))
    assert "has no connection left. Raise max_connections, or lower pool_size" in str(error)
    assert error.retryable

    store = store_on(few_connections.address)
    opening = asyncio.ensure_future(store.open())
    await said(caplog, "has no connection left")
    for one in connections:
        await one.close()
    await opening  # a connection was closed
    await store.close()


async def test_more_calls_than_connections_wait_for_each_other(few_connections: servers.Postgres) -> None:
    store = open_store(few_connections.address, clock=SystemClock(), server=ServerOptions(pool_size=2, listen_notify=False))
    await store.open()
    answers = await asyncio.gather(*(store.commit([create(f"i{n}")]) for n in range(50)))
    assert answers == [[Applied(0, owned=True)]] * 50
    assert len(await store.statuses([f"i{n}" for n in range(50)])) == 50
    await store.close()


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (ConnectionRefusedError("no"), True),
        (TimeoutError(), True),
        (asyncpg.AdminShutdownError("no"), True),
        (asyncpg.CannotConnectNowError("no"), True),
        (asyncpg.TooManyConnectionsError("no"), True),
        (asyncpg.DiskFullError("no"), True),
        (asyncpg.DeadlockDetectedError("no"), True),
        (asyncpg.ReadOnlySQLTransactionError("no"), True),
        (asyncpg.InterfaceError("no"), True),
        (asyncpg.InvalidPasswordError("no"), False),
        (asyncpg.InsufficientPrivilegeError("no"), False),
        (asyncpg.UndefinedTableError("no"), False),
        (asyncpg.InvalidCatalogNameError("no"), False),
        (asyncpg.DataError("no"), False),
        (RuntimeError("no"), False),
    ],
)
def test_which_errors_may_pass(error: Exception, retryable: bool) -> None:
    translated = translate(error, "postgresql://h/orders")
    assert translated.retryable is retryable
    assert translated.__cause__ is error
    assert "postgresql://h/orders" in str(translated)


# --- clocks


@workflow
async def nap(ctx: WorkflowContext, seconds: float) -> str:
    """Sleeps."""
    await sleep(ctx, seconds)
    return ctx.worker_id


def clock_off_by(seconds: float) -> SystemClock:
    machine = Machine()
    machine.jump(seconds)
    return machine.clock()


async def test_the_databases_clock_counts(address: str, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(address, clock=clock_off_by(3600), server=LONG_TIMEOUT)
    await store.open()
    assert re.search(r"this machine's clock is (3599|3600)\.", caplog.text)
    right = SystemClock().now()
    assert abs(store.now() - right) < 60 * MICROS
    for _ in range(3):
        assert await store.verified_time() is not None
    assert caplog.text.count("this machine's clock is") == 1, "logged once, not each time"
    await store.close()


async def test_a_clock_that_goes_wrong_later_is_set_right(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    store = open_store(address, clock=clock, server=LONG_TIMEOUT)
    await store.open()
    at = clock.elapsed()
    clock.follow_server(clock.now() - 7200 * MICROS, at, at)
    monkeypatch.setattr(engine, "_CLOCK_EVERY", -1.0)
    await store.claim("worker-1", [], now=1, limit=1)
    assert abs(store.now() - SystemClock().now()) < 60 * MICROS
    at = clock.elapsed()
    clock.follow_server(clock.now() + 7200 * MICROS, at, at)
    certain = await store.verified_time()
    assert certain is not None
    assert abs(certain - SystemClock().now()) < 60 * MICROS
    await store.close()


async def test_machines_that_disagree_keep_leases_and_timers_by_the_databases_clock(server: servers.Postgres) -> None:
    """One clock is an hour ahead, the other an hour behind; leases and timers follow the database's clock."""
    options: dict[str, Any] = {"workflows": [nap], "heartbeat_interval": 0.05, "lease_timeout": 1, "poll_interval": 0.05}
    fast = App(server.address, worker_id="fast", clock=clock_off_by(3600), **options)
    slow = App(server.address, worker_id="slow", clock=clock_off_by(-3600), **options)
    async with fast, slow, Client(server.address, workflows=[nap]) as client:
        before = SystemClock().now()
        handles = [await app.start_workflow(nap, 1.5) for app in (fast, slow, client) for _ in range(3)]
        results = {await handle.result(timeout=30) for handle in handles}
        assert results
        for handle in handles:
            seen = await client.get_instance(handle.instance_id)
            assert seen is not None
            assert seen.ended_at is not None
            assert before - 60 * MICROS < to_micros(seen.created_at) < to_micros(seen.ended_at) < before + 300 * MICROS
            assert to_micros(seen.ended_at) - to_micros(seen.created_at) >= 1.5 * MICROS, "not early"
            assert "lost" not in [line.kind for line in await client.get_journal(handle.instance_id)]


async def test_of_a_batch_that_breaks_off_what_is_written_is_answered(
    address: str, short_timeout: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await servers.empty_postgres(address)
    async with opened(address) as store:
        real, gone = PostgresDatabase.transact_serialized, iter([OSError("the line is cut"), KeyError("row")])

        async def decide(self: PostgresDatabase, batch: Any) -> Any:
            raise next(gone)

        monkeypatch.setattr(PostgresDatabase, "transact_serialized", decide)
        monkeypatch.setattr(engine, "_RETRY_TIMEOUT", 0)
        for kind, instance_id in ((StoreError, "a"), (KeyError, "b")):
            first, second = await store.commit([create(instance_id), publish()])
            assert first == Applied(owned=True)
            assert isinstance(second, NotWrittenError)
            assert isinstance(second.cause, kind)
        monkeypatch.setattr(PostgresDatabase, "transact_serialized", real)
        await write(store, publish())


async def test_what_was_written_of_a_batch_is_not_written_again(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, gone, begun = PostgresDatabase.transact_serialized, [OSError("the line is cut")] * 3, []

    async def decide(self: PostgresDatabase, batch: Any) -> Any:
        if gone:
            raise gone.pop()
        return await real(self, batch)

    @activity
    async def step(ctx: ActivityContext, number: int) -> int:
        begun.append(number)
        return number

    @workflow
    async def steps(ctx: WorkflowContext, number: int) -> int:
        await step(ctx, number)
        await publish_message(ctx, "told", number)
        return await step(ctx, 100 + number)

    async with App(postgres, workflows=[steps]) as app:
        monkeypatch.setattr(PostgresDatabase, "transact_serialized", decide)
        monkeypatch.setattr(engine, "_RETRY_TIMEOUT", 0)
        handles = [await app.start_workflow(steps, number) for number in range(5)]
        assert [await handle.result() for handle in handles] == [100, 101, 102, 103, 104]
    assert not gone
    assert sorted(begun) == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104], "no instance was dropped and started again"
