"""Batches: one transaction, with an answer for each write."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conformance.builders import (
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

from romancy.errors import StoreError
from romancy.model.status import Status
from romancy.model.transition import Applied, AttemptUpdate, ControlKind, Existing, Refused, Write
from romancy.store.port import Store


class TestBatches:
    """The answers come in order, and one refused write does not affect the others."""

    async def test_an_empty_batch_is_nothing(self, store: Store) -> None:
        assert await store.commit([]) == []

    async def test_answers_come_in_the_order_of_the_writes(self, store: Store) -> None:
        await started(store, "a", "b")
        answers = await write(
            store,
            transition("b", epoch=0),
            create("c", owner=None),
            transition("a"),
            request(ControlKind.CANCEL, "b"),
            create("a"),
            AttemptUpdate("a", 1, 1, attempt()),
            transition("unknown"),
        )
        assert answers == [
            Refused(Status.RUNNING),
            Applied(0, owned=False),
            Applied(0, owned=True),
            Applied(1, owned=False),
            Existing("order", "1", b"digest", Status.RUNNING),
            Applied(0, owned=True),
            Refused(None),
        ]

    async def test_writes_of_one_instance_follow_each_other(self, store: Store) -> None:
        answers = await write(
            store,
            create("a"),
            create("b"),
            transition("a", history=(entry(1),)),
            request(ControlKind.CANCEL, "a"),
            transition("a", history=(entry(2), entry(3)), status=Status.WAITING_FOR_EVENT, keep_owned=False, inbox_seen=0),
            ending("a", history=(entry(4),), inbox_seen=1),
            transition("a"),
        )
        held = Applied(0, owned=True)
        assert answers == [held, held, held, Applied(1), Applied(1, owned=True), Applied(1), Refused(Status.COMPLETED)]
        loaded = await store.load("a")
        assert loaded is not None
        assert [one.seq for one in loaded.history] == [1, 2, 3, 4]
        assert (loaded.row.length, loaded.row.status) == (4, Status.COMPLETED)
        assert await journal_kinds(store) == ["cancel"]

    async def test_a_large_batch(self, store: Store) -> None:
        ids = [f"i{n:04}" for n in range(501)]
        await started(store, *ids)
        story = (entry(1, value=b"v" * 100), entry(2))
        answers = await write(store, *(transition(one, history=story) for one in ids))
        assert answers == [Applied(0, owned=True)] * len(ids)
        for one in (ids[0], ids[250], ids[-1]):
            assert await store.history(one, 1, after=0, limit=9) == list(story)

    @pytest.mark.parametrize(
        "bad",
        [
            transition("a", history=(entry(1),)),
            transition("a", history=(entry(2), entry(2)), length=1),
            transition("a", history=(entry(2, value=object()),), length=1),
            transition("a", history=(entry(2, attempt=2**63),), length=1),
            transition("a", history=(entry(2, name="\ud800"),), length=1),
            create("nul\0"),
            create("d", input=None),
            create("\ud800"),
        ],
        ids=["taken seq", "same seq", "not bytes", "too big", "surrogate", "NUL", "no input", "surrogate id"],
    )
    async def test_data_the_database_refuses_fails_alone(self, store: Store, bad: Write) -> None:
        await started(store, "a", "b")
        await write(store, transition("a", history=(entry(1),)))
        good = transition("b", history=(entry(1),), length=0)
        first, wrong, last = await store.commit([create("c"), bad, good])
        assert (first, last) == (Applied(0, owned=True), Applied(0, owned=True))
        assert isinstance(wrong, StoreError)
        assert not wrong.retryable
        assert wrong.__cause__ is not None
        assert (await row(store, "a")).length == 1
        assert (await row(store, "b")).length == 1

    async def test_a_refused_write_leaves_nothing_of_itself(self, store: Store) -> None:
        await started(store, "a")
        bad = ending("a", history=(entry(1), entry(1)))
        before = await store.load("a")
        (answer,) = await store.commit([bad])
        assert isinstance(answer, StoreError)
        assert await store.load("a") == before

    async def test_commits_at_once_are_all_answered(self, store: Store) -> None:
        commits = (store.commit([create(f"i{n}")]) for n in range(50))
        assert await asyncio.gather(*commits) == [[Applied(0, owned=True)]] * 50
        assert len(await store.statuses([f"i{n}" for n in range(50)])) == 50
