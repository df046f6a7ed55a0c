"""One PostgreSQL database. Its fast path is one statement that commits by itself; it notifies with LISTEN and NOTIFY."""

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
from romancy.model.transition import AcceptEvents, Write, WriteResult
from romancy.store.migrator import Migration, read_migrations
from romancy.store.port import HeartbeatConnection
from romancy.store.postgres import errors
from romancy.store.postgres.cursor import PostgresCursor
from romancy.store.postgres.fast_path import WITH_RECORDS, AwaitedEvents, FastStatement, PlainEvents, PostgresFastPath
from romancy.store.postgres.heartbeat import PostgresHeartbeat
from romancy.store.postgres.notifier import PostgresNotifier
from romancy.store.postgres.pool import PostgresPool, redact_dsn, timeout_settings
from romancy.store.postgres.schema import MIGRATIONS, prepare, read_applied
from romancy.store.postgres.statements import get_statement
from romancy.store.sql.cursor import Cursor, Values
from romancy.store.sql.dbapi import DbapiConnection, is_dbapi_connection
from romancy.store.sql.greenlet_bridge import run
from romancy.store.sql.server import MIGRATION_TIMEOUT, Crash, ErrorClass, IsResumedHere, ServerDatabase
from romancy.store.sql.sqlalchemy import AlchemyCursor
from romancy.store.sql.transaction_runner import Work

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection
    from sqlalchemy.ext.asyncio import AsyncEngine

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
DriverConnection: TypeAlias = "Connection[Any]"

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_COMMIT_TOKEN_RETENTION = 3600 * MICROS
"""How long the tokens of committed transactions are retained."""


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
        is_resumed_here: IsResumedHere | None = None,
    ) -> None:
        self._connections = PostgresPool(dsn, pool_size)
        super().__init__(self._connections, clock=clock, crash=crash, is_resumed_here=is_resumed_here)
        self._listen_notify = listen_notify
        self._listen_dsn = listen_dsn
        self._notifier: PostgresNotifier | None = None
        self._with_known_types: WeakSet[object] = WeakSet()
        """Connections whose driver knows the record types of the fast path."""

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect, prepare the schema, and probe whether notifications get through."""
        if self._notifier is not None:
            return
        try:
            await self.retry_until_done(partial(self._prepare, auto_migrate, now), MIGRATION_TIMEOUT)
        except BaseException:
            await self._connections.drop_idle()  # the caller does not close a store that it could not open
            raise
        notifier = PostgresNotifier(self._connections, self._listen_dsn, self.announce_remote_commit)
        listen = self._listen_notify is not False and (not self._connections.pooled or self._listen_dsn is not None)
        notifier.start(listen=listen)
        self._notifier = notifier
        if listen and await notifier.probe():
            return
        if notifier.listen_error is None:
            notifier.stop_listening()  # notifications do not get through, and never will
        if self._listen_notify is not False:
            await self._warn_not_listening(notifier.listen_error)

    async def _prepare(self, auto_migrate: bool, now: int) -> None:
        async with self._connections.acquire() as connection:
            # A pooler reports a process id of its own instead of the server process's.
            self._connections.pooled = connection.get_server_pid() != await connection.fetchval("SELECT pg_backend_pid()")
            await prepare(connection, self.label, auto_migrate=auto_migrate, now=now)
            await self.read_clock(connection)
            if self._connections.pooled:
                self._connections.is_commit_async = await connection.fetchval("SHOW synchronous_commit") in ("off", "local")
        await self._connections.drop_idle()  # it was set up before it was known whether there is a pooler
        await self.identify_server()

    async def _warn_not_listening(self, error: str | None) -> None:
        if error is not None:
            reason = (
                f"There is no connection for LISTEN to {redact_dsn(self._listen_dsn or self._connections.dsn)} ({error})"
            )
        else:
            reason = (
                f"LISTEN does not work on {self.label}: a pooler assigns a connection for each transaction. Give the "
                "address of the server itself as listen_dsn=..."
            )
        if self._listen_notify:
            await self.close()
            raise ConfigurationError(f"{reason}, or leave listen_notify out.")
        _log.warning("%s. Until then, the work of other processes is found by polling, every poll_interval.", reason)

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            await notifier.stop()
            await self._connections.close()

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        return PostgresHeartbeat(self._connections, worker)

    def notify(self) -> None:
        """Notify other processes of a commit."""
        if self._notifier is not None:
            self._notifier.notify()

    def notify_later(self) -> None:
        """Notify other processes after a short time, in which this process may do the work itself."""
        if self._notifier is not None:
            self._notifier.notify_later()

    # --- users' transactions

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the dialect."""
        return "postgresql"

    def engine(self) -> AsyncEngine:
        """Return a SQLAlchemy engine on the same database."""
        from romancy.store.postgres.engine import server_engine

        return server_engine(self._connections)

    def cursor_on(self, connection: AlchemyConnection) -> AlchemyCursor:
        """Return a cursor that runs statements in a transaction of a SQLAlchemy connection."""
        numbered = connection.dialect.paramstyle.startswith("numeric")  # asyncpg; psycopg and others write %s
        return AlchemyCursor(connection, _bind if numbered else _format, self.codec, returning=True)

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Run `work` on a user's connection of the driver."""
        if is_dbapi_connection(connection, "psycopg", "psycopg2"):
            return work(AlchemyCursor(DbapiConnection(connection), _format, self.codec, returning=True))
        if not isinstance(connection, Connection | PoolConnectionProxy):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "asyncpg or psycopg (not its AsyncConnection)."
            )
        return await run(partial(work, PostgresCursor(cast(DriverConnection, connection), self.codec)))

    # --- the fast path

    def fast_paths(self, batch: Sequence[Write]) -> Iterator[Callable[[], Awaitable[dict[int, WriteResult]]]]:
        """Yield the statements of the fast path: for instances, for events, and for instances woken by one. Each commits."""
        fast_path = PostgresFastPath(batch)
        for statement in fast_path.statements():
            yield partial(self._apply_fast, fast_path, statement)
        if AcceptEvents in map(type, batch) and (events := PlainEvents(batch)):
            yield partial(self._accept_events, events)
        if awaited := AwaitedEvents(batch):
            yield partial(self._apply_awaited, awaited)

    async def _apply_fast(self, fast_path: PostgresFastPath, fast: FastStatement) -> dict[int, WriteResult]:
        written = await self._apply_plain(fast.statement, fast.values, "fast_path_done", fast.check_values)
        return fast_path.results([row[0] for row in written])

    async def _accept_events(self, events: PlainEvents) -> dict[int, WriteResult]:
        values = events.values(self.codec)
        return events.accepted_results(await self._apply_plain("fast_accept", values, "fast_accept_done", lambda: values))

    async def _apply_awaited(self, awaited: AwaitedEvents) -> dict[int, WriteResult]:
        values = awaited.values()
        return awaited.results(await self._apply_plain("fast_awaited", values, "fast_awaited_done", lambda: values))

    async def _apply_plain(self, name: str, values: Values, done: str, done_values: Callable[[], Values]) -> list[Any]:
        """Run a statement that is a transaction by itself; if its reply is lost, query the outcome with statement `done`."""
        # The crash points of tests lie within a transaction. So does the setting against a role that acknowledges too early.
        if self._crash_hook is not None or self._connections.is_commit_async:
            return await self.transact(lambda cursor: cursor.rows(name, values), serialized=False)
        pids: list[int] = []
        try:
            return await self._run_statement(name, values, pids)
        except Exception as error:
            if self.classify(error) is not ErrorClass.UNAVAILABLE:
                raise
            if pids:
                await self._terminate_lost(pids[0])
            return await self.ask_outcome(partial(self._run_statement, done, done_values()))

    async def _terminate_lost(self, pid: int) -> None:
        """End the server process of a lost connection: afterwards its statement has been executed, or never will be."""
        if not self._connections.pooled:  # a pooler ends it itself
            await self.ask_outcome(partial(self._run_statement, "terminate_lost", [pid]))

    async def _run_statement(self, name: str, values: Values, pids: list[int] | None = None) -> list[Any]:
        """Run a statement; append the id of the server process that gets it to `pids`."""
        statement = get_statement(name)
        async with self._connections.acquire() as connection:
            if pids is not None:
                pids.append(connection.get_server_pid())
            if self._connections.pooled and name in WITH_RECORDS and connection not in self._with_known_types:
                # The driver queries the record types and changes a setting meanwhile: the transaction keeps that from other
                # clients' sessions.
                await connection.execute("BEGIN")
                await connection.prepare(statement.text)
                await connection.execute("ROLLBACK")
                self._with_known_types.add(connection)
            found: list[Any] = await connection.fetch(statement.text, *statement.bind(values))
            return found

    # --- the driver and the server

    def classify(self, error: BaseException) -> ErrorClass:
        """Return the class of an error."""
        return errors.classify(error)

    def is_driver_error(self, error: BaseException) -> bool:
        """Whether the driver raised the error, for itself or for the server."""
        return isinstance(error, errors.DRIVER_ERRORS)

    def may_only_read(self, error: BaseException) -> bool:
        """Whether the error means that the user has no right to write."""
        return errors.may_only_read(error)

    def translate(self, error: BaseException) -> StoreError:
        """Return the `StoreError` for an error of the driver, with the error as its cause."""
        return errors.translate(error, self.label)

    def cursor(self, connection: DriverConnection) -> Cursor:
        """Return a cursor on a connection."""
        return PostgresCursor(connection, self.codec)

    async def begin(self, connection: DriverConnection, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction that saves its token, and takes the messaging lock if `serialized`.

        Returns whether effects are staged (only read if `serialized`); None if the row of the lock is missing.
        """
        # Behind a pooler other clients use the session too, so the settings are made for the transaction only.
        begin = f"{_BEGIN}; {timeout_settings(connection, 'SET LOCAL')}" if self._connections.pooled else _BEGIN
        if self._connections.is_commit_async:
            begin += "; SET LOCAL synchronous_commit = on"
        await connection.execute(begin)
        staged: bool | None = await connection.fetchval(
            get_statement("begin_serialized" if serialized else "add_commit_token").text, token, self.clock.now()
        )
        return staged if serialized else False

    async def begin_reading(self, connection: DriverConnection) -> None:
        """Begin a read-only transaction on one snapshot."""
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def commit_transaction(self, connection: DriverConnection) -> None:
        """Commit the transaction."""
        await connection.execute("COMMIT")

    async def rollback(self, connection: DriverConnection) -> None:
        """Roll the transaction back."""
        await connection.execute("ROLLBACK")

    async def was_committed(self, connection: DriverConnection, token: str) -> bool:
        """Try to insert the token again, which waits for a COMMIT that is still under way; then roll back."""
        await connection.execute("BEGIN")
        free = await connection.fetchval(get_statement("check_commit_token").text, token, 0)
        await connection.execute("ROLLBACK")
        return free is None

    async def applied_migrations(self, connection: DriverConnection) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """Return the known migrations, and those that are applied to the database."""
        return read_migrations(MIGRATIONS), await read_applied(connection)

    async def server_time(self, connection: DriverConnection) -> int:
        """Return the server's time in microseconds."""
        return int(await connection.fetchval(get_statement("clock").text))

    async def product(self, connection: DriverConnection) -> tuple[str, dict[str, str]]:
        """Return the server's version, whether there is a pooler, and whether notifications are received."""
        version = await connection.fetchval("SHOW server_version")
        notes = {"pooler": "yes" if self._connections.pooled else "no", "listen": self._listen_state()}
        return f"PostgreSQL {version}", notes

    def _listen_state(self) -> str:
        if self._listen_notify is False:
            return "off"
        return "on" if self._notifier is not None and self._notifier.is_listening else "failed"

    async def tidy(self, connection: DriverConnection) -> None:
        """Delete tokens of transactions that are too old to be queried."""
        await connection.execute(get_statement("prune_commit_tokens").text, self.clock.now() - _COMMIT_TOKEN_RETENTION)


def _bind(name: str, values: Values) -> tuple[str, Any]:
    statement = get_statement(name)
    return statement.text, tuple(statement.bind(values))


def _format(name: str, values: Values) -> tuple[str, Any]:
    return get_statement(name).format(values)
