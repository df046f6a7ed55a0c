"""Telling other processes that there is something to look at, and hearing it from them: LISTEN and NOTIFY, as hints.

A hint may be lost or come twice; who gets none looks all the same, only later. It is sent after the commit, never in it (a
NOTIFY in a transaction makes every commit of the cluster wait in line), and many at once become one.

Hints cost both ends, so who is alone sends few. Who listens says now and then that it is there, and answers who is new: in
the company of others nobody waits long for a hint. Who cannot listen cannot know, and takes it that there are others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asyncpg import Connection

from romancy.clock import monotonic
from romancy.ids import RandomIds
from romancy.store.postgres.connections import Connections, goodbye

_log = logging.getLogger("romancy.store")
_CHANNEL = "romancy"
# A hint need not survive a crash of the server: its commit waits for no disk, and nobody waits for it there.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
_BETWEEN, _BETWEEN_ALONE = 0.005, 0.05
"""Seconds between two hints, at least; in company, and where nobody has been heard."""
_HERE = "here "
"""Before the name of one who has no hint to give, but is there."""
_PRESENT, _GONE = 5.0, 15.0
"""Seconds after which those who listen say that they are there, and after which they count as gone."""
_ANSWERED = 0.5
"""Seconds that who is new gives the others to answer."""
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
        self._others: dict[str, float] = {}
        """Who is there too, and when it was last heard."""
        self._listening_since = monotonic()
        self._heard_itself = monotonic()
        self._wanted = asyncio.Event()
        self._look = False
        """It is a hint that is wanted."""
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
        self._look = True
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
            with suppress(TimeoutError):
                async with asyncio.timeout(_PRESENT):
                    await self._wanted.wait()
            self._wanted.clear()
            look, self._look = self._look, False
            if look or self.hears:
                await self._notify(self._token if look else _HERE + self._token)
            await asyncio.sleep(_BETWEEN if self.in_company else _BETWEEN_ALONE)

    async def _notify(self, payload: str) -> None:
        try:
            async with self._connections.one() as connection:
                await connection.execute(_NOTIFY, _CHANNEL, payload)
        except Exception as error:  # a hint that is lost: others look by themselves
            _log.debug("could not ring: %s", error)

    @property
    def in_company(self) -> bool:
        """There are others, for all that is known."""
        now = monotonic()
        self._others = {token: heard for token, heard in self._others.items() if now - heard < _GONE}
        return bool(self._others) or not self.hears or now - self._listening_since < _ANSWERED

    async def _listen_on(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                connection = await self._connections.connect_to_listen(self._listen_dsn)
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
            self._listening_since = monotonic()
            self._wanted.set()
            self._heard()  # there may have been something before
            await self._until_deaf(broken)
        finally:
            self._listening.clear()
            with suppress(Exception):
                await goodbye(connection)

    async def _until_deaf(self, broken: asyncio.Event) -> None:
        """Until the connection breaks, or what this process says itself does not come back on it.

        A server that only became read-only keeps its connections, and nobody speaks there any more.
        """
        self._heard_itself = monotonic()
        while (left := self._heard_itself + _GONE - monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await broken.wait()
                    return
        _log.warning("nothing is heard from %s any more, not even of this process: listening anew", self._connections.label)

    def _on_notice(self, connection: object, pid: int, channel: str, payload: object) -> None:
        token = str(payload).removeprefix(_HERE)
        if token == self._token:
            self._own.set()
            self._heard_itself = monotonic()
            return
        if token not in self._others:  # it may not know of us
            self._wanted.set()
        self._others[token] = monotonic()
        if token == payload:
            self._heard()
