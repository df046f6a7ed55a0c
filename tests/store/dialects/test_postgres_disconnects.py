"""The line to the server breaks at every request of every kind of write, before it arrives and after it was done.

Each story is told once over a line that holds; what was answered and what is in the tables then is what must be answered and
must be there wherever the line breaks.
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
from tests.store.conformance.driver import Actor, actors, subscribers

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
"""Requests after which something is durable."""

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
"""Everything that is there, without the numbers that a transaction which was rolled back uses up, and without the time of
the last write, which the short way does not note."""

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
"""Ways to break twice: at a commit, and so many requests later."""


# --- stories: what goes before, and what is done over the line

Before = Callable[[Store], Awaitable[Any]]
Act = Callable[[Store, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Story:
    """One kind of write."""

    before: Before
    act: Act


async def _nothing(store: Store) -> None:
    pass


async def _one(store: Store) -> None:
    await started(store, "a")


async def _two(store: Store) -> None:
    await started(store, "a", "b")


async def _held(store: Store, *, mode: ChannelMode = ChannelMode.COMPETING) -> list[Actor]:
    return await subscribers(store, "a", "b", mode=mode)


async def _waiting(store: Store) -> Actor:
    """One that waits for a payment, and has let go."""
    (a,) = await actors(store, "a")
    assert await a.ask(wait()) == {}
    return a


async def _paid_once(store: Store) -> None:
    await _waiting(store)
    await write(store, accept(event("e-1")))


async def _choosy(store: Store) -> None:
    (a,) = await actors(store, "a")
    assert await a.ask(wait(match=b'{"n": 1}')) == {}


async def _listening(store: Store) -> list[Actor]:
    """Two that wait for a message of a pool."""
    both = await _held(store)
    for one in both:
        assert await one.ask(receive()) == {}
    return both


async def _with_messages(store: Store) -> list[Actor]:
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
    (a,) = await actors(store, "a")
    await a.recur(history=(_step(1),))
    await a.recur(now=70)


async def _ended(store: Store) -> None:
    await started(store, "a", "b")
    await write(store, ending("a", length=0), ending("b", length=0, now=31))


async def _put_out(store: Store) -> Any:
    """Events for a broker, of which somebody has claimed some."""
    await write(store, accept(event("e-1"), event("e-2"), event("e-3"), brokers=("http",)))
    return await store.claim_outbox("http", "relay", now=40, until=50, limit=2)


async def _buried(store: Store) -> None:
    rows = await _put_out(store)
    await store.record_outbox("relay", [DeadLettered(row.seq, 45, "no") for row in rows])


async def _settle(store: Store, rows: Any) -> None:
    await store.record_outbox("relay", [Delivered(rows[0].seq), Delayed(rows[1].seq, 60, "away")])


async def _claim_out(store: Store, _: Any) -> list[Any]:
    found = await store.claim_outbox("http", "rival", now=41, until=60, limit=9)
    return [(row.body, row.attempts, row.since) for row in found]


def _step(seq: int) -> Any:
    return entry(seq, value=b"value")


def _writes(*writes: Any) -> Act:
    async def act(store: Store, _: Any) -> Any:
        return await write(store, *writes)

    return act


def _calls(call: Callable[[Store], Awaitable[Any]]) -> Act:
    async def act(store: Store, _: Any) -> Any:
        return await call(store)

    return act


def _first(tell: Callable[[Actor], Awaitable[Any]]) -> Act:
    """Of the first of those who were there before, over the line."""

    async def act(store: Store, before: Any) -> Any:
        one: Actor = before[0] if isinstance(before, list) else before
        one.store = store
        return await tell(one)

    return act


async def _beat(store: Store) -> bool:
    """As a heart does it: a beat that fails is followed by another."""
    pulse = store.heartbeat(ME)
    try:
        while True:
            with suppress(StoreError):
                return await asyncio.to_thread(pulse.renew, 77)
    finally:
        await asyncio.to_thread(pulse.close)


_paid = SendEvent(event("e-9"), (), "")

STORIES = {
    "create": Story(_nothing, _writes(create("a"), create("b", owner=None))),
    "create again": Story(_one, _writes(create("a", now=11), create("b"))),
    "step": Story(_one, _writes(transition(history=(_step(1), _step(2)), length=0))),
    "steps": Story(_one, _calls(lambda store: _steps(store, 4))),
    "steps of two": Story(_two, _writes(*[transition(one, history=(_step(1),), length=0) for one in ("a", "b")])),
    "second attempt": Story(_one, _writes(transition(history=(_step(1)._replace(attempt=2),), length=0))),
    "end": Story(_one, _writes(ending(history=(_step(1),), length=0))),
    "much at once": Story(
        _one, _writes(create("b"), transition(history=(_step(1),), length=0), create("c"), publish("one"))
    ),
    "sleep": Story(_one, _writes(transition(keep_owned=False, status=Status.WAITING_FOR_TIMER, waits=(TIMER,), wake_at=99))),
    "failed attempt": Story(_one, _writes(transition(attempts=(attempt(is_open=False),), wake_at=60, retrying_since=30))),
    "heartbeat of an attempt": Story(_one, _writes(AttemptUpdate("a", 1, 1, attempt(details=b"half")))),
    "old epoch": Story(_one, _writes(transition(epoch=0, history=(_step(1),), length=0), create("b"))),
    "event": Story(_waiting, _writes(accept(event("e-1"), event("e-2")))),
    "event twice": Story(_waiting, _writes(accept(event("e-1")), accept(event("e-1")))),
    "event that is known": Story(_paid_once, _writes(accept(event("e-1"), event("e-2"), now=99))),
    "event of which something is wanted": Story(_choosy, _writes(accept(event("e-1")))),
    "event that is awaited": Story(_waiting, _first(lambda a: _is_paid(a))),
    "publish to a pool": Story(_listening, _writes(publish("one"))),
    "publish to all": Story(lambda store: _held(store, mode=ChannelMode.BROADCAST), _writes(publish("one"), publish("two"))),
    "publish to nobody": Story(_nothing, _writes(publish("one"))),
    "send": Story(_listening, _writes(send("a"), send("missing"))),
    "say": Story(_waiting, _first(lambda a: a.do(Publish(message("hello")), _paid, JoinGroup("crew")))),
    "subscribe": Story(_one, _calls(lambda store: Actor(store).ask(subscribe(), receive()))),
    "receive": Story(_with_messages, _first(lambda a: a.ask(receive()))),
    "receive and end": Story(_with_messages, _first(lambda a: _receive_and_end(a))),
    "recur": Story(_with_messages, _first(lambda a: a.recur(history=(_step(2),)))),
    **{f"{kind}": Story(_owned, _writes(request(kind))) for kind in ControlKind if kind is not ControlKind.RETRY},
    "retry": Story(_failed, _writes(request(ControlKind.RETRY))),
    "claim": Story(_due, _calls(lambda store: store.claim(ME, [ORDER], now=50, limit=2))),
    "claim by name": Story(_due, _calls(lambda store: store.claim(ME, [ORDER], now=50, limit=3, ids=["c", "a"]))),
    "release": Story(_owned, _calls(lambda store: store.release(ME, now=50))),
    "sweep": Story(_owned, _calls(lambda store: store.sweep([(ME, 10)], now=50, limit=1))),
    "strand": Story(
        _due, _calls(lambda store: store.mark_unrunnable([Runnable("order", "1")], due_before=40, now=50, limit=2))
    ),
    "enlist": Story(_nothing, _calls(lambda store: store.register_worker(worker(OTHER)))),
    "save source": Story(_nothing, _calls(lambda store: store.save_source("c", "order", "1", "def order", now=50))),
    "save handlers": Story(_nothing, _calls(lambda store: store.save_handlers([("order", "1", True)], now=50))),
    "prune": Story(_ended, _calls(lambda store: store.prune_instances(ended_before=99, limit=1))),
    "forget": Story(
        _with_messages, _calls(lambda store: store.prune_messaging(events_before=99, messages_before=99, limit=1))
    ),
    "put out": Story(_nothing, _writes(accept(event("e-1"), event("e-2"), brokers=("http", "nats")))),
    "claim of a relay": Story(_put_out, _claim_out),
    "settle": Story(_put_out, _settle),
    "requeue": Story(_buried, _calls(lambda store: store.requeue_outbox(None, now=60, limit=1))),
    "prune the dead": Story(_buried, _calls(lambda store: store.prune_outbox("http", dead_before=99, limit=1))),
    "trim": Story(_recurred, _calls(lambda store: store.prune_generations(over_before=99, limit=9))),
    "beat": Story(_owned, _calls(_beat)),
    "look": Story(_waiting, _calls(lambda store: store.load("a"))),
}


async def _steps(store: Store, count: int) -> list[Any]:
    return [await write(store, transition(history=(_step(n),), length=n - 1)) for n in range(1, count + 1)]


async def _is_paid(a: Actor) -> Any:
    answers = await write(a.store, accept(event("e-1")))
    return answers, await a.ask(wait(), now=40)


async def _receive_and_end(a: Actor) -> Any:
    return await a.ask(receive(), keep_owned=True), await a.end()


# --- telling them


class Teller:
    """Tells stories over a line, on one database."""

    def __init__(self, operator: asyncpg.Connection[Any], proxy: Proxy, near: Store, far: Store) -> None:
        self._operator = operator
        self._proxy = proxy
        self._near = near
        self._far = far

    async def tell(self, story: Story, when: When = nowhere) -> tuple[Any, list[str]]:
        """What was answered and what is there then; the requests it took."""
        self._proxy.expect(nowhere)
        await self._operator.execute(EMPTY)
        before = await story.before(self._near)
        self._proxy.expect(when)
        try:
            answer = await story.act(self._far, before)
        except Exception as error:
            cuts, asked = [short(one) for one in self._proxy.cuts], [short(one) for one in self._proxy.requests]
            error.add_note(f"The line broke at {cuts}, of {asked}")
            raise
        requests = list(self._proxy.requests)
        self._proxy.expect(nowhere)
        return (answer, await contents(self._operator)), requests


@pytest.fixture
def address() -> str:
    return servers.shared_postgres_database()


@pytest.fixture
async def teller(address: str) -> AsyncIterator[Teller]:
    near = open_store(address, clock=SystemClock(), server=DIRECT)
    async with proxy_to(address) as proxy:
        proxy.ignored = beside_the_point
        far = open_store(proxy.address(address), clock=SystemClock(), server=DIRECT)
        await near.open()
        await far.open()
        operator = await asyncpg.connect(address)
        yield Teller(operator, proxy, near, far)
        await operator.close()
        await far.close()
        await near.close()


def beside_the_point(text: str) -> bool:
    """Hints to others, and what the driver asks for itself on a new connection."""
    return any(words in text for words in ("pg_notify", "typeinfo_tree", "set_config('jit'"))


async def contents(operator: asyncpg.Connection[Any]) -> list[list[str]]:
    """All tables."""
    lists = ", ".join(f"ARRAY(SELECT line::text FROM ({query}) AS line)" for query in TABLES)
    found = await operator.fetchrow(f"SELECT {lists}")
    assert found is not None
    return list(found)


class Again:
    """Break when a request of an earlier telling comes again, and so many requests later.

    By its words, not by its number: what a new connection asks for first comes when it will.
    """

    def __init__(self, requests: list[str], place: int, cuts: dict[int, Cut]) -> None:
        self._text = requests[place]
        self._left = requests[: place + 1].count(self._text)
        self._cuts = cuts
        self._came_at = 0

    @property
    def came(self) -> bool:
        """It did come."""
        return self._came_at > 0

    def __call__(self, text: str, number: int) -> Cut | None:
        if text == self._text and not self.came:
            self._left -= 1
            if self._left == 0:
                self._came_at = number
        return self._cuts.get(number - self._came_at) if self.came else None


@pytest.mark.parametrize("name", list(STORIES))
async def test_a_line_that_breaks_changes_nothing(teller: Teller, name: str) -> None:
    story = STORIES[name]
    wanted, requests = await teller.tell(story)
    for place, text in enumerate(requests):
        # Where nothing can have been committed it is the same on which side of the request the line breaks.
        for cut in (Cut.BEFORE, Cut.AFTER) if COMMITS.search(text) else ((Cut.BEFORE, Cut.AFTER)[place % 2],):
            when = Again(requests, place, {0: cut})
            found, _ = await teller.tell(story, when)
            assert found == wanted, f"cut {cut} request {place + 1}: {short(text)}"
            assert when.came or text.lstrip().startswith(("SET ", "SELECT 'port ")), (
                f"there was no request {place + 1} any more: {short(text)}"
            )


@pytest.mark.parametrize("name", list(STORIES))
async def test_nor_does_one_that_breaks_again_when_it_is_asked_what_became_of_it(teller: Teller, name: str) -> None:
    story = STORIES[name]
    wanted, requests = await teller.tell(story)
    commits = [place for place, text in enumerate(requests) if COMMITS.search(text)]
    for place, (first, second, later) in product(commits, TWICE):
        found, _ = await teller.tell(story, Again(requests, place, {0: first, later: second}))
        # What is still under way when it is done again may be refused then as written already: what is there counts.
        start = 1 if Cut.DURING in (first, second) else 0
        assert found[start:] == wanted[start:], (
            f"cut {first} request {place + 1}: {short(requests[place])}, and {second} the {later}. after"
        )


async def test_every_story_but_one_that_only_looks_has_a_commit(teller: Teller) -> None:
    without = [name for name, story in STORIES.items() if not any(map(COMMITS.search, (await teller.tell(story))[1]))]
    assert without == []


# --- a COMMIT that takes its time


@pytest.fixture
async def slow() -> AsyncIterator[servers.Postgres]:
    server = await asyncio.to_thread(servers.Postgres)
    yield server
    await asyncio.to_thread(server.remove)


async def test_a_commit_that_is_still_under_way_is_waited_for(slow: servers.Postgres) -> None:
    async with proxy_to(slow.address) as proxy:
        store = open_store(proxy.address(slow.address), clock=SystemClock(), server=DIRECT)
        await store.open()
        operator = await asyncpg.connect(slow.address)
        await operator.execute("SET synchronous_commit = local")
        await _set(operator, "synchronous_standby_names = 'nobody'")  # from now on no COMMIT comes to an end
        proxy.expect(once("^COMMIT$", Cut.DURING))
        publishing = asyncio.ensure_future(write(store, publish("one")))
        await _until(operator, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        # Whoever asks what became of it has asked now, or waits for the answer.
        await _until(operator, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'transactionid'")
        await _set(operator, "synchronous_standby_names = ''")
        await publishing
        assert await operator.fetchval("SELECT count(*) FROM romancy_messages") == 1
        await operator.close()
        await store.close()


async def _set(operator: asyncpg.Connection[Any], setting: str) -> None:
    await operator.execute(f"ALTER SYSTEM SET {setting}")
    await operator.execute("SELECT pg_reload_conf()")
    name, _, value = setting.partition(" = ")
    await _until(operator, f"SELECT current_setting('{name}') = {value}")


async def _until(operator: asyncpg.Connection[Any], question: str) -> None:
    async with asyncio.timeout(30):
        while not await operator.fetchval(question):
            await asyncio.sleep(0.01)


# --- beside a commit


async def test_a_clock_that_cannot_be_read_does_not_repeat_what_was_committed(
    teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romancy.store.sql.server._CLOCK_EVERY", -1.0)
    story = STORIES["publish to nobody"]
    wanted, requests = await teller.tell(story)
    assert any("clock_timestamp" in text for text in requests)
    for cut in (Cut.BEFORE, Cut.AFTER):
        found, _ = await teller.tell(story, once("clock_timestamp", cut))
        assert found == wanted


# --- the schema


async def test_a_migration_that_is_not_answered_is_applied_once() -> None:
    address = await asyncio.to_thread(servers.new_postgres_database)
    async with proxy_to(address) as proxy:
        proxy.ignored = beside_the_point
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
async def test_who_stands_still_in_a_transaction_is_put_out(
    teller: Teller, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if teller._operator.get_server_version().major < 17:
        pytest.skip("older servers have no transaction_timeout")
    in_a_hurry = ("idle_in_transaction_session_timeout = '300ms'", "transaction_timeout = '600ms'")
    monkeypatch.setattr(pool, "_TIMEOUT_SETTINGS", in_a_hurry)
    await teller._proxy.hang_up()  # new connections know of it
    await teller._operator.execute(EMPTY)
    if where == "between statements":  # all are prepared: the server is idle in between then
        assert "idle in transaction" in [await _stalled(teller, prepared=True) for _ in range(4)]
    else:  # a new connection: it has got the text, and waits for what to run it with
        await teller._proxy.hang_up()
        assert await _stalled(teller) == "active"


async def _stalled(teller: Teller, *, prepared: bool = False) -> str:
    """Somebody stops while it has the turn, and is not heard of any more: what the server said of it."""
    for _ in range(2 * prepared):
        await write(teller._far, publish("zero"))
    count = await teller._operator.fetchval("SELECT count(*) FROM romancy_messages")
    teller._proxy.expect(once("romancy_subscriptions", Cut.STALL))
    frozen = asyncio.ensure_future(write(teller._far, publish("one")))
    async with asyncio.timeout(30):
        while not teller._proxy.cuts:
            await asyncio.sleep(0.01)
        state: str = await teller._operator.fetchval(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND xact_start IS NOT NULL"
        )
        await write(teller._near, publish("two"))  # goes through: nobody holds the turn for ever
        await teller._proxy.hang_up()
        await frozen  # its connection was taken from it: it has done it again
    assert await teller._operator.fetchval("SELECT count(*) FROM romancy_messages") == count + 2
    return state
