"""Finds due instances that no worker owns, and claims them.

Instances that were started or parked on this worker are woken by their own timers. The claimer is for the rest: instances
that were started by a client, left by a worker that died or shut down, or evicted from the cache. It polls the store on a
notification of a remote commit, when the next instance that it knows of is due, and at least every `poll_interval`.
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
"""How many poll intervals ahead the claimer asks for instances that will be due."""
_STALLED_AFTER = 10.0
"""Seconds beyond three poll intervals after which a claimer without a successful poll counts as stalled."""
_CLAIM_LIMIT = 100
"""How many instances one claim takes at most."""
_COUNT_LIMIT = 1000
"""The number of claimable instances at which counting stops."""
_COUNT_EVERY = 5.0
_COUNT_TIMEOUT = 1.0
"""How many seconds `count_queue` waits for the database."""


class Claimer:
    """Polls the store for due instances and claims them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._poll_requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: ScheduledCall | None = None
        self._busy = False
        self._claimed: dict[str, InstanceRow] = {}
        """Instances that this worker has claimed and not loaded yet."""
        self._resume_lock = asyncio.Lock()
        worker.on_due_elsewhere = self.poll_by
        worker.on_room = self.poll_soon
        self.queue_depth: tuple[int, int] | None = None
        """The number of claimable instances and the due time of the first, or None if they were not counted lately."""
        self._count_task: asyncio.Task[None] | None = None
        self._counted_at = -_COUNT_EVERY
        self.polled_at: float | None = None
        """When the last poll succeeded, by the monotonic clock."""

    def start(self) -> None:
        """Start polling."""
        self._poll_requested.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-claimer")

    async def stop(self) -> None:
        """Stop polling."""
        tasks = {task for task in (self._task, self._count_task) if task is not None}
        self._task = self._count_task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def poll_soon(self) -> None:
        """Poll as soon as possible."""
        self._poll_requested.set()

    def stalled(self) -> str | None:
        """Why this worker claims nothing, or None if polling works."""
        if self.polled_at is None:
            return "this worker has not polled for work yet"
        silent = monotonic() - self.polled_at
        limit = _STALLED_AFTER + 3 * self._worker.options.poll_interval
        return f"this worker has not polled for work for {silent:.0f} s" if silent > limit else None

    @property
    def is_idle(self) -> bool:
        """No poll is running or requested."""
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
                worker.metrics.errors["poll"] += 1
                _log.warning("could not poll the database for work, will try again: %s", error)
                await asyncio.sleep(worker.options.poll_interval)
            except Exception:  # without polls the worker would seem healthy and claim nothing
                worker.metrics.errors["poll"] += 1
                _log.exception("polling for work failed, will try again")
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
                # Another worker was faster, or has locked the rows for a moment only: SKIP LOCKED leaves them out.
                if (pause := next(pauses, None)) is None:
                    return
                await asyncio.sleep(pause)

    async def _find_due(self) -> tuple[list[tuple[str, int]], int | None]:
        """Return due, unowned instances with their due times, and the next due time; without those scheduled here."""
        worker = self._worker
        now = worker.clock.now()
        horizon = worker.options.horizon or worker.options.poll_interval * _HORIZON_POLLS
        until = now + round(horizon * MICROS)
        limit = _CLAIM_LIMIT
        while True:
            found = await worker.store.upcoming(worker.registry.runnable(), until=until, limit=limit)
            unscheduled = [(id, at) for id, at in found if not worker.is_scheduled(id, at)]
            due = [(id, at) for id, at in unscheduled if at <= now]
            if due or unscheduled or len(found) < limit:
                return due, min((at for _, at in unscheduled if at > now), default=None)
            limit *= 4  # all rows are scheduled on this worker: read further

    async def _claim(self, due: list[tuple[str, int]]) -> int:
        worker = self._worker
        now, since = worker.clock.now(), dict(due)
        with worker.pending_claims.pending(since):
            rows = await worker.store.claim(worker.id, worker.registry.runnable(), now=now, limit=len(due), ids=list(since))
            self._track_claimed(rows)
        for row in rows:
            worker.metrics.lags["poll"].add(worker.clock.now() - since[row.instance_id])
        await self._resume_claimed()
        return len(rows)

    def _track_claimed(self, rows: list[InstanceRow]) -> None:
        """Keep claimed instances until they run, so that nothing else resumes them meanwhile."""
        for row in rows:
            if row.instance_id not in self._claimed:
                self._worker.pending_claims.begin([row.instance_id])
            self._claimed[row.instance_id] = row

    async def _resume_claimed(self) -> None:
        """Run the claimed instances. One that cannot be loaded stays owned, and is tried again with the next poll."""
        async with self._resume_lock:
            for row in list(self._claimed.values()):
                try:
                    await self._worker.resume(row)
                except StoreError as error:
                    self._worker.metrics.errors["load"] += 1
                    _log.warning("could not load %r, will try again: %s", row.instance_id, error)
                    continue
                if self._claimed.get(row.instance_id) is row:  # otherwise it was claimed again while it was loaded
                    del self._claimed[row.instance_id]
                    self._worker.pending_claims.end([row.instance_id])

    async def adopt_orphans(self) -> None:
        """Run instances that this worker owns according to the store, but that have no runner here.

        This happens when a transaction was committed although the database reported an error, and the writer believed the
        error. Instances with a write or claim in flight are left out, however long that takes (`pending_writes`,
        `pending_claims`).
        """
        worker = self._worker
        here = worker.owned_ids  # taken before the query: an instance of these may end while the query runs
        for instance_id in sorted(set(await worker.store.owned(worker.id)) - here):
            try:
                if await worker.resume_owned(instance_id):
                    _log.warning("%r is owned by this worker but had no runner: it was resumed", instance_id)
            except StoreError:
                raise
            except Exception:  # one unreadable instance must not keep the rest from being resumed
                _log.exception("%r is owned by this worker but cannot be read", instance_id)

    async def claim_blocked(self) -> None:
        """Claim blocked instances that were blocked by code with another fingerprint than this worker's.

        Instances that were blocked before this worker was registered are claimed once whatever the fingerprint: the cause
        may have been fixed in another package or in settings, which the fingerprint does not cover.
        """
        worker = self._worker
        if worker.room:
            now, limit = worker.clock.now(), min(worker.room, _CLAIM_LIMIT)
            runnable = [replace(one, code=worker.code_key(one.code)) for one in worker.registry.runnable()]
            since = worker.registered_at
            with worker.pending_claims.pending(None):  # the ids are known only from the result
                rows = await worker.store.claim(
                    worker.id, runnable, now=now, limit=limit, blocked=True, blocked_before=since
                )
                self._track_claimed(rows)
            await self._resume_claimed()

    async def count_queue(self) -> None:
        """Count the claimable instances, at most once every few seconds. The caller waits a second at most."""
        if self._count_task is None and monotonic() - self._counted_at >= _COUNT_EVERY:
            self._counted_at, self.queue_depth = monotonic(), None
            self._count_task = asyncio.get_running_loop().create_task(self._count_queue(), name="romancy-queue-depth")
        if self._count_task is not None:
            await asyncio.wait({self._count_task}, timeout=_COUNT_TIMEOUT)

    async def _count_queue(self) -> None:
        worker = self._worker
        now = worker.clock.now()
        try:
            found = await worker.store.upcoming(worker.registry.runnable(), until=now, limit=_COUNT_LIMIT)
            self.queue_depth = len(found), min((at for _, at in found), default=now)
        except StoreError:
            worker.metrics.errors["poll"] += 1
        except Exception:
            worker.metrics.errors["poll"] += 1
            _log.exception("counting the claimable instances failed")
        finally:
            self._count_task = None

    def poll_by(self, due: int) -> None:
        """Poll at that time at the latest, because an instance is due then."""
        if due <= self._worker.clock.now():
            self.poll_soon()
        elif self._timer is None or self._timer.callback is None or due < self._timer.due:
            self._set_timer(due)

    def _set_timer(self, due: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._worker.timers.schedule(due, self.poll_soon) if due is not None else None
