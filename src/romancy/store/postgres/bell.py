"""Telling other processes that there is something to look at, and hearing it from them: LISTEN and NOTIFY, as hints.

A hint may be lost or come twice; who gets none looks all the same, only later. It is sent after the commit, never in it (a
NOTIFY in a transaction makes every commit of the cluster wait in line), and many at once become one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asyncpg import Connection

from romancy.ids import RandomIds
from romancy.store.postgres.connections import Connections, goodbye

_log = logging.getLogger("romancy.store")
_CHANNEL = "romancy"
# A hint need not survive a crash of the server: its commit waits for no disk, and nobody waits for it there.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
_BETWEEN = 0.005
"""Seconds between two hints, at least."""
_LATER = 0.02
"""Seconds that this process has for what it can see to itself, before others are told."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_PROBE = 3.0


class Bell:
    """Rings for others, and hears them."""

    def __init__(self, connections: Connections, listen_dsn: str | None, heard: Callable[[], None]) -> None:
        self._connections = connections
        self._listen_dsn = listen_dsn
        self._heard = heard
        self._token = RandomIds().incarnation()
        self._wanted = asyncio.Event()
        self._late: asyncio.TimerHandle | None = None
        self._own = asyncio.Event()
        self._listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.trouble: str | None = None
        """Why there is no connection to listen on, if there is none."""

    def start(self, *, listen: bool) -> None:
        """Begin to ring, and to listen if that is wanted."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._ring_on(), name="romancy-bell"))
        if listen:
            self._tasks.append(loop.create_task(self._listen_on(), name="romancy-listener"))

    async def stop(self) -> None:
        """Be silent, and deaf."""
        if self._late is not None:
            self._late.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    @property
    def hears(self) -> bool:
        """It listens now."""
        return self._listening.is_set()

    def ring(self) -> None:
        """Others have something to look at."""
        self._wanted.set()

    def ring_later(self) -> None:
        """Others may have something to look at in a moment."""
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(_LATER, self._ring_late)

    def _ring_late(self) -> None:
        self._late = None
        self.ring()

    async def probe(self) -> bool:
        """Whether what is rung is heard. Behind a pooler that hands out connections by the transaction it is not."""
        try:
            async with asyncio.timeout(_PROBE):
                await self._listening.wait()
                self._own.clear()
                self.ring()
                await self._own.wait()
        except TimeoutError:
            return False
        return True

    def deafen(self) -> None:
        """Do not listen any more."""
        for task in self._tasks[1:]:
            task.cancel()

    async def _ring_on(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                async with self._connections.one() as connection:
                    await connection.execute(_NOTIFY, _CHANNEL, self._token)
            except Exception as error:  # a hint that is lost: others look by themselves
                _log.debug("could not ring: %s", error)
            await asyncio.sleep(_BETWEEN)

    async def _listen_on(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                connection = await self._connections.connect(self._listen_dsn)
                pause, self.trouble = _FIRST_PAUSE, None
                await self._listen(connection)
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {error}"
                _log.warning("cannot listen to %s, will try again: %s", self._connections.label, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _listen(self, connection: Connection[Any]) -> None:
        broken = asyncio.Event()
        connection.add_termination_listener(lambda _: broken.set())
        try:
            await connection.add_listener(_CHANNEL, self._on_notice)
            self._listening.set()
            self._heard()  # there may have been something before
            await broken.wait()
        finally:
            self._listening.clear()
            with suppress(Exception):
                await goodbye(connection)

    def _on_notice(self, connection: object, pid: int, channel: str, payload: object) -> None:
        if payload == self._token:
            self._own.set()
        else:
            self._heard()
