"""A worker's heartbeat."""

from __future__ import annotations

from romancy.errors import StoreError
from romancy.store.mysql.connections import Connections, Link
from romancy.store.mysql.failures import translate
from romancy.store.mysql.statements import one
from romancy.store.sql.pulse import ServerPulse


class MySqlPulse(ServerPulse):
    """Beats on a connection of asyncmy."""

    def __init__(self, connections: Connections, worker: str) -> None:
        super().__init__(worker)
        self._connections = connections
        self._link: Link | None = None

    async def _beat(self, now: int) -> bool:
        if self._link is None or not self._link.usable:
            await self._let_go()
            self._link = await self._connections.connect()
        text = one("beat").text((now, self._worker))
        assert text is not None
        return (await self._link.ask(text)).changed == 1

    async def _let_go(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _translate(self, error: Exception) -> StoreError:
        return translate(error, self._connections.label)
