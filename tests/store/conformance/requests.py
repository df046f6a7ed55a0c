"""Control requests: cancel, pause, resume and terminate."""

from __future__ import annotations

import pytest
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
    write,
)

from romancy.model.history import Kind
from romancy.model.instance import Inbox
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, JournalNote, Refused, Wait, WaitKind
from romancy.store.port import JournalEntry, Store

CANCEL, PAUSE, RESUME, TERMINATE = ControlKind.CANCEL, ControlKind.PAUSE, ControlKind.RESUME, ControlKind.TERMINATE


class TestRequests:
    """A request takes effect at once, or becomes an inbox item of the run that owns the instance."""

    @pytest.mark.parametrize("kind", list(ControlKind))
    async def test_an_unknown_instance_is_refused(self, store: Store, kind: ControlKind) -> None:
        assert await write(store, request(kind, "unknown")) == [Refused(None)]
        assert await store.journal("unknown") == []

    @pytest.mark.parametrize("kind", [CANCEL, PAUSE, RESUME, TERMINATE])
    async def test_an_ended_instance_refuses(self, store: Store, kind: ControlKind) -> None:
        await started(store, "a")
        await write(store, ending(status=Status.FAILED))
        assert await write(store, request(kind)) == [Refused(Status.FAILED)]
        assert await journal_kinds(store) == []

    async def test_a_request_is_noted_with_its_reason(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(CANCEL, now=50, reason="customer left"))
        assert await store.journal("a") == [JournalEntry(50, JournalNote("cancel", "customer left"), "operator", 1)]

    # --- cancel

    async def test_cancelling_an_owned_instance_sends_mail(self, store: Store) -> None:
        await started(store, "a")
        assert await write(store, request(CANCEL, now=50, reason="late")) == [Applied(inbox_version=1)]
        inbox_version, (item,), _ = await store.inbox("a")
        assert (inbox_version, item.kind, item.op, item.body, item.at) == (1, "cancel", "", b'"late"', 50)
        one = await row(store)
        assert (one.owner, one.status) == (ME, Status.RUNNING)
        assert await store.with_unread_inbox(ME) == ["a"]

    async def test_cancelling_twice_is_cancelling_once(self, store: Store) -> None:
        await started(store, "a")
        assert await write(store, request(CANCEL), request(CANCEL)) == [Applied(inbox_version=1), Applied(inbox_version=1)]
        assert len((await store.inbox("a")).items) == 1
        assert await journal_kinds(store) == ["cancel"]

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
    async def test_an_end_that_does_not_know_of_the_cancellation_is_no_end(self, store: Store, status: Status) -> None:
        await started(store, "a")
        await write(store, request(CANCEL))
        last = ending(status=status, history=(entry(1),))
        assert await write(store, last) == [Applied(inbox_version=1, owned=True)]
        one = await row(store)
        assert (one.owner, one.status, one.ended_at, one.length) == (ME, Status.RUNNING, None, 1)
        (item,) = (await store.inbox("a")).items
        knowing = ending(
            status=Status.CANCELLED, inbox_seen=1, consumed_items=(item.id,), history=(entry(2, kind=Kind.CANCEL),)
        )
        assert await write(store, knowing) == [Applied(inbox_version=1)]
        assert (await row(store)).status is Status.CANCELLED

    async def test_a_way_back_that_does_not_know_of_the_cancellation_goes_on(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(CANCEL), transition(status=Status.COMPENSATING))
        assert await write(store, ending(status=Status.FAILED)) == [Applied(inbox_version=1, owned=True)]
        assert (await row(store)).status is Status.COMPENSATING

    async def test_cancelling_a_waiting_instance_makes_it_due(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(status=Status.WAITING_FOR_EVENT, keep_owned=False))
        await write(store, request(CANCEL, now=50))
        one = await row(store)
        assert (one.status, one.wake_at) == (Status.WAITING_FOR_EVENT, 50)

    async def test_cancelling_a_paused_instance_resumes_it(self, store: Store) -> None:
        await write(store, create(owner=None), request(PAUSE))
        await write(store, request(CANCEL, now=60))
        one = await row(store)
        assert (one.status, one.wake_at) == (Status.PENDING, 60)

    async def test_cancelling_a_blocked_instance_waits_for_code(self, store: Store) -> None:
        await _blocked(store)
        assert await write(store, request(CANCEL)) == [Applied(inbox_version=1)]
        one = await row(store)
        assert (one.status, one.wake_at) == (Status.BLOCKED, None)

    async def test_what_compensates_by_itself_cannot_be_cancelled(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(status=Status.COMPENSATING))
        assert await write(store, request(CANCEL)) == [Refused(Status.COMPENSATING)]
        assert await store.inbox("a") == Inbox(0, (), ())

    async def test_what_compensates_because_of_a_cancel_is_cancelled_already(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(CANCEL), transition(status=Status.COMPENSATING, inbox_seen=1))
        assert await write(store, request(CANCEL)) == [Applied(inbox_version=1)]

    # --- pause and resume

    async def test_pausing_an_unowned_instance_takes_it_out(self, store: Store) -> None:
        await write(store, create(owner=None))
        assert await write(store, request(PAUSE), request(PAUSE)) == [Applied(), Applied()]
        one = await row(store)
        assert (one.status, one.wake_at) == (Status.PAUSED, None)
        assert await store.claim(OTHER, [ORDER], now=99, limit=5) == []
        assert await journal_kinds(store) == ["pause"]

    async def test_pausing_an_owned_instance_sends_mail_once(self, store: Store) -> None:
        await started(store, "a")
        assert await write(store, request(PAUSE), request(PAUSE)) == [Applied(1), Applied(1)]
        inbox_version, items, _ = await store.inbox("a")
        assert (inbox_version, [item.kind for item in items]) == (1, ["pause"])
        assert (await row(store)).status is Status.RUNNING

    async def test_a_blocked_instance_cannot_be_paused(self, store: Store) -> None:
        await _blocked(store)
        assert await write(store, request(PAUSE)) == [Refused(Status.BLOCKED)]

    async def test_resuming_makes_it_due(self, store: Store) -> None:
        await write(store, create(owner=None), request(PAUSE))
        assert await write(store, request(RESUME, now=70)) == [Applied()]
        one = await row(store)
        assert (one.status, one.wake_at) == (Status.PENDING, 70)
        assert await journal_kinds(store) == ["pause", "resume"]

    async def test_resuming_a_blocked_instance_tries_the_same_code_again(self, store: Store) -> None:
        await _blocked(store)
        assert await write(store, request(RESUME, now=70)) == [Applied()]
        one = await row(store)
        assert (one.status, one.wake_at, one.blocked_by) == (Status.PENDING, 70, None)

    async def test_resuming_takes_an_unseen_pause_back(self, store: Store) -> None:
        await started(store, "a")
        assert await write(store, request(PAUSE), request(RESUME)) == [Applied(1), Applied(2)]
        assert (await store.inbox("a")).items == ()

    async def test_a_pause_that_is_taken_back_on_the_way_back_leaves_it_there(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(status=Status.COMPENSATING), request(PAUSE), request(RESUME))
        assert await write(store, transition(status=Status.PAUSED, keep_owned=False, inbox_seen=1)) == [
            Applied(2, owned=True)
        ]
        assert (await row(store)).status is Status.COMPENSATING
        assert await write(store, request(CANCEL)) == [Refused(Status.COMPENSATING)]

    async def test_a_pause_whose_owner_died_does_not_outlive_the_resume(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(PAUSE))
        await store.release(ME, now=60)
        assert await write(store, request(PAUSE), request(RESUME)) == [Applied(1), Applied(1)]
        assert (await store.inbox("a")).items == ()
        assert (await row(store)).status is Status.PENDING

    @pytest.mark.parametrize("owner", [ME, None])
    async def test_there_is_nothing_to_resume(self, store: Store, owner: str | None) -> None:
        await write(store, create(owner=owner))
        status = Status.RUNNING if owner else Status.PENDING
        assert await write(store, request(RESUME)) == [Refused(status)]
        assert await journal_kinds(store) == []

    # --- terminate

    async def test_terminating_ends_it_and_fences_its_run(self, store: Store) -> None:
        await started(store, "a")
        wait = Wait("timer:1", WaitKind.TIMER, since=20, due=99)
        await write(store, transition(waits=(wait,), attempts=(attempt(),)), request(CANCEL))
        assert await write(store, request(TERMINATE, now=80, reason="enough")) == [Applied(inbox_version=1)]
        stored = await store.get("a")
        assert stored is not None
        one = stored.row
        assert (one.status, one.owner, one.wake_at, one.ended_at, one.epoch) == (Status.TERMINATED, None, None, 80, 2)
        assert (stored.output, stored.error, stored.waits) == (None, None, ())
        assert (await store.inbox("a")).items == ()
        assert await store.attempts("a", 1) == []
        assert await write(store, transition()) == [Refused(Status.TERMINATED)]
        assert (await store.journal("a"))[-1].note == JournalNote("terminate", "enough")


async def _blocked(store: Store) -> None:
    await started(store, "a")
    await write(store, transition(status=Status.BLOCKED, keep_owned=False, blocked_by="code-1"))
