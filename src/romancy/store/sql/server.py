"""`ServerDatabase`: runs transactions on a database server, and retries them until their outcome is known.

There are three kinds of write transactions:

    fast path    for the most common writes, with as few statements as possible
    row-locked   locks the rows of its own instances with SKIP LOCKED, so it never waits for a lock
    serialized   for writes that may concern several instances; holds the messaging lock and may wait for row locks

Only the transaction that holds the messaging lock may block while it holds row locks, so deadlocks are impossible.

A dialect (a subclass) implements how transactions begin and end and what the driver's errors mean. This module decides what
is retried and when. Each transaction leaves a token in the database: if a COMMIT gets no response, the token tells whether
it took effect, and only then is anything repeated.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from enum import StrEnum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from romancy.clock import MICROS, Clock, SystemClock, monotonic
from romancy.codec import NO_CODEC
from romancy.errors import CodecError, StoreError
from romancy.ids import RandomIds, random_bytes
from romancy.model.admin import Vitals
from romancy.model.transition import (
    Accepted,
    Applied,
    ControlRequest,
    CreateInstance,
    PostMessage,
    Transition,
    Write,
    WriteResult,
)
from romancy.store.migrator import Migration, state_of
from romancy.store.port import NotWrittenError
from romancy.store.sql import call_timeout
from romancy.store.sql.apply import apply_row_locked, apply_serialized, concerns_others, refused_data_error
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.greenlet_bridge import run
from romancy.store.sql.lock_probe import Probe, several_writers_error
from romancy.store.sql.messaging_lock import restore_messaging_lock
from romancy.store.sql.server_identity import ServerIdentity
from romancy.store.sql.staging import emit_staged
from romancy.store.sql.transaction_runner import Work

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
Crash = Callable[[str], None]
IsResumedHere = Callable[[str], bool]
"""Whether this process itself resumes an instance that was woken."""

_RETRY_TIMEOUT = call_timeout.CALL_TIMEOUT
"""Seconds for which a transaction is retried while the server is unavailable."""
MIGRATION_TIMEOUT = 3600.0
"""Seconds that a migration may take."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_MAX_CONFLICT_PAUSE = 0.05
"""Longest pause after a conflict with another transaction, in seconds."""
_CLOCK_EVERY = 60.0
"""Seconds after which the database's clock is read again."""
_NOTABLE_SKEW = MICROS // 2


class ErrorClass(StrEnum):
    """What an error of the driver means for the transaction that failed."""

    CONFLICT = "again"
    """Another transaction was in the way: a retry on the same connection will succeed."""
    UNAVAILABLE = "away"
    """The connection is lost, or the server accepts none at present: a retry may succeed later."""
    INVALID_DATA = "data"
    """The database cannot store the data of the statement."""
    FATAL = "wrong"
    """A retry would fail in the same way."""


class Pool(Protocol[C_co]):
    """A connection pool of bounded size."""

    @property
    def label(self) -> str:
        """The address without its secrets, for messages."""
        ...

    def acquire(self) -> AbstractAsyncContextManager[C_co]:
        """Lend a connection. A connection that is returned in the middle of a transaction is discarded."""
        ...

    @property
    def server_identity(self) -> ServerIdentity:
        """The server that the connections lead to."""
        ...

    async def open_extra(self) -> C_co:
        """Open a connection beyond the pool's size; return it with `put_idle`."""
        ...

    async def put_idle(self, connection: Any, *, failed: bool) -> None:
        """Add a connection to the idle ones, or close it if it failed or is unusable."""
        ...

    async def writable_servers(self) -> dict[str, str]:
        """Return the servers that accept writes and their hosts, if the address names several hosts."""
        ...

    async def drop_idle(self) -> None:
        """Close the idle connections."""
        ...

    def cut_idle(self) -> None:
        """Close the idle connections at once, without telling the server: it has failed or changed."""
        ...


class ServerDatabase(ABC, Generic[C]):
    """Runs and retries transactions on a server, and translates the driver's errors to `StoreError`."""

    def __init__(
        self, pool: Pool[C], *, clock: Clock, crash: Crash | None = None, is_resumed_here: IsResumedHere | None = None
    ) -> None:
        self.on_remote_commit: Callable[[], None] | None = None
        self.clock = clock
        self.codec = NO_CODEC
        self._pool = pool
        self._is_resumed_here = is_resumed_here or _never_resumed_here
        self._ids = RandomIds()
        self._clock_read = 0.0
        self._tidied = monotonic()
        self._ahead = 0
        """Microseconds that the machine's clock was ahead when the log last had a warning about it."""
        self._crash_hook = crash
        self._killed = False
        self._is_unavailable = False
        self._identify_lock = asyncio.Lock()

    @property
    def label(self) -> str:
        """The address without its secrets, for messages."""
        return self._pool.label

    # --- what a dialect implements

    @abstractmethod
    def classify(self, error: BaseException) -> ErrorClass:
        """Return what an error means for the transaction that failed."""

    @abstractmethod
    def is_driver_error(self, error: BaseException) -> bool:
        """Return whether the error comes from the driver or the server."""

    @abstractmethod
    def translate(self, error: BaseException) -> StoreError:
        """Return the `StoreError` for an error of the driver, with the error as its cause."""

    def refusal(self, error: BaseException) -> str:
        """Return why the database refuses data, for a message."""
        return str(error)

    @abstractmethod
    def cursor(self, connection: C) -> Cursor:
        """Return a cursor that runs named statements on a connection."""

    @abstractmethod
    async def begin(self, connection: C, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction that inserts its token; with `serialized`, take the messaging lock.

        Return whether effects are staged (only looked up with `serialized`), or None if the row to lock is missing.
        """

    @abstractmethod
    async def begin_reading(self, connection: C) -> None:
        """Begin a read-only transaction on one snapshot."""

    @abstractmethod
    async def commit_transaction(self, connection: C) -> None:
        """Commit."""

    @abstractmethod
    async def rollback(self, connection: C) -> None:
        """Roll back."""

    @abstractmethod
    async def was_committed(self, connection: C, token: str) -> bool:
        """Return whether the transaction with this token was committed. If not, it can no longer be committed later."""

    @abstractmethod
    async def server_time(self, connection: C) -> int:
        """Return the server's time in microseconds."""

    @abstractmethod
    async def product(self, connection: C) -> tuple[str, dict[str, str]]:
        """Return the server's product and version, and notes about it for operators."""

    @abstractmethod
    def fast_paths(self, batch: Sequence[Write]) -> Iterable[Callable[[], Awaitable[Mapping[int, WriteResult]]]]:
        """Return the fast path transactions for a batch. Each returns the results of the writes that it has made."""

    async def tidy(self, connection: C) -> None:
        """Delete expired bookkeeping rows. Called now and then."""

    @abstractmethod
    def notify(self) -> None:
        """Notify other processes of a commit."""

    def notify_later(self) -> None:
        """Notify other processes after a moment, in which this process probably resumes the woken instances itself."""
        self.notify()

    @abstractmethod
    async def applied_migrations(self, connection: C) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """Return the migrations of this release, and those that the database has."""

    async def migrations(self) -> list[tuple[str, bool]]:
        """List the schema's migrations by name, each with whether it has been applied."""

        async def read_state() -> list[tuple[str, bool]]:
            async with self._pool.acquire() as connection:
                return state_of(*await self.applied_migrations(connection))

        try:
            return await self.retry_until_done(read_state)
        finally:
            await self._pool.drop_idle()

    # --- writing

    @property
    def concurrent_batches(self) -> int:
        """Two, so that the server writes while this process computes. One in crash tests, where only one batch may crash."""
        return 2 if self._crash_hook is None else 1

    @property
    def call_timeout(self) -> float:
        """Seconds within which every call returns or raises."""
        return call_timeout.CALL_TIMEOUT

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch, each write completely or not at all. If the database refuses data, each write is made alone.

        The batch may become several transactions. If the database fails between two of them, writes that were committed
        keep their results, and the others get `NotWrittenError`.
        """
        if self._is_clock_old():
            with suppress(Exception):  # if the database has failed, the next statement raises the error
                await self._sync_clock()
        answers: dict[int, WriteResult | StoreError] = {}
        token = call_timeout.DEADLINE.set(call_timeout.deadline())  # one deadline for all transactions of the batch
        try:
            await self._apply_parts(batch, answers)
        except Exception as error:
            if not answers:
                raise
            if not isinstance(error, StoreError):
                _log.exception("writing a part of a batch failed unexpectedly")
            unwritten = NotWrittenError(error)
            answers = {index: answers.get(index, unwritten) for index in range(len(batch))}
        finally:
            call_timeout.DEADLINE.reset(token)
        try:
            self._notify_others(batch, answers)
        except Exception:  # the batch is committed: its results must be returned all the same
            _log.exception("other processes could not be notified of a commit")
        return [answers[index] for index in range(len(batch))]

    async def _apply_parts(self, batch: Sequence[Write], answers: dict[int, WriteResult | StoreError]) -> None:
        """Write a batch from the cheapest kind of transaction to the dearest; each takes what the one before left over."""
        for attempt in self.fast_paths(batch):
            answers |= await self._try_apply(attempt) or {}
            if len(answers) == len(batch):
                return
        rest = [index for index in range(len(batch)) if index not in answers]
        # If one of the writes needs a serialized transaction anyway, it takes the others with it: one transaction, not two.
        if rest and not any(concerns_others(batch[index]) for index in rest):
            row_locked = partial(
                self.transact, partial(apply_row_locked, batch=[batch[index] for index in rest]), serialized=False
            )
            written = await self._try_apply(row_locked) or {}
            answers |= {rest[position]: answer for position, answer in written.items()}
            rest = [index for index in rest if index not in answers]
        if not rest:
            return
        decided = await self._try_apply(partial(self.transact_serialized, [batch[index] for index in rest]))
        if decided is not None:
            answers |= zip(rest, decided, strict=True)
            return
        # The database refuses the data of some write: alone, only that one fails.
        for index in rest:
            answers[index] = await self._apply_one(batch[index])

    def _notify_others(self, batch: Sequence[Write], answers: Mapping[int, WriteResult | StoreError]) -> None:
        woken: list[str] = []
        for at, write in enumerate(batch):
            answer = answers[at]
            if isinstance(answer, _WRITTEN_ANSWERS):
                woken += answer.woken
                if _is_for_others(write, answer):
                    self.notify()
                    return
        if not all(map(self._is_resumed_here, woken)):
            self.notify()
        elif woken:  # an immediate notification would make other workers compete for instances that resume here
            self.notify_later()

    async def transact_serialized(self, batch: Sequence[Write]) -> Sequence[WriteResult]:
        """Write a batch in one serialized transaction."""
        return await self.transact(partial(apply_serialized, batch=batch))

    async def _apply_one(self, write: Write) -> WriteResult | StoreError:
        try:
            return (await self.retry_until_done(partial(self.transact, partial(apply_serialized, batch=[write]))))[0]
        except StoreError as error:
            if not self._is_refusal(error):
                raise
            cause = error.__cause__
            if isinstance(error, CodecError) or cause is None:
                return error
            return refused_data_error(self.label, write, self.refusal(cause), cause)

    async def _try_apply(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """Run a transaction; return None if the database refuses its data."""
        try:
            return await self.retry_until_done(attempt)
        except StoreError as error:
            if not self._is_refusal(error):
                raise
            return None

    def _is_refusal(self, error: StoreError) -> bool:
        """The database cannot store the data, or stored data that the write needs cannot be decoded."""
        if isinstance(error, CodecError):
            return True
        return error.__cause__ is not None and self.classify(error.__cause__) is ErrorClass.INVALID_DATA

    async def write(self, work: Work[T], *, point: str = "commit", serialized: bool = True) -> T:
        """Run work in one transaction, and retry it."""
        result = await self.retry_until_done(partial(self.transact, work, point, serialized=serialized))
        if serialized and result:  # an empty result means that nothing was changed
            self.notify()
        return result

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run reads; with `snapshot`, all on one snapshot."""
        return await self.retry_until_done(partial(self._read_once, work, snapshot))

    # --- transactions

    async def transact(self, work: Work[T], point: str = "commit", *, serialized: bool = True) -> T:
        """Run work in one transaction, without retrying it. A serialized one emits staged effects first."""
        token = self._fresh_id()
        async with self._pool.acquire() as connection:
            try:
                staged = await self.begin(connection, token, serialized=serialized)
                if staged is None:
                    await run(partial(restore_messaging_lock, self.cursor(connection)))
                    staged = await run(partial(_has_staged, self.cursor(connection)))
                if staged:  # before the work: their transactions have committed before this one
                    await run(partial(emit_staged, self.cursor(connection), self.clock.now(), self._fresh_id))
                result = await run(partial(work, self.cursor(connection)))
                self._hit_crash_point(f"{point}.before")
            except Exception:
                await self.rollback(connection)
                raise
            failed = await self.commit_and_classify(connection)
        if failed is not None and not (
            self.classify(failed) is ErrorClass.UNAVAILABLE and await self._ask_whether_committed(token)
        ):
            raise failed
        self._hit_crash_point(f"{point}.after")
        if staged:
            self.notify()
            self.announce_remote_commit()
        return result

    def _fresh_id(self) -> str:
        return self._ids.instance_id(self.clock.now())

    async def commit_and_classify(self, connection: C) -> Exception | None:
        """Commit. Return the error if that failed."""
        try:
            await self.commit_transaction(connection)
        except Exception as error:
            if self.classify(error) is not ErrorClass.UNAVAILABLE:
                await self.rollback(connection)
            return error
        if monotonic() - self._tidied > _CLOCK_EVERY:
            self._tidied = monotonic()
            with suppress(Exception):  # the transaction is committed: a failure here must not look like a failed commit
                await self.read_clock(connection)
                await self.tidy(connection)
        return None

    async def _ask_whether_committed(self, token: str) -> bool:
        async def query() -> bool:
            async with self._pool.acquire() as connection:
                return await self.was_committed(connection, token)

        return await self.ask_outcome(query)

    async def ask_outcome(self, query: Callable[[], Awaitable[T]]) -> T:
        """Run a query for the outcome of a write that got no response. Raises if the query gets no response either."""
        try:
            return await self.retry_until_done(query)
        except StoreError as error:
            unknown = StoreError(
                f"It is not known whether this was written: the database {self.label} did not respond, neither to the write "
                f"nor to the query for its outcome. ({error})"
            )
            unknown.retryable = True
            raise unknown from error

    async def _read_once(self, work: Work[T], snapshot: bool) -> T:
        async with self._pool.acquire() as connection:
            if snapshot:
                await self.begin_reading(connection)
            result = await run(partial(work, self.cursor(connection)))
            if snapshot:
                await self.commit_transaction(connection)
            return result

    async def retry_until_done(self, attempt: Callable[[], Awaitable[T]], longest: float | None = None) -> T:
        """Run an attempt, and retry it after conflicts and while the server is unavailable, until the call's deadline."""
        token = call_timeout.DEADLINE.set(call_timeout.deadline() if longest is None else monotonic() + longest)
        try:
            return await self._retry_until_done(attempt)
        finally:
            call_timeout.DEADLINE.reset(token)

    async def _retry_until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline = min(monotonic() + _RETRY_TIMEOUT, call_timeout.deadline())
        pause = _FIRST_PAUSE
        while True:
            if self._killed:
                raise not_open(self.label)
            try:
                if self._pool.server_identity.has_changed:
                    await self._identify_server_again()
                result = await attempt()
            except StoreError:
                raise
            except Exception as error:
                error_class = self.classify(error)
                if error_class is ErrorClass.FATAL and not self.is_driver_error(error):
                    raise  # not an error of the server: a row that this code cannot read, no memory left, a bug
                if error_class in (ErrorClass.INVALID_DATA, ErrorClass.FATAL) or monotonic() > deadline:
                    raise self.translate(error) from error
                if error_class is ErrorClass.UNAVAILABLE:
                    self._handle_unavailable(error)
                elif (
                    error_class is ErrorClass.CONFLICT
                ):  # a random pause, so that the same transactions do not collide again
                    await asyncio.sleep(_MAX_CONFLICT_PAUSE * random_bytes(1)[0] / 255)
                    continue
            else:
                self._is_unavailable = False
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _handle_unavailable(self, error: Exception) -> None:
        self._pool.cut_idle()
        if not self._is_unavailable:
            self._is_unavailable = True
            _log.warning("%s Trying again for %.0f s.", self.translate(error), _RETRY_TIMEOUT)

    # --- which server it is

    async def identify_server(self) -> None:
        """Verify that the server's locks work as this module needs. Raises `StoreError` if they do not."""
        identity = self._pool.server_identity
        identity.reset()
        query = asyncio.ensure_future(self._pool.writable_servers())
        try:
            async with self._two_connections() as (one, other):
                server = await Probe(self, one, other, self._fresh_id).verify_server()
            if len(found := await query) > 1:
                raise several_writers_error(self.label, found)
        finally:
            query.cancel()
        identity.confirm(server)

    async def _identify_server_again(self) -> None:
        async with self._identify_lock:
            if self._pool.server_identity.has_changed:
                _log.warning(
                    "%s is now served by another server: its locks are verified before anything is written.",
                    self.label,
                )
                await self._pool.drop_idle()
                await self.identify_server()

    @asynccontextmanager
    async def _two_connections(self) -> AsyncIterator[tuple[C, C]]:
        """Open two connections as the pool does; close them afterwards."""
        async with AsyncExitStack() as stack:
            opening = [asyncio.ensure_future(self._pool.open_extra()) for _ in range(2)]
            try:
                await asyncio.wait(opening)
            except BaseException:
                for task in opening:
                    task.cancel()
                raise
            for task in opening:
                if task.exception() is None:
                    stack.push_async_exit(partial(self._put_idle, task.result()))
            one, other = [task.result() for task in opening]
            yield one, other

    async def _put_idle(self, connection: C, kind: type[BaseException] | None, *_: object) -> None:
        await self._pool.put_idle(connection, failed=True)  # closes it: the pool opens what it needs later

    @abstractmethod
    def may_only_read(self, error: BaseException) -> bool:
        """Return whether the error means that the database user may not write."""

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether the error means that another transaction has the lock."""
        return self.classify(error) is ErrorClass.CONFLICT

    def _hit_crash_point(self, point: str) -> None:
        if self._crash_hook is None:
            return
        try:
            self._crash_hook(point)
        except BaseException:
            self._killed = True
            raise

    # --- effects staged by callers' transactions

    @property
    def has_staging(self) -> bool:
        """Callers' transactions stage their effects: they may stay open for long, and must not hold the messaging lock."""
        return True

    async def emit_staged(self) -> None:
        """Emit staged effects, if there are any."""
        if await self.read(_has_staged):
            await self.retry_until_done(partial(self.transact, _do_nothing))

    # --- clock and vitals

    async def sync_clock(self) -> None:
        """Set the clock by the database's time, now."""
        if isinstance(self.clock, SystemClock):
            await self.retry_until_done(self._sync_clock)

    async def _sync_clock(self) -> None:
        async with self._pool.acquire() as connection:
            await self.read_clock(connection)

    def _is_clock_old(self) -> bool:
        """The database's time was not read for long. A worker's maintenance reads it often; a client has no maintenance."""
        clock = self.clock
        return isinstance(clock, SystemClock) and (monotonic() - self._clock_read > _CLOCK_EVERY or clock.has_jumped)

    async def read_clock(self, connection: C) -> None:
        """Follow the database's time, so that leases and timers of all workers are measured with one clock."""
        self._clock_read = monotonic()
        clock = self.clock
        if not isinstance(clock, SystemClock):
            return  # a test controls the time
        began = clock.elapsed()
        theirs = await self.server_time(connection)
        clock.follow_server(theirs, began, clock.elapsed())
        ahead = clock.ahead
        if abs(ahead - self._ahead) > _NOTABLE_SKEW:  # warn when it changes, not each time
            self._ahead = ahead
            _log.warning("this machine's clock is %.3f s off that of %s, which is used instead", ahead / MICROS, self.label)

    async def vitals(self) -> Vitals:
        """Measure the server: product, latency, clock difference."""
        return await self.retry_until_done(self._read_vitals)

    async def _read_vitals(self) -> Vitals:
        async with self._pool.acquire() as connection:
            name, notes = await self.product(connection)
            own, begun = SystemClock().now(), monotonic()
            theirs = await self.server_time(connection)
            latency = round((monotonic() - begun) * MICROS)
            return Vitals(name, latency, theirs - own - latency // 2, notes)

    def announce_remote_commit(self) -> None:
        """Report a commit of another process, or of a caller's transaction, to the engine."""
        if self.on_remote_commit is not None:
            try:
                self.on_remote_commit()
            except Exception:  # the caller may just have committed: its result must be returned all the same
                _log.exception("the callback after a remote commit failed")


def _has_staged(cursor: Cursor) -> bool:
    return bool(cursor.only("anything_staged")[0])


def _do_nothing(cursor: Cursor) -> None:
    """No work of its own: `transact` emits staged effects before the work."""


def not_open(label: str) -> StoreError:
    """Return the error of a store that is closed, not opened yet, or was killed by a crash point."""
    return StoreError(f"The store of the database {label} is not open. Open it first, and do not use it after its close.")


def _never_resumed_here(_instance_id: str) -> bool:
    return False


_WRITTEN_ANSWERS = (Applied, Accepted)


def _is_for_others(write: Write, answer: Applied | Accepted) -> bool:
    """Another process may need this write: as new work, for an instance that it owns, or as a result that it waits for."""
    if answer.started:
        return True
    if isinstance(write, Transition):
        return write.ending is not None
    return isinstance(write, ControlRequest | PostMessage) or (isinstance(write, CreateInstance) and write.owner is None)
