"""Transitions that only add entries. A store may write many in one statement; each is decided by itself all the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.store.conformance.builders import (
    OTHER,
    create,
    ending,
    entry,
    request,
    row,
    started,
    transition,
    write,
)

from romancy.errors import StoreError
from romancy.model.history import Entry
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, Refused, Transition, Write, WriteResult
from romancy.store.port import Store

HELD = Applied(0, owned=True)


def step(instance_id: str = "a", seq: int = 1, *, entries: int = 1, **more: Any) -> Transition:
    """A transition with the entries that follow on a history of length `seq - 1`."""
    added = tuple(entry(seq + number) for number in range(entries))
    given: dict[str, Any] = {"history": added, "length": seq - 1}
    return transition(instance_id, **(given | more))


async def stored(store: Store, instance_id: str = "a") -> list[int]:
    """The numbers of the stored entries."""
    return [one.seq for one in await store.history(instance_id, 1, after=0, limit=1000)]


class TestSteps:
    """A step is written once, under the epoch that it names, whatever else is in its batch."""

    async def test_steps_leave_the_hot_row_alone(self, store: Store) -> None:
        await started(store, "a", "b")
        before = await row(store)
        assert await write(store, step("a"), step("b", entries=3)) == [HELD, HELD]
        assert await write(store, step("b", 4), step("a", 2)) == [HELD, HELD]
        assert (await stored(store, "a"), await stored(store, "b")) == ([1, 2], [1, 2, 3, 4])
        after = await row(store)
        assert (after.status, after.owner, after.epoch, after.updated_at) == (
            before.status,
            before.owner,
            before.epoch,
            before.updated_at,
        )

    @pytest.mark.parametrize(
        "bad",
        [
            step("a", 2, epoch=0),
            step("a", 2, generation=2),
            step("a", 2, worker=OTHER),
            step("a", 2, length=0),
            step("a"),
            step("unknown"),
        ],
        ids=["epoch", "generation", "worker", "later entry", "again", "unknown"],
    )
    async def test_one_that_may_not_be_is_refused_alone(self, store: Store, bad: Transition) -> None:
        await started(store, "a", "b", "c")
        await write(store, step("a"))
        first, refused, last = await write(store, step("b"), bad, step("c", entries=2))
        assert (first, last) == (HELD, HELD)
        assert refused == Refused(Status.RUNNING if bad.instance_id == "a" else None)
        assert [await stored(store, one) for one in "abc"] == [[1], [1], [1, 2]]

    async def test_one_for_which_something_arrived_is_told(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, request(ControlKind.CANCEL, "a"))
        assert await write(store, step("b"), step("a")) == [HELD, Applied(1, owned=True)]
        assert await write(store, step("a", 2, inbox_seen=1)) == [Applied(1, owned=True)]
        assert await stored(store) == [1, 2]

    @pytest.mark.parametrize(
        "before",
        [{"wake_at": 55}, {"retrying_since": 7}, {"status": Status.COMPENSATING}],
        ids=["due", "retrying", "status"],
    )
    async def test_a_hot_row_that_says_otherwise_is_changed(self, store: Store, before: dict[str, Any]) -> None:
        await started(store, "a")
        await write(store, step("a", **before))
        assert (await row(store)).status is before.get("status", Status.RUNNING)
        assert await write(store, step("a", 2)) == [HELD]
        one = await row(store)
        assert (one.status, one.wake_at, one.retrying_since, one.length) == (Status.RUNNING, None, None, 2)

    async def test_one_of_an_instance_that_has_ended_is_refused(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, ending("a", history=(entry(1),), length=0))
        assert await write(store, step("a", 2), step("b")) == [Refused(Status.COMPLETED), HELD]

    @pytest.mark.parametrize(
        ("more", "answers", "length"),
        [
            ([step(seq=2)], [HELD], 2),
            ([step()], [Refused(Status.RUNNING)], 1),
            ([ending(history=(entry(2),), length=1), step(seq=3)], [Applied(), Refused(Status.COMPLETED)], 2),
            ([request(ControlKind.CANCEL), step(seq=2)], [Applied(1), Applied(1, owned=True)], 2),
        ],
        ids=["step", "again", "end", "request"],
    )
    async def test_writes_of_one_instance_follow_each_other(
        self, store: Store, more: list[Write], answers: list[WriteResult], length: int
    ) -> None:
        assert await write(store, create("a"), step(), *more) == [HELD, HELD, *answers]
        assert len(await stored(store)) == length

    async def test_many_at_once(self, store: Store) -> None:
        ids = [f"i{n:03}" for n in range(150)]
        await started(store, *ids)
        batch = [step(one, entries=1 + number % 40) for number, one in enumerate(ids)]
        batch[70] = step(ids[70], epoch=0)
        answers = await write(store, *batch)
        assert answers == [HELD] * 70 + [Refused(Status.RUNNING)] + [HELD] * 79
        for number in (0, 31, 39, 69, 71, 149):
            assert len(await stored(store, ids[number])) == 1 + number % 40
        assert await stored(store, ids[70]) == []

    @pytest.mark.parametrize(
        "odd",
        [
            entry(1, "op", value=b"v" * 10_000_000, input=bytes(range(256))),
            entry(1, "zahlen:1", name="Überweisung \U0001f4b8", site="'\"\\;--"),
            entry(1, "op", input=b"a\0b", value=b"\0"),
            entry(1, "op", epoch=2**63 - 1, started_at=2**53 + 1, ended_at=-(2**63)),
        ],
        ids=["large", "text", "NUL", "numbers"],
    )
    async def test_what_is_written_comes_back(self, store: Store, odd: Entry) -> None:
        await started(store, "a", "b")
        assert await write(store, step("b"), step(history=(odd,))) == [HELD, HELD]
        assert await store.history("a", 1, after=0, limit=9) == [odd]

    @pytest.mark.parametrize(
        "bad",
        [entry(1, attempt=2**63), entry(1, name="\ud800"), entry(1, value=object()), entry(1, name=None)],
        ids=["too big", "surrogate", "not bytes", "missing"],
    )
    async def test_data_the_database_refuses_fails_alone(self, store: Store, bad: Entry) -> None:
        await started(store, "a", "b", "c")
        first, wrong, last = await store.commit([step("a"), step("b", history=(bad,)), step("c")])
        assert (first, last) == (HELD, HELD)
        assert isinstance(wrong, StoreError)
        assert [await stored(store, one) for one in "abc"] == [[1], [], [1]]
