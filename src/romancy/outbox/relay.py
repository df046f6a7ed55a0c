"""Delivers events from the outbox to one broker, several at a time.

A row is claimed for the length of a lease: if the relay dies, another relay claims it then. The outcomes of deliveries are
written in batches, while other deliveries are in flight. A row that failed waits for its retry; the rows after it do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from romancy.brokers.base import DEFAULT_CONCURRENCY, DEFAULT_RETRY, Broker
from romancy.clock import MICROS, Clock
from romancy.codec import is_encoded, not_decoded
from romancy.core.retry import is_retryable, next_attempt_at
from romancy.crash_points import SimulatedCrash
from romancy.errors import BrokerError, EventRejectedError, StoreError
from romancy.metrics.metrics import BrokerMetrics, Metrics
from romancy.model.messaging import Event
from romancy.model.outbox import DeadLettered, Delayed, Delivered, DeliveryOutcome, OutboxRow, Returned
from romancy.model.retry import RetryPolicy
from romancy.serde.messaging import event_of
from romancy.store.port import Store

_log = logging.getLogger("romancy.outbox")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two attempts to start a broker."""
_MAX_RETRY_AFTER = 3600.0
"""Upper limit in seconds of the `retry_after` that a broker may ask for."""
_COUNT_LIMIT = 10_000
"""The number of rows at which counting stops."""
_AGE_LIMIT = 1000
"""How many rows are searched for the oldest."""
_COUNT_EVERY = 5 * MICROS
_PRUNE_EVERY = 60 * MICROS
_PRUNE_LIMIT = 100
_LONGEST_ERROR = 1000
_CLAIM_AGAIN = 0.05
"""Seconds until the next poll of a relay that found a due event but could not claim it."""
_CLOSE_TIMEOUT = 5.0
"""Seconds for each step of stopping: the last round, the last write, and closing the broker."""
_UNDECODABLE_PAUSE = 60 * MICROS
"""How long until an event that cannot be decoded here is tried again."""

Schedule = Callable[[int, Callable[[], None]], object]
"""Calls back at a time of the engine's clock."""


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """The options of a relay; times in seconds."""

    interval: float = 1.0
    batch_size: int = 100
    lease: float = 30.0
    retention: float | None = None


class Relay:
    """The relay of one broker."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        store: Store,
        options: RelayOptions,
        *,
        claimant: str,
        clock: Clock,
        schedule: Schedule,
        metrics: Metrics,
    ) -> None:
        self.name = name
        self._errors = metrics.errors
        self._metrics = metrics.brokers.setdefault(name, BrokerMetrics())
        self._broker = broker
        self._retry: RetryPolicy = getattr(broker, "retry", DEFAULT_RETRY)
        self._slots = asyncio.Semaphore(getattr(broker, "concurrency", DEFAULT_CONCURRENCY))
        self._store = store
        self._options = options
        self._claimant = claimant
        self._clock = clock
        self._schedule = schedule
        self._timer_due: int | None = None
        self._poll_requested = asyncio.Event()
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[None]] = set()
        self._outcomes: list[DeliveryOutcome] = []
        """Outcomes of deliveries that are not written yet."""
        self._stopping = False
        self._cut_off = False
        self._started = False
        self._is_failing = False
        self._counted_at = 0
        self._pruned_at = 0

    # --- starting and stopping

    def start(self) -> None:
        """Start polling."""
        self._poll_requested.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"romancy-relay-{self.name}")

    def poll_soon(self) -> None:
        """Poll at once: an event may be in the outbox."""
        self._poll_requested.set()

    @property
    def is_idle(self) -> bool:
        """No delivery, write or poll is in progress or requested."""
        return not (self._busy or self._deliveries or self._outcomes or self._poll_requested.is_set())

    def stop_claiming(self) -> None:
        """Claim no more rows."""
        self._stopping = True
        self._poll_requested.set()

    async def stop(self, seconds: float) -> None:
        """Let deliveries finish within a time, return the claims of the rest, and close the broker."""
        self.stop_claiming()
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=max(seconds, 0))
        await self._cancel_deliveries()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=_CLOSE_TIMEOUT)  # it ends by itself; cancelling would cut off its last write
            await _cancel_all({task})
        await self._write_last_outcomes()
        await self._close()

    async def abandon(self) -> None:
        """Stop without writing anything more, as after `kill -9`."""
        self._stopping = True
        await self._cancel_deliveries()
        task, self._task = self._task, None
        if task is not None:
            await _cancel_all({task})
        await self._close()

    async def _cancel_deliveries(self) -> None:
        self._cut_off = True
        await _cancel_all(self._deliveries)

    async def _write_last_outcomes(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._write_outcomes()
        except (StoreError, TimeoutError) as error:  # the claims will expire
            _log.warning("broker %s: the outcomes of the last deliveries could not be written: %s", self.name, error)
        except Exception:
            _log.exception("broker %s: the outcomes of the last deliveries could not be written", self.name)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._broker.close()
        except Exception as error:
            _log.warning("broker %s could not be closed: %s", self.name, _describe_error(error))

    # --- rounds

    async def _run(self) -> None:
        with contextlib.suppress(SimulatedCrash):
            await self._start_broker()
            while not self._stopping:
                await self._wait_for_work()
                self._busy = True
                try:
                    await self._run_round()
                except StoreError as error:
                    self._errors["outbox"] += 1
                    _log.warning("broker %s: the outbox could not be reached, will try again: %s", self.name, error)
                    await self._pause(self._options.interval)
                except Exception:  # without polls the relay would seem healthy and deliver nothing
                    self._errors["outbox"] += 1
                    _log.exception("broker %s: the relay failed, will try again", self.name)
                    await self._pause(self._options.interval)
                finally:
                    self._busy = False

    async def _start_broker(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping and not self._started:
            try:
                await self._broker.start()
                self._started = True
            except Exception as error:
                _log.warning("broker %s could not be started, will try again: %s", self.name, _describe_error(error))
                await self._pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not beyond the stop of the relay."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._stopping and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, 0.1))

    async def _wait_for_work(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.interval):
                await self._poll_requested.wait()
        self._poll_requested.clear()

    async def _run_round(self) -> None:
        await self._write_outcomes()
        if self._stopping:
            return
        room = self._room()
        if room and await self._has_due():
            rows = await self._claim(room)
            for row in rows:
                self._start_delivery(row)
            if not rows and not self._stopping:
                # Another relay of this broker has claimed the event, or the claim of another broker's relay locks its row
                # for a moment: InnoDB locks neighbouring rows too, and SKIP LOCKED leaves them out.
                asyncio.get_running_loop().call_later(_CLAIM_AGAIN, self.poll_soon)
        await self._count()
        if not self._deliveries:
            await self._prune()

    def _room(self) -> int:
        """How many rows to claim: none until half of the batch is free, since one claim of many rows is cheaper."""
        size = self._options.batch_size
        return size - len(self._deliveries) if len(self._deliveries) <= size // 2 else 0

    async def _has_due(self) -> bool:
        due = await self._store.next_outbox_due(self.name)
        if due is None:
            return False
        if due <= self._clock.now():
            return True
        if self._timer_due is None or due < self._timer_due:
            self._timer_due = due
            self._schedule(due, self._on_timer)
        return False

    def _on_timer(self) -> None:
        self._timer_due = None
        self.poll_soon()

    async def _claim(self, limit: int) -> list[OutboxRow]:
        now = self._clock.now()
        until = now + round(self._options.lease * MICROS)
        rows = await self._store.claim_outbox(self.name, self._claimant, now=now, until=until, limit=limit)
        if len(rows) == limit:
            self.poll_soon()  # there may be more
        if self._stopping:  # stopped during the claim: return it
            self._outcomes += [Returned(row.seq) for row in rows]
            return []
        return rows

    async def _write_outcomes(self) -> None:
        ended, self._outcomes = self._outcomes, []
        if not ended:
            return
        try:
            await self._store.record_outbox(self._claimant, ended)
        except BaseException:
            self._outcomes = ended + self._outcomes
            self._poll_requested.set()
            raise

    async def _count(self) -> None:
        now, metrics = self._clock.now(), self._metrics
        if not 0 <= now - self._counted_at < _COUNT_EVERY:  # negative if the clock was set back
            self._counted_at = now
            metrics.waiting, metrics.dead = await self._store.count_outbox(self.name, most=_COUNT_LIMIT)
            metrics.oldest_at = await self._store.oldest_outbox(self.name, most=_AGE_LIMIT) if metrics.waiting else None

    async def _prune(self) -> None:
        now = self._clock.now()
        if self._options.retention is not None and not 0 <= now - self._pruned_at < _PRUNE_EVERY:
            self._pruned_at = now
            if (verified := await self._store.verified_time()) is None:
                return
            before = verified - round(self._options.retention * MICROS)
            while await self._store.prune_outbox(self.name, dead_before=before, limit=_PRUNE_LIMIT) == _PRUNE_LIMIT:
                await asyncio.sleep(0)

    # --- deliveries

    def _start_delivery(self, row: OutboxRow) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(row), name=f"romancy-relay-{self.name}-{row.seq}")
        self._deliveries.add(task)
        task.add_done_callback(self._on_delivery_done)

    def _on_delivery_done(self, task: asyncio.Task[None]) -> None:
        self._deliveries.discard(task)
        self._poll_requested.set()

    async def _deliver(self, row: OutboxRow) -> None:
        try:
            async with self._slots:
                outcome = await self._attempt_delivery(row)
        except asyncio.CancelledError:
            self._outcomes.append(Returned(row.seq))
            raise
        if outcome is not None:
            self._outcomes.append(outcome)

    async def _attempt_delivery(self, row: OutboxRow) -> DeliveryOutcome | None:
        assert row.next_at is not None
        left = (row.next_at - self._clock.now()) / MICROS
        if left <= 0:
            return None  # the claim has expired while the row waited for a slot: another relay may have it
        if is_encoded(row.body):
            return self._on_undecodable(row)
        try:
            event = event_of(row.body)
            async with asyncio.timeout(left):
                await self._broker.send(event)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Not only `Exception`: a driver may let a cancellation of its own escape. This relay cancels after `_cut_off`.
            if self._cut_off:
                raise asyncio.CancelledError from error
            return self._on_failed(row, error)
        self._metrics.micros.add(self._clock.now() - row.created_at)
        self._on_delivered(event)
        return Delivered(row.seq)

    def _on_undecodable(self, row: OutboxRow) -> DeliveryOutcome:
        """Delay an event that cannot be decoded here. It is not dead-lettered: another process may have the key."""
        text = not_decoded(f"event {row.seq} of the outbox", row.body)
        if not self._is_failing:
            self._is_failing = True
            _log.error("broker %s: %s", self.name, text)
        return Delayed(row.seq, self._clock.now() + _UNDECODABLE_PAUSE, text[:_LONGEST_ERROR])

    def _on_delivered(self, event: Event) -> None:
        self._metrics.delivered += 1
        if self._is_failing:
            self._is_failing = False
            _log.info("broker %s accepts events again: %r", self.name, event.id)

    def _on_failed(self, row: OutboxRow, error: BaseException) -> DeliveryOutcome:
        self._metrics.failed += 1
        text = _describe_error(error)
        next_at = self._next_attempt_at(row, error)
        if next_at is None:
            _log.error("broker %s: event %d of the outbox was dead-lettered: %s", self.name, row.seq, text)
            return DeadLettered(row.seq, self._clock.now(), text)
        if not self._is_failing:  # log once for each outage, not for each event
            self._is_failing = True
            _log.warning("broker %s did not accept event %d of the outbox, will try again: %s", self.name, row.seq, text)
        return Delayed(row.seq, next_at, text)

    def _next_attempt_at(self, row: OutboxRow, error: BaseException) -> int | None:
        if not is_retryable(self._retry, _as_exception(error), terminal=isinstance(error, EventRejectedError)):
            return None
        now = self._clock.now()
        at = next_attempt_at(self._retry, attempt=row.attempts, first_at=row.since, now=now, key=f"{self.name}:{row.seq}")
        retry_after = error.retry_after if isinstance(error, BrokerError) else None
        if at is None or retry_after is None:
            return at
        return max(at, now + round(min(max(retry_after, 0.0), _MAX_RETRY_AFTER) * MICROS))


def _as_exception(error: BaseException) -> BaseException:
    """Wrap an error that is not an `Exception`: retry policies name subclasses of `Exception`, and it is to be retried."""
    return error if isinstance(error, Exception) else BrokerError(repr(error))


def _describe_error(error: BaseException) -> str:
    """An error as it is stored and logged: on one line, without characters that a database cannot store, and cut."""
    text = str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"
    line = " ".join(text.encode("utf-8", "replace").decode().splitlines())
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line[:_LONGEST_ERROR])
    return shown[:_LONGEST_ERROR]


async def _cancel_all(tasks: Sequence[asyncio.Task[None]] | set[asyncio.Task[None]]) -> None:
    tasks = set(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)
