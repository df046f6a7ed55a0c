"""The probe at startup: unsuitable servers and poolers are refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests import databases, mariadb, servers
from tests.store.conformance import builders
from tests.store.conformance.builders import started, transition, write

from romancy import StoreError
from romancy.clock import SystemClock
from romancy.codec import NO_CODEC
from romancy.model.instance import InstanceFilter
from romancy.store.open import ServerOptions, open_store
from romancy.store.postgres import pool
from romancy.store.sql import greenlet_bridge
from romancy.store.sql.greenlet_bridge import wait
from romancy.store.sql.lock_probe import Probe

DIRECT = ServerOptions(listen_notify=False)


async def execute(address: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a connection of its own."""
    return await asyncio.to_thread(databases.execute, address, statement)


@pytest.fixture(params=["postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of server."""
    if request.param == "mariadb" and (why_not := mariadb.why_not()):
        pytest.skip(why_not)
    return str(request.param)


@pytest.fixture
async def address(kind: str) -> str:
    """A database of its own."""
    make = servers.new_postgres_database if kind == "postgres" else mariadb.new_database
    return await asyncio.to_thread(make)


async def open_and_close(address: str) -> None:
    """Open a store and close it."""
    store = open_store(address, clock=SystemClock(), server=DIRECT)
    await store.open()
    await store.close()


# --- simulated servers


class LockedError(Exception):
    """Another connection holds the lock."""


@dataclass
class SimulatedServer:
    """The state of a simulated server, or of several, and its deviations from what the store relies on."""

    deviations: frozenset[str]
    committed: list[str] = field(default_factory=list)
    holder: object = None
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    has_lock_row: bool = True
    restored: int = 0


class SimulatedConnection:
    """A connection to the simulated server."""

    def __init__(self, server: SimulatedServer, name: str) -> None:
        self.server = server
        self.name = name
        self.in_transaction = False
        self.token = ""
        self.snapshot: list[str] | None = None
        self.numbers = itertools.count(1 if name == "one" else 30001)

    def visible(self) -> Sequence[str]:
        """The commit tokens that the connection sees."""
        return self.server.committed if self.snapshot is None else self.snapshot


class SimulatedDialect:
    """The methods of a dialect that the probe calls, on a simulated server."""

    label = "mysql://played/db"

    def cursor(self, connection: SimulatedConnection) -> Any:
        """A cursor on the connection."""
        return SimulatedCursor(connection)

    async def begin(self, connection: SimulatedConnection, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction."""
        server = connection.server
        connection.in_transaction, connection.token = True, token
        if "snapshot" in server.deviations:
            connection.snapshot = list(server.committed)
        if serialized:
            server.holder = connection
            server.freed.clear()
            return False if server.has_lock_row else None
        return False

    async def commit_transaction(self, connection: SimulatedConnection) -> None:
        """Commit the transaction."""
        if "stale" not in connection.server.deviations or connection.name == "other":
            connection.server.committed.append(connection.token)
        await self.rollback(connection)

    async def rollback(self, connection: SimulatedConnection) -> None:
        """Roll back the transaction."""
        connection.in_transaction, connection.snapshot = False, None
        if connection.server.holder is connection:
            connection.server.holder = None
            connection.server.freed.set()

    def may_only_read(self, error: BaseException) -> bool:
        """The simulated server is never read-only."""
        return False

    def is_conflict(self, error: BaseException) -> bool:
        """Whether another connection has the lock."""
        return isinstance(error, LockedError)


class SimulatedCursor:
    """The named statements of the probe, run through the greenlet bridge."""

    codec = NO_CODEC
    has_bulk_statements = True

    def __init__(self, connection: SimulatedConnection) -> None:
        self._connection = connection
        self._server = connection.server

    def rows(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """The rows that a statement returns."""
        return list(getattr(self, f"_{name}")(*values))

    def first(self, name: str, values: Sequence[Any] = ()) -> Any:
        """The first row, if any."""
        found = self.rows(name, values)
        return found[0] if found else None

    def run(self, name: str, values: Sequence[Any] = ()) -> int:
        """Run a statement that writes."""
        self._server.restored += name == "restore_messaging_lock"
        self._server.has_lock_row = "hidden" not in self._server.deviations
        return 1

    def insert(self, name: str, values: Sequence[Any] = ()) -> int:
        """The next sequence number."""
        return next(self._connection.numbers if "batches" in self._server.deviations else self._server.numbers)

    def _probe_server(self) -> list[Any]:
        wait(asyncio.sleep(0))
        splits = "splits" in self._server.deviations and not self._connection.in_transaction
        another = "several" in self._server.deviations and self._connection.name == "other"
        return [("standby" if splits else "node b" if another else "node a",)]

    def _probe_nowait(self) -> list[Any]:
        if "nowait" in self._server.deviations:
            return [(1,)]
        raise LockedError

    def _probe_skip(self) -> list[Any]:
        return [(1,)] if "skip" in self._server.deviations else []

    def _probe_seen(self, token: str) -> list[Any]:
        return [(1,)] if token in self._connection.visible() else []

    def _sequences_behind(self) -> list[Any]:
        return []

    def _lock_messaging(self) -> list[Any]:
        if not self._server.has_lock_row:
            return []
        if self._server.holder is not self._connection and "wait" not in self._server.deviations:
            wait(self._server.freed.wait())
        return [(1,)]


async def probe(*deviations: str, has_lock_row: bool = True) -> SimulatedServer:
    """Probe a simulated server with these deviations."""
    server = SimulatedServer(frozenset(deviations), has_lock_row=has_lock_row)
    tokens = (f"token-{number}" for number in itertools.count())
    await Probe(
        SimulatedDialect(), SimulatedConnection(server, "one"), SimulatedConnection(server, "other"), lambda: next(tokens)
    ).verify_server()
    return server


async def test_a_server_that_keeps_to_it_is_not_refused() -> None:
    assert (await probe()).restored == 0
    assert (await probe(has_lock_row=False)).restored == 1


@pytest.mark.parametrize(
    ("deviation", "seen"),
    [
        ("skip", "SKIP LOCKED"),  # TiDB
        ("nowait", "NOWAIT"),  # Aurora DSQL, Galera nodes
        ("wait", "should have waited"),
        ("snapshot", "did not see what was committed under it"),  # Yugabyte without READ COMMITTED
        ("splits", "several servers"),  # Pgpool-II, pgcat
        ("several", "several servers"),
        ("stale", "was not seen by another|did not see"),  # a replica
        ("batches", "do not rise"),  # TiDB, Yugabyte: each server reserves a range
    ],
)
async def test_one_that_does_not_is_refused_and_what_was_seen_is_said(deviation: str, seen: str) -> None:
    with pytest.raises(StoreError, match=seen) as caught:
        await probe(deviation)
    assert "cannot be used" in str(caught.value)
    assert not caught.value.retryable


async def test_a_row_that_is_put_back_and_still_not_seen() -> None:
    with pytest.raises(StoreError, match="cannot be seen, though it is there"):
        await probe("hidden", has_lock_row=False)


# --- real servers


@pytest.mark.parametrize("how", ["DELETE FROM romancy_messaging_lock", "TRUNCATE romancy_messaging_lock"])
async def test_a_row_to_take_turns_with_that_is_missing_is_put_back(
    address: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await open_and_close(address)
    await execute(address, how)
    await open_and_close(address)
    assert await execute(address, "SELECT id FROM romancy_messaging_lock") == [(1,)]
    assert "was missing, and was put back" in caplog.text


BEGIN_ANEW = {
    "postgres": "SELECT setval('romancy_events_seq_seq', 1, false), setval('romancy_inbox_id_seq', 1, false)",
    "mariadb": "ALTER TABLE romancy_events AUTO_INCREMENT = 1",
}


async def test_numbers_that_began_anew_go_on_behind_those_that_were_given(
    address: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a copy without sequences: an event with a number that is too small would be accepted and never matched."""
    store = open_store(address, clock=SystemClock(), server=DIRECT)
    await store.open()
    await write(store, *[builders.accept(builders.event(f"e-{number}", "old")) for number in range(5)])
    await started(store, "a")
    await store.close()
    await execute(address, "DELETE FROM romancy_events")
    await execute(address, BEGIN_ANEW[kind])
    assert await execute(address, "SELECT created_at_event_seq FROM romancy_instances") == [(5,)]

    store = open_store(address, clock=SystemClock(), server=DIRECT)
    await store.open()
    assert "romancy_events had begun anew at 0, while 5 had been given" in caplog.text
    await write(store, transition(store_calls=[builders.wait("paid")], length=0, has_messaging_state=True, keep_owned=False))
    (accepted,) = await write(store, builders.accept(builders.event("new", "paid")))
    assert accepted.woken == ("a",)  # type: ignore[union-attr]
    assert await execute(address, "SELECT seq FROM romancy_events") == [(6,)]
    await store.close()
    caplog.clear()
    await open_and_close(address)
    assert "begun anew" not in caplog.text


async def test_starting_leaves_nothing_behind(address: str) -> None:
    await open_and_close(address)
    for table in ("romancy_staged", "romancy_events", "romancy_instances"):
        assert await execute(address, f"SELECT count(*) FROM {table}") == [(0,)]


# --- several servers, and balancers between them


@pytest.fixture(scope="module")
def two() -> Iterator[list[servers.Postgres]]:
    """A server and its standby."""
    primary = servers.Postgres()
    standby = servers.Standby(primary)
    yield [primary, standby]
    standby.remove()
    primary.remove()


def address_of(*several: servers.Postgres) -> str:
    """One address for several servers."""
    return f"postgresql://romancy@{','.join(f'127.0.0.1:{one.port}' for one in several)}/postgres"


class Balancer:
    """Sends each connection to the next server; a test can change the servers."""

    def __init__(self, *ports: int) -> None:
        self.ports = list(ports)
        self.next = itertools.count()
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        port = self.ports[next(self.next) % len(self.ports)]
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        self.writers += [writer, server_writer]
        await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))

    def hang_up(self) -> None:
        """Cut all connections."""
        for line in self.writers:
            line.transport.abort()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection."""
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


@asynccontextmanager
async def balancing(*ports: int) -> AsyncIterator[tuple[Balancer, int]]:
    """A load balancer, and its port."""
    balancer = Balancer(*ports)
    listening = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    try:
        yield balancer, listening.sockets[0].getsockname()[1]
    finally:
        balancer.hang_up()
        listening.close()
        await listening.wait_closed()


async def test_a_load_balancer_in_front_of_a_primary_and_its_standby(two: list[servers.Postgres]) -> None:
    primary, standby = two
    await open_and_close(primary.address)
    async with balancing(primary.port, primary.port, standby.port) as (_, port):
        with pytest.raises(StoreError, match=r"cannot be used|is a standby, or read-only") as caught:
            await open_and_close(f"postgresql://romancy@127.0.0.1:{port}/postgres?sslmode=disable")
    assert "password" not in str(caught.value)


async def test_two_servers_of_one_address_that_take_writes(
    two: list[servers.Postgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old primary has come back: a new process would connect to the first of the two."""
    monkeypatch.setattr(pool, "_FIND_WRITERS_TIMEOUT", 60.0)
    primary, standby = two
    await open_and_close(address_of(*two))  # only one of the two takes writes
    old = await asyncio.to_thread(servers.Postgres)
    try:
        with pytest.raises(StoreError, match=f"127.0.0.1:{old.port} .*both take writes") as caught:
            await open_and_close(address_of(primary, standby, old))
        assert f"127.0.0.1:{primary.port}" in str(caught.value)
        assert f"127.0.0.1:{standby.port} " not in str(caught.value).partition("cannot be used")[2]
    finally:
        await asyncio.to_thread(old.remove)


async def test_another_server_than_before_is_looked_at_before_anything_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The name leads to another server now: a copy whose sequences begin anew, and without the row of the messaging lock."""
    first, second = [await asyncio.to_thread(servers.Postgres) for _ in range(2)]
    try:
        await open_and_close(second.address)
        await asyncio.to_thread(second.ask, "TRUNCATE romancy_messaging_lock")
        async with balancing(first.port) as (balancer, port):
            store = open_store(
                f"postgresql://romancy@127.0.0.1:{port}/postgres?sslmode=disable", clock=SystemClock(), server=DIRECT
            )
            await store.open()
            await started(store, "a")
            balancer.ports = [second.port]
            balancer.hang_up()
            await started(store, "b")
            assert "is now served by another server" in caplog.text
            assert await asyncio.to_thread(second.ask, "SELECT count(*) FROM romancy_messaging_lock") == 1
            assert {row.row.instance_id for row in await store.list(InstanceFilter(limit=10))} == {"b"}
            await store.close()
    finally:
        await asyncio.to_thread(first.remove)
        await asyncio.to_thread(second.remove)


# --- poolers and settings


@pytest.mark.skipif(servers.bouncer_program() is None, reason="PgBouncer is not installed (apt-get install pgbouncer)")
async def test_a_pooler_that_hands_out_connections_by_the_statement() -> None:
    direct = await asyncio.to_thread(servers.new_postgres_database)
    await open_and_close(direct)
    bouncer = await asyncio.to_thread(servers.PgBouncer, servers.postgres(), "pool_mode = statement")
    try:
        with pytest.raises(StoreError, match=r"for each statement\. Set pool_mode = transaction") as caught:
            await open_and_close(bouncer.over(direct))
        assert not caught.value.retryable
    finally:
        await asyncio.to_thread(bouncer.remove)


@pytest.mark.parametrize(("given", "kept"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
async def test_what_is_acknowledged_is_on_the_disk_whatever_was_set_for_the_role(given: str, kept: str) -> None:
    direct = await asyncio.to_thread(servers.new_postgres_database)
    name = direct.rpartition("/")[2]
    await execute(direct, f"ALTER DATABASE {name} SET synchronous_commit = {given}")
    await execute(direct, f"ALTER DATABASE {name} SET idle_session_timeout = '1h'")
    some = pool.PostgresPool(direct, 1)
    some.pooled = False
    asked = "SELECT current_setting('synchronous_commit'), current_setting('idle_session_timeout')"
    async with some.acquire() as connection:
        assert [tuple(row) for row in await connection.fetch(asked)] == [(kept, "0")]
    other = await some.connect()  # as a heartbeat or a session of an activity does
    assert [tuple(row) for row in await other.fetch(asked)] == [(kept, "0")]
    await other.close()
    await some.close()


@pytest.mark.skipif(servers.bouncer_program() is None, reason="PgBouncer is not installed (apt-get install pgbouncer)")
async def test_behind_a_pooler_each_transaction_says_so() -> None:
    direct = await asyncio.to_thread(servers.new_postgres_database)
    name = direct.rpartition("/")[2]
    await execute(direct, f"ALTER DATABASE {name} SET synchronous_commit = off")
    store: Any = open_store((await asyncio.to_thread(servers.bouncer)).over(direct), clock=SystemClock(), server=DIRECT)
    await store.open()
    seen: list[str] = []

    def work(cursor: Any) -> None:
        seen.append(greenlet_bridge.wait(cursor._connection.fetchval("SHOW synchronous_commit")))

    assert store._database._connections.is_commit_async
    await store._database.write(work)
    await write(store, builders.create("a"))  # no statement is a transaction by itself then
    assert seen == ["on"]
    await store.close()
