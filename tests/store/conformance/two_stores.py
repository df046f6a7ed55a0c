"""Two stores on one database, as two processes or two connections share it."""

from __future__ import annotations

import asyncio

from tests.store.conformance.builders import (
    ME,
    ORDER,
    OTHER,
    MakeStore,
    create,
    ending,
    entry,
    row,
    started,
    transition,
    worker,
    write,
)

from romancy.model.status import Status
from romancy.model.transition import Applied, Refused
from romancy.store.port import Store


class TestSharing:
    """Every store sees what another one has answered."""

    async def test_a_second_store_sees_what_is_committed(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        await started(store, "a")
        assert (await row(other)).owner == ME
        assert await write(other, transition(worker=OTHER)) == [Refused(Status.RUNNING)]

    async def test_an_instance_is_claimed_by_one(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        ids = [f"i{n:03}" for n in range(60)]
        await write(store, *(create(one, owner=None) for one in ids))
        claimed = await asyncio.gather(*(_claim_all(one, name) for one, name in ((store, ME), (other, OTHER))))
        assert sorted(claimed[0] + claimed[1]) == ids

    async def test_a_zombie_is_fenced_across_stores(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        await store.register_worker(worker(ME, heartbeat_at=10))
        await started(store, "a")
        assert (await other.sweep([(ME, 10)], now=40, limit=9)).freed == 1
        (claimed,) = await other.claim(OTHER, [ORDER], now=40, limit=9)
        late = transition(history=(entry(1),))
        assert await write(store, late) == [Refused(Status.RUNNING)]
        mine = transition(worker=OTHER, epoch=claimed.epoch, history=(entry(1),))
        assert await write(other, mine) == [Applied(0, owned=True)]
        assert await store.history("a", 1, after=0, limit=9) == [entry(1)]

    async def test_both_write_at_once(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        await asyncio.gather(_finish_many(store, "x", ME), _finish_many(other, "y", OTHER))
        ids = [f"{side}{n}" for side in "xy" for n in range(40)]
        assert await store.statuses(ids) == dict.fromkeys(ids, Status.COMPLETED)


async def _claim_all(store: Store, name: str) -> list[str]:
    taken: list[str] = []
    while claimed := await store.claim(name, [ORDER], now=99, limit=7):
        taken += [one.instance_id for one in claimed]
    return taken


async def _finish_many(store: Store, side: str, name: str) -> None:
    for n in range(40):
        instance_id = f"{side}{n}"
        await write(store, create(instance_id, owner=name))
        await write(store, transition(instance_id, worker=name, history=(entry(1),)))
        await write(store, ending(instance_id, worker=name, history=(entry(2),)))
