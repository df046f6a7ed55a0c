"""A worker's heartbeat."""

from __future__ import annotations

from romancy.errors import StoreError
from romancy.store.mysql.errors import translate
from romancy.store.mysql.pool import MySqlConnection, MySqlPool
from romancy.store.mysql.statements import get_statement
from romancy.store.sql.heartbeat import ServerHeartbeat


class MySqlHeartbeat(ServerHeartbeat):
    """Records heartbeats on a connection of asyncmy."""

    def __init__(self, connections: MySqlPool, worker: str) -> None:
        super().__init__(worker)
        self._connections = connections
        self._link: MySqlConnection | None = None

    async def _renew(self, now: int) -> bool:
        if self._link is None or not self._link.is_usable:
            await self._disconnect()
            self._link = await self._connections.connect()
        text = get_statement("record_heartbeat").text((now, self._worker))
        assert text is not None
        return (await self._link.execute(text)).changed == 1

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _translate(self, error: Exception) -> StoreError:
        return translate(error, self._connections.label)
