"""A worker's heartbeat."""

from __future__ import annotations

from typing import Any

from asyncpg import Connection

from romancy.errors import StoreError
from romancy.store.postgres.errors import translate
from romancy.store.postgres.pool import PostgresPool, close_quietly
from romancy.store.postgres.statements import get_statement
from romancy.store.sql.heartbeat import ServerHeartbeat


class PostgresHeartbeat(ServerHeartbeat):
    """Records heartbeats on a connection of asyncpg."""

    def __init__(self, connections: PostgresPool, worker: str) -> None:
        super().__init__(worker)
        self._connections = connections
        self._connection: Connection[Any] | None = None

    async def _renew(self, now: int) -> bool:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connections.connect()
        return await self._connection.execute(get_statement("record_heartbeat").text, now, self._worker) == "UPDATE 1"

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_quietly(connection)

    def _translate(self, error: Exception) -> StoreError:
        return translate(error, self._connections.label)
