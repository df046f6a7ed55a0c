"""The search finds each fault that is planted in the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from tests.explore.participants import schedulers
from tests.explore.planted_faults import refuse_creation, unmatched_waits, waits_of
from tests.explore.search import (
    Found,
    one_to_one,
    several,
    try_all_orders,
    try_random_orders,
    with_a_timeout,
    with_an_activity,
)

from romancy.model.history import Kind
from romancy.model.messaging import Event, StoreCall
from romancy.model.transition import AcceptEvents, Applied, Transition, Write, WriteResult
from romancy.store.sql import apply as batches
from romancy.store.sql import channels, events, wakeups
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.messaging import MessagingTransaction, StoreDecision
from romancy.store.sql.transitions import apply_transition
from romancy.store.sql.unit_of_work import UnitOfWork
from romancy.store.sqlite import cursor as sqlite_cursor
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.statements import get_statement
from romancy.store.sqlite.store import SqliteStore

Plant = pytest.MonkeyPatch
FoundItem = tuple[int, int, bytes]
"""What was found for a wait: its time, its sequence number and its body."""


def found_at_random(most: int = 400) -> Found:
    """The result of the random search."""
    rounds = 0
    for seed in range(most // 10):
        found = try_random_orders(seed, 10)
        rounds += found.rounds
        if found.fault is not None:
            return Found(rounds, found.fault)
    return Found(rounds, None)


def found_in_orders(part: str, most: int = 400) -> Found:
    """The result of the exhaustive search through small scenarios whose name contains `part`."""
    rounds = 0
    for case in (*one_to_one(), *with_a_timeout(), *with_an_activity(), *several()):
        if part in case.name and rounds < most:
            found = try_all_orders(case, most - rounds)
            rounds += found.rounds
            if found.fault is not None:
                return Found(rounds, found.fault)
    return Found(rounds, None)


def test_without_a_fault_nothing_is_found() -> None:
    assert found_at_random(30).fault is None
    assert found_in_orders("competing, 1 to 2", 50).fault is None


# --- waiting


def test_a_look_in_another_transaction_than_the_wait_is_found(monkeypatch: Plant) -> None:
    nothing: set[tuple[str, str]] = set()
    commit, find = SqliteStore.commit, MessagingTransaction._find_arrival

    async def commit_early(self: SqliteStore, batch: Sequence[Write]) -> Any:
        found = await self._database.read(partial(unmatched_waits, batch=batch))
        await schedulers[-1].gate("", "wait after the look")
        nothing.update(found)
        try:
            return await commit(self, batch)
        finally:
            nothing.clear()

    def find_unless_missing(self: MessagingTransaction, instance_id: str, store_call: StoreCall) -> FoundItem | None:
        return None if (instance_id, store_call.entry.op) in nothing else find(self, instance_id, store_call)

    monkeypatch.setattr(SqliteStore, "commit", commit_early)
    monkeypatch.setattr(MessagingTransaction, "_find_arrival", find_unless_missing)
    _assert_found(found_in_orders("event from elsewhere"), found_at_random())


def test_an_instance_released_past_an_arrival_is_found(monkeypatch: Plant) -> None:
    def release_unseen(unit: UnitOfWork, write: Transition) -> WriteResult:
        state = unit.states.get(write.instance_id)
        answer = apply_transition(unit, write if state is None else write._replace(inbox_seen=state.inbox_version))
        return answer._replace(inbox_version=write.inbox_seen) if isinstance(answer, Applied) else answer

    monkeypatch.setattr(batches, "apply_transition", release_unseen)
    _assert_found(found_in_orders("event beside an activity"), found_at_random())


def test_a_look_that_begins_behind_the_newest_event_is_found(monkeypatch: Plant) -> None:
    def newest(cursor: SqliteCursor, op: str, values: dict[str, Any]) -> int:
        (seq,) = cursor.raw.execute("SELECT coalesce(max(seq), 0) FROM romancy_events").fetchone()
        return _met(cursor, op, values) or int(seq)

    monkeypatch.setattr(events, "_search_start", newest)
    _assert_found(found_in_orders("event from elsewhere"), found_at_random())


def test_a_look_that_begins_behind_the_last_event_of_any_kind_is_found(monkeypatch: Plant) -> None:
    def last(cursor: SqliteCursor, op: str, values: dict[str, Any]) -> int:
        taken = "SELECT coalesce(max(seq), 0) FROM romancy_consumed_events WHERE instance_id = :id"
        born = "SELECT created_at_event_seq FROM romancy_instances WHERE id = :id"
        return _met(cursor, op, values) or max(int(cursor.raw.execute(sql, values).fetchone()[0]) for sql in (taken, born))

    monkeypatch.setattr(events, "_search_start", last)
    _assert_found(found_at_random())


def _met(cursor: SqliteCursor, op: str, values: dict[str, Any]) -> int | None:
    stored = cursor.first("matched_seq_of", (values["id"], op))
    return None if stored is None or stored[0] is None else int(stored[0]) - 1


def test_a_timeout_without_another_look_is_found(monkeypatch: Plant) -> None:
    first_to_come = MessagingTransaction._take_first_arrival

    def without_timeouts(
        self: MessagingTransaction, instance_id: str, waits: Sequence[StoreCall]
    ) -> list[tuple[StoreCall, StoreDecision]]:
        return first_to_come(
            self, instance_id, [store_call for store_call in waits if store_call.due is None or store_call.due > self.now]
        )

    monkeypatch.setattr(MessagingTransaction, "_take_first_arrival", without_timeouts)
    _assert_found(found_in_orders("event with a timeout"), found_at_random())


# --- waking


def test_a_publisher_that_wakes_no_instance_is_found(monkeypatch: Plant) -> None:
    for module in (events, channels, wakeups):
        monkeypatch.setattr(module, "match_waits", lambda cursor, waits, seq: [])
    _assert_found(found_in_orders("event from elsewhere"), found_in_orders("direct from elsewhere"), found_at_random())


def test_a_publisher_that_wakes_in_another_transaction_is_found(monkeypatch: Plant) -> None:
    commit = SqliteStore.commit
    skipping: list[bool] = []

    async def match_early(self: SqliteStore, batch: Sequence[Write]) -> Any:
        accepted = [(event, write.now) for write in batch if isinstance(write, AcceptEvents) for event in write.events]
        if accepted:
            await self._database.write(partial(_match_only, accepted=accepted))
            await schedulers[-1].gate("", "write after the wake-up")
        skipping.append(True)
        try:
            return await commit(self, batch)
        finally:
            skipping.clear()

    def match_unless_done(cursor: SqliteCursor, waits: Sequence[tuple[str, str]], seq: int) -> list[str]:
        return [] if skipping else wakeups.match_waits(cursor, waits, seq)

    monkeypatch.setattr(SqliteStore, "commit", match_early)
    monkeypatch.setattr(events, "match_waits", match_unless_done)
    _assert_found(found_in_orders("event from elsewhere"), found_at_random())


def _match_only(cursor: Cursor, accepted: Sequence[tuple[Event, int]]) -> None:
    assert isinstance(cursor, SqliteCursor)
    for event, now in accepted:
        if events.accept(cursor, event, now) is not None:
            cursor.raw.execute("DELETE FROM romancy_events WHERE source = ? AND id = ?", (event.source, event.id))


def test_a_wake_up_in_memory_only_is_found(monkeypatch: Plant) -> None:
    for module in (events, channels, wakeups):
        monkeypatch.setattr(module, "wake", lambda cursor, ids, now: None)
    _assert_found(found_in_orders("event from elsewhere"), found_in_orders("direct from elsewhere"), found_at_random())


def test_a_woken_instance_that_is_not_replaced_is_found(monkeypatch: Plant) -> None:
    monkeypatch.setattr(channels, "wake_replacements", lambda cursor, ids, now: [])
    _assert_found(found_in_orders("competing, one ends", 1_000))


# --- consuming


def test_an_event_that_is_not_noted_as_consumed_is_found(monkeypatch: Plant) -> None:
    monkeypatch.setattr(events, "take", lambda cursor, instance_id, selector, seq: None)
    _assert_found(found_at_random())


def test_a_message_that_is_gone_before_it_is_recorded_is_found(monkeypatch: Plant) -> None:
    commit, find, take = SqliteStore.commit, MessagingTransaction._find_arrival, MessagingTransaction._consume
    gone: dict[tuple[str, str], FoundItem] = {}

    async def consume_early(self: SqliteStore, batch: Sequence[Write]) -> Any:
        gone.update(await self._database.write(partial(_consume, batch=batch)))
        return await commit(self, batch)

    def read_before(self: MessagingTransaction, instance_id: str, store_call: StoreCall) -> FoundItem | None:
        return gone.get((instance_id, store_call.entry.op)) or find(self, instance_id, store_call)

    def take_before(self: MessagingTransaction, instance_id: str, store_call: StoreCall, seq: int) -> None:
        if gone.pop((instance_id, store_call.entry.op), None) is None:
            take(self, instance_id, store_call, seq)

    monkeypatch.setattr(SqliteStore, "commit", consume_early)
    monkeypatch.setattr(MessagingTransaction, "_find_arrival", read_before)
    monkeypatch.setattr(MessagingTransaction, "_consume", take_before)
    _assert_found(found_in_orders("direct from elsewhere"), found_at_random())


def _consume(cursor: Cursor, batch: Sequence[Write]) -> dict[tuple[str, str], FoundItem]:
    found: dict[tuple[str, str], FoundItem] = {}
    for write, store_call in waits_of(batch):
        messaging = MessagingTransaction(cursor, write.now, refuse_creation)
        if (
            store_call.entry.kind is Kind.MESSAGE
            and (found_item := messaging._find_arrival(write.instance_id, store_call)) is not None
        ):
            messaging._consume(write.instance_id, store_call, found_item[1])
            found[write.instance_id, store_call.entry.op] = found_item
    return found


def test_a_message_that_two_get_is_found(monkeypatch: Plant) -> None:
    take = channels.take

    def keep(cursor: SqliteCursor, instance_id: str, channel: str, seq: int) -> None:
        (pooled,) = cursor.raw.execute("SELECT pooled FROM romancy_messages WHERE seq = ?", (seq,)).fetchone()
        if not pooled:
            take(cursor, instance_id, channel, seq)

    monkeypatch.setattr(channels, "take", keep)
    _assert_found(found_in_orders("competing, 1 to 2"), found_at_random())


def test_two_that_are_consumed_where_the_first_makes_the_second_unwanted_are_found(monkeypatch: Plant) -> None:
    first_to_come = MessagingTransaction._take_first_arrival

    def take_all(
        self: MessagingTransaction, instance_id: str, waits: Sequence[StoreCall]
    ) -> list[tuple[StoreCall, StoreDecision]]:
        decided = first_to_come(self, instance_id, waits)
        left = [store_call for store_call in waits if all(store_call is not one for one, _ in decided)]
        return decided + (take_all(self, instance_id, left) if decided else [])

    monkeypatch.setattr(MessagingTransaction, "_take_first_arrival", take_all)
    _assert_found(found_at_random())


# --- order


def test_the_newest_event_first_is_found(monkeypatch: Plant) -> None:
    candidates = events._candidates

    def newest_first(cursor: SqliteCursor, values: dict[str, Any]) -> Iterator[FoundItem]:
        return reversed(list(candidates(cursor, values)))

    monkeypatch.setattr(events, "_candidates", newest_first)
    _assert_found(found_at_random())


def test_the_newest_message_first_is_found(monkeypatch: Plant) -> None:
    changed = {
        "first_delivery": get_statement("first_delivery").replace("min(seq)", "max(seq)"),
        "first_of_pool": get_statement("first_of_pool").replace("ORDER BY seq", "ORDER BY seq DESC"),
    }
    assert all(changed[name] != get_statement(name) for name in changed)
    monkeypatch.setattr(sqlite_cursor, "get_statement", lambda name: changed.get(name) or get_statement(name))
    _assert_found(found_at_random())


def _assert_found(*searches: Found) -> None:
    """Assert that every search has found a fault. (`-s` shows it, and the number of rounds.)"""
    for found in searches:
        print(f"after {found.rounds} rounds: {(found.fault or 'nothing')[:160]}")
        assert found.fault is not None
