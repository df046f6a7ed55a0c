"""The costs of messaging on SQLite, in steps of its virtual machine, and the rows that messaging leaves behind."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.store.conformance.builders import (
    accept,
    create,
    event,
    message,
    publish,
    receive,
    request,
    send,
    subscribe,
    transition,
    wait,
    write,
)
from tests.store.conformance.driver import new_instances, said, subscribers, tell

from romancy.clock import SystemClock
from romancy.model.messaging import ChannelMode, JoinGroup, SendToGroup, StoreCall, Unsubscribe
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, PostMessage, Write
from romancy.store.migrator import read_migrations
from romancy.store.port import Store
from romancy.store.sqlite.apply import apply_batch
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.schema import MIGRATIONS, prepare
from romancy.store.sqlite.store import SqliteStore

FEW, MANY = 5, 400


class Meter:
    """A database whose statements can be measured."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.lengths: dict[str, int] = {}
        self.steps = 0

    def write(self, *writes: Write) -> list[object]:
        """Write a batch."""
        return list(apply_batch(SqliteCursor(self.cursor), writes))

    def create(self, *ids: str) -> None:
        """Create instances."""
        self.write(*(create(one) for one in ids))
        self.lengths.update(dict.fromkeys(ids, 0))

    def ask(self, instance_id: str, *asks: StoreCall) -> list[object]:
        """Issue store calls of an instance that stays owned, and return the values of the replies."""
        length = self.lengths[instance_id]
        (answer,) = self.write(transition(instance_id, store_calls=asks, length=length, has_messaging_state=True))
        assert isinstance(answer, Applied)
        self.lengths[instance_id] += len(answer.replies)
        return list(said(answer.replies).values())

    def cost(self, work: Callable[[], object]) -> int:
        """The steps that the work takes."""
        self.steps = 0
        self.connection.set_progress_handler(self._count, 1)
        work()
        self.connection.set_progress_handler(None, 1)
        return self.steps

    def _count(self) -> int:
        self.steps += 1
        return 0


@pytest.fixture
def meter() -> Iterator[Meter]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection, ":memory:", auto_migrate=True, now=1)
        yield Meter(connection)


SELECTORS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "type": ({}, {}, {"kind": "other"}),
    "subject": ({"subject": "s"}, {"subject": "s"}, {"subject": "t"}),
    "match": ({"match": b'{"n": 1}'}, {"data": b'{"n": 1}'}, {"data": b'{"n": 2}'}),
    "addressed": ({}, {"to": "a"}, {"to": "b"}),
}
"""Fields of a wait, of an event that matches it, and of one that does not."""


@pytest.mark.parametrize("selector", SELECTORS)
def test_the_last_of_many_waits_costs_as_much_as_the_first(meter: Meter, selector: str) -> None:
    wanted, fitting, other = SELECTORS[selector]
    meter.create("a")
    for n in range(MANY):
        meter.write(accept(event(f"no-{n}", **other), event(f"e-{n}", **fitting)))
    costs = [meter.cost(partial(meter.ask, "a", wait(op=f"paid:{n}", **wanted))) for n in range(MANY)]
    assert meter.lengths["a"] == MANY
    assert max(costs[-10:]) < 1.5 * max(costs[:10]), (costs[:10], costs[-10:])


def test_a_called_wait_begins_at_what_it_was_called_for(meter: Meter) -> None:
    costs: dict[int, int] = {}
    for before in (FEW, MANY):
        one = f"i{before}"
        meter.create(one)
        asked = wait(f"type-{before}", match=b'{"n": 1}')
        for n in range(before):
            meter.write(accept(event(f"no-{before}-{n}", f"type-{before}", data=b'{"n": 2}')))
        assert meter.ask(one, asked) == []
        meter.write(accept(event(f"yes-{before}", f"type-{before}", data=b'{"n": 1}')))
        costs[before] = meter.cost(partial(meter.ask, one, asked))
        assert meter.lengths[one] == 1
    assert costs[MANY] < 1.5 * costs[FEW], costs


@pytest.mark.parametrize("kind", ["other subject", "addressed"])
def test_an_event_does_not_visit_those_it_is_not_for(meter: Meter, kind: str) -> None:
    given: dict[str, Any] = {"subject": "mine"} if kind == "other subject" else {"to": "a"}
    wanted: dict[str, Any] = {"subject": "mine"} if kind == "other subject" else {}
    costs: list[int] = []
    meter.create("a")
    for count in (FEW, MANY):
        ids = [f"i{count}-{n}" for n in range(count)]
        meter.create(*ids)
        for one in ids:
            meter.ask(one, wait(subject=one) if kind == "other subject" else wait())
        meter.ask("a", wait(op=f"paid:{count}", **wanted))
        costs.append(meter.cost(partial(meter.write, accept(event(f"e-{count}", **given)))))
    assert costs[1] < 1.5 * costs[0], costs


def test_calling_the_next_in_line_does_not_visit_the_whole_line(meter: Meter) -> None:
    costs: list[int] = []
    for count in (FEW, MANY):
        ids = [f"i{count}-{n}" for n in range(count)]
        meter.create(*ids)
        for n, one in enumerate(ids):
            meter.ask(one, subscribe(f"c{count}", ChannelMode.COMPETING))
            meter.ask(one, receive(f"c{count}", since=20 + n))
        costs.append(meter.cost(partial(meter.write, publish("one", f"c{count}"))))
    assert costs[1] < 1.5 * costs[0], costs


@pytest.mark.parametrize("mode", [ChannelMode.BROADCAST, ChannelMode.COMPETING])
def test_a_receipt_costs_the_same_however_much_is_unread(meter: Meter, mode: ChannelMode) -> None:
    costs: list[int] = []
    for count in (FEW, MANY):
        one, channel = f"i{count}", f"c{count}"
        meter.create(one)
        meter.ask(one, subscribe(channel, mode))
        for n in range(count):
            meter.write(publish(f"m{n}", channel))
        costs.append(meter.cost(partial(meter.ask, one, receive(channel))))
    assert costs[1] < 1.5 * costs[0], costs


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Store, Path]]:
    path = folder / "a.db"
    store = SqliteStore(str(path), clock=SystemClock())
    await store.open()
    try:
        yield store, path
    finally:
        await store.close()


MIGRATED = len(read_migrations(MIGRATIONS))
KEPT = {"romancy_migrations", "romancy_instances", "romancy_payloads", "romancy_history", "romancy_journal"}
"""The rows that an instance leaves until it is pruned, without its consumed events."""


def counts(path: Path) -> dict[str, int]:
    """The number of rows of every table that has any."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'romancy%'"
        ).fetchall()
        found = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in tables}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("how", ["end", "terminate"])
async def test_nothing_is_left_of_what_was_said(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path) as (store, path):
        a, b = await subscribers(store, "a", "b", mode=ChannelMode.BROADCAST)
        (c,) = await new_instances(store, "c")
        await a.ask(subscribe("pool", ChannelMode.COMPETING), subscribe("mine", ChannelMode.DIRECT), keep_owned=True)
        for one in (a, b, c):
            await one.do(JoinGroup("crew"))
        await tell(store, publish("read by a only"))
        await tell(store, publish("taken", "pool"))
        await tell(store, send("a", "unread", "mine"))
        await tell(store, send("c", "unread", "never subscribed"))
        await tell(store, PostMessage(SendToGroup(message("to all"), "crew"), now=30))
        await tell(store, PostMessage(SendToGroup(message("unreceived"), "void"), now=30))
        await tell(store, accept(event("e-1"), event("e-2")))
        assert await a.ask(receive(), now=40, keep_owned=True) == {"jobs:1": "read by a only"}
        assert await a.ask(receive("pool"), now=40, keep_owned=True) == {"pool:1": "taken"}
        assert await a.ask(wait(), now=40, keep_owned=True) == {"paid:1": "e-1"}
        for one in (a, b, c):
            await one.ask(wait("never"), now=41)
        await write(store, *(request(ControlKind.CANCEL, one) for one in "abc"))
        for one in (a, b, c):
            if how == "end":
                await one.end()
            else:
                await write(store, request(ControlKind.TERMINATE, one.id))
        assert set(counts(path)) - KEPT == {"romancy_events", "romancy_consumed_events"}
        assert await store.prune_messaging(events_before=99, messages_before=99, limit=99) == 2
        assert set(counts(path)) <= KEPT
        assert await store.prune_instances(ended_before=999, limit=9) == 3
        assert set(counts(path)) == {"romancy_migrations"}


async def test_what_was_consumed_is_remembered_until_its_instance_is_pruned(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, path):
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event()))
        await a.ask(wait(), now=40)
        await a.end(status=Status.FAILED)
        assert counts(path)["romancy_consumed_events"] == 1, "the instance may be retried"
        await store.prune_instances(ended_before=999, limit=9)
        assert counts(path) == {"romancy_migrations": MIGRATED, "romancy_events": 1}


async def test_messages_are_gone_when_everybody_has_read_or_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, path):
        a, b, c = await subscribers(store, "a", "b", "c", mode=ChannelMode.BROADCAST)
        await tell(store, publish("one"))
        await a.ask(receive())
        await b.do(Unsubscribe("jobs"))
        await c.recur()
        assert counts(path)["romancy_messages"] == 1, "c has not received it"
        await c.end()
        assert "romancy_messages" not in counts(path)
        assert "romancy_deliveries" not in counts(path)


async def test_a_generation_that_is_not_kept_takes_no_room(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, path):
        (a,) = await subscribers(store, "a")
        for n in range(20):
            await tell(store, publish(f"m{n}"))
            await a.ask(receive(), keep_owned=True)
            await a.recur(archive=False)
        assert counts(path) == {
            "romancy_migrations": MIGRATED,
            "romancy_instances": 1,
            "romancy_payloads": 1,
            "romancy_subscriptions": 1,
        }
