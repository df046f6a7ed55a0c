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
from romancy.store.postgres.pool import PostgresPool, close_quietly

_log = logging.getLogger("romancy.store")
_CHANNEL = "romancy"
# A hint need not survive a crash of the server: its commit waits for no disk, and nobody waits for it there.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
_SEND_INTERVAL, _SEND_INTERVAL_ALONE = 0.005, 0.05
"""Seconds between two hints, at least; in company, and where nobody has been heard."""
_PRESENCE_PREFIX = "here "
"""Before the name of one who has no hint to give, but is there."""
_PRESENCE_INTERVAL, _PEER_TIMEOUT = 5.0, 15.0
"""Seconds after which those who listen say that they are there, and after which they count as gone."""
_ANSWER_WINDOW = 0.5
"""Seconds that who is new gives the others to answer."""
_NOTIFY_DELAY = 0.02
"""Seconds that this process has for what it can see to itself, before others are told."""
_FIRST_RECONNECT_PAUSE, _LONGEST_RECONNECT_PAUSE = 0.2, 5.0
_PROBE_TIMEOUT = 3.0


class PostgresNotifier:
    """Rings for others, and hears them."""

    def __init__(self, connections: PostgresPool, listen_dsn: str | None, on_notified: Callable[[], None]) -> None:
        self._connections = connections
        self._listen_dsn = listen_dsn
        self._on_notified = on_notified
        self._token = RandomIds().incarnation()
        self._peers: dict[str, float] = {}
        """Who is there too, and when it was last heard."""
        self._listening_since = monotonic()
        self._echo_received_at = monotonic()
        self._send_requested = asyncio.Event()
        self._has_notification = False
        """It is a hint that is wanted."""
        self._delayed_call: asyncio.TimerHandle | None = None
        self._echo_received = asyncio.Event()
        self._listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.listen_error: str | None = None
        """Why there is no connection to listen on, if there is none."""

    def start(self, *, listen: bool) -> None:
        """Begin to ring, and to listen if that is wanted."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._send_loop(), name="romancy-bell"))
        if listen:
            self._tasks.append(loop.create_task(self._listen_loop(), name="romancy-listener"))

    async def stop(self) -> None:
        """Be silent, and deaf."""
        if self._delayed_call is not None:
            self._delayed_call.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    @property
    def is_listening(self) -> bool:
        """It listens now."""
        return self._listening.is_set()

    def notify(self) -> None:
        """Others have something to look at."""
        self._has_notification = True
        self._send_requested.set()

    def notify_later(self) -> None:
        """Others may have something to look at in a moment."""
        if self._delayed_call is None:
            self._delayed_call = asyncio.get_running_loop().call_later(_NOTIFY_DELAY, self._notify_now)

    def _notify_now(self) -> None:
        self._delayed_call = None
        self.notify()

    async def probe(self) -> bool:
        """Whether what is rung is heard. Behind a pooler that hands out connections by the transaction it is not."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT):
                await self._listening.wait()
                self._echo_received.clear()
                self.notify()
                await self._echo_received.wait()
        except TimeoutError:
            return False
        return True

    def stop_listening(self) -> None:
        """Do not listen any more."""
        for task in self._tasks[1:]:
            task.cancel()

    async def _send_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PRESENCE_INTERVAL):
                    await self._send_requested.wait()
            self._send_requested.clear()
            look, self._has_notification = self._has_notification, False
            if look or self.is_listening:
                await self._send(self._token if look else _PRESENCE_PREFIX + self._token)
            await asyncio.sleep(_SEND_INTERVAL if self.has_peers else _SEND_INTERVAL_ALONE)

    async def _send(self, payload: str) -> None:
        try:
            async with self._connections.acquire() as connection:
                await connection.execute(_NOTIFY, _CHANNEL, payload)
        except Exception as error:  # a hint that is lost: others look by themselves
            _log.debug("could not ring: %s", error)

    @property
    def has_peers(self) -> bool:
        """There are others, for all that is known."""
        now = monotonic()
        self._peers = {token: heard for token, heard in self._peers.items() if now - heard < _PEER_TIMEOUT}
        return bool(self._peers) or not self.is_listening or now - self._listening_since < _ANSWER_WINDOW

    async def _listen_loop(self) -> None:
        pause = _FIRST_RECONNECT_PAUSE
        while True:
            try:
                connection = await self._connections.connect_to_listen(self._listen_dsn)
                pause, self.listen_error = _FIRST_RECONNECT_PAUSE, None
                await self._listen(connection)
            except Exception as error:
                self.listen_error = f"{type(error).__name__}: {error}"
                _log.warning("cannot listen to %s, will try again: %s", self._connections.label, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RECONNECT_PAUSE)

    async def _listen(self, connection: Connection[Any]) -> None:
        broken = asyncio.Event()
        connection.add_termination_listener(lambda _: broken.set())
        try:
            await connection.add_listener(_CHANNEL, self._on_notification)
            self._listening.set()
            self._listening_since = monotonic()
            self._send_requested.set()
            self._on_notified()  # there may have been something before
            await self._wait_until_silent(broken)
        finally:
            self._listening.clear()
            with suppress(Exception):
                await close_quietly(connection)

    async def _wait_until_silent(self, broken: asyncio.Event) -> None:
        """Until the connection breaks, or what this process says itself does not come back on it.

        A server that only became read-only keeps its connections, and nobody speaks there any more.
        """
        self._echo_received_at = monotonic()
        while (left := self._echo_received_at + _PEER_TIMEOUT - monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await broken.wait()
                    return
        _log.warning("nothing is heard from %s any more, not even of this process: listening anew", self._connections.label)

    def _on_notification(self, connection: object, pid: int, channel: str, payload: object) -> None:
        token = str(payload).removeprefix(_PRESENCE_PREFIX)
        if token == self._token:
            self._echo_received.set()
            self._echo_received_at = monotonic()
            return
        if token not in self._peers:  # it may not know of us
            self._send_requested.set()
        self._peers[token] = monotonic()
        if token == payload:
            self._on_notified()
