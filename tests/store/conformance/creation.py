"""Creation of instances."""

from __future__ import annotations

from tests.store.conformance.builders import ME, ORDER, OTHER, create, ending, row, started, write

from romancy.model.status import Status
from romancy.model.transition import Applied, Existing
from romancy.store.port import Store


class TestCreation:
    """An instance is created once, owned or claimable."""

    async def test_with_an_owner_it_runs_at_once(self, store: Store) -> None:
        answers = await write(store, create(now=10, deadline_at=99, code="c", python="3.11"))
        assert answers == [Applied(inbox_version=0, owned=True)]
        one = await row(store)
        assert (one.status, one.epoch, one.owner, one.wake_at) == (Status.RUNNING, 1, ME, None)
        assert (one.created_at, one.started_at, one.updated_at, one.ended_at) == (10, 10, 10, None)
        assert (one.generation, one.round, one.inbox_version, one.length) == (1, 0, 0, 0)
        assert (one.deadline_at, one.code, one.python) == (99, "c", "3.11")

    async def test_without_an_owner_it_is_claimable_at_once(self, store: Store) -> None:
        assert await write(store, create(now=10, owner=None)) == [Applied(inbox_version=0, owned=False)]
        one = await row(store)
        assert (one.status, one.epoch, one.owner, one.wake_at, one.started_at) == (Status.PENDING, 0, None, 10, None)
        assert [row.instance_id for row in await store.claim(OTHER, [ORDER], now=10, limit=5)] == ["a"]

    async def test_a_taken_id_changes_nothing(self, store: Store) -> None:
        await started(store, "a")
        again = create(now=77, owner=None, workflow="other", version="2", digest=b"other")
        assert await write(store, again) == [Existing("order", "1", b"digest", Status.RUNNING)]
        one = await row(store)
        assert (one.workflow, one.updated_at, one.epoch) == ("order", 10, 1)

    async def test_an_ended_instance_keeps_its_id(self, store: Store) -> None:
        await started(store, "a")
        await write(store, ending())
        assert await write(store, create()) == [Existing("order", "1", b"digest", Status.COMPLETED)]

    async def test_the_first_of_two_in_one_batch_wins(self, store: Store) -> None:
        answers = await write(store, create(owner=None), create(digest=b"second"))
        first = Existing("order", "1", b"digest", Status.PENDING, b"input")  # only the input tells whether it is the same
        assert answers == [Applied(0, owned=False), first]

    async def test_ids_are_any_text(self, store: Store) -> None:
        ids = ["o'brien", 'say "hi"', "naïve ☃ 𝄞", " ", "a\\b", "%_", "x" * 500]
        await started(store, *ids)
        assert set(await store.statuses(ids)) == set(ids)
        for instance_id in ids:
            assert (await row(store, instance_id)).instance_id == instance_id
