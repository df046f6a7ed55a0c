"""The background work of a worker: heartbeats, the sweep of dead workers, the watchdog of the event loop, and retention.

Heartbeats are sent from a thread of their own, so that a worker with a blocked event loop is not taken for dead. A worker
is suspect when no heartbeat of it was observed for a lease, or when none was ever observed and its last one is dated more
than a lease back (a date in the future proves nothing). It is declared dead when one round later it still has the same
heartbeat, while this worker has written a new one of its own. The second condition is for SQLite: while one process holds
the write lock, the heartbeats of all processes stop, and the first process to get the lock must not declare the rest dead.
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
"""Generations deleted in one transaction: each may have a long history."""
_ROLL_UP_LIMIT = 1000
_ROLL_UP_STEPS = 20
_ROLL_UP_DELAY = 10 * MICROS
"""Only ends that are at least this old are rolled up: an end is committed somewhat later than its recorded time."""
_ROLL_UP_RETENTION = 8 * 24 * 3600 * MICROS
"""How long the counts of a minute are kept."""
_LONG_ATTEMPT = 2 * MICROS
"""An attempt that has run this long gets a row, so that operators see it."""


class HeartbeatThread:
    """Writes the worker's heartbeats from a thread, and warns when the event loop is blocked."""

    def __init__(self, worker: Worker, connection: HeartbeatConnection) -> None:
        self._worker = worker
        self._connection = connection
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._loop_answered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="romancy-heartbeat", daemon=True)
        self._pinged_at = 0.0
        self._stuck = False
        self.heartbeats = 0
        self.heartbeat_at = worker.clock.now()
        """The time of the last heartbeat. Registering the worker, just before this, counts as one."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        interval = self._worker.options.heartbeat_interval
        warning = self._worker.options.block_warning
        tick = min(interval, warning / 2) if warning else interval
        since_heartbeat, blocked = 0.0, 0.0
        self._ping()
        while not self._stop.wait(tick):
            if self._worker.loop.is_closed():
                break  # the app was not closed, and nothing can run any more: other workers take the instances over
            since_heartbeat += tick
            if since_heartbeat >= interval:
                since_heartbeat = 0.0
                self._heartbeat_unless_stuck()
            blocked = 0.0 if self._loop_answered.is_set() else blocked + tick
            if warning and blocked >= warning:
                self._warn(blocked)
                blocked = -30.0  # warn again only if the loop stays blocked for another 30 s
            if self._loop_answered.is_set():
                self._ping()
        self._connection.close()

    def _heartbeat_unless_stuck(self) -> None:
        """Write a heartbeat, unless the committer is stuck: then stop, so that other workers take the instances over."""
        worker = self._worker
        stuck = worker.committer.is_stuck(worker.options.lease_timeout)
        if stuck and not self._stuck:
            _log.error(
                "worker %s cannot commit and stops its heartbeat, so that other workers take over its instances", worker.id
            )
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
        except Exception:  # this thread must survive: without it there are no heartbeats
            self._worker.metrics.errors["heartbeat"] += 1
            _log.exception("the heartbeat failed, will try again")
            return
        self.heartbeats += 1
        if not alive and not self._stop.is_set():
            self._call_on_loop(self._on_worker_dead)

    def _write_heartbeat(self) -> bool:
        """Write one heartbeat. If the write took longer than an interval, its time is old by then: write another at once."""
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
        """Called on the event loop: it is not blocked."""
        self._worker.metrics.loop_lag.add(round((monotonic() - self._pinged_at) * MICROS))
        self._loop_answered.set()

    def _call_on_loop(self, callback: object) -> None:
        try:
            self._worker.loop.call_soon_threadsafe(callback)  # type: ignore[arg-type]
        except RuntimeError:  # the loop is closed
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
    """The last observed heartbeat of another worker."""

    heartbeat_at: int
    """The time of the heartbeat, by the clock of the worker that wrote it."""
    observed_at: float
    """The same by this process's monotonic clock: when it was first read here, or up to an interval before."""
    was_seen_alive: bool
    """A change of the heartbeat was observed here, so its date is not needed to judge the worker."""

    def is_stale(self, now: int, lease: int) -> bool:
        """The worker has sent no heartbeat for a lease, counted from its observation here: its date may be wrong."""
        return (monotonic() - self.observed_at) * MICROS > lease or (
            not self.was_seen_alive and self.heartbeat_at + lease < now
        )


class Maintenance:
    """Registers the worker, sends its heartbeats, and does the periodic work of the module docstring."""

    def __init__(self, worker: Worker, claimer: Claimer) -> None:
        self._worker = worker
        self._claimer = claimer
        self._heartbeat_thread: HeartbeatThread | None = None
        self._task: asyncio.Task[None] | None = None
        self._observed: dict[str, _ObservedWorker] = {}
        self._suspects: dict[str, int] = {}
        self._own_heartbeats = 0
        self._reviving = False
        self._stalled_since = 0

    @property
    def heartbeat_at(self) -> int | None:
        """The time of this worker's last heartbeat."""
        return None if self._heartbeat_thread is None else self._heartbeat_thread.heartbeat_at

    async def start(self, *, heartbeat: bool = True) -> None:
        """Register the worker, then start the heartbeats and the periodic work."""
        await self.register_worker()
        if heartbeat:
            self._start_heartbeat()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-maintenance")

    async def register_worker(self) -> None:
        """Write the row of this incarnation."""
        worker = self._worker
        now = worker.clock.now()
        await worker.store.register_worker(worker_row(worker, now))
        worker.registered_at = now

    def _start_heartbeat(self) -> None:
        thread = HeartbeatThread(self._worker, self._worker.store.heartbeat(self._worker.id))
        thread.start()
        self._heartbeat_thread = thread

    async def stop(self) -> None:
        """Stop. The heartbeats stop last: this worker must not be swept while it still writes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        if self._heartbeat_thread is not None:
            thread, self._heartbeat_thread = self._heartbeat_thread, None
            await _stop_heartbeat(thread)

    async def revive(self) -> None:
        """Register as a new incarnation. If that fails, the next heartbeat of the old one calls this again."""
        if self._reviving:  # the old heartbeat thread runs until it is replaced, and calls this with every heartbeat
            return
        self._reviving = True
        try:
            self._worker.lose_everything()
            await self.register_worker()
            # Free the instances that were claimed under the old id after it was deregistered: no worker owns them.
            await self._worker.store.sweep([], now=self._worker.clock.now(), limit=_SWEEP_LIMIT)
            if (old := self._heartbeat_thread) is not None:
                self._start_heartbeat()  # before stopping the old one: if this fails, the old one calls `revive` again
                await _stop_heartbeat(old)
        except StoreError as error:
            self._worker.metrics.errors["maintenance"] += 1
            _log.warning("the worker could not start over, will try again: %s", error)
            return
        except Exception:  # the heartbeat thread may fail to start
            self._worker.metrics.errors["maintenance"] += 1
            _log.exception("the worker could not start over, will try again")
            return
        finally:
            self._reviving = False
        self._claimer.poll_soon()

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
        """Do one round of maintenance. It ends early if the database cannot be reached."""
        claimer = self._claimer
        chores = self.sweep, claimer.claim_blocked, claimer.adopt_orphans, self.mark_unrunnable, self.roll_up, self._prune
        for chore in chores:
            if not await self._chore(chore):
                return

    async def _chore(self, chore: Callable[[], Awaitable[object] | None]) -> bool:
        """Do one chore. False if the database cannot be reached; any other failure must not prevent the next chores."""
        try:
            if (running := chore()) is not None:
                await running
        except StoreError as error:
            self._worker.metrics.errors["maintenance"] += 1
            _log.warning("maintenance could not reach the database, will try again: %s", error)
            return False
        except Exception:  # without sweeps the worker would seem healthy, but never take over from dead workers
            self._worker.metrics.errors["maintenance"] += 1
            _log.exception("a maintenance task failed, will try again")
        return True

    async def sweep(self) -> int:
        """Declare dead the workers that are still suspect since the last round, and free their instances."""
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
            _log.warning("instance %r was paused: %s; resume it when the cause is fixed", instance_id, why)
        if swept.freed:
            names = ", ".join(id for id, _ in dead) or "unknown"
            _log.warning("instances released from dead workers: %d (%s)", swept.freed, names)
            self._claimer.poll_soon()
        return swept.freed

    def _observe(self, row: WorkerRow, now: int) -> _ObservedWorker:
        """The earlier observation, or a new one if the worker's heartbeat has changed since."""
        observed = self._observed.get(row.id)
        if observed is not None and observed.heartbeat_at == row.heartbeat_at:
            return observed
        # The heartbeat is new since the last round, so it is at most one interval old, whatever its date says.
        age = min(max((now - row.heartbeat_at) / MICROS, 0.0), self._worker.options.heartbeat_interval)
        return _ObservedWorker(row.heartbeat_at, monotonic() - age, was_seen_alive=observed is not None)

    async def mark_unrunnable(self) -> int:
        """Block instances that have been due for a lease and whose workflow no worker has, so that operators see them."""
        worker = self._worker
        # Its own workflows count even if its row is gone: a worker that was declared dead may not know it yet.
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
        """This worker has written a heartbeat since the last round, so the database accepts heartbeats."""
        return self._heartbeat_thread is None or self._heartbeat_thread.heartbeats > self._own_heartbeats

    def report_stall(self) -> None:
        """Log which activities hold all concurrency slots, once for each stall."""
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
        """Write rows of attempts that have been running for long, so that operators see them."""
        now = self._worker.clock.now()
        for attempt in self._worker.attempts:
            if not attempt.is_recorded and attempt.started_at and now - attempt.started_at >= _LONG_ATTEMPT:
                attempt.record_open()

    async def roll_up(self) -> None:
        """Count the ended instances by the minute. A round counts a limited number; the next round continues."""
        now = self._worker.clock.now()
        for _ in range(_ROLL_UP_STEPS):
            done = await self._worker.store.roll_up(
                until=now - _ROLL_UP_DELAY, limit=_ROLL_UP_LIMIT, forget_before=now - _ROLL_UP_RETENTION
            )
            if done < _ROLL_UP_LIMIT:
                return

    async def _prune(self) -> None:
        """Delete, in small batches, rows that are past their retention by the verified time of the database."""
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
    except RuntimeError:  # no thread could be started to wait in
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
