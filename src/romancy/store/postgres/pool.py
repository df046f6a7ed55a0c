"""A bounded number of connections, opened when they are needed and thrown away when they break."""

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
"""Seconds a connection may take to be made; with each of several servers: one that is gone must not use up all the time."""
_FIND_WRITERS_TIMEOUT = 1.0
"""Seconds that the other servers of an address have to say whether they take writes, when one has been found that does."""
_CLOSE_TIMEOUT = 2.0
# Every statement has an index. A plan is made once: what was planned while the tables were empty is kept for long, and to
# plan the large ones anew takes longer than to run them.
_PLANNER_SETTINGS = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off"
# Whoever stands still in the middle (a frozen machine, a blocked event loop) would hold its locks for as long. Between the
# parts of a statement a session does not count as idle; there only PostgreSQL 17 and later can put it out.
_TIMEOUT_SETTINGS = ("idle_in_transaction_session_timeout = '10s'", "transaction_timeout = '60s'")
# Which server it is: one that was started anew, or has taken over, is another one, and is looked at again.
_SERVER_IDENTITY = "SELECT 'port ' || current_setting('port') || ', started ' || pg_postmaster_start_time()::text"
# What is acknowledged is on the server's disk, whatever was set for the role; more than that stays as it was set. A
# connection that is kept may have nothing to do for long.
_SESSION_SETUP = f"""
{_SERVER_IDENTITY}, set_config('idle_session_timeout', '0', false), set_config('synchronous_commit', CASE
    WHEN current_setting('synchronous_commit') LIKE 'remote%' THEN current_setting('synchronous_commit')
    ELSE 'on' END, false)
"""
_STATEMENT_CACHE_SIZE = 200
"""Statements that a connection keeps prepared."""


class PostgresPool:
    """Connections to one database."""

    def __init__(self, dsn: str, size: int) -> None:
        self.dsn = check_dsn(dsn)
        self.label = redact_dsn(self.dsn)
        self.pooled: bool | None = None
        """Something stands in between that hands out server connections by the transaction; None: not known yet."""
        self.size = size
        self._capacity = asyncio.Semaphore(size)
        self._idle: list[Connection[Any]] = []
        self._guard: ConnectionWatchdog[Connection[Any]] = ConnectionWatchdog(_terminate)
        self._closed = False
        self.server_identity = ServerIdentity()
        self.is_commit_async = False
        """Behind a pooler: the role acknowledges what is not on the disk yet, unless a transaction says otherwise."""
        self._last_good = 0
        """Which of several servers could be reached."""

    async def connect(self) -> Connection[Any]:
        """A new connection, which is the caller's."""
        connection = await self.connect_to(self.dsn)
        try:
            self.server_identity.recognise(await self.set_up_session(connection))
        except BaseException:
            await close_quietly(connection)
            raise
        return connection

    async def set_up_session(self, connection: Connection[Any]) -> str:
        """Set what a connection needs that is kept; which server it leads to."""
        found: str = await connection.fetchval(_SESSION_SETUP if self.pooled is False else _SERVER_IDENTITY)
        return found

    async def connect_to_listen(self, dsn: str | None) -> Connection[Any]:
        """A new connection, perhaps to another address; nothing is decided by what is heard on it."""
        connection = await self.connect_to(self.dsn if dsn is None else check_dsn(dsn))
        try:
            await connection.execute("SET idle_session_timeout = 0")
        except BaseException:
            await close_quietly(connection)
            raise
        return connection

    async def connect_to(self, address: str) -> Connection[Any]:
        """A new connection to one of the servers of an address, whichever it is."""
        servers = split_hosts(address)
        if len(servers) == 1:
            return await self._connect(address, _CONNECT_TIMEOUT)
        error: Exception | None = None
        for number in range(len(servers)):
            place = (self._last_good + number) % len(servers)
            try:
                connection = await self._connect(servers[place], _CONNECT_EACH_TIMEOUT)
            except Exception as found:
                if classify(found) is not ErrorClass.UNAVAILABLE:
                    raise
                error = found
            else:
                self._last_good = place
                return connection
        assert error is not None
        raise error

    async def _connect(self, address: str, timeout: float) -> Connection[Any]:
        connection = await asyncpg.connect(
            address,
            timeout=timeout,
            server_settings={} if has_application_name(address) else {"application_name": "romancy"},
            statement_cache_size=_STATEMENT_CACHE_SIZE if self.pooled is False else 0,  # unnamed ones, until that is known
        )
        transport: asyncio.Transport = connection._transport  # type: ignore[attr-defined]
        enable_keepalive(transport)
        return connection

    def acquire(self) -> _PoolLease:
        """A connection for a while. One that is left in the middle of something is thrown away."""
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
                _terminate(connection)  # it may say nothing any more, and nobody waits for that
            else:
                await self.put_idle(connection, failed=error is not None or stale)
        finally:
            self._capacity.release()

    async def put_idle(self, connection: Connection[Any], *, failed: bool) -> None:
        """Have a connection for whoever wants one next, unless it is of no use."""
        if failed or connection.is_closed() or connection.is_in_transaction() or self._closed:
            await close_quietly(connection)
        else:
            self._idle.append(connection)

    async def open_extra(self) -> Connection[Any]:
        """A new connection as `one` gives it, beyond the number that is bounded; to be handed to `keep`."""
        connection = await self.connect()
        try:
            if self.pooled is False:  # behind a pooler it would be others' too
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
        """The servers of the address that take writes: where each was found. Those that do not answer soon are left out."""
        places = split_hosts(self.dsn)
        if len(places) < 2:
            return {}
        asking = {asyncio.ensure_future(self._identify_writer(place)): place for place in places}
        try:
            done, _ = await asyncio.wait(asking, timeout=_FIND_WRITERS_TIMEOUT)
        finally:
            for task in asking:
                task.cancel()
        return {task.result(): host_of(asking[task]) for task in done if task.exception() is None and task.result()}

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
        """What is open is not to be used again."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(close_quietly, idle))

    def cut_idle(self) -> None:
        """The server is not what it was: what is open to it is useless, and nobody says goodbye."""
        while self._idle:
            _terminate(self._idle.pop())

    async def close(self) -> None:
        """Let all connections go."""
        self._closed = True
        await self.drop_idle()


class _PoolLease:
    """A connection that somebody has for a while. (A class: one is lent for every batch, and a generator costs twice.)"""

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
    """Statements that bound a transaction's time."""
    known = _TIMEOUT_SETTINGS if connection.get_server_version().major >= 17 else _TIMEOUT_SETTINGS[:1]
    return "; ".join(f"{how} {bound}" for bound in known)


def _terminate(connection: Connection[Any]) -> None:
    """Close a connection at once; who waits for something there is told that it is gone."""
    if not connection.is_closed():
        connection.terminate()


async def close_quietly(connection: Connection[Any]) -> None:
    """Close a connection, whatever state it is in, without waiting for long."""
    if connection.is_closed():
        return
    if connection.is_in_transaction():
        connection.terminate()
        return
    with suppress(Exception):
        await connection.close(timeout=_CLOSE_TIMEOUT)
