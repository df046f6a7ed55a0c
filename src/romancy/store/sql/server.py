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
from romancy.codec import PLAIN
from romancy.errors import CodecError, StoreError
from romancy.ids import RandomIds, chance
from romancy.model.operators import Vitals
from romancy.model.transition import Accepted, Answer, Applied, Create, Post, Request, Transition, Write
from romancy.store.migrator import Migration, state_of
from romancy.store.port import Unwritten
from romancy.store.sql import bounds
from romancy.store.sql.batch import concerns_others, refused, write_apart, write_deliberately
from romancy.store.sql.bridge import run
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.database import Work
from romancy.store.sql.home import Home
from romancy.store.sql.probe import Probe, of_several
from romancy.store.sql.staging import drain
from romancy.store.sql.turn import put_turn_back

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
Crash = Callable[[str], None]
Near = Callable[[str], bool]
"""Whether this process goes on by itself with an instance that is called."""

_PATIENCE = bounds.LONGEST
"""Seconds that a transaction is tried for while the server is away."""
OPENING = 3600.0
"""Seconds that a migration may take."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_IN_THE_WAY = 0.05
"""Seconds, at most, that who was in somebody's way waits before it tries again."""
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

    @property
    def home(self) -> Home:
        """Which server the connections lead to."""
        ...

    async def fresh(self) -> C_co:
        """A new connection, beyond the number that is bounded; to be handed to `keep`."""
        ...

    async def keep(self, connection: Any, *, failed: bool) -> None:
        """Have a connection for whoever wants one next, unless it is of no use."""
        ...

    async def writers(self) -> dict[str, str]:
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

    def __init__(self, pool: Pool[C], *, clock: Clock, crash: Crash | None = None, near: Near | None = None) -> None:
        self.foreign: Callable[[], None] | None = None
        self.clock = clock
        self.coder = PLAIN
        self._pool = pool
        self._near = near or _nowhere
        self._ids = RandomIds()
        self._clock_read = 0.0
        self._tidied = monotonic()
        self._ahead = 0
        """Microseconds that the machine's clock was ahead when that was said last."""
        self._hook = crash
        self._killed = False
        self._away = False
        self._looking = asyncio.Lock()

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        return self._pool.label

    # --- what a dialect says

    @abstractmethod
    def trouble_of(self, error: BaseException) -> Trouble:
        """What an error means."""

    @abstractmethod
    def is_drivers(self, error: BaseException) -> bool:
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
    async def begin(self, connection: C, token: str, *, in_turn: bool) -> bool | None:
        """Begin a transaction that leaves its token behind; in turn if that is wanted: is something staged then?

        None: there is no row to take turns with.
        """

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

    @property
    def patience(self) -> float:
        """Seconds within which a call is answered, be it by an error."""
        return bounds.LONGEST

    async def commit(self, batch: Sequence[Write]) -> list[Answer | StoreError]:
        """Write a batch, each write all or not at all; if its data is refused, each by itself.

        Its parts are transactions. What is written stays so when the database goes away before the next.
        """
        if self._is_clock_old():
            with suppress(Exception):  # what is wrong with the database shows in a moment
                await self._ask_time()
        answers: dict[int, Answer | StoreError] = {}
        token = bounds.DEADLINE.set(bounds.deadline())  # for all its parts
        try:
            await self._write_parts(batch, answers)
        except Exception as error:
            if not answers:
                raise
            if not isinstance(error, StoreError):
                _log.exception("writing a part of a batch failed in a way that was not foreseen")
            unwritten = Unwritten(error)
            answers = {index: answers.get(index, unwritten) for index in range(len(batch))}
        finally:
            bounds.DEADLINE.reset(token)
        try:
            self._tell_others(batch, answers)
        except Exception:  # it is committed, whoever hears of it
            _log.exception("others could not be told of a commit")
        return [answers[index] for index in range(len(batch))]

    async def _write_parts(self, batch: Sequence[Write], answers: dict[int, Answer | StoreError]) -> None:
        for way in self.short_ways(batch):
            answers |= await self._unless_refused(way) or {}
            if len(answers) == len(batch):
                return
        late = [index for index in range(len(batch)) if index not in answers]
        if late and not any(concerns_others(batch[index]) for index in late):
            apart = partial(self.transact, partial(write_apart, batch=[batch[index] for index in late]), in_turn=False)
            written = await self._unless_refused(apart) or {}
            answers |= {late[place]: answer for place, answer in written.items()}
            late = [index for index in late if index not in answers]
        if not late:
            return
        decided = await self._unless_refused(partial(self.decide, [batch[index] for index in late]))
        if decided is not None:
            answers |= zip(late, decided, strict=True)
            return
        for index in late:
            answers[index] = await self._write_alone(batch[index])

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
                if staged is None:
                    await run(partial(put_turn_back, self.cursor(connection)))
                    staged = await run(partial(_anything_staged, self.cursor(connection)))
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
        if monotonic() - self._tidied > _CLOCK_EVERY:
            self._tidied = monotonic()
            with suppress(Exception):  # it is committed, whatever becomes of the connection now
                await self.read_clock(connection)
                await self.tidy(connection)
        return None

    async def _asked(self, token: str) -> bool:
        async def ask() -> bool:
            async with self._pool.one() as connection:
                return await self.was_committed(connection, token)

        return await self.find_out(ask)

    async def find_out(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask what became of a write that was not answered. If that is not answered either, nobody can know."""
        try:
            return await self.persist(ask)
        except StoreError as error:
            unknown = StoreError(
                f"It is not known whether this was written: the database {self.label} did not answer, nor whether it had "
                f"written it. ({error})"
            )
            unknown.retryable = True
            raise unknown from error

    async def _look_up(self, work: Work[T], snapshot: bool) -> T:
        async with self._pool.one() as connection:
            if snapshot:
                await self.begin_reading(connection)
            result = await run(partial(work, self.cursor(connection)))
            if snapshot:
                await self.end(connection)
            return result

    async def persist(self, attempt: Callable[[], Awaitable[T]], longest: float | None = None) -> T:
        """Try until it is done, while others are in the way or the server is away; not beyond the deadline of the call."""
        token = bounds.DEADLINE.set(bounds.deadline() if longest is None else monotonic() + longest)
        try:
            return await self._persist(attempt)
        finally:
            bounds.DEADLINE.reset(token)

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline = min(monotonic() + _PATIENCE, bounds.deadline())
        pause = _FIRST_PAUSE
        while True:
            if self._killed:
                raise not_open(self.label)
            try:
                if self._pool.home.moved:
                    await self._look_again()
                result = await attempt()
            except StoreError:
                raise
            except Exception as error:
                trouble = self.trouble_of(error)
                if trouble is Trouble.WRONG and not self.is_drivers(error):
                    raise  # not the server's: a row that this code cannot read, no memory left, a fault of ours
                if trouble in (Trouble.DATA, Trouble.WRONG) or monotonic() > deadline:
                    raise self.translate(error) from error
                if trouble is Trouble.AWAY:
                    self._lose(error)
                elif trouble is Trouble.AGAIN:  # those who were in each other's way must not come back together
                    await asyncio.sleep(_IN_THE_WAY * chance(1)[0] / 255)
                    continue
            else:
                self._away = False
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _lose(self, error: Exception) -> None:
        self._pool.cut_idle()
        if not self._away:
            self._away = True
            _log.warning("%s Trying again for %.0f s.", self.translate(error), _PATIENCE)

    # --- which server it is

    async def look_at_server(self) -> None:
        """See whether the server locks as it is relied upon. Raises `StoreError` if it does not."""
        home = self._pool.home
        home.leave()
        asking = asyncio.ensure_future(self._pool.writers())
        try:
            async with self._two() as (one, other):
                server = await Probe(self, one, other, self._fresh_id).look()
            if len(found := await asking) > 1:
                raise of_several(self.label, found)
        finally:
            asking.cancel()
        home.settle(server)

    async def _look_again(self) -> None:
        async with self._looking:
            if self._pool.home.moved:
                _log.warning(
                    "Another server answers for %s than before: it is looked at before anything is written.", self.label
                )
                await self._pool.drop_idle()
                await self.look_at_server()

    @asynccontextmanager
    async def _two(self) -> AsyncIterator[tuple[C, C]]:
        """Two connections as others get them, which are theirs afterwards."""
        async with AsyncExitStack() as stack:
            opening = [asyncio.ensure_future(self._pool.fresh()) for _ in range(2)]
            try:
                await asyncio.wait(opening)
            except BaseException:
                for task in opening:
                    task.cancel()
                raise
            for task in opening:
                if task.exception() is None:
                    stack.push_async_exit(partial(self._keep, task.result()))
            one, other = [task.result() for task in opening]
            yield one, other

    async def _keep(self, connection: C, kind: type[BaseException] | None, *_: object) -> None:
        await self._pool.keep(connection, failed=True)  # what is needed later is opened then

    @abstractmethod
    def may_only_read(self, error: BaseException) -> bool:
        """The user has no right to write."""

    def is_in_the_way(self, error: BaseException) -> bool:
        """Somebody else has the lock."""
        return self.trouble_of(error) is Trouble.AGAIN

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

    async def ask_time(self) -> None:
        """Set the clock by the database's, now."""
        if isinstance(self.clock, SystemClock):
            await self.persist(self._ask_time)

    async def _ask_time(self) -> None:
        async with self._pool.one() as connection:
            await self.read_clock(connection)

    def _is_clock_old(self) -> bool:
        """Nobody has asked for the time for long. A worker's upkeep does all the time; a client has none."""
        clock = self.clock
        return isinstance(clock, SystemClock) and (monotonic() - self._clock_read > _CLOCK_EVERY or clock.astray)

    async def read_clock(self, connection: C) -> None:
        """Time is the database's: leases and timers of all workers are measured with one clock."""
        self._clock_read = monotonic()
        clock = self.clock
        if not isinstance(clock, SystemClock):
            return  # a test owns the time
        began = clock.elapsed()
        theirs = await self.server_time(connection)
        clock.follow(theirs, began, clock.elapsed())
        ahead = clock.ahead
        if abs(ahead - self._ahead) > _NOTABLE_SKEW:  # once, not each time
            self._ahead = ahead
            _log.warning("this machine's clock is %.3f s off that of %s, which counts", ahead / MICROS, self.label)

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
            try:
                self.foreign()
            except Exception:  # what is committed stays so
                _log.exception("what others wrote could not be looked at")


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
