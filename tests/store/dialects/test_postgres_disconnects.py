"""The connection to the server is lost at every request of every kind of write, before the request arrives or after it.

Each write runs once over a stable connection; the answer and the tables of that run are what every run with a lost
connection must show.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import asyncpg
import pytest
from tests import servers
from tests.postgres_proxy import Cut, Proxy, When, at, nowhere, once, proxy_to, short
from tests.store.conformance.builders import (
    ME,
    ORDER,
    OTHER,
    accept,
    attempt,
    create,
    ending,
    entry,
    event,
    message,
    publish,
    receive,
    request,
    send,
    started,
    subscribe,
    transition,
    wait,
    worker,
    write,
)
from tests.store.conformance.driver import DrivenInstance, new_instances, subscribers

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.model.messaging import ChannelMode, JoinGroup, Publish, SendEvent
from romancy.model.outbox import DeadLettered, Delayed, Delivered
from romancy.model.status import Status
from romancy.model.transition import AttemptUpdate, ControlKind, Wait, WaitKind
from romancy.store.migrator import read_migrations
from romancy.store.open import ServerOptions, open_store
from romancy.store.port import Runnable, Store
from romancy.store.postgres import pool
from romancy.store.postgres.schema import MIGRATIONS

pytestmark = [pytest.mark.chaos]

DIRECT = ServerOptions(listen_notify=False)
TIMER = Wait("timer:1", WaitKind.TIMER, since=20, due=99)
COMMITS = re.compile(
    r"^COMMIT$|^WITH (new|owned|awaited) AS|^INSERT INTO romancy_history \([^)]*\)\s*SELECT"
    r"|^SELECT \* FROM romancy_accept_events|^UPDATE romancy_workers"
)
"""Requests that make something durable."""

TABLES = (
    "SELECT id, workflow, version, status, generation, round, epoch, owner, wake_at, inbox_version, inbox_version_seen,"
    " cancel_requested_at, deadline_at, retrying_since, blocked_by, fingerprint, created_at, started_at, ended_at, code,"
    " digest, (SELECT count(*) FROM romancy_events AS e WHERE e.seq <= i.created_at_event_seq)"
    " FROM romancy_instances AS i ORDER BY id",
    "SELECT * FROM romancy_payloads ORDER BY instance_id, generation",
    "SELECT * FROM romancy_history ORDER BY instance_id, generation, seq",
    "SELECT * FROM romancy_attempts ORDER BY instance_id, generation, op, attempt",
    'SELECT instance_id, op, kind, since, due, key, subject, "match", site, matched_seq IS NULL FROM romancy_waits'
    " ORDER BY 1, 2",
    "SELECT instance_id, kind, op, body, at FROM romancy_inbox ORDER BY id",
    "SELECT instance_id, at, kind, detail, worker, epoch FROM romancy_journal ORDER BY at, instance_id, kind, id",
    "SELECT * FROM romancy_workers ORDER BY id",
    "SELECT * FROM romancy_sources ORDER BY code",
    "SELECT source, id, type, subject, target, consumed, accepted_at, body FROM romancy_events ORDER BY seq",
    "SELECT t.instance_id, t.selector, e.id FROM romancy_consumed_events AS t LEFT JOIN romancy_events AS e USING (seq)"
    " ORDER BY 1, 3",
    "SELECT * FROM romancy_handlers ORDER BY workflow",
    "SELECT * FROM romancy_subscriptions ORDER BY channel, instance_id",
    "SELECT channel, pooled, created_at, body FROM romancy_messages ORDER BY seq",
    "SELECT d.instance_id, d.channel, m.body FROM romancy_deliveries AS d LEFT JOIN romancy_messages AS m USING (seq)"
    " ORDER BY d.instance_id, d.channel, d.seq",
    "SELECT * FROM romancy_group_members ORDER BY name, instance_id",
    "SELECT broker, body, created_at, since, attempts, next_at, claimed_by, last_error, dead_at FROM romancy_outbox"
    " ORDER BY seq",
    "SELECT kind, head, body, at FROM romancy_staged ORDER BY seq",
)
"""All contents, without sequence numbers, which a rolled-back transaction uses up, and without the time of the last write,
which the fast path does not record."""

EMPTY = "; ".join(
    f"DELETE FROM romancy_{name}"
    for name in (
        *("instances", "payloads", "history", "attempts", "waits", "inbox", "journal", "workers", "sources", "events"),
        *(
            "consumed_events",
            "handlers",
            "subscriptions",
            "messages",
            "deliveries",
            "group_members",
            "outbox",
            "staged",
            "commits",
        ),
    )
)

TWICE = (
    (Cut.AFTER, Cut.BEFORE, 1),
    (Cut.AFTER, Cut.AFTER, 1),
    (Cut.AFTER, Cut.AFTER, 2),
    (Cut.BEFORE, Cut.AFTER, 1),
    (Cut.DURING, Cut.DURING, 1),
)
"""Two cuts: the first at a commit, the second so many requests later."""


# --- the writes: preparation, and the write over the cut connection

Prepare = Callable[[Store], Awaitable[Any]]
WriteThrough = Callable[[Store, Any], Awaitable[Any]]


@dataclass(frozen=True)
class WriteCase:
    """One kind of write: how the tables are prepared, and what is written."""

    prepare: Prepare
    act: WriteThrough


async def _nothing(store: Store) -> None:
    pass


async def _one(store: Store) -> None:
    await started(store, "a")


async def _two(store: Store) -> None:
    await started(store, "a", "b")


async def _held(store: Store, *, mode: ChannelMode = ChannelMode.COMPETING) -> list[DrivenInstance]:
    return await subscribers(store, "a", "b", mode=mode)


async def _waiting(store: Store) -> DrivenInstance:
    """An instance that waits for an event and is not owned."""
    (a,) = await new_instances(store, "a")
    assert await a.ask(wait()) == {}
    return a


async def _paid_once(store: Store) -> None:
    await _waiting(store)
    await write(store, accept(event("e-1")))


async def _waiting_with_match(store: Store) -> None:
    (a,) = await new_instances(store, "a")
    assert await a.ask(wait(match=b'{"n": 1}')) == {}


async def _listening(store: Store) -> list[DrivenInstance]:
    """Two competing subscribers that wait for a message."""
    both = await _held(store)
    for one in both:
        assert await one.ask(receive()) == {}
    return both


async def _with_messages(store: Store) -> list[DrivenInstance]:
    both = await _held(store)
    await write(store, publish("one"), publish("two"))
    return both


async def _due(store: Store) -> None:
    await store.register_worker(worker(ME))
    await write(store, *(create(one, owner=None, now=10 + place) for place, one in enumerate("abc")))


async def _owned(store: Store) -> None:
    await store.register_worker(worker(ME))
    await started(store, "a", "b")


async def _failed(store: Store) -> None:
    await started(store, "a")
    await write(store, ending(status=Status.FAILED, history=(_step(1),), length=0))


async def _recurred(store: Store) -> None:
    (a,) = await new_instances(store, "a")
    await a.recur(history=(_step(1),))
    await a.recur(now=70)


async def _ended(store: Store) -> None:
    await started(store, "a", "b")
    await write(store, ending("a", length=0), ending("b", length=0, now=31))


async def _in_outbox(store: Store) -> Any:
    """Events for a broker, some of them claimed."""
    await write(store, accept(event("e-1"), event("e-2"), event("e-3"), brokers=("http",)))
    return await store.claim_outbox("http", "relay", now=40, until=50, limit=2)


async def _dead_lettered(store: Store) -> None:
    rows = await _in_outbox(store)
    await store.record_outbox("relay", [DeadLettered(row.seq, 45, "no") for row in rows])


async def _settle(store: Store, rows: Any) -> None:
    await store.record_outbox("relay", [Delivered(rows[0].seq), Delayed(rows[1].seq, 60, "away")])


async def _claim_out(store: Store, _: Any) -> list[Any]:
    found = await store.claim_outbox("http", "rival", now=41, until=60, limit=9)
    return [(row.body, row.attempts, row.since) for row in found]


def _step(seq: int) -> Any:
    return entry(seq, value=b"value")


def _writes(*writes: Any) -> WriteThrough:
    async def act(store: Store, _: Any) -> Any:
        return await write(store, *writes)

    return act


def _calls(call: Callable[[Store], Awaitable[Any]]) -> WriteThrough:
    async def act(store: Store, _: Any) -> Any:
        return await call(store)

    return act


def _first(run: Callable[[DrivenInstance], Awaitable[Any]]) -> WriteThrough:
    """A write of the first prepared instance, over the cut connection."""

    async def act(store: Store, prepared: Any) -> Any:
        one: DrivenInstance = prepared[0] if isinstance(prepared, list) else prepared
        one.store = store
        return await run(one)

    return act


async def _beat(store: Store) -> bool:
    """Write a heartbeat; repeat it after an error, as the heartbeat thread does."""
    heartbeat = store.heartbeat(ME)
    try:
        while True:
            with suppress(StoreError):
                return await asyncio.to_thread(heartbeat.renew, 77)
    finally:
        await asyncio.to_thread(heartbeat.close)


_paid = SendEvent(event("e-9"), (), "")

WRITES = {
    "create": WriteCase(_nothing, _writes(create("a"), create("b", owner=None))),
    "create again": WriteCase(_one, _writes(create("a", now=11), create("b"))),
    "step": WriteCase(_one, _writes(transition(history=(_step(1), _step(2)), length=0))),
    "steps": WriteCase(_one, _calls(lambda store: _steps(store, 4))),
    "steps of two": WriteCase(_two, _writes(*[transition(one, history=(_step(1),), length=0) for one in ("a", "b")])),
    "second attempt": WriteCase(_one, _writes(transition(history=(_step(1)._replace(attempt=2),), length=0))),
    "end": WriteCase(_one, _writes(ending(history=(_step(1),), length=0))),
    "much at once": WriteCase(
        _one, _writes(create("b"), transition(history=(_step(1),), length=0), create("c"), publish("one"))
    ),
    "sleep": WriteCase(
        _one, _writes(transition(keep_owned=False, status=Status.WAITING_FOR_TIMER, waits=(TIMER,), wake_at=99))
    ),
    "failed attempt": WriteCase(
        _one, _writes(transition(attempts=(attempt(is_open=False),), wake_at=60, retrying_since=30))
    ),
    "heartbeat of an attempt": WriteCase(_one, _writes(AttemptUpdate("a", 1, 1, attempt(details=b"half")))),
    "old epoch": WriteCase(_one, _writes(transition(epoch=0, history=(_step(1),), length=0), create("b"))),
    "event": WriteCase(_waiting, _writes(accept(event("e-1"), event("e-2")))),
    "event twice": WriteCase(_waiting, _writes(accept(event("e-1")), accept(event("e-1")))),
    "event that is known": WriteCase(_paid_once, _writes(accept(event("e-1"), event("e-2"), now=99))),
    "event of which something is wanted": WriteCase(_waiting_with_match, _writes(accept(event("e-1")))),
    "event that is awaited": WriteCase(_waiting, _first(lambda a: _is_paid(a))),
    "publish to a pool": WriteCase(_listening, _writes(publish("one"))),
    "publish to all": WriteCase(
        lambda store: _held(store, mode=ChannelMode.BROADCAST), _writes(publish("one"), publish("two"))
    ),
    "publish without subscribers": WriteCase(_nothing, _writes(publish("one"))),
    "send": WriteCase(_listening, _writes(send("a"), send("missing"))),
    "say": WriteCase(_waiting, _first(lambda a: a.do(Publish(message("hello")), _paid, JoinGroup("crew")))),
    "subscribe": WriteCase(_one, _calls(lambda store: DrivenInstance(store).ask(subscribe(), receive()))),
    "receive": WriteCase(_with_messages, _first(lambda a: a.ask(receive()))),
    "receive and end": WriteCase(_with_messages, _first(lambda a: _receive_and_end(a))),
    "recur": WriteCase(_with_messages, _first(lambda a: a.recur(history=(_step(2),)))),
    **{f"{kind}": WriteCase(_owned, _writes(request(kind))) for kind in ControlKind if kind is not ControlKind.RETRY},
    "retry": WriteCase(_failed, _writes(request(ControlKind.RETRY))),
    "claim": WriteCase(_due, _calls(lambda store: store.claim(ME, [ORDER], now=50, limit=2))),
    "claim by name": WriteCase(_due, _calls(lambda store: store.claim(ME, [ORDER], now=50, limit=3, ids=["c", "a"]))),
    "release": WriteCase(_owned, _calls(lambda store: store.release(ME, now=50))),
    "sweep": WriteCase(_owned, _calls(lambda store: store.sweep([(ME, 10)], now=50, limit=1))),
    "mark unrunnable": WriteCase(
        _due, _calls(lambda store: store.mark_unrunnable([Runnable("order", "1")], due_before=40, now=50, limit=2))
    ),
    "register worker": WriteCase(_nothing, _calls(lambda store: store.register_worker(worker(OTHER)))),
    "save source": WriteCase(_nothing, _calls(lambda store: store.save_source("c", "order", "1", "def order", now=50))),
    "save handlers": WriteCase(_nothing, _calls(lambda store: store.save_handlers([("order", "1", True)], now=50))),
    "prune": WriteCase(_ended, _calls(lambda store: store.prune_instances(ended_before=99, limit=1))),
    "forget": WriteCase(
        _with_messages, _calls(lambda store: store.prune_messaging(events_before=99, messages_before=99, limit=1))
    ),
    "put out": WriteCase(_nothing, _writes(accept(event("e-1"), event("e-2"), brokers=("http", "nats")))),
    "claim of a relay": WriteCase(_in_outbox, _claim_out),
    "settle": WriteCase(_in_outbox, _settle),
    "requeue": WriteCase(_dead_lettered, _calls(lambda store: store.requeue_outbox(None, now=60, limit=1))),
    "prune dead letters": WriteCase(
        _dead_lettered, _calls(lambda store: store.prune_outbox("http", dead_before=99, limit=1))
    ),
    "trim": WriteCase(_recurred, _calls(lambda store: store.prune_generations(over_before=99, limit=9))),
    "beat": WriteCase(_owned, _calls(_beat)),
    "look": WriteCase(_waiting, _calls(lambda store: store.load("a"))),
}


async def _steps(store: Store, count: int) -> list[Any]:
    return [await write(store, transition(history=(_step(n),), length=n - 1)) for n in range(1, count + 1)]


async def _is_paid(a: DrivenInstance) -> Any:
    answers = await write(a.store, accept(event("e-1")))
    return answers, await a.ask(wait(), now=40)


async def _receive_and_end(a: DrivenInstance) -> Any:
    return await a.ask(receive(), keep_owned=True), await a.end()


# --- running them


class Runner:
    """Runs writes through a proxy, on one database."""

    def __init__(self, admin: asyncpg.Connection[Any], proxy: Proxy, direct: Store, proxied: Store) -> None:
        self._admin = admin
        self._proxy = proxy
        self._direct = direct
        self._proxied = proxied

    async def run(self, case: WriteCase, when: When = nowhere) -> tuple[Any, list[str]]:
        """The answer and the contents of the tables, and the requests that were sent."""
        self._proxy.expect(nowhere)
        await self._admin.execute(EMPTY)
        prepared = await case.prepare(self._direct)
        self._proxy.expect(when)
        try:
            answer = await case.act(self._proxied, prepared)
        except Exception as error:
            cuts, asked = [short(one) for one in self._proxy.cuts], [short(one) for one in self._proxy.requests]
            error.add_note(f"The connection was cut at {cuts}, of {asked}")
            raise
        requests = list(self._proxy.requests)
        self._proxy.expect(nowhere)
        return (answer, await contents(self._admin)), requests


@pytest.fixture
def address() -> str:
    return servers.shared_postgres_database()


@pytest.fixture
async def runner(address: str) -> AsyncIterator[Runner]:
    direct = open_store(address, clock=SystemClock(), server=DIRECT)
    async with proxy_to(address) as proxy:
        proxy.ignored = is_irrelevant
        proxied = open_store(proxy.address(address), clock=SystemClock(), server=DIRECT)
        await direct.open()
        await proxied.open()
        admin = await asyncpg.connect(address)
        yield Runner(admin, proxy, direct, proxied)
        await admin.close()
        await proxied.close()
        await direct.close()


def is_irrelevant(text: str) -> bool:
    """Whether a request is a notification, or a query of the driver itself on a new connection."""
    return any(words in text for words in ("pg_notify", "typeinfo_tree", "set_config('jit'"))


async def contents(admin: asyncpg.Connection[Any]) -> list[list[str]]:
    """The contents of all tables."""
    lists = ", ".join(f"ARRAY(SELECT line::text FROM ({query}) AS line)" for query in TABLES)
    found = await admin.fetchrow(f"SELECT {lists}")
    assert found is not None
    return list(found)


class CutAgain:
    """Cuts the connection at a request of an earlier run, and again so many requests later.

    The request is found by its text, because new connections send a varying number of requests first.
    """

    def __init__(self, requests: list[str], place: int, cuts: dict[int, Cut]) -> None:
        self._text = requests[place]
        self._left = requests[: place + 1].count(self._text)
        self._cuts = cuts
        self._sent_at = 0

    @property
    def was_sent(self) -> bool:
        """Whether the request was sent again."""
        return self._sent_at > 0

    def __call__(self, text: str, number: int) -> Cut | None:
        if text == self._text and not self.was_sent:
            self._left -= 1
            if self._left == 0:
                self._sent_at = number
        return self._cuts.get(number - self._sent_at) if self.was_sent else None


@pytest.mark.parametrize("name", list(WRITES))
async def test_a_lost_connection_changes_nothing(runner: Runner, name: str) -> None:
    case = WRITES[name]
    wanted, requests = await runner.run(case)
    for place, text in enumerate(requests):
        # If nothing can have been committed, it makes no difference whether the cut is before or after the request.
        for cut in (Cut.BEFORE, Cut.AFTER) if COMMITS.search(text) else ((Cut.BEFORE, Cut.AFTER)[place % 2],):
            when = CutAgain(requests, place, {0: cut})
            found, _ = await runner.run(case, when)
            assert found == wanted, f"cut {cut} request {place + 1}: {short(text)}"
            assert when.was_sent or text.lstrip().startswith(("SET ", "SELECT 'port ")), (
                f"request {place + 1} was not sent again: {short(text)}"
            )


@pytest.mark.parametrize("name", list(WRITES))
async def test_a_connection_that_is_lost_again_changes_nothing(runner: Runner, name: str) -> None:
    case = WRITES[name]
    wanted, requests = await runner.run(case)
    commits = [place for place, text in enumerate(requests) if COMMITS.search(text)]
    for place, (first, second, later) in product(commits, TWICE):
        found, _ = await runner.run(case, CutAgain(requests, place, {0: first, later: second}))
        # The repetition of a request that still runs may be refused as a duplicate, so only the tables count.
        start = 1 if Cut.DURING in (first, second) else 0
        assert found[start:] == wanted[start:], (
            f"cut {first} request {place + 1}: {short(requests[place])}, and {second} the {later}. after"
        )


async def test_every_write_has_a_commit(runner: Runner) -> None:
    without = [name for name, case in WRITES.items() if not any(map(COMMITS.search, (await runner.run(case))[1]))]
    assert without == []


# --- a COMMIT that takes long


@pytest.fixture
async def slow() -> AsyncIterator[servers.Postgres]:
    server = await asyncio.to_thread(servers.Postgres)
    yield server
    await asyncio.to_thread(server.remove)


async def test_a_commit_that_is_still_under_way_is_waited_for(slow: servers.Postgres) -> None:
    async with proxy_to(slow.address) as proxy:
        store = open_store(proxy.address(slow.address), clock=SystemClock(), server=DIRECT)
        await store.open()
        admin = await asyncpg.connect(slow.address)
        await admin.execute("SET synchronous_commit = local")
        await _set(admin, "synchronous_standby_names = 'missing'")  # from now on no COMMIT ends
        proxy.expect(once("^COMMIT$", Cut.DURING))
        publishing = asyncio.ensure_future(write(store, publish("one")))
        await _until(admin, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        # The store has asked whether the COMMIT took effect, and waits for the answer.
        await _until(admin, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'transactionid'")
        await _set(admin, "synchronous_standby_names = ''")
        await publishing
        assert await admin.fetchval("SELECT count(*) FROM romancy_messages") == 1
        await admin.close()
        await store.close()


async def _set(admin: asyncpg.Connection[Any], setting: str) -> None:
    await admin.execute(f"ALTER SYSTEM SET {setting}")
    await admin.execute("SELECT pg_reload_conf()")
    name, _, value = setting.partition(" = ")
    await _until(admin, f"SELECT current_setting('{name}') = {value}")


async def _until(admin: asyncpg.Connection[Any], question: str) -> None:
    async with asyncio.timeout(30):
        while not await admin.fetchval(question):
            await asyncio.sleep(0.01)


# --- outside of commits


async def test_a_clock_that_cannot_be_read_does_not_repeat_what_was_committed(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romancy.store.sql.server._CLOCK_EVERY", -1.0)
    case = WRITES["publish without subscribers"]
    wanted, requests = await runner.run(case)
    assert any("clock_timestamp" in text for text in requests)
    for cut in (Cut.BEFORE, Cut.AFTER):
        found, _ = await runner.run(case, once("clock_timestamp", cut))
        assert found == wanted


# --- the schema


async def test_a_migration_that_is_not_answered_is_applied_once() -> None:
    address = await asyncio.to_thread(servers.new_postgres_database)
    async with proxy_to(address) as proxy:
        proxy.ignored = is_irrelevant
        await _migrate(proxy, address)
        requests = list(proxy.requests)
        wanted = await _schema(address)
        places = [n for n, text in enumerate(requests, 1) if n % 20 == 1 or "COMMIT" in text or "romancy_migrations" in text]
        for place, cut in product(places, (Cut.BEFORE, Cut.AFTER)):
            await _forget_schema(address)
            proxy.expect(at(place, cut))
            await _migrate(proxy, address)
            assert proxy.cuts == [requests[place - 1]]
            assert await _schema(address) == wanted, f"cut {cut} request {place}: {short(requests[place - 1])}"


async def _migrate(proxy: Proxy, address: str) -> None:
    store = open_store(proxy.address(address), clock=SystemClock(), server=DIRECT)
    await store.open()
    await write(store, create())
    await store.close()


async def _schema(address: str) -> Any:
    connection = await asyncpg.connect(address)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        applied = await connection.fetch("SELECT version, name FROM romancy_migrations ORDER BY version")
        turns = await connection.fetchval("SELECT count(*) FROM romancy_messaging_lock")
        assert [row[0] for row in applied] == [one.version for one in read_migrations(MIGRATIONS)]
        return tables, applied, turns
    finally:
        await connection.close()


async def _forget_schema(address: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        await connection.execute("DROP SCHEMA public CASCADE")
        await connection.execute("CREATE SCHEMA public")
    finally:
        await connection.close()


@pytest.mark.parametrize("where", ["between statements", "in the middle of one"])
async def test_a_stalled_transaction_is_ended(runner: Runner, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if runner._admin.get_server_version().major < 17:
        pytest.skip("older servers have no transaction_timeout")
    short_timeouts = ("idle_in_transaction_session_timeout = '300ms'", "transaction_timeout = '600ms'")
    monkeypatch.setattr(pool, "_TIMEOUT_SETTINGS", short_timeouts)
    await runner._proxy.hang_up()  # new connections use the settings
    await runner._admin.execute(EMPTY)
    if where == "between statements":  # with all statements prepared, the server is idle between them
        assert "idle in transaction" in [await _stalled(runner, prepared=True) for _ in range(4)]
    else:  # on a new connection, the server has the text of the statement and waits for its parameters
        await runner._proxy.hang_up()
        assert await _stalled(runner) == "active"


async def _stalled(runner: Runner, *, prepared: bool = False) -> str:
    """Stop reading and writing in a transaction that holds the messaging lock; returns the state that the server reports."""
    for _ in range(2 * prepared):
        await write(runner._proxied, publish("zero"))
    count = await runner._admin.fetchval("SELECT count(*) FROM romancy_messages")
    runner._proxy.expect(once("romancy_subscriptions", Cut.STALL))
    frozen = asyncio.ensure_future(write(runner._proxied, publish("one")))
    async with asyncio.timeout(30):
        while not runner._proxy.cuts:
            await asyncio.sleep(0.01)
        state: str = await runner._admin.fetchval(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND xact_start IS NOT NULL"
        )
        await write(runner._direct, publish("two"))  # succeeds, because the server ends the stalled transaction
        await runner._proxy.hang_up()
        await frozen  # the write was repeated on a new connection
    assert await runner._admin.fetchval("SELECT count(*) FROM romancy_messages") == count + 2
    return state
