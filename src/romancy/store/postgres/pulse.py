"""A worker's heartbeat."""

from __future__ import annotations

from typing import Any

from asyncpg import Connection

from romancy.errors import StoreError
from romancy.store.postgres.connections import Connections, goodbye
from romancy.store.postgres.failures import translate
from romancy.store.postgres.statements import one
from romancy.store.sql.pulse import ServerPulse


class PostgresPulse(ServerPulse):
    """Beats on a connection of asyncpg."""

    def __init__(self, connections: Connections, worker: str) -> None:
        super().__init__(worker)
        self._connections = connections
        self._connection: Connection[Any] | None = None

    async def _beat(self, now: int) -> bool:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connections.connect()
        return await self._connection.execute(one("beat").text, now, self._worker) == "UPDATE 1"

    async def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await goodbye(connection)

    def _translate(self, error: Exception) -> StoreError:
        return translate(error, self._connections.label)
