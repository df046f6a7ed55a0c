"""A database that is a server: transactions that are run until their outcome is known.

    quick     a transaction for the plainest writes, with as few statements as can be
    apart     a transaction that locks the rows of its own instances, and waits for nobody
    in turn   a transaction that concerns several instances: one at a time in the whole database, it may wait for rows

Nobody holds something and waits for another but who has the turn: so there are no deadlocks.

A dialect says how its connections begin and end transactions and what its errors mean. What is tried again, and when, is
decided here. A COMMIT that is not answered is asked about before anything is done again: each transaction leaves a mark.
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
"""Whether this process goes on by itself with an instance that is called."""

_RETRY_TIMEOUT = call_timeout.CALL_TIMEOUT
"""Seconds that a transaction is tried for while the server is away."""
MIGRATION_TIMEOUT = 3600.0
"""Seconds that a migration may take."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_MAX_CONFLICT_PAUSE = 0.05
"""Seconds, at most, that who was in somebody's way waits before it tries again."""
_CLOCK_EVERY = 60.0
"""Seconds after which the database's clock is read again."""
_NOTABLE_SKEW = MICROS // 2


class ErrorClass(StrEnum):
    """What an error of the driver means for what was tried."""

    CONFLICT = "again"
    """Somebody else was in the way: the same will work on the same connection."""
    UNAVAILABLE = "away"
    """The connection is gone, or the server does not take any now: the same may work later."""
    INVALID_DATA = "data"
    """The database cannot store what it was given."""
    FATAL = "wrong"
    """It will not work by itself."""


class Pool(Protocol[C_co]):
    """A bounded number of connections."""

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        ...

    def acquire(self) -> AbstractAsyncContextManager[C_co]:
        """A connection for a while. One that is left in the middle of something is thrown away."""
        ...

    @property
    def server_identity(self) -> ServerIdentity:
        """Which server the connections lead to."""
        ...

    async def open_extra(self) -> C_co:
        """A new connection, beyond the number that is bounded; to be handed to `keep`."""
        ...

    async def put_idle(self, connection: Any, *, failed: bool) -> None:
        """Have a connection for whoever wants one next, unless it is of no use."""
        ...

    async def writable_servers(self) -> dict[str, str]:
        """The servers of the address that take writes, if it names several: where each was found."""
        ...

    async def drop_idle(self) -> None:
        """What is open is not to be used again."""
        ...

    def cut_idle(self) -> None:
        """The server is not what it was: what is open to it is useless, and nobody says goodbye."""
        ...


class ServerDatabase(ABC, Generic[C]):
    """Runs transactions; translates the driver's errors."""

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
        """Microseconds that the machine's clock was ahead when that was said last."""
        self._crash_hook = crash
        self._killed = False
        self._is_unavailable = False
        self._identify_lock = asyncio.Lock()

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        return self._pool.label

    # --- what a dialect says

    @abstractmethod
    def classify(self, error: BaseException) -> ErrorClass:
        """What an error means."""

    @abstractmethod
    def is_driver_error(self, error: BaseException) -> bool:
        """The driver raised it, or the server through it."""

    @abstractmethod
    def translate(self, error: BaseException) -> StoreError:
        """The `StoreError` for an error of the driver, with the error as its cause."""

    def refusal(self, error: BaseException) -> str:
        """Why the database refuses data."""
        return str(error)

    @abstractmethod
    def cursor(self, connection: C) -> Cursor:
        """What runs statements on a connection."""

    @abstractmethod
    async def begin(self, connection: C, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction that leaves its token behind; in turn if that is wanted: is something staged then?

        None: there is no row to take turns with.
        """

    @abstractmethod
    async def begin_reading(self, connection: C) -> None:
        """Begin a transaction that sees one snapshot and changes nothing."""

    @abstractmethod
    async def commit_transaction(self, connection: C) -> None:
        """Commit."""

    @abstractmethod
    async def rollback(self, connection: C) -> None:
        """Roll back."""

    @abstractmethod
    async def was_committed(self, connection: C, token: str) -> bool:
        """Whether a transaction was committed. One that was not, cannot be any more."""

    @abstractmethod
    async def server_time(self, connection: C) -> int:
        """The server's clock in microseconds."""

    @abstractmethod
    async def product(self, connection: C) -> tuple[str, dict[str, str]]:
        """What the server is, and what else is worth knowing about it."""

    @abstractmethod
    def fast_paths(self, batch: Sequence[Write]) -> Iterable[Callable[[], Awaitable[Mapping[int, WriteResult]]]]:
        """Transactions for those writes of a batch that can go a short way, each with the answers to what it has written."""

    async def tidy(self, connection: C) -> None:
        """Throw away what was kept for a while. Called now and then."""

    @abstractmethod
    def notify(self) -> None:
        """Others have something to look at."""

    def notify_later(self) -> None:
        """Others have something to look at, should this process not see to it itself at once."""
        self.notify()

    @abstractmethod
    async def applied_migrations(self, connection: C) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """The migrations there are, and those that the database has."""

    async def migrations(self) -> list[tuple[str, bool]]:
        """Each migration of the schema, and whether the database has it."""

        async def look() -> list[tuple[str, bool]]:
            async with self._pool.acquire() as connection:
                return state_of(*await self.applied_migrations(connection))

        try:
            return await self.retry_until_done(look)
        finally:
            await self._pool.drop_idle()

    # --- writing

    @property
    def concurrent_batches(self) -> int:
        """A server writes while this process computes; but a crash that a test causes must not be in two places."""
        return 2 if self._crash_hook is None else 1

    @property
    def call_timeout(self) -> float:
        """Seconds within which a call is answered, be it by an error."""
        return call_timeout.CALL_TIMEOUT

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch, each write all or not at all; if its data is refused, each by itself.

        Its parts are transactions. What is written stays so when the database goes away before the next.
        """
        if self._is_clock_old():
            with suppress(Exception):  # what is wrong with the database shows in a moment
                await self._sync_clock()
        answers: dict[int, WriteResult | StoreError] = {}
        token = call_timeout.DEADLINE.set(call_timeout.deadline())  # for all its parts
        try:
            await self._apply_parts(batch, answers)
        except Exception as error:
            if not answers:
                raise
            if not isinstance(error, StoreError):
                _log.exception("writing a part of a batch failed in a way that was not foreseen")
            unwritten = NotWrittenError(error)
            answers = {index: answers.get(index, unwritten) for index in range(len(batch))}
        finally:
            call_timeout.DEADLINE.reset(token)
        try:
            self._notify_others(batch, answers)
        except Exception:  # it is committed, whoever hears of it
            _log.exception("others could not be told of a commit")
        return [answers[index] for index in range(len(batch))]

    async def _apply_parts(self, batch: Sequence[Write], answers: dict[int, WriteResult | StoreError]) -> None:
        for way in self.fast_paths(batch):
            answers |= await self._try_apply(way) or {}
            if len(answers) == len(batch):
                return
        late = [index for index in range(len(batch)) if index not in answers]
        if late and not any(concerns_others(batch[index]) for index in late):
            apart = partial(
                self.transact, partial(apply_row_locked, batch=[batch[index] for index in late]), serialized=False
            )
            written = await self._try_apply(apart) or {}
            answers |= {late[place]: answer for place, answer in written.items()}
            late = [index for index in late if index not in answers]
        if not late:
            return
        decided = await self._try_apply(partial(self.transact_serialized, [batch[index] for index in late]))
        if decided is not None:
            answers |= zip(late, decided, strict=True)
            return
        for index in late:
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
        elif woken:  # a hint at once would only be in the way of those it is about
            self.notify_later()

    async def transact_serialized(self, batch: Sequence[Write]) -> Sequence[WriteResult]:
        """One transaction in turn for writes that may concern several instances."""
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
        try:
            return await self.retry_until_done(attempt)
        except StoreError as error:
            if not self._is_refusal(error):
                raise
            return None

    def _is_refusal(self, error: StoreError) -> bool:
        """The database cannot store the data, or what it hangs on cannot be decoded."""
        if isinstance(error, CodecError):
            return True
        return error.__cause__ is not None and self.classify(error.__cause__) is ErrorClass.INVALID_DATA

    async def write(self, work: Work[T], *, point: str = "commit", serialized: bool = True) -> T:
        """One transaction."""
        result = await self.retry_until_done(partial(self.transact, work, point, serialized=serialized))
        if serialized and result:  # nothing found, nothing done: nobody need look
            self.notify()
        return result

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Reads; of one snapshot where they must fit together."""
        return await self.retry_until_done(partial(self._read_once, work, snapshot))

    # --- transactions

    async def transact(self, work: Work[T], point: str = "commit", *, serialized: bool = True) -> T:
        """One transaction. What is staged is said first, when it is in turn."""
        token = self._fresh_id()
        async with self._pool.acquire() as connection:
            try:
                staged = await self.begin(connection, token, serialized=serialized)
                if staged is None:
                    await run(partial(restore_messaging_lock, self.cursor(connection)))
                    staged = await run(partial(_has_staged, self.cursor(connection)))
                if staged:
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
        """Commit; why that failed, if it did."""
        try:
            await self.commit_transaction(connection)
        except Exception as error:
            if self.classify(error) is not ErrorClass.UNAVAILABLE:
                await self.rollback(connection)
            return error
        if monotonic() - self._tidied > _CLOCK_EVERY:
            self._tidied = monotonic()
            with suppress(Exception):  # it is committed, whatever becomes of the connection now
                await self.read_clock(connection)
                await self.tidy(connection)
        return None

    async def _ask_whether_committed(self, token: str) -> bool:
        async def ask() -> bool:
            async with self._pool.acquire() as connection:
                return await self.was_committed(connection, token)

        return await self.ask_outcome(ask)

    async def ask_outcome(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask what became of a write that was not answered. If that is not answered either, nobody can know."""
        try:
            return await self.retry_until_done(ask)
        except StoreError as error:
            unknown = StoreError(
                f"It is not known whether this was written: the database {self.label} did not answer, nor whether it had "
                f"written it. ({error})"
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
        """Try until it is done, while others are in the way or the server is away; not beyond the deadline of the call."""
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
                    raise  # not the server's: a row that this code cannot read, no memory left, a fault of ours
                if error_class in (ErrorClass.INVALID_DATA, ErrorClass.FATAL) or monotonic() > deadline:
                    raise self.translate(error) from error
                if error_class is ErrorClass.UNAVAILABLE:
                    self._handle_unavailable(error)
                elif error_class is ErrorClass.CONFLICT:  # those who were in each other's way must not come back together
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
        """See whether the server locks as it is relied upon. Raises `StoreError` if it does not."""
        home = self._pool.server_identity
        home.reset()
        asking = asyncio.ensure_future(self._pool.writable_servers())
        try:
            async with self._two_connections() as (one, other):
                server = await Probe(self, one, other, self._fresh_id).verify_server()
            if len(found := await asking) > 1:
                raise several_writers_error(self.label, found)
        finally:
            asking.cancel()
        home.confirm(server)

    async def _identify_server_again(self) -> None:
        async with self._identify_lock:
            if self._pool.server_identity.has_changed:
                _log.warning(
                    "Another server answers for %s than before: it is looked at before anything is written.", self.label
                )
                await self._pool.drop_idle()
                await self.identify_server()

    @asynccontextmanager
    async def _two_connections(self) -> AsyncIterator[tuple[C, C]]:
        """Two connections as others get them, which are theirs afterwards."""
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
        await self._pool.put_idle(connection, failed=True)  # what is needed later is opened then

    @abstractmethod
    def may_only_read(self, error: BaseException) -> bool:
        """The user has no right to write."""

    def is_conflict(self, error: BaseException) -> bool:
        """Somebody else has the lock."""
        return self.classify(error) is ErrorClass.CONFLICT

    def _hit_crash_point(self, point: str) -> None:
        if self._crash_hook is None:
            return
        try:
            self._crash_hook(point)
        except BaseException:
            self._killed = True
            raise

    # --- what others leave

    @property
    def has_staging(self) -> bool:
        """What is said in transactions of others waits: nobody must hold the turn for long."""
        return True

    async def emit_staged(self) -> None:
        """Say what was staged, if there is anything."""
        if await self.read(_has_staged):
            await self.retry_until_done(partial(self.transact, _do_nothing))

    # --- time and others

    async def sync_clock(self) -> None:
        """Set the clock by the database's, now."""
        if isinstance(self.clock, SystemClock):
            await self.retry_until_done(self._sync_clock)

    async def _sync_clock(self) -> None:
        async with self._pool.acquire() as connection:
            await self.read_clock(connection)

    def _is_clock_old(self) -> bool:
        """Nobody has asked for the time for long. A worker's upkeep does all the time; a client has none."""
        clock = self.clock
        return isinstance(clock, SystemClock) and (monotonic() - self._clock_read > _CLOCK_EVERY or clock.has_jumped)

    async def read_clock(self, connection: C) -> None:
        """Time is the database's: leases and timers of all workers are measured with one clock."""
        self._clock_read = monotonic()
        clock = self.clock
        if not isinstance(clock, SystemClock):
            return  # a test owns the time
        began = clock.elapsed()
        theirs = await self.server_time(connection)
        clock.follow_server(theirs, began, clock.elapsed())
        ahead = clock.ahead
        if abs(ahead - self._ahead) > _NOTABLE_SKEW:  # once, not each time
            self._ahead = ahead
            _log.warning("this machine's clock is %.3f s off that of %s, which counts", ahead / MICROS, self.label)

    async def vitals(self) -> Vitals:
        """How the server is, and how far away."""
        return await self.retry_until_done(self._read_vitals)

    async def _read_vitals(self) -> Vitals:
        async with self._pool.acquire() as connection:
            name, notes = await self.product(connection)
            own, begun = SystemClock().now(), monotonic()
            theirs = await self.server_time(connection)
            latency = round((monotonic() - begun) * MICROS)
            return Vitals(name, latency, theirs - own - latency // 2, notes)

    def announce_remote_commit(self) -> None:
        """Somebody else has written."""
        if self.on_remote_commit is not None:
            try:
                self.on_remote_commit()
            except Exception:  # what is committed stays so
                _log.exception("what others wrote could not be looked at")


def _has_staged(cursor: Cursor) -> bool:
    return bool(cursor.only("anything_staged")[0])


def _do_nothing(cursor: Cursor) -> None:
    """All there is to do is what comes first."""


def not_open(label: str) -> StoreError:
    """What a store says that is closed, not opened yet, or was killed by a crash point."""
    return StoreError(f"The store of the database {label} is not open. Open it first, and do not use it after its close.")


def _never_resumed_here(_instance_id: str) -> bool:
    return False


_WRITTEN_ANSWERS = (Applied, Accepted)


def _is_for_others(write: Write, answer: Applied | Accepted) -> bool:
    """Another process may have to look: for new work, for what it holds in its hands, or for a result it waits for."""
    if answer.started:
        return True
    if isinstance(write, Transition):
        return write.ending is not None
    return isinstance(write, ControlRequest | PostMessage) or (isinstance(write, CreateInstance) and write.owner is None)
