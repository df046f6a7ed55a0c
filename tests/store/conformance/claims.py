"""Claims: which instances a worker may claim."""

from __future__ import annotations

from tests.store.conformance.builders import ME, ORDER, OTHER, create, request, row, started, transition, write

from romancy.model.status import Status
from romancy.model.transition import ControlKind, JournalNote, Refused
from romancy.store.port import JournalEntry, Runnable, Store

MAIL = Runnable("mail", "", "code-1")


class TestClaims:
    """A claim takes due and runnable instances, oldest first, under a new epoch."""

    async def test_a_claim_returns_the_new_row_and_notes_it(self, store: Store) -> None:
        await write(store, create(now=10, owner=None))
        (claimed,) = await store.claim(ME, [ORDER], now=40, limit=5)
        assert claimed == await row(store)
        assert (claimed.owner, claimed.epoch, claimed.status) == (ME, 1, Status.RUNNING)
        assert (claimed.started_at, claimed.updated_at) == (40, 40)
        assert await store.journal("a") == [JournalEntry(40, JournalNote("claimed"), ME, 1)]
        assert await store.claim(OTHER, [ORDER], now=40, limit=5) == []

    async def test_a_waiting_instance_keeps_its_status(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(status=Status.WAITING_FOR_TIMER, keep_owned=False, wake_at=30))
        (claimed,) = await store.claim(OTHER, [ORDER], now=40, limit=5)
        assert (claimed.status, claimed.started_at) == (Status.WAITING_FOR_TIMER, 10)

    async def test_the_oldest_first_and_no_more_than_asked(self, store: Store) -> None:
        await write(store, *(create(f"i{now}", now=now, owner=None) for now in (30, 10, 20, 50)))
        assert [one.instance_id for one in await store.claim(ME, [ORDER], now=40, limit=2)] == ["i10", "i20"]
        assert [one.instance_id for one in await store.claim(ME, [ORDER], now=40, limit=2)] == ["i30"]

    async def test_only_what_is_runnable(self, store: Store) -> None:
        await write(store, create("a", owner=None), create("b", owner=None, version="2"))
        assert await store.claim(ME, [], now=40, limit=5) == []
        assert await store.claim(ME, [MAIL, Runnable("order", "")], now=40, limit=5) == []
        assert [one.instance_id for one in await store.claim(ME, [ORDER, ORDER], now=40, limit=5)] == ["a"]

    async def test_a_kind_with_much_to_do_does_not_starve_another(self, store: Store) -> None:
        await write(store, *(create(f"order{n}", now=n, owner=None) for n in range(10)))
        await write(store, *(create(f"mail{n}", now=20, owner=None, workflow="mail", version="") for n in range(10)))
        claimed = await store.claim(ME, [ORDER, MAIL], now=40, limit=4)
        assert sorted(one.workflow for one in claimed) == ["mail", "mail", "order", "order"]

    async def test_kinds_take_turns_when_there_is_room_for_one(self, store: Store) -> None:
        await write(store, *(create(f"order{n}", now=n, owner=None) for n in range(10)))
        await write(store, *(create(f"mail{n}", now=20, owner=None, workflow="mail", version="") for n in range(10)))
        taken = [(await store.claim(ME, [ORDER, MAIL], now=40, limit=1))[0].workflow for _ in range(4)]
        assert sorted(taken) == ["mail", "mail", "order", "order"]

    async def test_ids_are_claimed_only_if_due_and_runnable(self, store: Store) -> None:
        await started(store, "owned")
        await write(store, create("due", owner=None), create("later", now=90, owner=None), create("not asked", owner=None))
        await write(store, create("foreign", owner=None, workflow="other"))
        wanted = ["owned", "due", "later", "foreign", "unknown"]
        assert [one.instance_id for one in await store.claim(ME, [ORDER], now=40, limit=9, ids=wanted)] == ["due"]
        assert await store.claim(ME, [ORDER], now=40, limit=9, ids=[]) == []

    async def test_blocked_instances_are_for_other_code(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, transition("a", status=Status.BLOCKED, keep_owned=False, blocked_by="code-1"))
        await write(store, transition("b", status=Status.BLOCKED, keep_owned=False, blocked_by="code-0"))
        assert await store.claim(ME, [ORDER], now=99, limit=9) == []
        (claimed,) = await store.claim(ME, [ORDER], now=99, limit=9, blocked=True)
        assert (claimed.instance_id, claimed.epoch, claimed.owner) == ("b", 2, ME)
        newer = Runnable("order", "1", "code-2")
        assert [one.instance_id for one in await store.claim(ME, [newer], now=99, limit=9, blocked=True)] == ["a"]
        assert await store.claim(ME, [newer], now=99, limit=9, blocked=True) == []

    async def test_a_new_worker_claims_blocked_instances_with_any_code(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, transition("a", status=Status.BLOCKED, keep_owned=False, blocked_by="code-1", now=50))
        await write(store, transition("b", status=Status.BLOCKED, keep_owned=False, blocked_by="code-1", now=51))
        claimed = await store.claim(ME, [ORDER], now=99, limit=9, blocked=True, blocked_before=51)
        assert [one.instance_id for one in claimed] == ["a"]

    async def test_blocked_instances_by_id(self, store: Store) -> None:
        await started(store, "a", "b")
        for one in ("a", "b"):
            await write(store, transition(one, status=Status.BLOCKED, keep_owned=False, blocked_by="code-0"))
        claimed = await store.claim(ME, [ORDER], now=99, limit=1, ids=["b"], blocked=True)
        assert [one.instance_id for one in claimed] == ["b"]

    async def test_the_old_owner_is_fenced(self, store: Store) -> None:
        await started(store, "a")
        await store.release(ME, now=30)
        (claimed,) = await store.claim(OTHER, [ORDER], now=40, limit=5)
        assert claimed.epoch == 3
        assert await write(store, transition()) == [Refused(Status.RUNNING)]
        assert (await row(store)).owner == OTHER

    async def test_upcoming_tells_what_will_be_due(self, store: Store) -> None:
        await write(store, *(create(f"i{now}", now=now, owner=None) for now in (30, 10, 20, 50)))
        await write(store, create("foreign", owner=None, workflow="other"), create("owned", now=1))
        await write(store, create("paused", now=1, owner=None), request(ControlKind.PAUSE, "paused"))
        assert await store.upcoming([ORDER, MAIL], until=30, limit=9) == [("i10", 10), ("i20", 20), ("i30", 30)]
        assert await store.upcoming([ORDER], until=99, limit=1) == [("i10", 10)]
        assert await store.upcoming([], until=99, limit=9) == []

    async def test_arrivals_are_the_unseen_of_one_worker(self, store: Store) -> None:
        await started(store, "a", "b", "c")
        await write(store, create("d", owner=OTHER))
        await write(store, *(request(ControlKind.CANCEL, one) for one in ("a", "b", "d")))
        await write(store, transition("b", inbox_seen=1))
        assert await store.with_unread_inbox(ME) == ["a"]
        assert await store.with_unread_inbox(OTHER) == ["d"]
        assert await store.with_unread_inbox("unknown") == []
