"""A bounded pool of connections, opened when they are needed and discarded when they break."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
from asyncpg import Connection

from romancy.store.postgres.dsn import check_dsn, has_application_name, host_of, split_hosts
from romancy.store.postgres.dsn import redact_dsn as redact_dsn
from romancy.store.postgres.errors import classify
from romancy.store.sql.call_timeout import ConnectionWatchdog, in_time
from romancy.store.sql.keepalive import enable_keepalive
from romancy.store.sql.server import ErrorClass
from romancy.store.sql.server_identity import ServerIdentity

_CONNECT_TIMEOUT, _CONNECT_EACH_TIMEOUT = 10.0, 3.0
"""Seconds for connecting: to the only server, and to each of several (one that is down must not use up all the time)."""
_FIND_WRITERS_TIMEOUT = 1.0
"""Seconds in which the other servers of an address have to reply whether they accept writes, once one of them does."""
_CLOSE_TIMEOUT = 2.0
# Every statement can use an index, and is planned once: a plan that was made while the tables were empty is used for long,
# and planning a large statement anew takes longer than running it.
_PLANNER_SETTINGS = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off"
# A client that stops in the middle of a transaction (a frozen machine, a blocked event loop) would hold its locks for as
# long. While the parts of a statement arrive, the session does not count as idle: only PostgreSQL 17 or later ends it then.
_TIMEOUT_SETTINGS = ("idle_in_transaction_session_timeout = '10s'", "transaction_timeout = '60s'")
# The identity of the server: a restarted server, or one that took over, has another, and is probed again.
_SERVER_IDENTITY = "SELECT 'port ' || current_setting('port') || ', started ' || pg_postmaster_start_time()::text"
# A commit is acknowledged once it is on the server's disk, even if the role has a weaker setting; a stronger one stays as it
# is. A pooled connection may be idle for long.
_SESSION_SETUP = f"""
{_SERVER_IDENTITY}, set_config('idle_session_timeout', '0', false), set_config('synchronous_commit', CASE
    WHEN current_setting('synchronous_commit') LIKE 'remote%' THEN current_setting('synchronous_commit')
    ELSE 'on' END, false)
"""
_STATEMENT_CACHE_SIZE = 200
"""Number of statements that a connection keeps prepared."""


class PostgresPool:
    """A pool of connections to one database."""

    def __init__(self, dsn: str, size: int) -> None:
        self.dsn = check_dsn(dsn)
        self.label = redact_dsn(self.dsn)
        self.pooled: bool | None = None
        """Whether a pooler in between assigns server connections by the transaction; None: not known yet."""
        self.size = size
        self._capacity = asyncio.Semaphore(size)
        self._idle: list[Connection[Any]] = []
        self._guard: ConnectionWatchdog[Connection[Any]] = ConnectionWatchdog(_terminate)
        self._closed = False
        self.server_identity = ServerIdentity()
        self.is_commit_async = False
        """Behind a pooler: the role acknowledges commits before they are on disk, unless a transaction sets otherwise."""
        self._last_good = 0
        """Index of the server, among several, that was last connected to."""

    async def connect(self) -> Connection[Any]:
        """Open a connection outside the pool; the caller closes it."""
        connection = await self.connect_to(self.dsn)
        try:
            self.server_identity.recognise(await self.set_up_session(connection))
        except BaseException:
            await close_quietly(connection)
            raise
        return connection

    async def set_up_session(self, connection: Connection[Any]) -> str:
        """Set up the session of a new connection; return the identity of its server."""
        found: str = await connection.fetchval(_SESSION_SETUP if self.pooled is False else _SERVER_IDENTITY)
        return found

    async def connect_to_listen(self, dsn: str | None) -> Connection[Any]:
        """Open a connection to listen on, perhaps to another address. Its server is not checked: it runs no transactions."""
        connection = await self.connect_to(self.dsn if dsn is None else check_dsn(dsn))
        try:
            await connection.execute("SET idle_session_timeout = 0")
        except BaseException:
            await close_quietly(connection)
            raise
        return connection

    async def connect_to(self, address: str) -> Connection[Any]:
        """Open a connection to one of the servers of an address, beginning with the last that could be reached."""
        servers = split_hosts(address)
        if len(servers) == 1:
            return await self._connect(address, _CONNECT_TIMEOUT)
        error: Exception | None = None
        for number in range(len(servers)):
            index = (self._last_good + number) % len(servers)
            try:
                connection = await self._connect(servers[index], _CONNECT_EACH_TIMEOUT)
            except Exception as found:
                if classify(found) is not ErrorClass.UNAVAILABLE:
                    raise
                error = found
            else:
                self._last_good = index
                return connection
        assert error is not None
        raise error

    async def _connect(self, address: str, timeout: float) -> Connection[Any]:
        connection = await asyncpg.connect(
            address,
            timeout=timeout,
            server_settings={} if has_application_name(address) else {"application_name": "romancy"},
            statement_cache_size=_STATEMENT_CACHE_SIZE if self.pooled is False else 0,  # named ones do not survive a pooler
        )
        transport: asyncio.Transport = connection._transport  # type: ignore[attr-defined]
        enable_keepalive(transport)
        return connection

    def acquire(self) -> _PoolLease:
        """Borrow a connection. One that is returned in the middle of a transaction is discarded."""
        return _PoolLease(self)

    async def _check_out(self) -> Connection[Any]:
        if self._capacity.locked():
            await in_time(self._capacity.acquire())
        else:
            await self._capacity.acquire()
        try:
            self.server_identity.require()
            if (connection := self._pop_idle()) is None:
                connection = await in_time(self.open_extra())
            self._guard.watch(connection)
            return connection
        except BaseException:
            self._capacity.release()
            raise

    async def _check_in(self, connection: Connection[Any], error: type[BaseException] | None, *, stale: bool) -> None:
        self._guard.unwatch(connection)
        try:
            if error is not None and not issubclass(error, asyncpg.PostgresError):
                _terminate(connection)  # a clean close could wait for a reply that never comes
            else:
                await self.put_idle(connection, failed=error is not None or stale)
        finally:
            self._capacity.release()

    async def put_idle(self, connection: Connection[Any], *, failed: bool) -> None:
        """Put a connection back into the pool, or close it if it is unusable."""
        if failed or connection.is_closed() or connection.is_in_transaction() or self._closed:
            await close_quietly(connection)
        else:
            self._idle.append(connection)

    async def open_extra(self) -> Connection[Any]:
        """Open a connection like those of `acquire`, beyond the bound of the pool; to be passed to `put_idle`."""
        connection = await self.connect()
        try:
            if self.pooled is False:  # behind a pooler the settings would reach other clients' sessions too
                await connection.execute(f"{_PLANNER_SETTINGS}; {timeout_settings(connection, 'SET')}")
        except BaseException:
            _terminate(connection)
            raise
        return connection

    def _pop_idle(self) -> Connection[Any] | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def writable_servers(self) -> dict[str, str]:
        """Return identity and host of the servers that accept writes. Servers that do not reply soon are left out."""
        addresses = split_hosts(self.dsn)
        if len(addresses) < 2:
            return {}
        tasks = {asyncio.ensure_future(self._identify_writer(address)): address for address in addresses}
        try:
            done, _ = await asyncio.wait(tasks, timeout=_FIND_WRITERS_TIMEOUT)
        finally:
            for task in tasks:
                task.cancel()
        return {task.result(): host_of(tasks[task]) for task in done if task.exception() is None and task.result()}

    async def _identify_writer(self, address: str) -> str:
        connection = await self._connect(address, _CONNECT_EACH_TIMEOUT)
        try:
            if await connection.fetchval("SHOW transaction_read_only") == "on":
                return ""
            server: str = await connection.fetchval(_SERVER_IDENTITY)
            return server
        finally:
            await close_quietly(connection)

    async def drop_idle(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(close_quietly, idle))

    def cut_idle(self) -> None:
        """Abort the idle connections: their server has restarted or was replaced, so a clean close would only wait."""
        while self._idle:
            _terminate(self._idle.pop())

    async def close(self) -> None:
        """Close the pool and its idle connections."""
        self._closed = True
        await self.drop_idle()


class _PoolLease:
    """A borrowed connection. (A class: every batch borrows one, and a generator costs twice as much.)"""

    __slots__ = ("_connection", "_connections", "_moves")

    def __init__(self, connections: PostgresPool) -> None:
        self._connections = connections
        self._moves = connections.server_identity.changes

    async def __aenter__(self) -> Connection[Any]:
        self._connection = await self._connections._check_out()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        stale = self._moves != self._connections.server_identity.changes
        await self._connections._check_in(self._connection, kind, stale=stale)


def timeout_settings(connection: Connection[Any], how: str) -> str:
    """Return the statements that limit the duration of a transaction."""
    settings = _TIMEOUT_SETTINGS if connection.get_server_version().major >= 17 else _TIMEOUT_SETTINGS[:1]
    return "; ".join(f"{how} {setting}" for setting in settings)


def _terminate(connection: Connection[Any]) -> None:
    """Close a connection at once; calls that wait for a reply on it fail."""
    if not connection.is_closed():
        connection.terminate()


async def close_quietly(connection: Connection[Any]) -> None:
    """Close a connection in any state, without waiting for long."""
    if connection.is_closed():
        return
    if connection.is_in_transaction():
        connection.terminate()
        return
    with suppress(Exception):
        await connection.close(timeout=_CLOSE_TIMEOUT)
