"""Verifies, on two connections and before anything is written, that a server's locks work as the store needs.

The server's product name proves nothing: some servers accept SKIP LOCKED and do not honour it, some give every connection a
snapshot of its own, and several servers may answer at one address. On those everything seems to work, but messages are lost
or given to two consumers. So the probe tests what the store relies on: both connections reach one server; a locked row is
locked; a read after waiting for a lock sees what was committed under it; commits are visible to all; sequences rise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from romancy.errors import StoreError
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.greenlet_bridge import run
from romancy.store.sql.messaging_lock import restore_messaging_lock

_log = logging.getLogger("romancy.store")
C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
_PROBE_TIMEOUT = 30.0
"""Seconds that the probe may take: other processes may hold the messaging lock meanwhile."""


class ProbedDatabase(Protocol[C_contra]):
    """The part of `ServerDatabase` that the probe uses."""

    @property
    def label(self) -> str:
        """The address without its secrets, for messages."""
        ...

    def cursor(self, connection: C_contra) -> Cursor:
        """Return a cursor that runs named statements on a connection."""
        ...

    async def begin(self, connection: C_contra, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction that inserts its token."""
        ...

    async def commit_transaction(self, connection: C_contra) -> None:
        """Commit."""
        ...

    async def rollback(self, connection: C_contra) -> None:
        """Roll back."""
        ...

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether the error means that another transaction has the lock."""
        ...

    def may_only_read(self, error: BaseException) -> bool:
        """Return whether the error means that the database user may not write."""
        ...


class Probe(Generic[C]):
    """Tests the server behind an address on two connections."""

    def __init__(self, database: ProbedDatabase[C], one: C, other: C, token: Callable[[], str]) -> None:
        self._database = database
        self._first = one
        self._second = other
        self._fresh_token = token
        self._numbers: list[int] = []

    async def verify_server(self) -> str:
        """Return the server's identifier. Raises `StoreError` if the server, or a proxy in between, cannot be used."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT):
                if (server := await self._check_locks()) is None:
                    await self._database.rollback(self._first)
                    return await self._server_name(self._first)
                await self._check_visibility()
                await self._check_sequences()
        except TimeoutError as error:
            found = StoreError(
                f"The database {self._database.label} did not respond to two connections at a time within "
                f"{_PROBE_TIMEOUT:.0f} s. Is there a pooler with a single connection to the server, or does another "
                "transaction lock the table romancy_messaging_lock?"
            )
            found.retryable = True
            raise found from error
        return server

    async def _check_locks(self) -> str | None:
        """Test the locks, and return the server's identifier. None: the database user may only read."""
        token, database, one, other = self._fresh_token(), self._database, self._first, self._second
        try:
            while await database.begin(one, token, serialized=True) is None:
                await run(partial(restore_messaging_lock, database.cursor(one)))
                await database.commit_transaction(one)  # so that other transactions see the row
                token = self._fresh_token()
        except Exception as error:
            if database.may_only_read(error):  # without writes the locks do not matter
                return None
            raise
        if await self._is_lock_granted(other):
            raise self._refusal("a lock that one connection has was given to another (NOWAIT)")
        await database.begin(other, self._fresh_token(), serialized=False)
        if await self._rows(other, "probe_skip"):
            raise self._refusal("a row that one connection has locked was not skipped by another (SKIP LOCKED)")
        waiting = asyncio.ensure_future(self._rows(other, "lock_messaging"))
        try:
            servers = [await self._server_name(one)]
            await run(partial(_advance_sequences, database.cursor(one)))  # safe: this transaction holds the messaging lock
            if waiting.done():
                raise self._refusal("a lock that one connection has was given to another that should have waited")
            await database.commit_transaction(one)
            await waiting
        finally:
            await _cancel_and_wait(waiting)
        if not await self._is_visible(other, token):
            raise self._refusal("a connection that had waited for a lock did not see what was committed under it")
        await self._take_number(other)
        await database.rollback(other)
        servers += [await self._server_name(one), await self._server_name(other)]
        if len(set(servers)) > 1:
            raise self._refusal(f"queries are answered by several servers ({', '.join(sorted(set(servers)))})")
        return servers[0]

    async def _is_lock_granted(self, connection: C) -> bool:
        try:
            await self._rows(connection, "probe_nowait")
        except Exception as error:
            if self._database.is_conflict(error):
                return False
            raise
        return True

    async def _check_visibility(self) -> None:
        """The other way round: the first connection must see at once what the second one has committed."""
        token = self._fresh_token()
        await self._database.begin(self._second, token, serialized=False)
        await self._database.commit_transaction(self._second)
        if not await self._is_visible(self._first, token):
            raise self._refusal("what one connection has committed was not seen by another")

    async def _check_sequences(self) -> None:
        for connection in (self._first, self._second):
            await self._database.begin(connection, self._fresh_token(), serialized=False)
            await self._take_number(connection)
            await self._database.rollback(connection)
        if self._numbers != sorted(set(self._numbers)):
            raise self._refusal(f"numbers that are given one after the other do not rise ({self._numbers})")

    async def _take_number(self, connection: C) -> None:
        number = await run(partial(self._database.cursor(connection).insert, "probe_number", ()))
        self._numbers.append(number or 0)

    async def _server_name(self, connection: C) -> str:
        return str((await self._rows(connection, "probe_server"))[0][0])

    async def _is_visible(self, connection: C, token: str) -> bool:
        return bool(await self._rows(connection, "probe_seen", (token,)))

    async def _rows(self, connection: C, name: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return await run(partial(self._database.cursor(connection).rows, name, values))

    def _refusal(self, seen: str) -> StoreError:
        return StoreError(
            f"The database {self._database.label} cannot be used: {seen}. Nothing was started. It may be a server that "
            "accepts these statements but does not honour them (TiDB, for one), several servers that all take writes "
            "(Galera nodes), or a load balancer or pooler that sends statements to several servers. Give the address of one "
            "server that takes writes."
        )


def several_writers_error(label: str, writers: dict[str, str]) -> StoreError:
    """Return the error for an address of which several servers take writes."""
    hosts = " and ".join(sorted(writers.values()))
    found = StoreError(
        f"The database {label} cannot be used: {hosts} both take writes, and their data would differ. Is one of them an old "
        "primary that has come back, or are they nodes of a cluster that all take writes? Make all but one read-only, or "
        "stop them."
    )
    found.retryable = True
    return found


def _advance_sequences(cursor: Cursor) -> None:
    """Advance sequences beyond the numbers in use: a copy of the database may have started its sequences anew."""
    for table, column, given, reached in cursor.rows("sequences_behind"):
        cursor.run("advance_sequence", (reached, table, column))
        _log.warning(
            "The numbers of the table %s had begun anew at %d, while %d had been given: they now continue after that one. "
            "Was the database copied without its sequences?",
            table,
            given,
            reached,
        )


async def _cancel_and_wait(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
