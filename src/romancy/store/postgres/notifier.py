"""Notifies other processes of commits, and is notified by them, with LISTEN and NOTIFY.

A notification may be lost or come twice: a process that misses one finds the work later, by polling. It is sent after the
commit, never in the transaction (a NOTIFY in a transaction makes every commit of the cluster wait in line), and several
within a short time become one.

A notification costs the sender and the receivers, so a process without peers sends few. A process that listens announces its
presence every few seconds, and at once when it sees a new peer: with peers, notifications follow each other closely. A
process that cannot listen does not know its peers, and assumes that there are some.
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
# A notification need not survive a crash of the server: its commit does not wait for the disk.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
_SEND_INTERVAL, _SEND_INTERVAL_ALONE = 0.005, 0.05
"""Least seconds between two notifications: with peers, and without."""
_PRESENCE_PREFIX = "here "
"""Before the sender's token in a payload that only announces its presence."""
_PRESENCE_INTERVAL, _PEER_TIMEOUT = 5.0, 15.0
"""Seconds between two announcements of presence, and after which a silent peer counts as gone."""
_ANSWER_WINDOW = 0.5
"""Seconds, after it has begun to listen, that a process waits for peers to announce themselves, and assumes some."""
_NOTIFY_DELAY = 0.02
"""Seconds in which this process can do new work itself, before the other processes are notified."""
_FIRST_RECONNECT_PAUSE, _LONGEST_RECONNECT_PAUSE = 0.2, 5.0
_PROBE_TIMEOUT = 3.0


class PostgresNotifier:
    """Sends notifications to other processes, and receives theirs."""

    def __init__(self, connections: PostgresPool, listen_dsn: str | None, on_notified: Callable[[], None]) -> None:
        self._connections = connections
        self._listen_dsn = listen_dsn
        self._on_notified = on_notified
        self._token = RandomIds().incarnation()
        self._peers: dict[str, float] = {}
        """The tokens of other processes, and when each was last received."""
        self._listening_since = monotonic()
        self._echo_received_at = monotonic()
        self._send_requested = asyncio.Event()
        self._has_notification = False
        """The next payload has to be a notification, not only an announcement of presence."""
        self._delayed_call: asyncio.TimerHandle | None = None
        self._echo_received = asyncio.Event()
        self._listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.listen_error: str | None = None
        """Why the connection to listen on failed; None if it did not."""

    def start(self, *, listen: bool) -> None:
        """Start to send, and to listen if `listen` is true."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._send_loop(), name="romancy-notifier"))
        if listen:
            self._tasks.append(loop.create_task(self._listen_loop(), name="romancy-listener"))

    async def stop(self) -> None:
        """Stop sending and listening."""
        if self._delayed_call is not None:
            self._delayed_call.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    @property
    def is_listening(self) -> bool:
        """Whether it is listening now."""
        return self._listening.is_set()

    def notify(self) -> None:
        """Notify other processes soon."""
        self._has_notification = True
        self._send_requested.set()

    def notify_later(self) -> None:
        """Notify other processes after `_NOTIFY_DELAY`."""
        if self._delayed_call is None:
            self._delayed_call = asyncio.get_running_loop().call_later(_NOTIFY_DELAY, self._notify_now)

    def _notify_now(self) -> None:
        self._delayed_call = None
        self.notify()

    async def probe(self) -> bool:
        """Whether this process receives its own notification. Behind a pooler in transaction mode it does not."""
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
        """Stop listening, but keep sending."""
        for task in self._tasks[1:]:
            task.cancel()

    async def _send_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PRESENCE_INTERVAL):
                    await self._send_requested.wait()
            self._send_requested.clear()
            notifies, self._has_notification = self._has_notification, False
            if notifies or self.is_listening:
                await self._send(self._token if notifies else _PRESENCE_PREFIX + self._token)
            await asyncio.sleep(_SEND_INTERVAL if self.has_peers else _SEND_INTERVAL_ALONE)

    async def _send(self, payload: str) -> None:
        try:
            async with self._connections.acquire() as connection:
                await connection.execute(_NOTIFY, _CHANNEL, payload)
        except Exception as error:  # the notification is lost: other processes poll
            _log.debug("could not notify other processes: %s", error)

    @property
    def has_peers(self) -> bool:
        """Whether there are other processes, as far as this one knows."""
        now = monotonic()
        self._peers = {token: at for token, at in self._peers.items() if now - at < _PEER_TIMEOUT}
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
            self._on_notified()  # notifications may have been missed before
            await self._wait_until_silent(broken)
        finally:
            self._listening.clear()
            with suppress(Exception):
                await close_quietly(connection)

    async def _wait_until_silent(self, broken: asyncio.Event) -> None:
        """Wait until the connection breaks, or the payloads of this process itself do not come back on it.

        A server that became read-only (by a switchover) keeps its connections, but no process sends notifications there.
        """
        self._echo_received_at = monotonic()
        while (left := self._echo_received_at + _PEER_TIMEOUT - monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await broken.wait()
                    return
        _log.warning("no notifications from %s, not even this process's own: listening anew", self._connections.label)

    def _on_notification(self, connection: object, pid: int, channel: str, payload: object) -> None:
        token = str(payload).removeprefix(_PRESENCE_PREFIX)
        if token == self._token:
            self._echo_received.set()
            self._echo_received_at = monotonic()
            return
        if token not in self._peers:  # a new peer may not know of this process: announce it
            self._send_requested.set()
        self._peers[token] = monotonic()
        if token == payload:
            self._on_notified()
