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
from romancy.model.instance import InstanceRow
from romancy.worker.timers import ScheduledCall
from romancy.worker.worker import Worker

_log = logging.getLogger("romancy.worker")
_HORIZON_POLLS = 2
"""How many poll intervals ahead the finder looks for what will be due."""
_STALLED_AFTER = 10.0
"""Seconds beyond three poll intervals after which a worker that did not look for work counts as deaf."""
_CLAIM_LIMIT = 100
"""How many instances one claim takes at most."""
_COUNT_LIMIT = 1000
"""How many instances that wait to be claimed are counted at most."""
_COUNT_EVERY = 5.0
_COUNT_TIMEOUT = 1.0
"""Seconds that whoever wants to know how many there are waits for the database."""


class Claimer:
    """Looks for work and claims it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._poll_requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: ScheduledCall | None = None
        self._busy = False
        self._claimed: dict[str, InstanceRow] = {}
        """What is ours and is not loaded yet."""
        self._resume_lock = asyncio.Lock()
        worker.on_due_elsewhere = self.poll_by
        worker.on_room = self.poll_soon
        self.queue_depth: tuple[int, int] | None = None
        """How many instances wait to be claimed, and since when the first of them is due, if that was counted lately."""
        self._count_task: asyncio.Task[None] | None = None
        self._counted_at = -_COUNT_EVERY
        self.polled_at: float | None = None
        """When the last look succeeded: a worker that has not looked for long is deaf."""

    def start(self) -> None:
        """Begin to look."""
        self._poll_requested.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-finder")

    async def stop(self) -> None:
        """Stop looking."""
        tasks = {task for task in (self._task, self._count_task) if task is not None}
        self._task = self._count_task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def poll_soon(self) -> None:
        """Look as soon as possible."""
        self._poll_requested.set()

    def stalled(self) -> str | None:
        """Why no work is being found, if none is."""
        if self.polled_at is None:
            return "this worker has not looked for work yet"
        silent = monotonic() - self.polled_at
        limit = _STALLED_AFTER + 3 * self._worker.options.poll_interval
        return f"this worker has not looked for work for {silent:.0f} s" if silent > limit else None

    @property
    def is_idle(self) -> bool:
        """Not looking, and not asked to."""
        return not self._busy and not self._poll_requested.is_set()

    async def _run(self) -> None:
        worker = self._worker
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(worker.options.poll_interval):  # wait_for of 3.11 may swallow a cancellation
                    await self._poll_requested.wait()
            self._poll_requested.clear()
            self._busy = True
            try:
                await self._poll()
                self.polled_at = monotonic()
            except StoreError as error:
                worker.metrics.errors["look"] += 1
                _log.warning("could not look for work, will try again: %s", error)
                await asyncio.sleep(worker.options.poll_interval)
            except Exception:  # a worker that no longer looks seems healthy and is deaf
                worker.metrics.errors["look"] += 1
                _log.exception("looking for work failed, will try again")
                await asyncio.sleep(worker.options.poll_interval)
            finally:
                self._busy = False

    async def _poll(self) -> None:
        worker = self._worker
        await self._resume_claimed()
        await worker.store.emit_staged()
        for instance_id in await worker.store.with_unread_inbox(worker.id):
            worker.wake_for_inbox(instance_id)
        pauses = iter(worker.options.claim_pauses)
        while (room := worker.room) > 0:
            due, next_at = await self._find_due()
            if not due:
                if next_at is not None:
                    self.poll_by(next_at)
                return
            if not await self._claim(due[: min(room, _CLAIM_LIMIT)]):
                # Somebody else was quicker, or only looks at them: a database leaves out what others hold just now.
                if (pause := next(pauses, None)) is None:
                    return
                await asyncio.sleep(pause)

    async def _find_due(self) -> tuple[list[tuple[str, int]], int | None]:
        """Unowned instances that are due and not expected here, with since when they are, and when the next one is."""
        worker = self._worker
        now = worker.clock.now()
        horizon = worker.options.horizon or worker.options.poll_interval * _HORIZON_POLLS
        until = now + round(horizon * MICROS)
        limit = _CLAIM_LIMIT
        while True:
            found = await worker.store.upcoming(worker.registry.runnable(), until=until, limit=limit)
            others = [(id, at) for id, at in found if not worker.is_scheduled(id, at)]
            due = [(id, at) for id, at in others if at <= now]
            if due or others or len(found) < limit:
                return due, min((at for _, at in others if at > now), default=None)
            limit *= 4  # all of them ours: look behind them

    async def _claim(self, due: list[tuple[str, int]]) -> int:
        worker = self._worker
        now, since = worker.clock.now(), dict(due)
        with worker.pending_claims.pending(since):
            rows = await worker.store.claim(worker.id, worker.registry.runnable(), now=now, limit=len(due), ids=list(since))
            self._track_claimed(rows)
        for row in rows:
            worker.metrics.lags["look"].add(worker.clock.now() - since[row.instance_id])
        await self._resume_claimed()
        return len(rows)

    def _track_claimed(self, rows: list[InstanceRow]) -> None:
        """These were claimed: from the answer on they are known here, until they run."""
        for row in rows:
            if row.instance_id not in self._claimed:
                self._worker.pending_claims.begin([row.instance_id])
            self._claimed[row.instance_id] = row

    async def _resume_claimed(self) -> None:
        """Run what was claimed. What cannot be loaded now is ours all the same: it is tried again with the next look."""
        async with self._resume_lock:
            for row in list(self._claimed.values()):
                try:
                    await self._worker.resume(row)
                except StoreError as error:
                    self._worker.metrics.errors["load"] += 1
                    _log.warning("could not load %r, will try again: %s", row.instance_id, error)
                    continue
                if self._claimed.get(row.instance_id) is row:  # else it was claimed once more while it was loaded
                    del self._claimed[row.instance_id]
                    self._worker.pending_claims.end([row.instance_id])

    async def adopt_orphans(self) -> None:
        """Run instances that the store says are ours and that nobody runs here.

        There are some when a commit was made although the database answered with an error: its writer went by the error.
        What is on its way to this worker is none of them, however long that takes: the worker knows what it has asked for.
        """
        worker = self._worker
        here = worker.owned_ids  # of these nothing is to be known: they may come to their end while the others are looked up
        for instance_id in sorted(set(await worker.store.owned(worker.id)) - here):
            try:
                if await worker.resume_owned(instance_id):
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
            now, limit = worker.clock.now(), min(worker.room, _CLAIM_LIMIT)
            runnable = [replace(one, code=worker.code_key(one.code)) for one in worker.registry.runnable()]
            since = worker.registered_at
            with worker.pending_claims.pending(None):  # which ones, only the answer says
                rows = await worker.store.claim(
                    worker.id, runnable, now=now, limit=limit, blocked=True, blocked_before=since
                )
                self._track_claimed(rows)
            await self._resume_claimed()

    async def count_queue(self) -> None:
        """Count what waits to be claimed: once in a few seconds at most, and nobody waits long for it."""
        if self._count_task is None and monotonic() - self._counted_at >= _COUNT_EVERY:
            self._counted_at, self.queue_depth = monotonic(), None
            self._count_task = asyncio.get_running_loop().create_task(self._count_queue(), name="romancy-queue")
        if self._count_task is not None:
            await asyncio.wait({self._count_task}, timeout=_COUNT_TIMEOUT)

    async def _count_queue(self) -> None:
        worker = self._worker
        now = worker.clock.now()
        try:
            found = await worker.store.upcoming(worker.registry.runnable(), until=now, limit=_COUNT_LIMIT)
            self.queue_depth = len(found), min((at for _, at in found), default=now)
        except StoreError:
            worker.metrics.errors["look"] += 1
        except Exception:
            worker.metrics.errors["look"] += 1
            _log.exception("counting what waits failed")
        finally:
            self._count_task = None

    def poll_by(self, due: int) -> None:
        """Somebody is due at that time: look then, at the latest."""
        if due <= self._worker.clock.now():
            self.poll_soon()
        elif self._timer is None or self._timer.callback is None or due < self._timer.due:
            self._set_timer(due)

    def _set_timer(self, due: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._worker.timers.schedule(due, self.poll_soon) if due is not None else None
