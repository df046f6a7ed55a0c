"""One MySQL or MariaDB database.

Transactions are READ COMMITTED: each statement sees what was committed before it. The start of a transaction is sent in one
packet with its first query, and its last writes in one packet with the COMMIT. Deadlocks are not expected (only the
transaction that holds the messaging lock may wait while it holds row locks), but two transactions that insert the same key
can cause one; the transaction is then repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from asyncmy.connection import Connection as DriverConnection

from romancy.clock import MICROS, Clock
from romancy.errors import ConfigurationError, StoreError
from romancy.model.transition import Write, WriteResult
from romancy.store.migrator import Migration, read_migrations
from romancy.store.mysql import errors
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.dbapi import dbapi_cursor_on
from romancy.store.mysql.fast_path import select_fast
from romancy.store.mysql.heartbeat import MySqlHeartbeat
from romancy.store.mysql.notifier import MySqlNotifier
from romancy.store.mysql.pool import READ_USER_SESSION, MySqlConnection, MySqlPool, parse_address, require_session
from romancy.store.mysql.schema import MIGRATIONS, prepare, read_applied
from romancy.store.mysql.statements import get_statement
from romancy.store.port import HeartbeatConnection
from romancy.store.sql.cursor import Cursor, Values
from romancy.store.sql.dbapi import is_dbapi_connection
from romancy.store.sql.greenlet_bridge import run
from romancy.store.sql.server import MIGRATION_TIMEOUT, Crash, ErrorClass, ServerDatabase
from romancy.store.sql.transaction_runner import Work

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

_BEGIN = b"START TRANSACTION"
_SNAPSHOT = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY"
_COMMIT_TOKEN_RETENTION = 3600 * MICROS
"""How long the tokens of transactions are retained: no process queries one later than that."""
_PRUNE_LIMIT = 1000
"""Number of rows that `prune_commit_tokens` deletes at a time."""


class MySqlDatabase(ServerDatabase[MySqlConnection]):
    """Runs transactions; translates the driver's errors."""

    def __init__(self, dsn: str, *, clock: Clock, pool_size: int = 8, crash: Crash | None = None) -> None:
        self._connections = MySqlPool(parse_address(dsn), pool_size)
        super().__init__(self._connections, clock=clock, crash=crash)
        self._notifier: MySqlNotifier | None = None

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect, prepare the schema, and start to poll for notifications."""
        if self._notifier is not None:
            return
        try:
            await self.retry_until_done(partial(self._prepare, auto_migrate, now), MIGRATION_TIMEOUT)
        except BaseException:
            await self._connections.drop_idle()  # the caller does not close a store that it could not open
            raise
        self._notifier = MySqlNotifier(self._connections, self.announce_remote_commit, self._prune_commit_tokens)
        self._notifier.start()

    async def _prepare(self, auto_migrate: bool, now: int) -> None:
        async with self._connections.acquire() as link:
            await prepare(link, self.label, auto_migrate=auto_migrate, now=now)
            await self.read_clock(link)
        await self.identify_server()

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        notifier, self._notifier = self._notifier, None
        if notifier is not None:
            await notifier.stop()
            await self._connections.close()

    def engine(self) -> AsyncEngine:
        """Return a SQLAlchemy engine on the same database."""
        from romancy.store.mysql.engine import server_engine

        return server_engine(self._connections)

    def cursor_on(self, connection: Connection) -> Cursor:
        """Return a cursor that runs statements in a transaction of a SQLAlchemy connection."""
        from romancy.store.mysql.engine import cursor_on

        return cursor_on(connection, self._connections, self.codec)

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the dialect."""
        return "mysql"

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Run `work` on a user's connection of the driver."""
        if is_dbapi_connection(connection, "MySQLdb", "pymysql"):
            return work(dbapi_cursor_on(connection, self.codec))
        if not isinstance(connection, DriverConnection):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "asyncmy, mysqlclient or PyMySQL."
            )
        link = MySqlConnection(connection, self._connections.max_packet, decode=True)
        require_session((await link.execute(READ_USER_SESSION)).rows[0])
        return await run(partial(work, MySqlCursor(link, codec=self.codec)))

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        return MySqlHeartbeat(self._connections, worker)

    def notify(self) -> None:
        """Notify other processes of a commit."""
        if self._notifier is not None:
            self._notifier.notify()

    async def _prune_commit_tokens(self) -> None:
        """Delete tokens of transactions that are too old to be queried."""
        token = self._ids.instance_id(self.clock.now() - _COMMIT_TOKEN_RETENTION)
        async with self._connections.acquire() as link:
            while (await link.execute(_statement_text("prune_commit_tokens", (token,)))).changed == _PRUNE_LIMIT:
                pass

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

    def refusal(self, error: BaseException) -> str:
        """Return why the database refuses data."""
        return errors.refusal(error)

    def cursor(self, connection: MySqlConnection) -> Cursor:
        """Return a cursor on a connection."""
        return MySqlCursor(connection, codec=self.codec)

    async def begin(self, connection: MySqlConnection, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction that saves its token, and takes the messaging lock if `serialized`.

        Returns whether effects are staged (only read if `serialized`); None if the row of the lock is missing.
        """
        connection.defer(_BEGIN)
        connection.defer(_statement_text("add_commit_token", (token,)))
        if not serialized:
            return False
        found = (await connection.execute(_statement_text("begin_serialized"))).rows
        return bool(found[0][0]) if found else None

    async def begin_reading(self, connection: MySqlConnection) -> None:
        """Begin a read-only transaction on one snapshot, taken at its first query."""
        connection.defer(_SNAPSHOT)

    async def anything_staged(self, connection: MySqlConnection) -> bool:
        """Whether committed transactions have staged effects."""
        return bool((await connection.execute(_statement_text("anything_staged"))).rows[0][0])

    async def commit_transaction(self, connection: MySqlConnection) -> None:
        """Commit the transaction."""
        await connection.execute(b"COMMIT")

    async def rollback(self, connection: MySqlConnection) -> None:
        """Roll the transaction back."""
        connection.drop_deferred()
        if connection.in_transaction:
            await connection.execute(b"ROLLBACK")

    async def was_committed(self, connection: MySqlConnection, token: str) -> bool:
        """Whether a transaction was committed. If it was not, it cannot commit any more."""
        found = await connection.execute(_statement_text("check_commit_token", (token,)))
        return bool(found.rows[0][0])

    async def server_time(self, connection: MySqlConnection) -> int:
        """Return the server's time in microseconds."""
        return int((await connection.execute(_statement_text("clock"))).rows[0][0])

    async def product(self, connection: MySqlConnection) -> tuple[str, dict[str, str]]:
        """Return the product, MySQL or MariaDB, and its version."""
        return ("MariaDB" if "mariadb" in connection.server.lower() else "MySQL") + f" {connection.server}", {}

    def fast_paths(self, batch: Sequence[Write]) -> Iterator[Callable[[], Awaitable[dict[int, WriteResult]]]]:
        """Yield the fast path: one transaction with few statements."""
        if (work := select_fast(batch)) is not None:
            yield partial(self.transact, work, serialized=False)

    async def applied_migrations(self, connection: MySqlConnection) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """Return the known migrations, and those that are applied to the database."""
        return read_migrations(MIGRATIONS), await read_applied(connection)


def _statement_text(name: str, values: Values = ()) -> bytes:
    text = get_statement(name).text(values)
    assert text is not None
    return text
