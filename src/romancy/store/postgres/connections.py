"""A bounded number of connections, opened when they are needed and thrown away when they break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from asyncpg import Connection

_CONNECT = 10.0
"""Seconds a connection may take to be made."""
_GOODBYE = 2.0
_STATEMENTS = 200
"""Statements that a connection keeps prepared."""


class Connections:
    """Connections to one database."""

    def __init__(self, dsn: str, size: int) -> None:
        self.dsn = dsn
        self.label = label(dsn)
        self.pooled = False
        """Something stands in between that hands out server connections by the transaction."""
        self.size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[Connection[Any]] = []
        self._closed = False

    async def connect(self, dsn: str | None = None) -> Connection[Any]:
        """A new connection, which is the caller's."""
        return await asyncpg.connect(
            dsn or self.dsn,
            timeout=_CONNECT,
            server_settings={"application_name": "romancy"},
            statement_cache_size=0 if self.pooled else _STATEMENTS,
        )

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection[Any]]:
        """A connection for a while. One that is left in the middle of something is thrown away."""
        async with self._room:
            connection = self._take() or await self.connect()
            try:
                yield connection
            except BaseException:
                await goodbye(connection)
                raise
            if connection.is_closed() or connection.is_in_transaction() or self._closed:
                await goodbye(connection)
            else:
                self._idle.append(connection)

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


async def goodbye(connection: Connection[Any]) -> None:
    """Close a connection, whatever state it is in, without waiting for long."""
    if connection.is_closed():
        return
    if connection.is_in_transaction():
        connection.terminate()
        return
    with suppress(Exception):
        await connection.close(timeout=_GOODBYE)


def label(dsn: str) -> str:
    """An address without what must not be shown."""
    parts = urlsplit(dsn)
    place = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{place}{parts.path}"
