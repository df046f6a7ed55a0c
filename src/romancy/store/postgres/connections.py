"""A bounded number of connections, opened when they are needed and thrown away when they break."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import asyncpg
from asyncpg import Connection

from romancy.store.postgres.addresses import each, names_itself, sound
from romancy.store.postgres.addresses import label as label
from romancy.store.postgres.failures import trouble_of
from romancy.store.sql.server import Trouble

_CONNECT, _CONNECT_EACH = 10.0, 3.0
"""Seconds a connection may take to be made; with each of several servers: one that is gone must not use up all the time."""
_SILENCE = 20
"""Seconds after which a server is given up whose machine does not acknowledge what was sent."""
_GOODBYE = 2.0
# Every statement has an index. A plan is made once: what was planned while the tables were empty is kept for long, and to
# plan the large ones anew takes longer than to run them.
_PLANNING = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off"
# Whoever stands still in the middle (a frozen machine, a blocked event loop) would hold its locks for as long. Between the
# parts of a statement a session does not count as idle; there only PostgreSQL 17 and later can put it out.
_BOUNDS = ("idle_in_transaction_session_timeout = '10s'", "transaction_timeout = '60s'")
_STATEMENTS = 200
"""Statements that a connection keeps prepared."""


class Connections:
    """Connections to one database."""

    def __init__(self, dsn: str, size: int) -> None:
        self.dsn = sound(dsn)
        self.label = label(self.dsn)
        self.pooled: bool | None = None
        """Something stands in between that hands out server connections by the transaction; None: not known yet."""
        self.size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[Connection[Any]] = []
        self._closed = False
        self._last_good = 0
        """Which of several servers could be reached."""

    async def connect(self, dsn: str | None = None) -> Connection[Any]:
        """A new connection, which is the caller's."""
        address = self.dsn if dsn is None else sound(dsn)
        servers = each(address)
        if len(servers) == 1:
            return await self._connect(address, _CONNECT)
        error: Exception | None = None
        for number in range(len(servers)):
            place = (self._last_good + number) % len(servers)
            try:
                connection = await self._connect(servers[place], _CONNECT_EACH)
            except Exception as found:
                if trouble_of(found) is not Trouble.AWAY:
                    raise
                error = found
            else:
                self._last_good = place
                return connection
        assert error is not None
        raise error

    async def _connect(self, address: str, patience: float) -> Connection[Any]:
        connection = await asyncpg.connect(
            address,
            timeout=patience,
            server_settings={} if names_itself(address) else {"application_name": "romancy"},
            statement_cache_size=_STATEMENTS if self.pooled is False else 0,  # unnamed ones, until that is known
        )
        _watch(connection)
        return connection

    def one(self) -> _Lent:
        """A connection for a while. One that is left in the middle of something is thrown away."""
        return _Lent(self)

    async def _lend(self) -> Connection[Any]:
        await self._room.acquire()
        try:
            return self._take() or await self._own()
        except BaseException:
            self._room.release()
            raise

    async def _take_back(self, connection: Connection[Any], *, failed: bool) -> None:
        try:
            if failed or connection.is_closed() or connection.is_in_transaction() or self._closed:
                await goodbye(connection)
            else:
                self._idle.append(connection)
        finally:
            self._room.release()

    async def _own(self) -> Connection[Any]:
        connection = await self.connect()
        try:
            if self.pooled is False:  # behind a pooler it would be others' too
                await connection.execute(f"{_PLANNING}; {bounds(connection, 'SET')}")
        except BaseException:
            await goodbye(connection)
            raise
        return connection

    def _take(self) -> Connection[Any] | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def drop_idle(self) -> None:
        """The server is not what it was: what is open to it is useless."""
        while self._idle:
            await goodbye(self._idle.pop())

    async def close(self) -> None:
        """Let all connections go."""
        self._closed = True
        await self.drop_idle()


class _Lent:
    """A connection that somebody has for a while. (A class: one is lent for every batch, and a generator costs twice.)"""

    __slots__ = ("_connection", "_connections")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def __aenter__(self) -> Connection[Any]:
        self._connection = await self._connections._lend()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._connections._take_back(self._connection, failed=kind is not None)


def bounds(connection: Connection[Any], how: str) -> str:
    """Statements that bound a transaction's time."""
    known = _BOUNDS if connection.get_server_version().major >= 17 else _BOUNDS[:1]
    return "; ".join(f"{how} {bound}" for bound in known)


async def goodbye(connection: Connection[Any]) -> None:
    """Close a connection, whatever state it is in, without waiting for long."""
    if connection.is_closed():
        return
    if connection.is_in_transaction():
        connection.terminate()
        return
    with suppress(Exception):
        await connection.close(timeout=_GOODBYE)


def _watch(connection: Connection[Any]) -> None:
    """Notice a machine that is gone without a word; by itself the system would wait for a quarter of an hour."""
    transport: asyncio.Transport = connection._transport  # type: ignore[attr-defined]
    line: socket.socket | None = transport.get_extra_info("socket")
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _WATCHING.items():
        if hasattr(socket, name):  # not every system has all of them
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_WATCHING = {
    "TCP_KEEPIDLE": _SILENCE // 2,
    "TCP_KEEPINTVL": _SILENCE // 4,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 1000 * _SILENCE,
}
