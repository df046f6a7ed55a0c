"""One PostgreSQL database: transactions that are run until their outcome is known.

    quick     one statement, committed by itself: it waits for nobody
    apart     a transaction that locks the rows of its own instances, and waits for nobody
    in turn   a transaction that concerns several instances: one at a time in the whole database, it may wait for rows

Nobody holds something and waits for another but who has the turn: so there are no deadlocks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from romancy.clock import MICROS, Clock, SystemClock, monotonic
from romancy.errors import ConfigurationError, StoreError
from romancy.ids import RandomIds
from romancy.model.transition import Accepted, Answer, Applied, Create, Post, Request, Transition, Write
from romancy.store.port import Pulse
from romancy.store.postgres.bell import Bell
from romancy.store.postgres.connections import Connections, label
from romancy.store.postgres.cursor import PostgresCursor
from romancy.store.postgres.failures import Trouble, bad_write, not_open, translate, trouble_of
from romancy.store.postgres.pulse import PostgresPulse
from romancy.store.postgres.quick import Quick
from romancy.store.postgres.schema import prepare
from romancy.store.postgres.statements import one
from romancy.store.sql.alchemy import AlchemyCursor
from romancy.store.sql.batch import concerns_others, described, write_apart, write_deliberately
from romancy.store.sql.bridge import run
from romancy.store.sql.cursor import Values
from romancy.store.sql.database import Work
from romancy.store.sql.staging import drain

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy.ext.asyncio import AsyncEngine

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
Crash = Callable[[str], None]

_PATIENCE = 30.0
"""Seconds that a transaction is tried for while the server is away."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_CLOCK_EVERY = 60.0
"""Seconds after which the database's clock is read again."""
_MARKS = 3600 * MICROS
"""How long it is known which transactions were committed."""
_NOTABLE_SKEW = MICROS // 2


class PostgresDatabase:
    """Runs transactions; translates the driver's errors."""

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock,
        pool_size: int = 8,
        listen_notify: bool | None = None,
        listen_dsn: str | None = None,
        crash: Crash | None = None,
    ) -> None:
        self.foreign: Callable[[], None] | None = None
        self._clock = clock
        self._ids = RandomIds()
        self._clock_read = 0.0
        self._connections = Connections(dsn, pool_size)
        self._listen_notify = listen_notify
        self._listen_dsn = listen_dsn
        self._hook = crash
        self._bell: Bell | None = None
        self._killed = False
        self._away = False

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        return self._connections.label

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect, prepare the schema, see whether hints get through."""
        if self._bell is not None:
            return
        await self._persist(partial(self._prepare, auto_migrate, now))
        bell = Bell(self._connections, self._listen_dsn, self._tell_foreign)
        listen = self._listen_notify is not False and (not self._connections.pooled or self._listen_dsn is not None)
        bell.start(listen=listen)
        self._bell = bell
        if listen and await bell.probe():
            return
        if bell.trouble is None:
            bell.deafen()  # what is sent does not get through, and never will
        if self._listen_notify is not False:
            await self._do_without_hints(bell.trouble)

    async def _prepare(self, auto_migrate: bool, now: int) -> None:
        async with self._connections.one() as connection:
            # A pooler gives out a number of its own for the server's process.
            self._connections.pooled = connection.get_server_pid() != await connection.fetchval("SELECT pg_backend_pid()")
            await prepare(connection, self.label, auto_migrate=auto_migrate, now=now)
            await self._read_clock(connection)
        if self._connections.pooled:
            await self._connections.drop_idle()  # they were made to keep prepared statements

    async def _read_clock(self, connection: Connection[Any]) -> None:
        """Time is the database's: leases and timers of all workers are measured with one clock."""
        self._clock_read = monotonic()
        if not isinstance(self._clock, SystemClock):
            return  # a test owns the time
        before = self._clock.now()
        theirs: int = await connection.fetchval(one("clock").text)
        after = self._clock.now()
        ahead = theirs - (before + after) // 2
        if abs(ahead) > after - before:  # less may be the way there and back
            self._clock.offset += ahead
        if abs(ahead) > _NOTABLE_SKEW:
            _log.warning("this machine's clock is %.3f s off that of %s, which counts", -ahead / MICROS, self.label)

    async def _do_without_hints(self, trouble: str | None) -> None:
        if trouble is not None:
            why = f"There is no connection for LISTEN to {label(self._listen_dsn or self._connections.dsn)} ({trouble})"
        else:
            why = (
                f"LISTEN does not work on {self.label}: there is a pooler in between that hands out connections by the "
                "transaction. Give the address of the server itself as listen_dsn=..."
            )
        if self._listen_notify:
            await self.close()
            raise ConfigurationError(f"{why}, or leave listen_notify out.")
        _log.warning("%s. Until then other processes' work is found by looking for it every poll_interval.", why)

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        bell, self._bell = self._bell, None
        if bell is not None:
            await bell.stop()
            await self._connections.close()

    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same database."""
        from romancy.store.postgres.engine import server_engine

        return server_engine(self._connections)

    def cursor_on(self, connection: AlchemyConnection) -> AlchemyCursor:
        """The deciding code's statements in a transaction of such an engine."""
        return AlchemyCursor(connection, _bind, returning=True)

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name for it."""
        return "postgresql"

    @property
    def stages(self) -> bool:
        """What is said in transactions of others waits: nobody must hold the turn for long."""
        return True

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Do work on a connection of the driver."""
        if not isinstance(connection, Connection | PoolConnectionProxy):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "asyncpg."
            )
        return await run(partial(work, PostgresCursor(cast("Connection[Any]", connection))))

    async def drain(self) -> None:
        """Say what was staged, if there is anything."""
        if (await self._persist(partial(self._ask, "anything_staged", ())))[0][0]:
            await self._persist(partial(self._transact, _nothing))

    def pulse(self, worker: str) -> Pulse:
        """A worker's heartbeat."""
        return PostgresPulse(self._connections, worker)

    # --- writing

    async def commit(self, batch: Sequence[Write]) -> list[Answer | StoreError]:
        """Write a batch, each write all or not at all; if its data is refused, each by itself."""
        answers: dict[int, Answer | StoreError] = {}
        answers |= await self._unless_refused(partial(self._write_quickly, Quick(batch))) or {}
        late = [index for index in range(len(batch)) if index not in answers]
        if late and not any(concerns_others(batch[index]) for index in late):
            apart = partial(self._transact, partial(write_apart, batch=[batch[index] for index in late]), in_turn=False)
            written = await self._unless_refused(apart) or {}
            answers |= {late[place]: answer for place, answer in written.items()}
            late = [index for index in late if index not in answers]
        if late:
            answers |= zip(late, await self._write_in_turn([batch[index] for index in late]), strict=True)
        if any(_concerns_elsewhere(write, answers[index]) for index, write in enumerate(batch)):
            self._ring()
        return [answers[index] for index in range(len(batch))]

    async def _write_in_turn(self, batch: Sequence[Write]) -> Sequence[Answer | StoreError]:
        whole = partial(self._transact, partial(write_deliberately, batch=batch))
        written = await self._unless_refused(whole)
        return [await self._write_alone(write) for write in batch] if written is None else written

    async def _write_alone(self, write: Write) -> Answer | StoreError:
        try:
            return (await self._persist(partial(self._transact, partial(write_deliberately, batch=[write]))))[0]
        except StoreError as error:
            if not _is_refusal(error):
                raise
            return bad_write(error.__cause__, self.label, described(write))

    async def _unless_refused(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await self._persist(attempt)
        except StoreError as error:
            if not _is_refusal(error):
                raise
            return None

    async def write(self, work: Work[T], *, point: str = "commit", in_turn: bool = True) -> T:
        """One transaction."""
        result = await self._persist(partial(self._transact, work, point, in_turn=in_turn))
        self._ring()
        return result

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Reads; of one snapshot where they must fit together."""
        return await self._persist(partial(self._look_up, work, snapshot))

    # --- transactions

    async def _write_quickly(self, quick: Quick) -> dict[int, Answer]:
        name = quick.statement
        if name is None:
            return {}
        statement, given = one(name), quick.values()
        if self._hook is not None:  # the points where tests crash lie within a transaction
            written = await self._transact(lambda cursor: cursor.rows(name, given), in_turn=False)
            return quick.answers([row[0] for row in written])
        values = statement.arguments(given)
        try:
            async with self._connections.one() as connection:
                written = await connection.fetch(statement.text, *values)
        except Exception as error:
            if trouble_of(error) is not Trouble.AWAY:
                raise
            written = await self._persist(partial(self._ask, "quick_done", quick.done_values()))
        return quick.answers([row[0] for row in written])

    async def _transact(self, work: Work[T], point: str = "commit", *, in_turn: bool = True) -> T:
        """One transaction. A COMMIT that is not answered is asked about before anything is done again."""
        failed: Exception | None = None
        staged = False
        result: T | None = None
        token = self._fresh_id()
        async with self._connections.one() as connection:
            try:
                await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                start = one("take_turn" if in_turn else "mark_commit").text
                staged = await connection.fetchval(start, token, self._clock.now())
                if staged:
                    await run(partial(drain, PostgresCursor(connection), self._clock.now(), self._fresh_id))
                result = await run(partial(work, PostgresCursor(connection)))
                self._crash(f"{point}.before")
            except Exception as error:
                await connection.execute("ROLLBACK")
                failed = error
            else:
                failed = await self._finish(connection)
        if failed is not None and not (trouble_of(failed) is Trouble.AWAY and await self._was_committed(token)):
            raise failed
        self._crash(f"{point}.after")
        if staged:
            self._ring()
            self._tell_foreign()
        return cast(T, result)

    def _fresh_id(self) -> str:
        return self._ids.instance_id(self._clock.now())

    async def _finish(self, connection: Connection[Any]) -> Exception | None:
        try:
            await connection.execute("COMMIT")
        except Exception as error:
            return error
        if monotonic() - self._clock_read > _CLOCK_EVERY:
            with suppress(Exception):  # it is committed, whatever becomes of the connection now
                await self._read_clock(connection)
                await connection.execute(one("forget_marks").text, self._clock.now() - _MARKS)
        return None

    async def _was_committed(self, token: str) -> bool:
        """Try to make the same mark: that waits for a COMMIT that is still under way. The try is taken back."""

        async def ask() -> bool:
            async with self._connections.one() as connection:
                await connection.execute("BEGIN")
                free = await connection.fetchval(one("marked").text, token, 0)
                await connection.execute("ROLLBACK")
                return free is None

        return await self._persist(ask)

    async def _ask(self, name: str, values: Values) -> list[Any]:
        statement = one(name)
        async with self._connections.one() as connection:
            found: list[Any] = await connection.fetch(statement.text, *statement.arguments(values))
            return found

    async def _look_up(self, work: Work[T], snapshot: bool) -> T:
        async with self._connections.one() as connection:
            if snapshot:
                await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = await run(partial(work, PostgresCursor(connection)))
            if snapshot:
                await connection.execute("COMMIT")
            return result

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
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
                trouble = trouble_of(error)
                if trouble in (Trouble.DATA, Trouble.WRONG) or monotonic() > deadline:
                    raise translate(error, self.label) from error
                if trouble is Trouble.AWAY:
                    await self._lose(error)
            else:
                self._away = False
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _lose(self, error: Exception) -> None:
        await self._connections.drop_idle()
        if not self._away:
            self._away = True
            _log.warning("%s Trying again for %.0f s.", translate(error, self.label), _PATIENCE)

    def _crash(self, point: str) -> None:
        if self._hook is None:
            return
        try:
            self._hook(point)
        except BaseException:
            self._killed = True
            raise

    # --- others

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    def _tell_foreign(self) -> None:
        if self.foreign is not None:
            self.foreign()


def _nothing(cursor: object) -> None:
    """All there is to do is what comes first."""


def _bind(name: str, values: Values) -> tuple[str, Any]:
    statement = one(name)
    return statement.text, tuple(statement.arguments(values))


def _is_refusal(error: StoreError) -> bool:
    """The database cannot store the data."""
    return error.__cause__ is not None and trouble_of(error.__cause__) is Trouble.DATA


def _concerns_elsewhere(write: Write, answer: Answer | StoreError) -> bool:
    """Another process may have to look: for work, for what it holds in its hands, or for a result it waits for."""
    match answer:
        case Applied():
            if isinstance(write, Transition):
                return bool(answer.woken or answer.started or write.ending)
            return isinstance(write, Request | Post) or (isinstance(write, Create) and write.owner is None)
        case Accepted():
            return bool(answer.woken or answer.started)
        case _:
            return False
