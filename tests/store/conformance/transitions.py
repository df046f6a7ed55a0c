"""Transitions of runs."""

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
    request,
    row,
    started,
    transition,
    write,
)

from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.instance import Inbox
from romancy.model.status import Status
from romancy.model.transition import (
    Applied,
    AttemptUpdate,
    ControlKind,
    Ending,
    JournalNote,
    Refused,
    Transition,
    Wait,
    WaitKind,
)
from romancy.store.port import JournalEntry, Store

WAIT = Wait("timer:1", WaitKind.TIMER, since=20, due=99)
EVENT = Wait("event:1", WaitKind.EVENT, 20, None, "paid", "o-1", b'{"n":1}', "app.py:7")


class TestTransitions:
    """A transition is written under the epoch that it names, whole or not at all."""

    async def test_one_that_was_committed_already_is_refused(self, store: Store) -> None:
        await started(store, "a")
        step = transition("a", history=(entry(1),), length=0)
        assert await write(store, step) == [Applied(0, owned=True)]
        assert await write(store, step) == [Refused(Status.RUNNING)]
        assert await write(store, ending("a", history=(entry(2),), length=0)) == [Refused(Status.RUNNING)]
        assert (await row(store, "a")).length == 1

    async def test_a_step_keeps_the_owner(self, store: Store) -> None:
        await started(store, "a")
        step = transition(now=20, history=(entry(1), entry(2)), retrying_since=7, wake_at=55)
        assert await write(store, step) == [Applied(0, owned=True)]
        one = await row(store)
        assert (one.owner, one.status, one.epoch, one.length) == (ME, Status.RUNNING, 1, 2)
        assert (one.updated_at, one.retrying_since, one.wake_at) == (20, 7, 55)

    async def test_every_column_of_an_entry_comes_back(self, store: Store) -> None:
        await started(store, "a")
        full = entry(
            1,
            "charge",
            kind=Kind.ACTIVITY,
            outcome=Outcome.ERROR,
            name="charge",
            role=Role.OUT_OF_BAND,
            digest=b"\x00\xff",
            input=b"in",
            value=b"",
            attempt=3,
            site="app.py:1",
            scheduled_at=1,
            started_at=2,
            ended_at=3,
            worker=ME,
            epoch=4,
        )
        bare = Entry(2, Kind.TIMER, "op-2", Outcome.OK, at=2)
        await write(store, transition(history=(full, bare)))
        assert await store.history("a", 1, after=0, limit=10) == [full, bare]

    async def test_usual_steps_are_read_as_they_were_written_alone_with_others_and_with_an_end(self, store: Store) -> None:
        await started(store, "a", "b", "c")
        full = entry(1, name="charge", digest=b"\x00\xff", input=b"in", value=b"out", site="app.py:1")
        full = full._replace(scheduled_at=1, started_at=2, ended_at=3)
        last = full._replace(seq=2, op="op-2", value=None)
        await write(store, transition("a", history=(full,), length=0))
        await write(store, *[transition(one, history=(full,), length=0) for one in ("b", "c")])
        await write(store, transition("a", history=(last,), length=1), transition("b", history=(last,), length=1))
        await write(store, ending("c", history=(last,), length=1))
        for one in ("a", "b", "c"):
            assert await store.history(one, 1, after=0, limit=10) == [full, last]

    async def test_a_release_makes_it_due_at_its_wake_time(self, store: Store) -> None:
        await started(store, "a")
        rest = transition(status=Status.WAITING_FOR_TIMER, keep_owned=False, wake_at=99, waits=(WAIT,))
        assert await write(store, rest) == [Applied(0, owned=False)]
        assert (await row(store)).owner is None
        assert await store.claim(OTHER, [ORDER], now=98, limit=5) == []
        (claimed,) = await store.claim(OTHER, [ORDER], now=99, limit=5)
        assert (claimed.status, claimed.epoch, claimed.owner) == (Status.WAITING_FOR_TIMER, 2, OTHER)

    async def test_a_release_that_missed_a_signal_keeps_the_owner(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(ControlKind.CANCEL))
        rest = transition(status=Status.WAITING_FOR_TIMER, keep_owned=False, wake_at=99, inbox_seen=0)
        assert await write(store, rest) == [Applied(inbox_version=1, owned=True)]
        one = await row(store)
        assert (one.owner, one.status) == (ME, Status.RUNNING)
        assert await write(store, transition(status=Status.WAITING_FOR_TIMER, keep_owned=False, inbox_seen=1)) == [
            Applied(1)
        ]
        assert (await row(store)).owner is None

    async def test_a_step_tells_of_a_signal(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(ControlKind.CANCEL))
        assert await write(store, transition()) == [Applied(inbox_version=1, owned=True)]

    async def test_an_end_ignores_a_late_signal_and_clears_up(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(ControlKind.PAUSE))
        await write(store, transition(waits=(WAIT,), attempts=(attempt(), attempt("op-2", is_open=False))))
        end = ending(now=30, ending=Ending(b"output", None, "print"), wake_at=99, history=(entry(1),))
        assert await write(store, end) == [Applied(inbox_version=1, owned=False)]
        stored = await store.get("a")
        assert stored is not None
        assert (stored.output, stored.error, stored.waits) == (b"output", None, ())
        assert (stored.row.status, stored.row.ended_at, stored.row.wake_at) == (Status.COMPLETED, 30, None)
        assert (await store.inbox("a")).items == ()
        assert [one.op for one in await store.attempts("a", 1)] == ["op-2"]

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
    async def test_an_end_keeps_its_error(self, store: Store, status: Status) -> None:
        await started(store, "a")
        await write(store, ending(status=status, ending=Ending(error=b"error", fingerprint="f")))
        stored = await store.get("a")
        assert stored is not None
        assert (stored.row.status, stored.output, stored.error) == (status, None, b"error")

    async def test_compensating_is_not_the_end(self, store: Store) -> None:
        await started(store, "a")
        assert await write(store, transition(status=Status.COMPENSATING)) == [Applied(0, owned=True)]
        assert (await row(store)).ended_at is None

    @pytest.mark.parametrize(
        "wrong",
        [
            transition(epoch=0),
            transition(epoch=2),
            transition(worker=OTHER),
            transition(worker=OTHER, new_epoch=2),
            transition(generation=2),
        ],
        ids=["older epoch", "newer epoch", "not the owner", "not unowned", "other generation"],
    )
    async def test_a_zombie_changes_nothing(self, store: Store, wrong: Transition) -> None:
        await started(store, "a")
        before = await store.load("a")
        assert await write(store, _with_rows(wrong)) == [Refused(Status.RUNNING)]
        assert await store.load("a") == before
        assert await store.journal("a") == []

    async def test_nothing_follows_the_end(self, store: Store) -> None:
        await started(store, "a")
        await write(store, ending())
        assert await write(store, transition()) == [Refused(Status.COMPLETED)]
        assert await write(store, transition(new_epoch=2)) == [Refused(Status.COMPLETED)]

    async def test_an_unknown_instance_is_refused(self, store: Store) -> None:
        assert await write(store, transition("unknown")) == [Refused(None)]

    async def test_a_warm_run_claims_with_its_transition(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(status=Status.WAITING_FOR_TIMER, keep_owned=False, wake_at=99))
        assert await write(store, transition(epoch=1, new_epoch=1)) == [Refused(Status.WAITING_FOR_TIMER)]
        assert await write(store, transition(epoch=1, new_epoch=2, now=99)) == [Applied(0, owned=True)]
        one = await row(store)
        assert (one.owner, one.epoch, one.status) == (ME, 2, Status.RUNNING)
        assert await write(store, transition(epoch=1, new_epoch=2)) == [Refused(Status.RUNNING)]

    @pytest.mark.parametrize("status", [Status.PAUSED, Status.BLOCKED])
    async def test_a_warm_run_does_not_wake_what_is_at_rest(self, store: Store, status: Status) -> None:
        await started(store, "a")
        await write(store, transition(status=status, keep_owned=False, wake_at=99))
        assert (await row(store)).wake_at is None
        assert await write(store, transition(epoch=1, new_epoch=2)) == [Refused(status)]

    async def test_the_first_transition_of_a_pending_instance_starts_it(self, store: Store) -> None:
        await write(store, create(owner=None))
        await write(store, transition(epoch=0, new_epoch=1, now=20))
        one = await row(store)
        assert (one.started_at, one.status) == (20, Status.RUNNING)

    async def test_waits_come_and_go(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(waits=(WAIT, EVENT)))
        stored = await store.get("a")
        assert stored is not None
        assert set(stored.waits) == {WAIT, EVENT}
        later = Wait("timer:1", WaitKind.TIMER, since=20, due=200)
        await write(store, transition(waits=(later,), withdrawn=("event:1", "unknown")))
        stored = await store.get("a")
        assert stored is not None
        assert stored.waits == (later,)

    async def test_attempts_are_replaced_and_closed(self, store: Store) -> None:
        await started(store, "a")
        failed = attempt(is_open=False, ended_at=3, next_at=9, error=b"no", details=b"half", heartbeat_at=2)
        await write(store, transition(attempts=(attempt(), attempt("op-2"))))
        await write(store, transition(attempts=(failed, attempt("op-1", 2)), closed=("op-2",)))
        assert await store.attempts("a", 1) == [failed, attempt("op-1", 2)]

    async def test_consumed_mail_is_gone(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, request(ControlKind.CANCEL), request(ControlKind.CANCEL, "b"))
        (mail,) = (await store.inbox("a")).items
        (others,) = (await store.inbox("b")).items
        await write(store, transition(consumed_items=(mail.id, others.id), inbox_seen=1))
        assert await store.inbox("a") == Inbox(1, (), ())
        assert await store.inbox("b") == Inbox(1, (others,), ())

    async def test_notes_go_to_the_journal(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(now=20, notes=(JournalNote("cold", "replayed 7"),)))
        assert await store.journal("a") == [JournalEntry(20, JournalNote("cold", "replayed 7"), ME, 1)]

    async def test_blocked_by_is_kept_until_the_next_transition(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(status=Status.BLOCKED, keep_owned=False, blocked_by="code-1"))
        assert (await row(store)).blocked_by == "code-1"
        await write(store, request(ControlKind.RESUME))
        assert (await row(store)).blocked_by is None

    async def test_a_beat_leaves_details(self, store: Store) -> None:
        await started(store, "a")
        beat = attempt(details=b"page 7", heartbeat_at=40)
        assert await write(store, AttemptUpdate("a", 1, 1, beat)) == [Applied(0, owned=True)]
        assert await store.attempts("a", 1) == [beat]

    async def test_a_late_beat_is_refused(self, store: Store) -> None:
        await started(store, "a")
        late = [
            AttemptUpdate("a", 1, 0, attempt()),
            AttemptUpdate("a", 2, 1, attempt()),
            AttemptUpdate("unknown", 1, 1, attempt()),
        ]
        assert await write(store, *late) == [Refused(Status.RUNNING), Refused(Status.RUNNING), Refused(None)]
        await write(store, ending())
        assert await write(store, AttemptUpdate("a", 1, 1, attempt())) == [Refused(Status.COMPLETED)]
        assert await store.attempts("a", 1) == []


def _with_rows(bare: Transition) -> Transition:
    """The same transition with a row for every table."""
    return bare._replace(history=(entry(1),), attempts=(attempt(),), waits=(WAIT,), notes=(JournalNote("cold"),))
