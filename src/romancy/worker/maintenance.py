"""What a worker does beside running instances: it beats, sweeps after the dead, watches its own loop, and deletes the old.

The heart beats from a thread of its own, so that a blocked event loop is not a dead worker. A worker is suspected when it
was not seen to beat for a lease (or never, and its last beat is dated further back; a date that lies ahead proves nothing),
and declared dead when an interval later it still has not beaten, while this worker has:
on SQLite everybody's beats stop while somebody holds the write lock, and the first to get it must not bury the rest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from romancy.clock import MICROS, monotonic
from romancy.errors import StoreError
from romancy.model.instance import WorkerRow
from romancy.store.port import Runnable
from romancy.worker.claimer import Claimer
from romancy.worker.worker import Worker

if TYPE_CHECKING:
    from romancy.store.port import HeartbeatConnection

_log = logging.getLogger("romancy.worker")
_SWEEP_LIMIT = 100
_PRUNE_LIMIT = 100
_TRIM_LIMIT = 20
"""Generations at a time: each may have a long history."""
_ROLL_UP_LIMIT = 1000
_ROLL_UP_STEPS = 20
_ROLL_UP_DELAY = 10 * MICROS
"""An end is committed a moment after its time: by then all that ended before have been."""
_ROLL_UP_RETENTION = 8 * 24 * 3600 * MICROS
"""How long the counts of a minute are kept."""
_LONG_ATTEMPT = 2 * MICROS
"""An attempt that has run this long gets a row, so that operators see it."""


class HeartbeatThread:
    """Beats from a thread, and notices when the event loop does not go round."""

    def __init__(self, worker: Worker, connection: HeartbeatConnection) -> None:
        self._worker = worker
        self._connection = connection
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._loop_answered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="romancy-heart", daemon=True)
        self._pinged_at = 0.0
        self._stuck = False
        self.heartbeats = 0
        self.heartbeat_at = worker.clock.now()
        """When it last beat; the worker has just been recorded, which is a beat as well."""

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        interval = self._worker.options.heartbeat_interval
        warning = self._worker.options.block_warning
        tick = min(interval, warning / 2) if warning else interval
        since_beat, blocked = 0.0, 0.0
        self._ping()
        while not self._stop.wait(tick):
            since_beat += tick
            if since_beat >= interval:
                since_beat = 0.0
                self._heartbeat_unless_stuck()
            blocked = 0.0 if self._loop_answered.is_set() else blocked + tick
            if warning and blocked >= warning:
                self._warn(blocked)
                blocked = -30.0  # once for one blockade, and again if it goes on
            if self._loop_answered.is_set():
                self._ping()
        self._connection.close()

    def _heartbeat_unless_stuck(self) -> None:
        """A worker that cannot write any more would keep its instances from everybody: others shall take them."""
        worker = self._worker
        stuck = worker.committer.is_stuck(worker.options.lease_timeout)
        if stuck and not self._stuck:
            _log.error("worker %s cannot write any more and stops its heartbeat: others take its instances over", worker.id)
        self._stuck = stuck
        if not stuck:
            self._heartbeat()

    def _heartbeat(self) -> None:
        try:
            alive = self._write_heartbeat()
        except StoreError as error:
            self._worker.metrics.errors["heartbeat"] += 1
            _log.warning("the heartbeat could not be written: %s", error)
            return
        except Exception:  # nobody else beats
            self._worker.metrics.errors["heartbeat"] += 1
            _log.exception("the heartbeat failed, will try again")
            return
        self.heartbeats += 1
        if not alive and not self._stop.is_set():
            self._call_on_loop(self._on_worker_dead)

    def _write_heartbeat(self) -> bool:
        """One beat. One that had to wait for the database is old when it is written: then another follows at once."""
        interval = round(self._worker.options.heartbeat_interval * MICROS)
        while True:
            now = self._worker.clock.now()
            alive = self._connection.renew(now)
            if alive:
                self.heartbeat_at = now
            if not alive or self._stop.is_set() or self._worker.clock.now() - now < interval:
                return alive

    def _on_worker_dead(self) -> None:
        if not self._worker.stopping:
            self._worker.on_death()

    def _ping(self) -> None:
        self._loop_answered.clear()
        self._pinged_at = monotonic()
        self._call_on_loop(self._on_pong)

    def _on_pong(self) -> None:
        """On the event loop."""
        self._worker.metrics.loop_lag.add(round((monotonic() - self._pinged_at) * MICROS))
        self._loop_answered.set()

    def _call_on_loop(self, callback: object) -> None:
        try:
            self._worker.loop.call_soon_threadsafe(callback)  # type: ignore[arg-type]
        except RuntimeError:  # the loop is closed: the process is on its way out
            self._stop.set()

    def _warn(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        _log.warning(
            "the event loop has been blocked for %.1f s. Something calls blocking code on it; a plain `def` activity runs "
            "in a thread instead. The loop is here:\n%s",
            seconds,
            stack,
        )


@dataclass(frozen=True, slots=True)
class _ObservedWorker:
    """What another worker was last seen to do."""

    heartbeat_at: int
    """Its last beat, by the clock of who wrote it."""
    observed_at: float
    """When that was, by the time that has elapsed here: when it was first seen, or up to an interval before."""
    was_seen_alive: bool
    """It was seen to beat: its beats are not dated, but waited for."""

    def is_stale(self, now: int, lease: int) -> bool:
        """It gave no sign of life for a lease. A beat counts from when it was seen: its date may be wrong."""
        return (monotonic() - self.observed_at) * MICROS > lease or (
            not self.was_seen_alive and self.heartbeat_at + lease < now
        )


class Maintenance:
    """The worker's housekeeping."""

    def __init__(self, worker: Worker, claimer: Claimer) -> None:
        self._worker = worker
        self._finder = claimer
        self._heartbeat_thread: HeartbeatThread | None = None
        self._task: asyncio.Task[None] | None = None
        self._observed: dict[str, _ObservedWorker] = {}
        self._suspects: dict[str, int] = {}
        self._own_heartbeats = 0
        self._reviving = False
        self._stalled_since = 0

    @property
    def heartbeat_at(self) -> int | None:
        """When this worker last beat."""
        return None if self._heartbeat_thread is None else self._heartbeat_thread.heartbeat_at

    async def start(self, *, heartbeat: bool = True) -> None:
        """Report for duty and begin."""
        await self.register_worker()
        if heartbeat:
            self._start_heartbeat()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-upkeep")

    async def register_worker(self) -> None:
        """Record this incarnation, and the source of what it runs."""
        worker = self._worker
        now = worker.clock.now()
        await worker.store.register_worker(worker_row(worker, now))
        worker.registered_at = now

    def _start_heartbeat(self) -> None:
        thread = HeartbeatThread(self._worker, self._worker.store.heartbeat(self._worker.id))
        thread.start()
        self._heartbeat_thread = thread

    async def stop(self) -> None:
        """Stop, heart last: what is still being written must not be swept meanwhile."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        if self._heartbeat_thread is not None:
            thread, self._heartbeat_thread = self._heartbeat_thread, None
            await _stop_heartbeat(thread)

    async def revive(self) -> None:
        """Start over as a new incarnation. If that fails, the next beat of the old heart asks again."""
        if self._reviving:  # the old heart goes on until it is replaced, and asks at every beat
            return
        self._reviving = True
        try:
            self._worker.lose_everything()
            await self.register_worker()
            # What the old name has claimed since it was struck off belongs to nobody.
            await self._worker.store.sweep([], now=self._worker.clock.now(), limit=_SWEEP_LIMIT)
            if (old := self._heartbeat_thread) is not None:
                self._start_heartbeat()  # first: if this fails, the old one goes on and asks again
                await _stop_heartbeat(old)
        except StoreError as error:
            self._worker.metrics.errors["upkeep"] += 1
            _log.warning("the worker could not start over, will try again: %s", error)
            return
        except Exception:  # there may be no thread for a heart
            self._worker.metrics.errors["upkeep"] += 1
            _log.exception("the worker could not start over, will try again")
            return
        finally:
            self._reviving = False
        self._finder.poll_soon()

    async def _run(self) -> None:
        interval = self._worker.options.heartbeat_interval
        since = interval
        while True:
            if since >= interval:
                since = 0.0
                await self.round()
            await self._chore(self.record_long_attempts)
            await self._chore(self.report_stall)
            await asyncio.sleep(min(interval, 1.0))
            since += min(interval, 1.0)

    async def round(self) -> None:
        """One round: bury the dead, try blocked instances with our code, delete the old."""
        claimer = self._finder
        chores = self.sweep, claimer.claim_blocked, claimer.adopt_orphans, self.mark_unrunnable, self.roll_up, self._prune
        for chore in chores:
            if not await self._chore(chore):
                return

    async def _chore(self, chore: Callable[[], Awaitable[object] | None]) -> bool:
        """Do one; False if the database is away. One that fails in another way must not keep the others from being done."""
        try:
            if (doing := chore()) is not None:
                await doing
        except StoreError as error:
            self._worker.metrics.errors["upkeep"] += 1
            _log.warning("the upkeep could not reach the database, will try again: %s", error)
            return False
        except Exception:  # a worker that no longer sweeps seems healthy and lets the dead lie
            self._worker.metrics.errors["upkeep"] += 1
            _log.exception("the upkeep failed, will try again")
        return True

    async def sweep(self) -> int:
        """Free the instances of workers that are dead beyond doubt."""
        worker = self._worker
        now = worker.clock.now()
        rows = await worker.store.workers()
        lease = round(worker.options.lease_timeout * MICROS)
        self._observed = {row.id: self._observe(row, now) for row in rows if row.id != worker.id}
        stale = {id: observed.heartbeat_at for id, observed in self._observed.items() if observed.is_stale(now, lease)}
        dead = [
            (id, heartbeat_at)
            for id, heartbeat_at in stale.items()
            if self._suspects.get(id) == heartbeat_at and self._has_own_heartbeat()
        ]
        self._suspects = stale
        self._own_heartbeats = self._heartbeat_thread.heartbeats if self._heartbeat_thread is not None else 0
        swept = await worker.store.sweep(dead, now=now, limit=_SWEEP_LIMIT, max_losses=worker.options.max_losses or None)
        worker.metrics.instances_lost += swept.freed
        worker.metrics.instances_set_aside += len(swept.paused)
        for instance_id, why in swept.paused:
            _log.warning("paused %r: %s; once the cause is mended, resume it", instance_id, why)
        if swept.freed:
            names = ", ".join(id for id, _ in dead) or "unknown"
            _log.warning("freed %d instances of dead workers: %s", swept.freed, names)
            self._finder.poll_soon()
        return swept.freed

    def _observe(self, row: WorkerRow, now: int) -> _ObservedWorker:
        """What is known of the worker, with its last beat."""
        observed = self._observed.get(row.id)
        if observed is not None and observed.heartbeat_at == row.heartbeat_at:
            return observed
        # It beat since the last look, an interval ago: no longer ago than that, whatever its date says.
        age = min(max((now - row.heartbeat_at) / MICROS, 0.0), self._worker.options.heartbeat_interval)
        return _ObservedWorker(row.heartbeat_at, monotonic() - age, was_seen_alive=observed is not None)

    async def mark_unrunnable(self) -> int:
        """Block instances that have been due for a lease and whose workflow no worker knows: people should see them."""
        worker = self._worker
        # Its own count although its row may be gone: a worker that was taken for dead does not know it yet.
        own = {(workflow.name, workflow.version) for workflow in worker.registry.all()}
        waiting = set(await worker.store.kinds_waiting()) - own
        for row in await worker.store.workers() if waiting else ():
            waiting -= {(workflow, version) for workflow, version in json.loads(row.workflows)}
        if not waiting:
            return 0
        kinds = [Runnable(workflow, version) for workflow, version in sorted(waiting)]
        now = worker.clock.now()
        due_before = now - round(worker.options.lease_timeout * MICROS)
        return await worker.store.mark_unrunnable(kinds, due_before=due_before, now=now, limit=_SWEEP_LIMIT)

    def _has_own_heartbeat(self) -> bool:
        """Our own heart has beaten since the last round: the database lets beats through."""
        return self._heartbeat_thread is None or self._heartbeat_thread.heartbeats > self._own_heartbeats

    def report_stall(self) -> None:
        """Say once for each jam which activities hold every slot."""
        stall = self._worker.concurrency_stall()
        if stall is not None and stall.since != self._stalled_since:
            self._stalled_since = stall.since
            _log.warning(
                "%s, for %.0f s. If they wait for other work of this app, it cannot begin: let a workflow wait for an event "
                "instead, or raise max_concurrent_activities",
                stall,
                (self._worker.clock.now() - stall.since) / MICROS,
            )

    def record_long_attempts(self) -> None:
        """Show attempts that have been running for a notable time."""
        now = self._worker.clock.now()
        for attempt in self._worker.attempts:
            if not attempt.is_recorded and attempt.started_at and now - attempt.started_at >= _LONG_ATTEMPT:
                attempt.record_open()

    async def roll_up(self) -> None:
        """Count what has ended, by the minute; a bounded number in one round, the next goes on."""
        now = self._worker.clock.now()
        for _ in range(_ROLL_UP_STEPS):
            done = await self._worker.store.roll_up(
                until=now - _ROLL_UP_DELAY, limit=_ROLL_UP_LIMIT, forget_before=now - _ROLL_UP_RETENTION
            )
            if done < _ROLL_UP_LIMIT:
                return

    async def _prune(self) -> None:
        """Delete what is older than promised by the database's time, asked now; a little at a time."""
        options, store = self._worker.options, self._worker.store
        if (now := await store.verified_time()) is None:
            return
        if options.instance_retention is not None:
            before = now - round(options.instance_retention * MICROS)
            while await store.prune_instances(ended_before=before, limit=_PRUNE_LIMIT) == _PRUNE_LIMIT:
                await asyncio.sleep(0)
        if options.archive_retention is not None:
            over_before = now - round(options.archive_retention * MICROS)
            while await store.prune_generations(over_before=over_before, limit=_TRIM_LIMIT) == _TRIM_LIMIT:
                await asyncio.sleep(0)
        if options.audit_retention is not None:
            before = now - round(options.audit_retention * MICROS)
            while await store.prune_audit(before=before, limit=_PRUNE_LIMIT) == _PRUNE_LIMIT:
                await asyncio.sleep(0)
        events_before = now - round(options.event_retention * MICROS)
        messages_before = now - round(options.message_retention * MICROS)
        while await self._forget(events_before, messages_before) == _PRUNE_LIMIT:
            await asyncio.sleep(0)

    async def _forget(self, events_before: int, messages_before: int) -> int:
        return await self._worker.store.prune_messaging(
            events_before=events_before, messages_before=messages_before, limit=_PRUNE_LIMIT
        )


async def _stop_heartbeat(thread: HeartbeatThread) -> None:
    try:
        await asyncio.to_thread(thread.stop)
    except RuntimeError:  # there is no thread to wait in
        thread.stop()


def worker_row(worker: Worker, now: int) -> WorkerRow:
    """The row of this incarnation."""
    kinds = [[one.workflow, one.version] for one in worker.registry.runnable()]
    return WorkerRow(
        id=worker.id,
        label=worker.options.label,
        service=worker.options.service,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        python=platform.python_version(),
        workflows=json.dumps(kinds),
        started_at=now,
        heartbeat_at=now,
    )
