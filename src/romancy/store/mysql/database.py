"""One MySQL or MariaDB database.

Transactions are READ COMMITTED: each statement sees what was committed before it. The first packet of a transaction is sent
with its first question, what is written at last goes with the COMMIT. Deadlocks are not expected (who holds something waits
for others only in turn) but may come from two who insert the same, and are tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from asyncmy.connection import Connection as DriverConnection

from romancy.clock import MICROS, Clock
from romancy.errors import ConfigurationError, StoreError
from romancy.model.transition import Answer, Write
from romancy.store.migrator import Migration, read_migrations
from romancy.store.mysql import failures
from romancy.store.mysql.connections import SESSION_OF_OTHERS, Connections, Link, parse, require_session
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.plain import plain_cursor_on
from romancy.store.mysql.pulse import MySqlPulse
from romancy.store.mysql.quick import plainest
from romancy.store.mysql.schema import MIGRATIONS, applied, prepare
from romancy.store.mysql.statements import one
from romancy.store.mysql.watch import Watch
from romancy.store.port import Pulse
from romancy.store.sql.bridge import run
from romancy.store.sql.cursor import Cursor, Values
from romancy.store.sql.database import Work
from romancy.store.sql.plain import is_plain
from romancy.store.sql.server import OPENING, Crash, ServerDatabase, Trouble

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

_BEGIN = b"START TRANSACTION"
_SNAPSHOT = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY"
_REMEMBERED = 3600 * MICROS
"""How long a transaction is remembered: nobody asks about one any later."""
_TIDIED = 1000
"""Rows that `forget_marks` deletes at a time."""


class MySqlDatabase(ServerDatabase[Link]):
    """Runs transactions; translates the driver's errors."""

    def __init__(self, dsn: str, *, clock: Clock, pool_size: int = 8, crash: Crash | None = None) -> None:
        self._connections = Connections(parse(dsn), pool_size)
        super().__init__(self._connections, clock=clock, crash=crash)
        self._watch: Watch | None = None

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect, prepare the schema, begin to look for what others write."""
        if self._watch is not None:
            return
        try:
            await self.persist(partial(self._prepare, auto_migrate, now), OPENING)
        except BaseException:
            await self._connections.drop_idle()  # who cannot open a store does not close it either
            raise
        self._watch = Watch(self._connections, self.tell_foreign, self._tidy)
        self._watch.start()

    async def _prepare(self, auto_migrate: bool, now: int) -> None:
        async with self._connections.one() as link:
            await prepare(link, self.label, auto_migrate=auto_migrate, now=now)
            await self.read_clock(link)
        await self.look_at_server()

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.stop()
            await self._connections.close()

    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same database."""
        from romancy.store.mysql.engine import server_engine

        return server_engine(self._connections)

    def cursor_on(self, connection: Connection) -> Cursor:
        """The deciding code's statements in a transaction of such an engine."""
        from romancy.store.mysql.engine import cursor_on

        return cursor_on(connection, self._connections, self.coder)

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name for it."""
        return "mysql"

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Do work on a connection of the driver."""
        if is_plain(connection, "MySQLdb", "pymysql"):
            return work(plain_cursor_on(connection, self.coder))
        if not isinstance(connection, DriverConnection):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "asyncmy, mysqlclient or PyMySQL."
            )
        link = Link(connection, self._connections.packet, decode=True)
        require_session((await link.ask(SESSION_OF_OTHERS)).rows[0])
        return await run(partial(work, MySqlCursor(link, coder=self.coder)))

    def pulse(self, worker: str) -> Pulse:
        """A worker's heartbeat."""
        return MySqlPulse(self._connections, worker)

    def ring(self) -> None:
        """Others have something to look at."""
        if self._watch is not None:
            self._watch.ring()

    async def _tidy(self) -> None:
        """Forget transactions that nobody asks about any more."""
        token = self._ids.instance_id(self.clock.now() - _REMEMBERED)
        async with self._connections.one() as link:
            while (await link.ask(_text("forget_marks", (token,)))).changed == _TIDIED:
                pass

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

    def refusal(self, error: BaseException) -> str:
        """Why the database refuses data."""
        return failures.refusal(error)

    def cursor(self, connection: Link) -> Cursor:
        """What runs statements on a connection."""
        return MySqlCursor(connection, coder=self.coder)

    async def begin(self, connection: Link, token: str, *, in_turn: bool) -> bool | None:
        """Begin a transaction that leaves its token behind; in turn if that is wanted. Whether something is staged."""
        connection.later(_BEGIN)
        connection.later(_text("mark_commit", (token,)))
        if not in_turn:
            return False
        found = (await connection.ask(_text("take_turn"))).rows
        return bool(found[0][0]) if found else None

    async def begin_reading(self, connection: Link) -> None:
        """Begin a transaction that sees one snapshot and changes nothing: from its first question on."""
        connection.later(_SNAPSHOT)

    async def anything_staged(self, connection: Link) -> bool:
        """Whether something was staged by transactions that have committed."""
        return bool((await connection.ask(_text("anything_staged"))).rows[0][0])

    async def end(self, connection: Link) -> None:
        """Commit."""
        await connection.ask(b"COMMIT")

    async def give_up(self, connection: Link) -> None:
        """Roll back."""
        connection.forget()
        if connection.in_transaction:
            await connection.ask(b"ROLLBACK")

    async def was_committed(self, connection: Link, token: str) -> bool:
        """Whether a transaction was committed. One that was not, cannot be any more."""
        found = await connection.ask(_text("marked", (token,)))
        return bool(found.rows[0][0])

    async def server_time(self, connection: Link) -> int:
        """The server's clock in microseconds."""
        return int((await connection.ask(_text("clock"))).rows[0][0])

    async def product(self, connection: Link) -> tuple[str, dict[str, str]]:
        """MySQL or MariaDB."""
        return ("MariaDB" if "mariadb" in connection.server.lower() else "MySQL") + f" {connection.server}", {}

    def short_ways(self, batch: Sequence[Write]) -> Iterator[Callable[[], Awaitable[dict[int, Answer]]]]:
        """A transaction with few statements."""
        if (work := plainest(batch)) is not None:
            yield partial(self.transact, work, in_turn=False)

    async def applied(self, connection: Link) -> tuple[Sequence[Migration], list[tuple[int, str]]]:
        """The migrations there are, and those that the database has."""
        return read_migrations(MIGRATIONS), await applied(connection)


def _text(name: str, values: Values = ()) -> bytes:
    text = one(name).text(values)
    assert text is not None
    return text
