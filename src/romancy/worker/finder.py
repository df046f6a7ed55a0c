"""Finds instances that are due and that nobody runs, and claims them.

Instances that were started or parked here are known here: their own alarms wake them. The finder is for the others: started
by a client, left by a worker that died or shut down, replayed after eviction. It looks when the store says that somebody
else has written, when the next instance it has seen is due, and every `poll_interval` in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from romancy.clock import MICROS, monotonic
from romancy.errors import StoreError
from romancy.model.instance import Row
from romancy.worker.alarms import Alarm
from romancy.worker.worker import Worker

_log = logging.getLogger("romancy.worker")
_HORIZON = 2
"""How many poll intervals ahead the finder looks for what will be due."""
_DEAF = 10.0
"""Seconds beyond three poll intervals after which a worker that did not look for work counts as deaf."""
_BATCH = 100
"""How many instances one claim takes at most."""
_COUNTED = 1000
"""How many instances that wait to be claimed are counted at most."""
_COUNT_EVERY = 5.0
_PATIENCE = 1.0
"""Seconds that whoever wants to know how many there are waits for the database."""


class Finder:
    """Looks for work and claims it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._alarm: Alarm | None = None
        self._busy = False
        self._claimed: dict[str, Row] = {}
        """What is ours and is not loaded yet."""
        self._resuming = asyncio.Lock()
        worker.on_evicted = self.expect
        worker.on_room = self.look
        self.queue: tuple[int, int] | None = None
        """How many instances wait to be claimed, and since when the first of them is due, if that was counted lately."""
        self._counting: asyncio.Task[None] | None = None
        self._counted_at = -_COUNT_EVERY
        self.looked_at: float | None = None
        """When the last look succeeded: a worker that has not looked for long is deaf."""

    def start(self) -> None:
        """Begin to look."""
        self._wanted.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-finder")

    async def stop(self) -> None:
        """Stop looking."""
        tasks = {task for task in (self._task, self._counting) if task is not None}
        self._task = self._counting = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def look(self) -> None:
        """Look as soon as possible."""
        self._wanted.set()

    def stalled(self) -> str | None:
        """Why no work is being found, if none is."""
        if self.looked_at is None:
            return "this worker has not looked for work yet"
        silent = monotonic() - self.looked_at
        limit = _DEAF + 3 * self._worker.options.poll_interval
        return f"this worker has not looked for work for {silent:.0f} s" if silent > limit else None

    @property
    def idle(self) -> bool:
        """Not looking, and not asked to."""
        return not self._busy and not self._wanted.is_set()

    async def _run(self) -> None:
        worker = self._worker
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(worker.options.poll_interval):  # wait_for of 3.11 may swallow a cancellation
                    await self._wanted.wait()
            self._wanted.clear()
            self._busy = True
            try:
                await self._look()
                self.looked_at = monotonic()
            except StoreError as error:
                worker.tally.errors["look"] += 1
                _log.warning("could not look for work, will try again: %s", error)
                await asyncio.sleep(worker.options.poll_interval)
            except Exception:  # a worker that no longer looks seems healthy and is deaf
                worker.tally.errors["look"] += 1
                _log.exception("looking for work failed, will try again")
                await asyncio.sleep(worker.options.poll_interval)
            finally:
                self._busy = False

    async def _look(self) -> None:
        worker = self._worker
        await self._resume()
        await worker.store.drain()
        for instance_id in await worker.store.arrivals(worker.id):
            worker.nudge(instance_id)
        pauses = iter(worker.options.claim_pauses)
        while (room := worker.room) > 0:
            due, next_at = await self._find()
            if not due:
                if next_at is not None:
                    self.expect(next_at)
                return
            if not await self._claim(due[: min(room, _BATCH)]):
                # Somebody else was quicker, or only looks at them: a database leaves out what others hold just now.
                if (pause := next(pauses, None)) is None:
                    return
                await asyncio.sleep(pause)

    async def _find(self) -> tuple[list[tuple[str, int]], int | None]:
        """Unowned instances that are due and not expected here, with since when they are, and when the next one is."""
        worker = self._worker
        now = worker.clock.now()
        horizon = worker.options.horizon or worker.options.poll_interval * _HORIZON
        until = now + round(horizon * MICROS)
        limit = _BATCH
        while True:
            found = await worker.store.upcoming(worker.registry.runnable(), until=until, limit=limit)
            others = [(id, at) for id, at in found if not worker.expects(id, at)]
            due = [(id, at) for id, at in others if at <= now]
            if due or others or len(found) < limit:
                return due, min((at for _, at in others if at > now), default=None)
            limit *= 4  # all of them ours: look behind them

    async def _claim(self, due: list[tuple[str, int]]) -> int:
        worker = self._worker
        now, since = worker.clock.now(), dict(due)
        with worker.claiming.asking(since):
            rows = await worker.store.claim(worker.id, worker.registry.runnable(), now=now, limit=len(due), ids=list(since))
            self._take(rows)
        for row in rows:
            worker.tally.lags["look"].add(worker.clock.now() - since[row.instance_id])
        await self._resume()
        return len(rows)

    def _take(self, rows: list[Row]) -> None:
        """These were claimed: from the answer on they are known here, until they run."""
        for row in rows:
            if row.instance_id not in self._claimed:
                self._worker.claiming.ask([row.instance_id])
            self._claimed[row.instance_id] = row

    async def _resume(self) -> None:
        """Run what was claimed. What cannot be loaded now is ours all the same: it is tried again with the next look."""
        async with self._resuming:
            for row in list(self._claimed.values()):
                try:
                    await self._worker.resume(row)
                except StoreError as error:
                    self._worker.tally.errors["load"] += 1
                    _log.warning("could not load %r, will try again: %s", row.instance_id, error)
                    continue
                if self._claimed.get(row.instance_id) is row:  # else it was claimed once more while it was loaded
                    del self._claimed[row.instance_id]
                    self._worker.claiming.answered([row.instance_id])

    async def adopt(self) -> None:
        """Run instances that the store says are ours and that nobody runs here.

        There are some when a commit was made although the database answered with an error: its writer went by the error.
        What is on its way to this worker is none of them, however long that takes: the worker knows what it has asked for.
        """
        worker = self._worker
        here = worker.in_hand  # of these nothing is to be known: they may come to their end while the others are looked up
        for instance_id in sorted(set(await worker.store.owned(worker.id)) - here):
            try:
                if await worker.take_up(instance_id):
                    _log.warning("%r was ours, but nobody ran it: it was taken up again", instance_id)
            except StoreError:
                raise
            except Exception:  # one that cannot be read must not keep the worker from the others
                _log.exception("%r is ours, but it cannot be read", instance_id)

    async def claim_blocked(self) -> None:
        """Take instances that other code than ours could not run.

        And once those that were blocked before this worker began, whatever code it was: what they need may have changed
        where a fingerprint does not look, in other packages or in settings.
        """
        worker = self._worker
        if worker.room:
            now, limit = worker.clock.now(), min(worker.room, _BATCH)
            runnable = [replace(one, code=worker.sign(one.code)) for one in worker.registry.runnable()]
            since = worker.enlisted_at
            with worker.claiming.asking(None):  # which ones, only the answer says
                rows = await worker.store.claim(
                    worker.id, runnable, now=now, limit=limit, blocked=True, blocked_before=since
                )
                self._take(rows)
            await self._resume()

    async def count_queue(self) -> None:
        """Count what waits to be claimed: once in a few seconds at most, and nobody waits long for it."""
        if self._counting is None and monotonic() - self._counted_at >= _COUNT_EVERY:
            self._counted_at, self.queue = monotonic(), None
            self._counting = asyncio.get_running_loop().create_task(self._count_queue(), name="romancy-queue")
        if self._counting is not None:
            await asyncio.wait({self._counting}, timeout=_PATIENCE)

    async def _count_queue(self) -> None:
        worker = self._worker
        now = worker.clock.now()
        try:
            found = await worker.store.upcoming(worker.registry.runnable(), until=now, limit=_COUNTED)
            self.queue = len(found), min((at for _, at in found), default=now)
        except StoreError:
            worker.tally.errors["look"] += 1
        except Exception:
            worker.tally.errors["look"] += 1
            _log.exception("counting what waits failed")
        finally:
            self._counting = None

    def expect(self, due: int) -> None:
        """Somebody is due at that time: look then, at the latest."""
        if due <= self._worker.clock.now():
            self.look()
        elif self._alarm is None or self._alarm.callback is None or due < self._alarm.due:
            self._set_alarm(due)

    def _set_alarm(self, due: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._worker.alarms.at(due, self.look) if due is not None else None
