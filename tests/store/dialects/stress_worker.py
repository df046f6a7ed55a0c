"""A process that claims and writes as fast as it can: stress_worker.py DATABASE WORKER RIVAL LENGTH SEED.

It sweeps the instances of its rival as if the rival had died, so that writes of both are fenced again and again. At the
end it prints how many entries were acknowledged and how many transitions refused.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.model.history import Entry, Kind, Outcome
from romancy.model.instance import InstanceFilter, InstanceRow
from romancy.model.status import Status
from romancy.model.transition import Applied, Ending, Transition
from romancy.store.open import open_store
from romancy.store.port import Runnable, Store

KINDS = [Runnable("order", "1"), Runnable("mail", "1")]


class StressWorker:
    """One worker, with the instances that it owns."""

    def __init__(self, store: Store, worker: str, rival: str, length: int, rng: random.Random) -> None:
        self.store = store
        self.worker = worker
        self.rival = rival
        self.length = length
        self.rng = rng
        self.owned: dict[str, tuple[int, int]] = {}
        self.acknowledged = 0
        self.refused = 0

    async def run(self) -> None:
        """Claim, write and sweep until every instance has ended."""
        turn = 0
        while not await self._all_ended():
            turn += 1
            for row in await self.store.claim(self.worker, KINDS, now=self.store.now(), limit=8):
                self.owned[row.instance_id] = (row.epoch, await self._length(row))
            await self._write()
            if turn % 3 == 0:
                # No worker is registered, so the sweep frees the instances of both workers.
                await self.store.sweep([(self.rival, 0)], now=self.store.now(), limit=5)

    async def _length(self, row: InstanceRow) -> int:
        assert row.owner == self.worker
        loaded = await self.store.load(row.instance_id)
        assert loaded is not None
        assert loaded.row.length == len(loaded.history)
        return row.length

    async def _write(self) -> None:
        batch = [self._step(one, epoch, length) for one, (epoch, length) in self.owned.items()]
        for write, answer in zip(batch, await self.store.commit(batch), strict=True):
            assert not isinstance(answer, StoreError), answer
            self.owned.pop(write.instance_id)
            if not isinstance(answer, Applied):
                self.refused += 1
                continue
            self.acknowledged += len(write.history)
            if answer.owned:
                self.owned[write.instance_id] = (write.new_epoch, write.history[-1].seq)

    def _step(self, instance_id: str, epoch: int, length: int) -> Transition:
        now = self.store.now()
        seqs = range(length + 1, length + 1 + self.rng.randint(1, 2))
        history = tuple(
            Entry(seq, Kind.ACTIVITY, f"op-{seq}", Outcome.OK, now, worker=self.worker, epoch=epoch) for seq in seqs
        )
        ends = seqs[-1] >= self.length
        return Transition(
            instance_id,
            generation=1,
            worker=self.worker,
            epoch=epoch,
            new_epoch=epoch,
            status=Status.COMPLETED if ends else Status.RUNNING,
            now=now,
            keep_owned=not ends and self.rng.random() < 0.6,
            inbox_seen=0,
            wake_at=now,
            history=history,
            ending=Ending(output=b"done") if ends else None,
        )

    async def _all_ended(self) -> bool:
        return not await self.store.list(InstanceFilter(status=(Status.PENDING, Status.RUNNING), limit=1))


async def main(database: str, worker: str, rival: str, length: int, seed: int) -> None:
    """Run the worker, and print its counts."""
    store = open_store(database, clock=SystemClock())
    await store.open()
    sys.stdin.readline()  # both processes begin at once
    stress_worker = StressWorker(store, worker, rival, length, random.Random(seed))
    try:
        await stress_worker.run()
    finally:
        await store.close()
    print(json.dumps({"acknowledged": stress_worker.acknowledged, "refused": stress_worker.refused}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
