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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from enum import StrEnum
from functools import partial
from typing import Generic, Protocol, TypeVar

from romancy.clock import MICROS, Clock, SystemClock, monotonic
from romancy.codec import PLAIN
from romancy.errors import CodecError, StoreError
from romancy.ids import RandomIds
from romancy.model.operators import Vitals
from romancy.model.transition import Accepted, Answer, Applied, Create, Post, Request, Transition, Write
from romancy.store.migrator import Migration, state_of
from romancy.store.sql.batch import concerns_others, refused, write_apart, write_deliberately
from romancy.store.sql.bridge import run
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.database import Work
from romancy.store.sql.staging import drain

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
Crash = Callable[[str], None]
Near = Callable[[str], bool]
"""Whether this process goes on by itself with an instance that is called."""

_PATIENCE = 30.0
"""Seconds that a transaction is tried for while the server is away."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_CLOCK_EVERY = 60.0
"""Seconds after which the database's clock is read again."""
_NOTABLE_SKEW = MICROS // 2


class Trouble(StrEnum):
    """What an error of the driver means for what was tried."""

    AGAIN = "again"
    """Somebody else was in the way: the same will work on the same connection."""
    AWAY = "away"
    """The connection is gone, or the server does not take any now: the same may work later."""
    DATA = "data"
    """The database cannot store what it was given."""
    WRONG = "wrong"
    """It will not work by itself."""


class Pool(Protocol[C_co]):
    """A bounded number of connections."""

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        ...

    def one(self) -> AbstractAsyncContextManager[C_co]:
        """A connection for a while. One that is left in the middle of something is thrown away."""
        ...

    async def drop_idle(self) -> None:
        """The server is not what it was: what is open to it is useless."""
        ...


class ServerDatabase(ABC, Generic[C]):
    """Runs transactions; translates the driver's errors."""

    def __init__(self, pool: Pool[C], *, clock: Clock, crash: Crash | None = None, near: Near | None = None) -> None:
        self.foreign: Callable[[], None] | None = None
        self.clock = clock
        self.coder = PLAIN
        self._pool = pool
        self._near = near or _nowhere
        self._ids = RandomIds()
        self._clock_read = 0.0
        self._hook = crash
        self._killed = False
        self._away = False

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        return self._pool.label

    # --- what a dialect says

    @abstractmethod
    def trouble_of(self, error: BaseException) -> Trouble:
        """What an error means."""

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
    async def begin(self, connection: C, token: str, *, in_turn: bool) -> bool:
        """Begin a transaction that leaves its token behind; in turn if that is wanted: is something staged then?"""

    @abstractmethod
    async def begin_reading(self, connection: C) -> None:
        """Begin a transaction that sees one snapshot and changes nothing."""

    @abstractmethod
    async def end(self, connection: C) -> None:
        """Commit."""

    @abstractmethod
    async def give_up(self, connection: C) -> None:
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
    def short_ways(self, batch: Sequence[Write]) -> Iterable[Callable[[], Awaitable[Mapping[int, Answer]]]]:
        """Transactions for those writes of a batch that can go a short way, each with the answers to what it has written."""

    async def tidy(self, connection: C) -> None:
        """Throw away what was kept for a while. Called now and then."""

    @abstractmethod
    def ring(self) -> None:
        """Others have something to look at."""

    def ring_later(self) -> None:
        """Others have something to look at, should this process not see to it itself at once."""
        self.ring()

    @abstractmethod
    async def applied(self, connection: C) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """The migrations there are, and those that the database has."""

    async def migrations(self) -> list[tuple[str, bool]]:
        """Each migration of the schema, and whether the database has it."""

        async def look() -> list[tuple[str, bool]]:
            async with self._pool.one() as connection:
                return state_of(*await self.applied(connection))

        try:
            return await self.persist(look)
        finally:
            await self._pool.drop_idle()

    # --- writing

    @property
    def lanes(self) -> int:
        """A server writes while this process computes; but a crash that a test causes must not be in two places."""
        return 2 if self._hook is None else 1

    async def commit(self, batch: Sequence[Write]) -> list[Answer | StoreError]:
        """Write a batch, each write all or not at all; if its data is refused, each by itself."""
        answers: dict[int, Answer | StoreError] = {}
        for way in self.short_ways(batch):
            answers |= await self._unless_refused(way) or {}
            if len(answers) == len(batch):
                break
        late = [index for index in range(len(batch)) if index not in answers]
        if late and not any(concerns_others(batch[index]) for index in late):
            apart = partial(self.transact, partial(write_apart, batch=[batch[index] for index in late]), in_turn=False)
            written = await self._unless_refused(apart) or {}
            answers |= {late[place]: answer for place, answer in written.items()}
            late = [index for index in late if index not in answers]
        if late:
            answers |= zip(late, await self._write_in_turn([batch[index] for index in late]), strict=True)
        self._tell_others(batch, answers)
        return [answers[index] for index in range(len(batch))]

    def _tell_others(self, batch: Sequence[Write], answers: Mapping[int, Answer | StoreError]) -> None:
        called: list[str] = []
        for at, write in enumerate(batch):
            answer = answers[at]
            if isinstance(answer, _WRITTEN):
                called += answer.woken
                if _is_for_others(write, answer):
                    self.ring()
                    return
        if not all(map(self._near, called)):
            self.ring()
        elif called:  # a hint at once would only be in the way of those it is about
            self.ring_later()

    async def _write_in_turn(self, batch: Sequence[Write]) -> Sequence[Answer | StoreError]:
        written = await self._unless_refused(partial(self.decide, batch))
        return [await self._write_alone(write) for write in batch] if written is None else written

    async def decide(self, batch: Sequence[Write]) -> Sequence[Answer]:
        """One transaction in turn for writes that may concern several instances."""
        return await self.transact(partial(write_deliberately, batch=batch))

    async def _write_alone(self, write: Write) -> Answer | StoreError:
        try:
            return (await self.persist(partial(self.transact, partial(write_deliberately, batch=[write]))))[0]
        except StoreError as error:
            if not self._is_refusal(error):
                raise
            cause = error.__cause__
            if isinstance(error, CodecError) or cause is None:
                return error
            return refused(self.label, write, self.refusal(cause), cause)

    async def _unless_refused(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await self.persist(attempt)
        except StoreError as error:
            if not self._is_refusal(error):
                raise
            return None

    def _is_refusal(self, error: StoreError) -> bool:
        """The database cannot store the data, or what it hangs on cannot be decoded."""
        if isinstance(error, CodecError):
            return True
        return error.__cause__ is not None and self.trouble_of(error.__cause__) is Trouble.DATA

    async def write(self, work: Work[T], *, point: str = "commit", in_turn: bool = True) -> T:
        """One transaction."""
        result = await self.persist(partial(self.transact, work, point, in_turn=in_turn))
        if in_turn and result:  # nothing found, nothing done: nobody need look
            self.ring()
        return result

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Reads; of one snapshot where they must fit together."""
        return await self.persist(partial(self._look_up, work, snapshot))

    # --- transactions

    async def transact(self, work: Work[T], point: str = "commit", *, in_turn: bool = True) -> T:
        """One transaction. What is staged is said first, when it is in turn."""
        token = self._fresh_id()
        async with self._pool.one() as connection:
            try:
                staged = await self.begin(connection, token, in_turn=in_turn)
                if staged:
                    await run(partial(drain, self.cursor(connection), self.clock.now(), self._fresh_id))
                result = await run(partial(work, self.cursor(connection)))
                self._crash(f"{point}.before")
            except Exception:
                await self.give_up(connection)
                raise
            failed = await self.finish(connection)
        if failed is not None and not (self.trouble_of(failed) is Trouble.AWAY and await self._asked(token)):
            raise failed
        self._crash(f"{point}.after")
        if staged:
            self.ring()
            self.tell_foreign()
        return result

    def _fresh_id(self) -> str:
        return self._ids.instance_id(self.clock.now())

    async def finish(self, connection: C) -> Exception | None:
        """Commit; why that failed, if it did."""
        try:
            await self.end(connection)
        except Exception as error:
            if self.trouble_of(error) is not Trouble.AWAY:
                await self.give_up(connection)
            return error
        if monotonic() - self._clock_read > _CLOCK_EVERY:
            with suppress(Exception):  # it is committed, whatever becomes of the connection now
                await self.read_clock(connection)
                await self.tidy(connection)
        return None

    async def _asked(self, token: str) -> bool:
        async def ask() -> bool:
            async with self._pool.one() as connection:
                return await self.was_committed(connection, token)

        return await self.persist(ask)

    async def _look_up(self, work: Work[T], snapshot: bool) -> T:
        async with self._pool.one() as connection:
            if snapshot:
                await self.begin_reading(connection)
            result = await run(partial(work, self.cursor(connection)))
            if snapshot:
                await self.end(connection)
            return result

    async def persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it is done, while others are in the way or the server is away."""
        deadline = monotonic() + _PATIENCE
        pause = _FIRST_PAUSE
        while True:
            if self._killed:
                raise not_open(self.label)
            try:
                result = await attempt()
            except StoreError:
                raise
            except Exception as error:
                trouble = self.trouble_of(error)
                if trouble is Trouble.WRONG and isinstance(error, LookupError):
                    raise  # not the server's: a row that this code cannot read
                if trouble in (Trouble.DATA, Trouble.WRONG) or monotonic() > deadline:
                    raise self.translate(error) from error
                if trouble is Trouble.AWAY:
                    await self._lose(error)
            else:
                self._away = False
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _lose(self, error: Exception) -> None:
        await self._pool.drop_idle()
        if not self._away:
            self._away = True
            _log.warning("%s Trying again for %.0f s.", self.translate(error), _PATIENCE)

    def _crash(self, point: str) -> None:
        if self._hook is None:
            return
        try:
            self._hook(point)
        except BaseException:
            self._killed = True
            raise

    # --- what others leave

    @property
    def stages(self) -> bool:
        """What is said in transactions of others waits: nobody must hold the turn for long."""
        return True

    async def drain(self) -> None:
        """Say what was staged, if there is anything."""
        if await self.read(_anything_staged):
            await self.persist(partial(self.transact, _nothing))

    # --- time and others

    async def read_clock(self, connection: C) -> None:
        """Time is the database's: leases and timers of all workers are measured with one clock."""
        self._clock_read = monotonic()
        if not isinstance(self.clock, SystemClock):
            return  # a test owns the time
        before = self.clock.now()
        theirs = await self.server_time(connection)
        after = self.clock.now()
        ahead = theirs - (before + after) // 2
        if abs(ahead) > after - before:  # less may be the way there and back
            self.clock.offset += ahead
        if abs(ahead) > _NOTABLE_SKEW:
            _log.warning("this machine's clock is %.3f s off that of %s, which counts", -ahead / MICROS, self.label)

    async def vitals(self) -> Vitals:
        """How the server is, and how far away."""
        return await self.persist(self._examine)

    async def _examine(self) -> Vitals:
        async with self._pool.one() as connection:
            name, notes = await self.product(connection)
            own, begun = SystemClock().now(), monotonic()
            theirs = await self.server_time(connection)
            latency = round((monotonic() - begun) * MICROS)
            return Vitals(name, latency, theirs - own - latency // 2, notes)

    def tell_foreign(self) -> None:
        """Somebody else has written."""
        if self.foreign is not None:
            self.foreign()


def _anything_staged(cursor: Cursor) -> bool:
    return bool(cursor.only("anything_staged")[0])


def _nothing(cursor: Cursor) -> None:
    """All there is to do is what comes first."""


def not_open(label: str) -> StoreError:
    """What a store says that is closed, not opened yet, or was killed by a crash point."""
    return StoreError(f"The store of the database {label} is not open. Open it first, and do not use it after its close.")


def _nowhere(_instance_id: str) -> bool:
    return False


_WRITTEN = (Applied, Accepted)


def _is_for_others(write: Write, answer: Applied | Accepted) -> bool:
    """Another process may have to look: for new work, for what it holds in its hands, or for a result it waits for."""
    if answer.started:
        return True
    if isinstance(write, Transition):
        return write.ending is not None
    return isinstance(write, Request | Post) or (isinstance(write, Create) and write.owner is None)
