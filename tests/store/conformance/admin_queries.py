"""The queries of operators, and the records of their actions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.store.conformance.builders import (
    ME,
    accept,
    create,
    ending,
    event,
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

from romancy.model.admin import AuditRow, BulkActionRow, Content, InstanceQuery, Minute, WorkflowCounts, bucket_of
from romancy.model.messaging import ChannelMode, JoinGroup
from romancy.model.status import Status
from romancy.model.transition import ControlKind, Ending, Wait, WaitKind
from romancy.store.port import Store

MINUTE = 60_000_000
BATCH = BulkActionRow("b", "cancel", "status:live", "why", "ann", "running", 10)


async def scan_all(store: Store, **wanted: Any) -> list[str]:
    """The ids that a scan returns, over all its windows."""
    found: list[str] = []
    query = InstanceQuery(**wanted)
    while True:
        part = await store.scan_instances(query)
        found += [line.row.instance_id for line in part.rows]
        if part.end is None:
            return found
        query = replace(query, before=part.end)


async def create_mixture(store: Store) -> None:
    """Create one instance of each status, at 10, 11, ... in the order of their ids."""
    ids = ["a-runs", "b-done", "c-failed", "d-waits", "e-paused", "f-retries", "g-new"]
    await write(store, *(create(one, now=10 + n) for n, one in enumerate(ids[:-1])))
    await write(store, create("g-new", now=16, owner=None, workflow="other"))
    await write(store, ending("b-done"), ending("c-failed", status=Status.FAILED, ending=Ending(error=b"{}")))
    timer = Wait("timer:1", WaitKind.TIMER, since=20, due=99)
    await write(
        store,
        transition("d-waits", status=Status.WAITING_FOR_TIMER, keep_owned=False, wake_at=99, waits=(timer,)),
        transition("e-paused", status=Status.WAITING_FOR_TIMER, keep_owned=False, wake_at=99),
        transition("f-retries", retrying_since=15),
    )
    await write(store, request(ControlKind.PAUSE, "e-paused"))


class TestScans:
    """Lists without payloads."""

    async def test_all_newest_first(self, store: Store) -> None:
        await create_mixture(store)
        ids = ["g-new", "f-retries", "e-paused", "d-waits", "c-failed", "b-done", "a-runs"]
        assert await scan_all(store) == ids
        for limit in (1, 2, 3, 7):
            assert await scan_all(store, limit=limit) == ids

    async def test_of_statuses_from_several_lists(self, store: Store) -> None:
        await create_mixture(store)
        for window in (1, 2, 100):
            for limit in (1, 2, 100):
                how = {"window": window, "limit": limit}
                assert await scan_all(store, statuses=frozenset({Status.COMPLETED}), **how) == ["b-done"]
                some = frozenset({Status.RUNNING, Status.FAILED, Status.COMPLETED, Status.PENDING})
                assert await scan_all(store, statuses=some, **how) == ["g-new", "f-retries", "c-failed", "b-done", "a-runs"]

    async def test_a_window_bounds_what_is_looked_at(self, store: Store) -> None:
        await write(store, *(create(f"i{n:02}", now=10 + n) for n in range(20)))
        first = await store.scan_instances(InstanceQuery(workflow="nothing", window=5))
        assert (first.rows, first.end) == ([], (24, "i14"))
        assert await scan_all(store, workflow="nothing", window=5) == []
        assert await scan_all(store, workflow="rde", window=5, limit=3) == [f"i{n:02}" for n in reversed(range(20))]
        await write(store, *(create(f"p{n:02}", now=40 + n, owner=None) for n in range(9)))
        waiting = frozenset({Status.PENDING})
        first = await store.scan_instances(InstanceQuery(statuses=waiting, workflow="nothing", window=4))
        assert (first.rows, first.end) == ([], (44, "p04"))
        assert await scan_all(store, statuses=waiting, workflow="rde", window=4) == [f"p{n:02}" for n in reversed(range(9))]

    async def test_what_is_owned_and_what_retries(self, store: Store) -> None:
        await create_mixture(store)
        assert await scan_all(store, owned=True) == ["f-retries", "a-runs"]
        assert await scan_all(store, retrying=True) == ["f-retries"]

    async def test_by_parts_of_names_and_time(self, store: Store) -> None:
        await create_mixture(store)
        assert await scan_all(store, workflow="the") == ["g-new"]
        assert await scan_all(store, instance="-w") == ["d-waits"]
        assert await scan_all(store, created_after=15) == ["g-new", "f-retries"]

    async def test_lines_have_waits_and_contents_are_apart(self, store: Store) -> None:
        await create_mixture(store)
        lines = await store.rows_by_id(["c-failed", "d-waits", "unknown"])
        assert [line.row.instance_id for line in lines] == ["d-waits", "c-failed"]
        assert [wait.op for wait in lines[0].waits] == ["timer:1"]
        assert await store.contents(["c-failed", "unknown"]) == {"c-failed": Content(b"input", b"{}")}
        assert await store.errors(["c-failed", "b-done"]) == {"c-failed": b"{}"}
        assert (await store.rows_by_id([]), await store.contents([]), await store.errors([])) == ([], {}, {})

    async def test_what_is_too_large_is_not_looked_through(self, store: Store) -> None:
        await write(store, create("a", input=b"x" * 300_000))
        assert await store.contents(["a"]) == {"a": Content(None, None)}

    async def test_ids_by_what_they_begin_with(self, store: Store) -> None:
        ids = ["a", "ab", "ab%", "abc", "aÿ", "a\U0010ffff", "b", "B"]
        await started(store, *ids)
        assert await store.ids_by_prefix("ab", limit=9) == ["ab", "ab%", "abc"]
        assert await store.ids_by_prefix("a\U0010ffff", limit=9) == ["a\U0010ffff"]
        assert await store.ids_by_prefix("ab", limit=2) == ["ab", "ab%"]
        assert await store.ids_by_prefix("\U0010ffff", limit=2) == []

    async def test_ids_by_wait_and_by_due(self, store: Store) -> None:
        await started(store, "a", "b", "c")
        await write(store, transition("a", store_calls=(wait("paid"),), keep_owned=False, status=Status.WAITING_FOR_EVENT))
        await write(store, transition("b", store_calls=(wait("sent"),), keep_owned=False, status=Status.WAITING_FOR_EVENT))
        await write(store, transition("c", keep_owned=False, status=Status.WAITING_FOR_TIMER, wake_at=50))
        assert await store.ids_by_wait("paid", limit=9) == ["a"]
        assert await store.ids_by_wait("nothing", limit=9) == []
        assert await store.ids_by_due(before=49, limit=9) == []
        assert await store.ids_by_due(before=50, limit=9) == ["c"]
        await write(store, *(create(f"n{n}", now=30, owner=None, workflow=f"kind {n}") for n in range(3)))
        assert len(await store.ids_by_due(before=50, limit=2)) == 2
        assert len(await store.ids_by_due(before=50, limit=9)) == 4


class TestCounts:
    """Counts, up to a bound."""

    async def test_the_counts(self, store: Store) -> None:
        await create_mixture(store)
        counts = await store.count_instances(failed_since=0, due_before=99, most=9)
        assert {status: n for status, n in counts.statuses.items() if n} == {
            Status.PENDING: 1,
            Status.RUNNING: 2,
            Status.WAITING_FOR_TIMER: 1,
            Status.PAUSED: 1,
            Status.FAILED: 1,
        }
        assert (counts.retrying, counts.overdue, counts.dead_letters) == (1, 2, 0)
        later = await store.count_instances(failed_since=13, due_before=98, most=1)
        assert (later.statuses[Status.FAILED], later.statuses[Status.RUNNING], later.overdue) == (0, 1, 1)

    async def test_by_workflow_and_by_worker(self, store: Store) -> None:
        await create_mixture(store)
        assert await store.workflow_counts(most=9) == WorkflowCounts({"order": 4, "other": 1}, True)
        assert not (await store.workflow_counts(most=1)).complete
        assert await store.count_owned([ME, "unknown"], most=9) == {ME: 2, "unknown": 0}
        assert await store.count_owned([ME], most=1) == {ME: 1}


class TestChannelQueries:
    """Channels, groups, and the events that nearly matched a wait."""

    async def test_channels_by_name(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(
            store, transition("a", store_calls=(subscribe("news"),)), transition("b", store_calls=(subscribe("news"),))
        )
        await write(store, transition("a", store_calls=(subscribe("jobs", ChannelMode.COMPETING),)))
        await write(store, publish("one", "news", now=30), publish("two", "jobs", now=31), publish("three", "later", now=32))
        found = await store.channels(after="", limit=9, most=9)
        assert [tuple(one) for one in found] == [
            ("jobs", "competing", 1, 1, 31),
            ("later", None, 0, 1, 32),
            ("news", "broadcast", 2, 2, 30),
        ]
        assert [one.name for one in await store.channels(after="jobs", limit=1, most=9)] == ["later"]
        assert tuple(await store.channel("news", most=1)) == ("news", "broadcast", 1, 1, 30)
        assert tuple(await store.channel("nothing", most=1)) == ("nothing", None, 0, 0, None)

    async def test_subscribers_by_id(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(
            store,
            transition("a", store_calls=(subscribe("news"),)),
            transition("b", store_calls=(subscribe("news"),), now=25),
        )
        await write(store, send("a", "one", "news"))
        await write(
            store, transition("b", store_calls=(receive("news"),), keep_owned=False, status=Status.WAITING_FOR_MESSAGE)
        )
        found = await store.subscribers("news", after="", limit=9, most=9)
        assert [(one.instance_id, one.mode, one.unread, one.waits) for one in found] == [
            ("a", "broadcast", 1, False),
            ("b", "broadcast", 0, True),
        ]
        assert [one.instance_id for one in await store.subscribers("news", after="a", limit=9, most=9)] == ["b"]
        assert await store.is_subscribed("news", "a")
        assert not await store.is_subscribed("news", "unknown")

    async def test_groups_and_their_members_by_name(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, transition("a", effects=(JoinGroup("crew"), JoinGroup("staff"))))
        await write(store, transition("b", effects=(JoinGroup("crew"),)))
        assert await store.groups(after="", limit=9, most=9) == [("crew", 2), ("staff", 1)]
        assert await store.groups(after="crew", limit=9, most=9) == [("staff", 1)]
        assert await store.groups(after="", limit=1, most=1) == [("crew", 1)]
        assert await store.page_of_members("crew", after="", limit=9) == ["a", "b"]
        assert await store.page_of_members("crew", after="a", limit=9) == ["b"]

    async def test_the_last_events_of_a_type(self, store: Store) -> None:
        await write(store, accept(event("e-0"), now=5))
        await started(store, "a", "b")
        await write(store, accept(event("e-1"), event("e-2", to="a"), event("e-3", to="b"), event("e-4", "sent"), now=30))
        await write(store, transition("a", store_calls=(wait("paid"),)))
        found = await store.last_events("paid", "a", limit=5)
        assert [(one.accepted_at, one.target, one.consumed, one.predates_instance) for one in found] == [
            (30, "a", False, False),
            (30, None, True, False),
            (5, None, False, True),
        ]
        assert all(one.body is not None and b"paid" in one.body for one in found)
        assert len(await store.last_events("paid", "a", limit=2)) == 2
        assert await store.last_events("nothing", "a", limit=2) == []

    async def test_how_long_the_outbox_waits(self, store: Store) -> None:
        assert await store.outbox_lag() is None
        await write(store, accept(event("e-1"), now=30, brokers=("http",)), accept(event("e-2"), now=40, brokers=("http",)))
        assert await store.outbox_lag() == 30


class TestAuditAndBulkActions:
    """The audit and the bulk actions."""

    async def test_actions_newest_first(self, store: Store) -> None:
        await store.add_audit([AuditRow(0, 10, "ann", "cancel", "a", "why"), AuditRow(0, 11, "bob", "prune", None, "")])
        await store.add_audit([AuditRow(0, 12, "ann", "retry", "a", "")])
        found = await store.audit(instance_id=None, before=None, limit=9)
        assert [line[1:] for line in found] == [
            (12, "ann", "retry", "a", ""),
            (11, "bob", "prune", None, ""),
            (10, "ann", "cancel", "a", "why"),
        ]
        assert [line.at for line in await store.audit(instance_id="a", before=None, limit=9)] == [12, 10]
        assert [line.at for line in await store.audit(instance_id=None, before=found[0].number, limit=1)] == [11]
        assert [line.at for line in await store.audit(instance_id="a", before=found[0].number, limit=9)] == [10]

    async def test_old_actions_are_deleted_some_at_a_time(self, store: Store) -> None:
        await store.add_audit([AuditRow(0, at, "ann", "cancel", "a", "") for at in (10, 11, 12, 30, 13)])
        assert await store.prune_audit(before=14, limit=2) == 2
        assert await store.prune_audit(before=14, limit=2) == 1
        assert [line.at for line in await store.audit(instance_id="a", before=None, limit=9)] == [13, 30]
        assert await store.prune_audit(before=14, limit=2) == 1
        assert [line.at for line in await store.audit(instance_id="a", before=None, limit=9)] == [30]
        assert await store.prune_audit(before=30, limit=2) == 0

    async def test_a_batch_is_one_claimants_at_a_time(self, store: Store) -> None:
        await store.add_bulk_action(BATCH)
        assert await store.bulk_action("b") == BATCH
        assert await store.claim_bulk_action("one", now=20, until=30) == BATCH
        assert await store.claim_bulk_action("two", now=29, until=39) is None
        further = BATCH._replace(done=5, failed=1, scanned=9, failures="[1]", cursor="here")
        assert await store.save_bulk_action(further, "one", until=40)
        assert await store.claim_bulk_action("two", now=39, until=49) is None
        assert await store.claim_bulk_action("two", now=40, until=50) == further
        assert not await store.save_bulk_action(BATCH, "one", until=60)
        assert await store.bulk_action("b") == further

    async def test_a_batch_that_is_over_stays_so(self, store: Store) -> None:
        await store.add_bulk_action(BATCH)
        await store.add_bulk_action(BATCH._replace(id="c", created_at=11))
        assert [row.id for row in await store.bulk_actions(limit=9)] == ["c", "b"]
        assert await store.claim_bulk_action("one", now=20, until=30) is not None
        assert await store.abort_bulk_action("b", now=25)
        assert not await store.abort_bulk_action("b", now=26)
        assert not await store.abort_bulk_action("nothing", now=26)
        assert not await store.save_bulk_action(BATCH._replace(done=1), "one", until=40)
        found = await store.bulk_action("b")
        assert found is not None
        assert (found.status, found.ended_at, found.done) == ("aborted", 25, 0)
        assert [row.id for row in await store.bulk_actions(limit=1)] == ["c"]


class TestRollUp:
    """The counts of ended instances by minute."""

    async def test_what_ended_is_counted_once(self, store: Store) -> None:
        await started(store, "a", "b", "c", "d")
        await write(store, ending("a", now=MINUTE + 10), ending("b", now=MINUTE + 20))
        await write(store, ending("c", now=MINUTE + 30, status=Status.FAILED, ending=Ending(error=b"{}")))
        how = {"limit": 9, "forget_before": 0}
        assert await store.roll_up(until=MINUTE + 20, **how) == 2
        assert await store.roll_up(until=MINUTE + 20, **how) == 0
        assert await store.roll_up(until=2 * MINUTE, **how) == 1
        took = bucket_of(MINUTE)
        assert await store.minutes(since=MINUTE + 5) == [
            Minute(MINUTE, "order", "completed", 2, {took: 2}),
            Minute(MINUTE, "order", "failed", 1, {took: 1}),
        ]
        await write(store, ending("d", now=2 * MINUTE + 1))
        assert await store.roll_up(until=3 * MINUTE, **how) == 1
        assert [one.at for one in await store.minutes(since=2 * MINUTE)] == [2 * MINUTE]

    async def test_a_little_at_a_time_leaves_nothing_out(self, store: Store) -> None:
        ids = [f"i{n:02}" for n in range(20)]
        await started(store, *ids)
        await write(store, *(ending(one, now=100 + n // 4) for n, one in enumerate(ids)))
        counted = [await store.roll_up(until=200, limit=3, forget_before=0) for _ in range(9)]
        assert sum(counted) == 20
        assert max(counted) < 9
        assert [(one.at, one.ended) for one in await store.minutes(since=0)] == [(0, 20)]

    async def test_old_minutes_are_forgotten(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, ending("a", now=MINUTE), ending("b", now=5 * MINUTE))
        await store.roll_up(until=2 * MINUTE, limit=9, forget_before=0)
        await store.roll_up(until=9 * MINUTE, limit=9, forget_before=2 * MINUTE)
        assert [one.at for one in await store.minutes(since=0)] == [5 * MINUTE]

    async def test_minutes_are_forgotten_some_at_a_time(self, store: Store) -> None:
        ids = [f"i{n:02}" for n in range(14)]
        await started(store, *ids)
        await write(store, *(ending(one, now=(n + 1) * MINUTE) for n, one in enumerate(ids)))
        await store.roll_up(until=12 * MINUTE, limit=99, forget_before=0)
        await store.roll_up(until=13 * MINUTE, limit=99, forget_before=12 * MINUTE)
        assert [one.at for one in await store.minutes(since=0)] == [11 * MINUTE, 12 * MINUTE, 13 * MINUTE]
        await store.roll_up(until=14 * MINUTE, limit=99, forget_before=12 * MINUTE)
        assert [one.at for one in await store.minutes(since=0)] == [12 * MINUTE, 13 * MINUTE, 14 * MINUTE]

    async def test_two_who_count_at_once_count_once(self, store: Store) -> None:
        ids = [f"i{n}" for n in range(8)]
        await started(store, *ids)
        for n, one in enumerate(ids):
            at = MINUTE + 10 * n
            await write(store, ending(one, now=at))
            await asyncio.gather(*(store.roll_up(until=at + k % 2, limit=9, forget_before=0) for k in range(4)))
        assert [(one.at, one.ended) for one in await store.minutes(since=0)] == [(MINUTE, 8)]

    async def test_the_database_is_well(self, store: Store) -> None:
        await store.register_worker(worker())
        vitals = await store.vitals()
        assert vitals.product
        assert vitals.latency >= 0
