"""Registration, heartbeats and sweeps of workers, and retention."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.store.conformance.builders import (
    ME,
    ORDER,
    OTHER,
    attempt,
    create,
    ending,
    entry,
    journal_kinds,
    request,
    row,
    started,
    transition,
    worker,
    write,
)

from romancy.model.instance import InstanceFilter
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, JournalNote, Refused
from romancy.store.port import JournalEntry, Runnable, Store


class TestMaintenance:
    """A sweep frees the instances of dead workers, and no others."""

    async def test_unrunnable_instances_are_listed_by_kind_and_blocked_once_long_due(self, store: Store) -> None:
        await write(store, *(create(f"a{n}", now=10 + n, owner=None, workflow="lost", version="") for n in range(3)))
        await write(store, create("b", now=10, owner=None, workflow="lost", version="2"), create("c", workflow="owned"))
        assert await store.kinds_waiting() == [("lost", ""), ("lost", "2")]

        assert await store.mark_unrunnable([Runnable("lost", "")], due_before=11, now=90, limit=10) == 2

        assert [(await row(store, f"a{n}")).status for n in range(3)] == [Status.BLOCKED, Status.BLOCKED, Status.PENDING]
        assert (await store.journal("a0"))[-1].note == JournalNote("blocked", "no running worker has workflow lost")
        claimed = await store.claim(ME, [Runnable("lost", "", "code")], now=91, limit=9, blocked=True)
        assert {one.instance_id for one in claimed} == {"a0", "a1"}

    async def test_a_worker_is_on_the_list_until_it_releases(self, store: Store) -> None:
        await store.register_worker(worker())
        assert await store.workers() == [worker()]
        assert await store.release(ME, now=30) == 0
        assert await store.workers() == []

    async def test_a_heartbeat_renews_the_row_of_its_worker(self, store: Store) -> None:
        await store.register_worker(worker(heartbeat_at=10))
        heartbeat = store.heartbeat(ME)
        try:
            assert await asyncio.to_thread(heartbeat.renew, 25)
            assert [one.heartbeat_at for one in await store.workers()] == [25]
        finally:
            heartbeat.close()

    async def test_a_heartbeat_learns_that_its_worker_was_swept(self, store: Store) -> None:
        await store.register_worker(worker())
        heartbeat = store.heartbeat(ME)
        try:
            await store.release(ME, now=30)
            assert not await asyncio.to_thread(heartbeat.renew, 40)
            assert await store.workers() == []
        finally:
            heartbeat.close()

    async def test_a_release_frees_everything_at_once(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, create("c", owner=OTHER), request(ControlKind.CANCEL))
        await store.register_worker(worker())
        assert await store.release(ME, now=30) == 2
        one = await row(store)
        assert (one.owner, one.epoch, one.wake_at, one.status) == (None, 2, 30, Status.PENDING)
        assert (await store.journal("a"))[-1] == JournalEntry(30, JournalNote("released"), ME, 1)
        assert (await row(store, "c")).owner == OTHER
        assert await write(store, transition()) == [Refused(Status.PENDING)]
        (claimed,) = await store.claim(OTHER, [ORDER], now=30, limit=1, ids=["a"])
        assert claimed.inbox_version == 1
        assert await store.with_unread_inbox(OTHER) == ["a"]

    async def test_a_sweep_frees_the_instances_of_a_silent_worker(self, store: Store) -> None:
        await store.register_worker(worker(heartbeat_at=10))
        await started(store, "a", "b")
        assert (await store.sweep([(ME, 10)], now=99, limit=10)).freed == 2
        one = await row(store)
        assert (one.owner, one.epoch, one.wake_at) == (None, 2, 99)
        assert (await store.journal("a"))[-1] == JournalEntry(99, JournalNote("lost"), ME, 1)
        assert await store.workers() == []

    async def test_a_sweep_spares_a_worker_that_has_beaten_since(self, store: Store) -> None:
        await store.register_worker(worker(heartbeat_at=11))
        await started(store, "a")
        assert (await store.sweep([(ME, 10)], now=99, limit=10)).freed == 0
        assert (await row(store)).owner == ME
        assert await store.workers() == [worker(heartbeat_at=11)]

    async def test_a_sweep_is_bounded_and_goes_on(self, store: Store) -> None:
        await store.register_worker(worker(heartbeat_at=10))
        await started(store, "a", "b", "c")
        assert (await store.sweep([(ME, 10)], now=99, limit=2)).freed == 2
        assert len(await store.workers()) == 1
        assert (await store.sweep([(ME, 10)], now=99, limit=1)).freed == 1
        assert await store.workers() == []
        assert (await store.sweep([(ME, 10)], now=99, limit=1)).freed == 0

    async def test_a_sweep_frees_instances_of_unregistered_owners(self, store: Store) -> None:
        await started(store, "a")
        await write(store, create("b", owner=OTHER))
        await store.register_worker(worker(OTHER))
        assert (await store.sweep([], now=99, limit=10)).freed == 1
        assert (await row(store)).owner is None
        assert (await row(store, "b")).owner == OTHER
        assert await journal_kinds(store) == ["lost"]

    async def test_a_source_is_kept_once(self, store: Store) -> None:
        await store.save_source("code-1", "order", "1", "def order(): ...", now=10)
        await store.save_source("code-1", "order", "1", "something else", now=20)
        assert await store.source("code-1") == "def order(): ..."
        assert await store.source("unknown") is None
        await store.save_source("code-1", "order", "1", "the last word", now=30, replace=True)
        await store.save_source("code-2", "order", "1", "the first", now=30, replace=True)
        assert [await store.source("code-1"), await store.source("code-2")] == ["the last word", "the first"]

    async def test_prune_deletes_the_oldest_ended_with_everything(self, store: Store) -> None:
        await started(store, "a", "b", "c", "alive")
        for one, at in (("b", 40), ("a", 50), ("c", 60)):
            rows: dict[str, Any] = {
                "history": (entry(1),),
                "attempts": (attempt(is_open=False),),
                "notes": (JournalNote("cold"),),
            }
            await write(store, ending(one, now=at, **rows))
        assert await store.prune_instances(ended_before=60, limit=1) == 1
        assert set(await store.statuses(["a", "b", "c", "alive"])) == {"a", "c", "alive"}
        assert await store.prune_instances(ended_before=60, limit=9) == 1
        assert await store.prune_instances(ended_before=60, limit=9) == 0
        assert await store.get("a") is None
        assert await store.load("a") is None
        assert await store.history("a", 1, after=0, limit=9) == []
        assert await store.attempts("a", 1) == []
        assert await store.journal("a") == []
        assert [one.row.instance_id for one in await store.list(InstanceFilter())] == ["c", "alive"]
        assert await write(store, create("a")) == [Applied(0, owned=True)]
