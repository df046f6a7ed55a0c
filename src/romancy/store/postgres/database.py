"""One PostgreSQL database. Its short way is one statement, committed by itself; hints come by LISTEN and NOTIFY."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from weakref import WeakSet

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from romancy.clock import MICROS, Clock
from romancy.errors import ConfigurationError, StoreError
from romancy.model.transition import Accept, Answer, Write
from romancy.store.migrator import Migration, read_migrations
from romancy.store.port import Pulse
from romancy.store.postgres import failures
from romancy.store.postgres.bell import Bell
from romancy.store.postgres.connections import Connections, bounds, label
from romancy.store.postgres.cursor import PostgresCursor
from romancy.store.postgres.pulse import PostgresPulse
from romancy.store.postgres.quick import WITH_RECORDS, Answers, Events, Part, Quick
from romancy.store.postgres.schema import MIGRATIONS, applied, prepare
from romancy.store.postgres.statements import one
from romancy.store.sql.alchemy import AlchemyCursor
from romancy.store.sql.bridge import run
from romancy.store.sql.cursor import Cursor, Values
from romancy.store.sql.database import Work
from romancy.store.sql.plain import PlainConnection, is_plain
from romancy.store.sql.server import OPENING, Crash, Near, ServerDatabase, Trouble

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy.ext.asyncio import AsyncEngine

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
Link: TypeAlias = "Connection[Any]"

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_REMEMBERED = 3600 * MICROS
"""How long it is known which transactions were committed."""


class PostgresDatabase(ServerDatabase["Connection[Any]"]):
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
        near: Near | None = None,
    ) -> None:
        self._connections = Connections(dsn, pool_size)
        super().__init__(self._connections, clock=clock, crash=crash, near=near)
        self._listen_notify = listen_notify
        self._listen_dsn = listen_dsn
        self._bell: Bell | None = None
        self._acquainted: WeakSet[object] = WeakSet()
        """Connections that know our records."""

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect, prepare the schema, see whether hints get through."""
        if self._bell is not None:
            return
        try:
            await self.persist(partial(self._prepare, auto_migrate, now), OPENING)
        except BaseException:
            await self._connections.drop_idle()  # who cannot open a store does not close it either
            raise
        bell = Bell(self._connections, self._listen_dsn, self.tell_foreign)
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
            await self.read_clock(connection)
            if self._connections.pooled:
                self._connections.lax = await connection.fetchval("SHOW synchronous_commit") in ("off", "local")
        await self._connections.drop_idle()  # it was made without knowing
        await self.look_at_server()

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

    def pulse(self, worker: str) -> Pulse:
        """A worker's heartbeat."""
        return PostgresPulse(self._connections, worker)

    def ring(self) -> None:
        """Others have something to look at."""
        if self._bell is not None:
            self._bell.ring()

    def ring_later(self) -> None:
        """Others have something to look at, should this process not see to it itself at once."""
        if self._bell is not None:
            self._bell.ring_later()

    # --- transactions of others

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name for it."""
        return "postgresql"

    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same database."""
        from romancy.store.postgres.engine import server_engine

        return server_engine(self._connections)

    def cursor_on(self, connection: AlchemyConnection) -> AlchemyCursor:
        """The deciding code's statements in a transaction of such an engine."""
        numbered = connection.dialect.paramstyle.startswith("numeric")  # asyncpg; psycopg and others write %s
        return AlchemyCursor(connection, _bind if numbered else _format, self.coder, returning=True)

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Do work on a connection of the driver."""
        if is_plain(connection, "psycopg", "psycopg2"):
            return work(AlchemyCursor(PlainConnection(connection), _format, self.coder, returning=True))
        if not isinstance(connection, Connection | PoolConnectionProxy):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "asyncpg or psycopg (not its AsyncConnection)."
            )
        return await run(partial(work, PostgresCursor(cast(Link, connection), self.coder)))

    # --- the short way

    def short_ways(self, batch: Sequence[Write]) -> Iterator[Callable[[], Awaitable[dict[int, Answer]]]]:
        """Statements for new instances, plain steps and plain ends, for events and who comes for one; transactions each."""
        quick = Quick(batch)
        for part in quick.parts():
            yield partial(self._write_quickly, quick, part)
        if Accept in map(type, batch) and (events := Events(batch)):
            yield partial(self._accept, events)
        if coming := Answers(batch):
            yield partial(self._give_answers, coming)

    async def _write_quickly(self, quick: Quick, part: Part) -> dict[int, Answer]:
        written = await self._write_plainly(part.statement, part.values, "quick_done", part.traces)
        return quick.answers([row[0] for row in written])

    async def _accept(self, events: Events) -> dict[int, Answer]:
        values = events.values(self.coder)
        return events.accepted(await self._write_plainly("quick_accept", values, "quick_accepted", lambda: values))

    async def _give_answers(self, coming: Answers) -> dict[int, Answer]:
        values = coming.values()
        return coming.answers(await self._write_plainly("quick_answers", values, "quick_answered", lambda: values))

    async def _write_plainly(self, name: str, values: Values, done: str, done_values: Callable[[], Values]) -> list[Any]:
        """One statement that is a transaction; if its outcome is not known, it is asked for."""
        # The points where tests crash lie within a transaction. So does what the role would have acknowledged too early.
        if self._hook is not None or self._connections.lax:
            return await self.transact(lambda cursor: cursor.rows(name, values), in_turn=False)
        line: list[int] = []
        try:
            return await self._ask(name, values, line)
        except Exception as error:
            if self.trouble_of(error) is not Trouble.AWAY:
                raise
            if line:
                await self._end_lost(line[0])
            return await self.find_out(partial(self._ask, done, done_values()))

    async def _end_lost(self, line: int) -> None:
        """What a connection that was lost was told to do has been done now, or never will be."""
        if not self._connections.pooled:  # a pooler ends it itself
            await self.find_out(partial(self._ask, "end_lost", [line]))

    async def _ask(self, name: str, values: Values, line: list[int] | None = None) -> list[Any]:
        """Run a statement; `line` is told the number of the server's process that is given it."""
        statement = one(name)
        async with self._connections.one() as connection:
            if line is not None:
                line.append(connection.get_server_pid())
            if self._connections.pooled and name in WITH_RECORDS and connection not in self._acquainted:
                # The driver asks what the records are, and changes a setting meanwhile: not of another's session.
                await connection.execute("BEGIN")
                await connection.prepare(statement.text)
                await connection.execute("ROLLBACK")
                self._acquainted.add(connection)
            found: list[Any] = await connection.fetch(statement.text, *statement.arguments(values))
            return found

    # --- what the server is told, and says

    def trouble_of(self, error: BaseException) -> Trouble:
        """What an error means."""
        return failures.trouble_of(error)

    def is_drivers(self, error: BaseException) -> bool:
        """The driver raised it, or the server through it."""
        return isinstance(error, failures.OF_THE_DRIVER)

    def may_only_read(self, error: BaseException) -> bool:
        """The user has no right to write."""
        return failures.may_only_read(error)

    def translate(self, error: BaseException) -> StoreError:
        """The `StoreError` for an error of the driver, with the error as its cause."""
        return failures.translate(error, self.label)

    def cursor(self, connection: Link) -> Cursor:
        """What runs statements on a connection."""
        return PostgresCursor(connection, self.coder)

    async def begin(self, connection: Link, token: str, *, in_turn: bool) -> bool | None:
        """Begin a transaction that leaves its token behind; in turn if that is wanted: is something staged then?"""
        # Behind a pooler a session is others' too.
        bounded = f"{_BEGIN}; {bounds(connection, 'SET LOCAL')}" if self._connections.pooled else _BEGIN
        if self._connections.lax:
            bounded += "; SET LOCAL synchronous_commit = on"
        await connection.execute(bounded)
        staged: bool | None = await connection.fetchval(
            one("take_turn" if in_turn else "mark_commit").text, token, self.clock.now()
        )
        return staged if in_turn else False

    async def begin_reading(self, connection: Link) -> None:
        """Begin a transaction that sees one snapshot and changes nothing."""
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def end(self, connection: Link) -> None:
        """Commit."""
        await connection.execute("COMMIT")

    async def give_up(self, connection: Link) -> None:
        """Roll back."""
        await connection.execute("ROLLBACK")

    async def was_committed(self, connection: Link, token: str) -> bool:
        """Try to make the same mark: that waits for a COMMIT that is still under way. The try is taken back."""
        await connection.execute("BEGIN")
        free = await connection.fetchval(one("marked").text, token, 0)
        await connection.execute("ROLLBACK")
        return free is None

    async def applied(self, connection: Link) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """The migrations there are, and those that the database has."""
        return read_migrations(MIGRATIONS), await applied(connection)

    async def server_time(self, connection: Link) -> int:
        """The server's clock in microseconds."""
        return int(await connection.fetchval(one("clock").text))

    async def product(self, connection: Link) -> tuple[str, dict[str, str]]:
        """PostgreSQL, and whether hints of other processes get through."""
        version = await connection.fetchval("SHOW server_version")
        notes = {"pooler": "yes" if self._connections.pooled else "no", "listen": self._hints()}
        return f"PostgreSQL {version}", notes

    def _hints(self) -> str:
        if self._listen_notify is False:
            return "off"
        return "on" if self._bell is not None and self._bell.hears else "trouble"

    async def tidy(self, connection: Link) -> None:
        """Forget transactions that nobody asks about any more."""
        await connection.execute(one("forget_marks").text, self.clock.now() - _REMEMBERED)


def _bind(name: str, values: Values) -> tuple[str, Any]:
    statement = one(name)
    return statement.text, tuple(statement.arguments(values))


def _format(name: str, values: Values) -> tuple[str, Any]:
    return one(name).formatted(values)
