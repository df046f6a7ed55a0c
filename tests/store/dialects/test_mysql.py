"""The behaviour that is particular to MySQL and MariaDB: names, packets, locks, and lost connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import asyncmy
import pytest
from asyncmy import errors
from sqlalchemy.ext.asyncio import create_async_engine
from tests import mariadb
from tests.servers import named_database
from tests.store.conformance import builders
from tests.store.conformance.builders import create, entry, request, started, transition, worker, write

from romancy import (
    ActivityContext,
    App,
    Client,
    Status,
    WorkflowCancelledError,
    WorkflowContext,
    activity,
    publish,
    receive,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.clock import SystemClock
from romancy.errors import ConfigurationError, StoreError
from romancy.model.instance import InstanceFilter
from romancy.model.transition import Applied, ControlKind, Existing
from romancy.store.migrator import read_migrations
from romancy.store.mysql import engine as mysql_engine
from romancy.store.mysql import pool, schema
from romancy.store.mysql.database import MySqlDatabase
from romancy.store.mysql.errors import classify
from romancy.store.mysql.notifier import MySqlNotifier
from romancy.store.mysql.pool import MySqlPool, parse_address
from romancy.store.mysql.statements import ListSlot, ValueSlot, get_statement, literal, statement_names
from romancy.store.open import open_store
from romancy.store.port import Store
from romancy.store.sql.server import ErrorClass

pytestmark = pytest.mark.skipif(bool(mariadb.why_not()), reason=mariadb.why_not())


@pytest.fixture
async def address() -> str:
    """An empty database."""
    shared = await asyncio.to_thread(mariadb.shared_database)
    await mariadb.empty(shared)
    return shared


@pytest.fixture
async def fresh() -> str:
    """A database without tables."""
    return await asyncio.to_thread(mariadb.new_database)


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    """A store on an empty database."""
    async with opened(address) as one_store:
        yield one_store


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    """Open a store, and close it at the end."""
    one_store = open_store(address, clock=SystemClock())
    await one_store.open()
    try:
        yield one_store
    finally:
        await one_store.close()


def database_of(store: Store) -> MySqlDatabase:
    """The database object of a store."""
    return cast(MySqlDatabase, cast(Any, store)._database)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.15)  # the server caches its answer about locks for 0.1 s


class TestNames:
    """Names are equal only if all their characters are, and are never cut."""

    async def test_spaces_case_and_accents_tell_names_apart(self, store: Store) -> None:
        ids = ["a", "a ", "A", "á", " a", "a\t", "😀", "a\\", "a'", 'a"', "a%s", "a?", ":a", "<<a>>"]
        await started(store, *ids)
        assert sorted(row.row.instance_id for row in await store.list(query())) == sorted(ids)
        for one_id in ids:
            loaded = await store.load(one_id)
            assert loaded is not None
            assert loaded.row.instance_id == one_id

    async def test_channels_and_events_are_told_apart_as_well(self, store: Store) -> None:
        await started(store, "a")
        asked = transition(store_calls=[builders.subscribe("jobs ")], length=0, has_messaging_state=True)
        await write(store, asked)
        await write(store, builders.publish("one", "jobs"), builders.accept(builders.event(kind="paid ")))
        found = await write(
            store, transition(store_calls=[builders.wait("paid")], length=1, has_messaging_state=True, keep_owned=False)
        )
        assert cast(Applied, found[0]).replies == ()

    @pytest.mark.parametrize("letter", ["x", "ü", "€", "😀"])
    async def test_255_characters_of_any_kind_are_a_name(self, store: Store, letter: str) -> None:
        long = letter * 255
        assert await write(store, create(long, workflow=long, version=long)) == [Applied(0, owned=True)]
        answer = await write(
            store, transition(long, store_calls=[builders.subscribe(long)], length=0, has_messaging_state=True)
        )
        assert isinstance(answer[0], Applied)

    @pytest.mark.parametrize("name", ["x" * 1021, "😀" * 256])
    async def test_a_longer_one_is_refused_alone(self, store: Store, name: str) -> None:
        good, bad, fine = await store.commit([create("a"), create(name), create("b")])
        assert good == fine == Applied(0, owned=True)
        assert isinstance(bad, StoreError)
        assert "1020 bytes" in str(bad)
        assert not bad.retryable
        assert {one.row.instance_id for one in await store.list(query())} == {"a", "b"}

    @pytest.mark.parametrize("name", ["\ud800", "a\udc80b"])
    async def test_text_that_is_none_is_refused_alone(self, store: Store, name: str) -> None:
        good, bad = await store.commit([create("a"), create("b", workflow=name)])
        assert good == Applied(0, owned=True)
        assert isinstance(bad, StoreError)
        assert await store.load("b") is None


class TestPayloads:
    """Bytes come back unchanged."""

    async def test_every_byte_and_every_trap_of_quoting(self, store: Store) -> None:
        body = bytes(range(256)) + b"'; DROP TABLE romancy_instances; -- \\' \\\\ %s ? :a <<a>> \0" + "😀".encode()
        await write(store, create(input=body))
        loaded = await store.load("a")
        assert loaded is not None
        assert loaded.input == body

    async def test_ten_megabytes(self, store: Store) -> None:
        body = b'"' + b"x\\n" * (10_000_000 // 3) + b'"'
        await write(store, create(input=body), create("b"))
        loaded = await store.load("a")
        assert loaded is not None
        assert loaded.input == body

    async def test_more_than_the_server_takes_is_refused_alone(self, store: Store) -> None:
        good, bad = await store.commit([create("a"), create("b", input=b"x" * (17 << 20))])
        assert good == Applied(0, owned=True)
        assert isinstance(bad, StoreError)
        assert "max_allowed_packet" in str(bad)
        await started(store, "c")

    async def test_several_large_values_of_one_row(self, store: Store) -> None:
        body = b"'\\\0" * 3_000_000  # twice as long when it is quoted
        await started(store, "a")
        await write(store, transition(history=[entry(1, input=body, value=body), entry(2, value=b"small")], length=0))
        first, second = await store.history("a", 1, after=0, limit=10)
        assert (first.input, first.value, second.value) == (body, body, b"small")

    def test_a_literal_of_a_strange_type_is_refused(self) -> None:
        with pytest.raises(TypeError, match="float"):
            literal(1.5)


class TestStatements:
    """The texts of the statements."""

    async def test_every_statement_has_a_text_that_the_server_understands(self, address: str) -> None:
        async with opened(address):
            pass
        for name in statement_names():
            await explain(address, name)

    def test_lists(self) -> None:
        a, b, x, y = (b"_utf8mb4 x'%02x'" % ord(letter) for letter in "abxy")
        assert get_statement("clear_waits").text(
            ('["a","b"]',)
        ) == b"DELETE FROM romancy_waits WHERE instance_id IN (%b, %b)" % (a, b)
        assert get_statement("clear_waits").text(("[]",)) == b"DELETE FROM romancy_waits WHERE instance_id IN (NULL)"
        withdrawn = get_statement("withdraw_waits").text(('[["a","x"],["b","y"]]',))
        assert withdrawn is not None
        wanted = b"WHERE ((instance_id = %b AND op = %b) OR (instance_id = %b AND op = %b))"
        assert withdrawn.endswith(wanted % (a, x, b, y))
        assert get_statement("due").text({"kinds": "[]", "now": 1, "limit": 1}) is None


class TestLocksAndDisconnects:
    """Locks are waited for, and lost connections are replaced."""

    @pytest.mark.parametrize("number", [1205, 1213, 2006, 2013, 1053])
    async def test_it_is_tried_again(self, store: Store, number: int) -> None:
        tries: list[int] = []

        def work(cursor: Any) -> str:
            tries.append(1)
            if len(tries) < 3:
                raise errors.OperationalError(number, "as the server says")
            return "done"

        assert await database_of(store).write(work) == "done"
        assert len(tries) == 3

    async def test_a_deadlock(self, store: Store, address: str) -> None:
        await started(store, "a", "b")
        async with other(address) as run:
            await run("START TRANSACTION")
            # In a deadlock, the server rolls back the transaction that has changed less.
            await run("INSERT INTO romancy_sources SELECT seq, '', '', '', 0 FROM seq_1_to_1000")
            await run("SELECT 1 FROM romancy_instances WHERE id = 'b' FOR UPDATE")
            cancels = [request(ControlKind.CANCEL, one_id) for one_id in ("a", "b")]
            writing = asyncio.create_task(write(store, *cancels))
            await until(lambda: waiting(address))
            await run("SELECT 1 FROM romancy_instances WHERE id = 'a' FOR UPDATE")
            await run("ROLLBACK")
            answers = await writing
        assert [type(answer) for answer in answers] == [Applied, Applied]

    async def test_a_locked_row_does_not_delay_other_writes(self, store: Store, address: str) -> None:
        await started(store, "a", "b")
        async with other(address) as run:
            await run("START TRANSACTION")
            await run("SELECT 1 FROM romancy_instances WHERE id = 'a' FOR UPDATE")
            answers = await write(store, transition("b", history=[entry(1)], length=0))
        assert answers == [Applied(0, owned=True)]

    async def test_an_idle_connection_that_was_cut_is_not_noticed(
        self, store: Store, address: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await started(store, "a")
        await kill_all(address)
        with caplog.at_level(logging.CRITICAL, "romancy.store"):
            await started(store, "b")

    async def test_the_heartbeat_finds_its_way_back(self, store: Store, address: str) -> None:
        await store.register_worker(worker())
        heartbeat = store.heartbeat("worker-1")
        try:
            assert await asyncio.to_thread(heartbeat.renew, 20)
            await kill_all(address)
            beats: list[bool] = []
            for _ in range(2):
                with suppress(StoreError):
                    beats.append(await asyncio.to_thread(heartbeat.renew, 20))
            assert beats[-1]
            await store.release("worker-1", now=30)
            assert not await asyncio.to_thread(heartbeat.renew, 40)
        finally:
            await asyncio.to_thread(heartbeat.close)

    async def test_a_restart_of_the_server_in_the_middle(self, caplog: pytest.LogCaptureFixture) -> None:
        server = await asyncio.to_thread(mariadb.MariaDb)
        try:
            async with opened(await asyncio.to_thread(mariadb.new_database, server.address)) as one_store:
                await started(one_store, "a")
                await asyncio.to_thread(server.stop, hard=True)
                writing = asyncio.create_task(write(one_store, create("b"), builders.publish("one")))
                await until(lambda: is_logged(caplog, "Trying again"))
                await asyncio.to_thread(server.start)
                assert [type(answer) for answer in await writing] == [Applied, Applied]
                assert {found.row.instance_id for found in await one_store.list(query())} == {"a", "b"}
        finally:
            await asyncio.to_thread(server.remove)


class TestCommits:
    """After a COMMIT without an answer, the store asks whether it took effect."""

    @pytest.mark.parametrize("moment_of_cut", ["before", "after"])
    async def test_a_message_is_there_once(self, address: str, moment_of_cut: str) -> None:
        async with proxied(address) as (proxy, store):
            proxy.cut(moment_of_cut)
            await write(store, builders.publish("one"))
            assert proxy.cuts == 1
        assert await mariadb.execute(address, "SELECT count(*) FROM romancy_messages") == [(1,)]

    @pytest.mark.parametrize("moment_of_cut", ["before", "after"])
    async def test_a_start_is_answered_as_one(self, address: str, moment_of_cut: str) -> None:
        async with proxied(address) as (proxy, store):
            proxy.cut(moment_of_cut)
            assert await write(store, create("a")) == [Applied(0, owned=True)]
            assert [type(answer) for answer in await write(store, create("a"))] == [Existing]

    async def test_one_that_is_under_way_is_waited_for(self, address: str) -> None:
        async with proxied(address) as (proxy, store):
            proxy.cut("late")
            writing = asyncio.create_task(write(store, builders.publish("one")))
            await until(lambda: waiting(address))  # the question waits for the lock of the commit token
            proxy.let_go()
            await writing
        assert await mariadb.execute(address, "SELECT count(*) FROM romancy_messages") == [(1,)]

    async def test_one_that_comes_after_the_question_is_void(self, address: str) -> None:
        async with proxied(address) as (proxy, store):
            proxy.cut("late")
            assert await write(store, create("a")) == [Applied(0, owned=True)]  # the store has asked, and repeated the write
            proxy.let_go()
            await proxy.arrived.wait()
        assert await mariadb.execute(address, "SELECT count(*) FROM romancy_journal") == [(0,)]
        assert await mariadb.execute(address, "SELECT id FROM romancy_instances") == [("a",)]

    async def test_marks_are_forgotten(self, store: Store, address: str) -> None:
        await started(store, "a")
        database = database_of(store)
        await mariadb.execute(address, "UPDATE romancy_commits SET token = concat('0', token)")
        kept = "INSERT INTO romancy_commits SELECT concat('01', seq), 1 FROM seq_1_to_2500"
        await mariadb.execute(address, kept)
        await started(store, "b")
        await database._prune_commit_tokens()
        assert await mariadb.execute(address, "SELECT count(*) FROM romancy_commits") == [(1,)]


class TestForeignCommits:
    """The notifier learns of foreign commits by polling."""

    async def test_what_another_writes_is_noticed(self, address: str) -> None:
        async with opened(address) as mine, opened(address) as theirs:
            notified = asyncio.Event()
            theirs.on_remote_commit = notified.set
            await write(mine, create("a", owner=None))
            await asyncio.wait_for(notified.wait(), 20)

    async def test_own_notifications_are_ignored(self, store: Store) -> None:
        some = database_of(store)._connections
        notified: list[str] = []
        mine, theirs = (MySqlNotifier(some, partial(notified.append, who), nothing) for who in ("me", "them"))
        for notifier in (mine, theirs):
            await notifier._poll()  # takes note of earlier commits
        notified.clear()
        mine.notify()
        for notifier in (mine, mine, theirs, theirs):
            await notifier._poll()
        assert notified == ["them"]
        mine.notify()
        theirs.notify()
        for notifier in (mine, theirs, mine, theirs):
            await notifier._poll()
        assert notified == ["them", "them", "me"]


class TestTransactionsOfTheCaller:
    """Starts and sends on connections of the caller."""

    async def test_a_connection_of_the_driver(self, address: str) -> None:
        async with App(address, workflows=[many_kinds, publishing]) as app, other(address) as run:
            await run("START TRANSACTION")
            handle = await app.using(run.connection).start_workflow(many_kinds, 3)
            await app.using(run.connection).send_event("paid", "shop", {"n": 3})
            await app.using(run.connection).publish("steps", 1)
            assert await app.get_instance(handle.instance_id) is None
            await run("COMMIT")
            assert await handle.result(timeout=30) == 7

    async def test_an_open_transaction_delays_no_other(self, address: str) -> None:
        async with App(address, workflows=[publishing]) as app, other(address) as run:
            await run("START TRANSACTION")
            await app.using(run.connection).publish("steps", 1)
            await app.using(run.connection).start_workflow(publishing, 1)
            await (await app.start_workflow(publishing, 2)).result(timeout=30)

    @pytest.mark.parametrize(
        "how", ["sql_mode = ''", "sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'", "character_set_client = latin1"]
    )
    async def test_one_on_which_values_could_be_misunderstood_is_refused(self, address: str, how: str) -> None:
        async with Client(address, workflows=[publishing]) as client, other(address) as run:
            await run(f"SET SESSION {how}")
            with pytest.raises(ConfigurationError, match="utf8mb4"):
                await client.using(run.connection).start_workflow(publishing, 1)

    async def test_any_driver_of_sqlalchemy(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mysql_engine, "DriverConnection", int)  # as if SQLAlchemy's connection were of another driver
        engine = create_async_engine(address.replace("mysql:", "mysql+asyncmy:"))
        async with App(address, workflows=[publishing]) as app:
            async with engine.begin() as connection:
                handle = await app.using(connection).start_workflow(publishing.with_options(instance_id="ä'%s"), 1)
                await app.using(connection).publish("steps", "1%s")
                again = await app.using(connection).start_workflow(publishing.with_options(instance_id="ä'%s"), 1)
            await handle.result(timeout=30)
            assert again.instance_id == "ä'%s"
        await engine.dispose()


class TestMigrating:
    """DDL statements commit implicitly."""

    async def test_several_processes_at_once(self, fresh: str) -> None:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-W", "error", "-c", OPEN, fresh)
        racing = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stderr=pipe) for _ in range(4)]
        outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in racing))
        assert [process.returncode for process in racing] == [0] * 4, outputs
        found = await mariadb.execute(fresh, "SELECT version FROM romancy_migrations")
        assert found == [(one.version,) for one in read_migrations(schema.MIGRATIONS)]

    async def test_one_that_ended_in_the_middle_is_finished(self, fresh: str) -> None:
        first, *_ = read_migrations(schema.MIGRATIONS)
        for statement in first.statements[: len(first.statements) // 2]:
            await mariadb.execute(fresh, statement)
        async with opened(fresh) as store:
            await started(store, "a")

    async def test_one_that_failed_lets_others_try(self, fresh: str) -> None:
        await mariadb.execute(fresh, "CREATE TABLE romancy_messaging_lock (other INTEGER)")
        failing = open_store(fresh, clock=SystemClock())
        with pytest.raises(StoreError, match="Unknown column"):
            await failing.open()
        await mariadb.execute(fresh, "DROP TABLE romancy_messaging_lock")
        async with opened(fresh) as store:
            await started(store, "a")

    async def test_when_it_is_done_the_lock_is_free(self, fresh: str) -> None:
        async with opened(fresh):
            assert await mariadb.execute(fresh, "SELECT is_free_lock(concat('romancy ', md5(database())))") == [(1,)]

    async def test_without_leave_nothing_is_changed(self, fresh: str) -> None:
        store = open_store(fresh, clock=SystemClock(), auto_migrate=False)
        with pytest.raises(StoreError, match="0001_initial"):
            await store.open()
        assert await mariadb.execute(fresh, "SHOW TABLES") == []

    @pytest.mark.parametrize(
        ("version", "fits"),
        [
            ("8.0.36", True),
            ("9.1.0", True),
            ("10.6.18-MariaDB-log", True),
            ("5.5.5-10.11.2-MariaDB", True),
            ("11.4.2-MariaDB", True),
            ("5.7.44-log", False),
            ("10.5.23-MariaDB", False),
            ("5.5.5-10.3.39-MariaDB", False),
        ],
    )
    def test_old_servers_are_refused(self, version: str, fits: bool) -> None:
        if fits:
            schema.require_version(version, "mysql://host/db")
        else:
            with pytest.raises(StoreError, match=r"needs (MySQL 8\.0|MariaDB 10\.6) or newer"):
                schema.require_version(version, "mysql://host/db")


class TestAddresses:
    """Errors name what is wrong with an address, without the password."""

    async def test_a_wrong_password(self, address: str) -> None:
        parts = urlsplit(address)
        wrong = f"mysql://unknown-user:s3cret@{parts.hostname}:{parts.port}{parts.path}"
        store = open_store(wrong, clock=SystemClock())
        with pytest.raises(StoreError, match="refuses the user or the password") as caught:
            await store.open()
        assert "s3cret" not in str(caught.value)

    async def test_no_such_database(self, address: str) -> None:
        store = open_store(named_database(address, "nowhere"), clock=SystemClock())
        with pytest.raises(StoreError, match="CREATE DATABASE"):
            await store.open()

    @pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+asyncmy", "mysql+aiomysql", "mariadb+mariadbconnector"])
    async def test_every_spelling(self, address: str, scheme: str) -> None:
        async with opened(address.replace("mysql:", f"{scheme}:", 1) + "?charset=utf8mb4") as store:
            await started(store, "a")

    @pytest.mark.parametrize(
        ("tail", "says"), [("host/db?wat=1", "wat"), ("host", "lacks the database"), ("host:port/db", "port")]
    )
    def test_what_cannot_be_an_address(self, tail: str, says: str) -> None:
        with pytest.raises(ConfigurationError, match=says) as caught:
            open_store(f"mysql://me:s3cret@{tail}", clock=SystemClock())
        assert "s3cret" not in str(caught.value)

    def test_without_the_driver_it_is_said_how_to_get_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.startswith(("asyncmy", "romancy.store.mysql"))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "asyncmy", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'romancy\[mysql\]'"):
            open_store("mysql://host/db", clock=SystemClock())


# --- an app


@activity
async def double(ctx: ActivityContext, number: int) -> int:
    return 2 * number


@workflow
async def many_kinds(ctx: WorkflowContext, number: int) -> int:
    await subscribe(ctx, "steps", mode="competing")
    await sleep(ctx, 0.01)
    paid = await wait_event(ctx, "paid", match={"n": number})
    step = await receive(ctx, "steps")
    total: int = await double(ctx, paid.data["n"]) + step.data
    if number < 3:
        await ctx.recur(number + 1)
    return total


@workflow
async def publishing(ctx: WorkflowContext, words: int) -> None:
    for word in range(words):
        await publish(ctx, "steps", word)


@workflow
async def waiting_workflow(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "never")


async def test_who_gives_up_while_it_is_connected_is_let_go_at_any_moment(address: str) -> None:
    some = MySqlPool(parse_address(address), 200)
    for moment in range(200):
        connecting = asyncio.ensure_future(some.connect())
        deadline = asyncio.get_running_loop().time() + moment / 40_000
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0)
        was_there = connecting.done()
        connecting.cancel()
        try:
            link = await connecting
        except asyncio.CancelledError:
            continue
        await link.close()
        assert was_there, "the cancellation was lost"
    await some.close()


async def test_an_app(address: str) -> None:
    async with App(address, workflows=[many_kinds, publishing, waiting_workflow]) as app:
        waiting_one = await app.start_workflow(waiting_workflow)
        running = await app.start_workflow(many_kinds, 1)
        for number in (1, 2, 3):
            await app.send_event("paid", "shop", {"n": number})
        await (await app.start_workflow(publishing, 3)).result(timeout=30)
        assert await running.result(timeout=30) == 2 * 3 + 2
        await waiting_one.cancel()
        with pytest.raises(WorkflowCancelledError):
            await waiting_one.result(timeout=30)
        found = await app.get_instance(running.instance_id)
    assert found is not None
    assert (found.generation, found.status) == (3, Status.COMPLETED)


async def test_an_app_hears_of_what_a_client_elsewhere_does(address: str) -> None:
    async with App(address, workflows=[many_kinds]), Client(address, workflows=[many_kinds]) as client:
        handle = await client.start_workflow(many_kinds, 3)
        await client.send_event("paid", "shop", {"n": 3})
        await client.publish("steps", 1)
        assert await handle.result(timeout=30) == 7


# --- helpers

OPEN = """
import asyncio, sys
from romancy.clock import SystemClock
from romancy.store.mysql.notifier import MySqlNotifier
from romancy.store.open import open_store

async def main():
    store = open_store(sys.argv[1], clock=SystemClock())
    sys.stdin.readline()
    await store.open()
    await store.close()

asyncio.run(main())
"""


async def nothing() -> None:
    """A callback that does nothing."""


def query() -> InstanceFilter:
    """A filter that every instance matches."""
    return InstanceFilter(limit=100)


async def is_logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    """Whether the text was logged."""
    return words in caplog.text


async def waiting(address: str) -> bool:
    """Whether a transaction waits for a lock."""
    found = await mariadb.execute(address, "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
    return bool(found)


async def kill_all(address: str) -> None:
    """Kill the connections of all stores on a database."""
    name = urlsplit(address).path.removeprefix("/")
    here = "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> connection_id()"
    for (number,) in await mariadb.execute(address, here.format(name)):
        with suppress(errors.Error):
            await mariadb.execute(address, f"KILL {number}")


class DirectConnection:
    """A connection that the test uses directly."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def __call__(self, statement: str) -> object:
        """Run a statement."""
        cursor = self.connection.cursor()
        await cursor.execute(statement)
        return await cursor.fetchall()


@asynccontextmanager
async def other(address: str) -> AsyncIterator[DirectConnection]:
    """Open a connection, and close it at the end."""
    connection: Any = await asyncmy.connect(**parse_address(address).connect_arguments(), autocommit=True)
    try:
        yield DirectConnection(connection)
    finally:
        await connection.ensure_closed()


async def explain(address: str, name: str) -> None:
    """Let the server plan a statement, with placeholder values."""
    statement = get_statement(name)
    values = {part.key: _some(part) for part in statement.parts if not isinstance(part, bytes)}
    inner = [part.each for part in statement.parts if isinstance(part, ListSlot) and part.each is not None]
    values |= {
        part.key: 1 for each in inner for part in each.parts if isinstance(part, ValueSlot) and isinstance(part.key, str)
    }
    text = statement.text(cast(Any, values))
    assert text is not None
    for part in text.decode().split(";"):
        if not part.startswith("SET"):
            await mariadb.execute(address, f"EXPLAIN {part}")


def _some(place: ValueSlot | ListSlot) -> object:
    if isinstance(place, ValueSlot):
        return 1  # the server converts it where a text is needed
    return [1, 2] if place.each is None else [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7]]


class Proxy:
    """A proxy between a store and its server, which cuts the connection at a COMMIT."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._moment = ""
        self._late: tuple[asyncio.StreamWriter, bytes] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: list[asyncio.StreamWriter] = []
        self.cuts = 0
        self.arrived = asyncio.Event()

    def cut(self, moment_of_cut: str) -> None:
        """Cut the connection at the next COMMIT: "before" it arrives, "after" its answer, or "late", until `let_go`."""
        self._moment = moment_of_cut

    def let_go(self) -> None:
        """Forward the COMMIT that was held back."""
        assert self._late is not None
        server, packet = self._late
        server.write(packet)

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        server, to_server = await asyncio.open_connection(self._host, self._port)
        self._connections += [to_client, to_server]
        answering = asyncio.create_task(self._answer(server, to_client))
        self._tasks.add(answering)
        while packet := await client.read(1 << 16):
            if self._moment and packet.endswith(b"COMMIT"):
                answering.cancel()
                await self._cut(packet, server, to_server)
                break
            to_server.write(packet)
        to_client.close()
        if self._late is None or self._late[0] is not to_server:
            to_server.close()

    async def _cut(self, packet: bytes, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        moment_of_cut, self._moment = self._moment, ""
        self.cuts += 1
        if moment_of_cut == "after":
            to_server.write(packet)
            await server.read(1)
        if moment_of_cut == "late":
            self._late = (to_server, packet)
            self._tasks.add(asyncio.create_task(self._swallow(server)))

    async def _answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while packet := await server.read(1 << 16):
            to_client.write(packet)
        to_client.close()

    async def _swallow(self, server: asyncio.StreamReader) -> None:
        await server.read(1)
        self.arrived.set()

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self._connections:
            line.close()
        await asyncio.gather(*(line.wait_closed() for line in self._connections), return_exceptions=True)


@asynccontextmanager
async def proxied(address: str) -> AsyncIterator[tuple[Proxy, Store]]:
    """A store that reaches its server through a proxy."""
    parts = urlsplit(address)
    proxy = Proxy(parts.hostname or "", parts.port or 3306)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        async with opened(address.replace(f":{parts.port}/", f":{port}/")) as store:
            yield proxy, store
    finally:
        await proxy.close()
        listening.close()
        await listening.wait_closed()


class TestSeveralServers:
    """An address with several servers."""

    def test_its_parts(self) -> None:
        found = parse_address("mysql://me:s3cret@one,two:3307,[::1]:3308/orders?ssl=1")
        assert [(each.host, each.port) for each in found.split_hosts()] == [("one", 3306), ("two", 3307), ("::1", 3308)]
        assert found.label == "mysql://me@one:3306,two:3307,[::1]:3308/orders"
        assert {each.password for each in found.split_hosts()} == {"s3cret"}

    @pytest.mark.parametrize("place", ["one:x", "one,two:x", "one:99999"])
    def test_ports_that_are_none(self, place: str) -> None:
        with pytest.raises(ConfigurationError, match="port in the database address"):
            parse_address(f"mysql://me@{place}/orders")

    async def test_the_one_that_takes_writes_is_found_and_two_are_refused(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pool, "_FIND_WRITERS_TIMEOUT", 60.0)
        name, here = urlsplit(address).path.removeprefix("/"), urlsplit(address).port
        other_server = await asyncio.to_thread(mariadb.MariaDb)
        try:
            await mariadb.execute(other_server.address, f"CREATE DATABASE {name}; SET GLOBAL read_only = 1")
            both = f"mysql://root@127.0.0.1:{other_server.port},127.0.0.1:{here}/{name}"
            async with opened(both) as store:
                await started(store, "a")
            assert await mariadb.execute(address, "SELECT id FROM romancy_instances") == [("a",)]
            await mariadb.execute(other_server.address, "SET GLOBAL read_only = 0")
            refused = open_store(both, clock=SystemClock())
            with pytest.raises(StoreError, match="both take writes") as caught:
                await refused.open()
            assert f"127.0.0.1:{here}" in str(caught.value)
            await mariadb.execute(other_server.address, "SET GLOBAL read_only = 1")
            await asyncio.to_thread(other_server.stop)
            async with opened(both) as store:  # one of the two is down
                await started(store, "b")
        finally:
            await asyncio.to_thread(other_server.remove)

    async def test_a_machine_that_is_gone_without_a_word_is_noticed(self, address: str) -> None:
        link = await MySqlPool(parse_address(address), 1).connect()
        line = link._raw._transport.get_extra_info("socket")
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        await link.close()


def test_a_commit_that_fails_on_a_node_that_has_lost_the_others_may_have_been_made() -> None:
    assert classify(errors.OperationalError(1180, "Got error 'unknown' during COMMIT")) is ErrorClass.UNAVAILABLE


class TestReaders:
    """Users with read access only."""

    async def test_they_are_not_asked_to_lock(self, store: Store, address: str) -> None:
        await started(store, "a")
        name = urlsplit(address).path.removeprefix("/")
        reader = f"reader_{name}"
        await mariadb.execute(address, f"CREATE USER {reader}@'127.0.0.1'; GRANT SELECT ON {name}.* TO {reader}@'127.0.0.1'")
        try:
            async with opened(address.replace("root@", f"{reader}@")) as looking:
                assert [row.row.instance_id for row in await looking.list(query())] == ["a"]
        finally:
            await mariadb.execute(address, f"DROP USER {reader}@'127.0.0.1'")
