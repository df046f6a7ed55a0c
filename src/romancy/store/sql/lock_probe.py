"""Whether a server locks as it is relied upon: tried out, on two connections, before anything is written.

What a server calls itself says nothing: some understand SKIP LOCKED and do not keep to it, some give every connection a
snapshot of its own, and what answers at one address may be several servers. On those everything seems to work, and messages
are lost or given to two. So what is relied upon is tried out: one server, a row that is locked by one, a look that is as
young as the lock, what was committed is seen by all, and numbers that rise.
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
"""Seconds it may take while others have the turn."""


class ProbedDatabase(Protocol[C_contra]):
    """What is tried out: how transactions are begun and ended there."""

    @property
    def label(self) -> str:
        """The address without what must not be shown."""
        ...

    def cursor(self, connection: C_contra) -> Cursor:
        """What runs statements on a connection."""
        ...

    async def begin(self, connection: C_contra, token: str, *, serialized: bool) -> bool | None:
        """Begin a transaction that leaves its token behind."""
        ...

    async def commit_transaction(self, connection: C_contra) -> None:
        """Commit."""
        ...

    async def rollback(self, connection: C_contra) -> None:
        """Roll back."""
        ...

    def is_conflict(self, error: BaseException) -> bool:
        """Somebody else has the lock."""
        ...

    def may_only_read(self, error: BaseException) -> bool:
        """The user has no right to write."""
        ...


class Probe(Generic[C]):
    """Two connections to what an address leads to."""

    def __init__(self, database: ProbedDatabase[C], one: C, other: C, token: Callable[[], str]) -> None:
        self._database = database
        self._first = one
        self._second = other
        self._fresh_token = token
        self._numbers: list[int] = []

    async def verify_server(self) -> str:
        """Which server it is. Raises `StoreError` if it, or what is in between, cannot be used."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT):
                if (server := await self._check_locks()) is None:
                    await self._database.rollback(self._first)
                    return await self._server_name(self._first)
                await self._check_visibility()
                await self._check_sequences()
        except TimeoutError as error:
            found = StoreError(
                f"The database {self._database.label} did not answer two connections at a time within {_PROBE_TIMEOUT:.0f} s. Is "
                "there a pooler in between that has a single connection to it, or does another transaction lock the table "
                "romancy_messaging_lock?"
            )
            found.retryable = True
            raise found from error
        return server

    async def _check_locks(self) -> str | None:
        """Which server it is, if it keeps to its locks. None: the user may only read."""
        token, database, one, other = self._fresh_token(), self._database, self._first, self._second
        try:
            while await database.begin(one, token, serialized=True) is None:
                await run(partial(restore_messaging_lock, database.cursor(one)))
                await database.commit_transaction(one)  # for others to see it
                token = self._fresh_token()
        except Exception as error:
            if database.may_only_read(error):  # nothing can go wrong then
                return None
            raise
        if await self._is_lock_granted(other):
            raise self._refusal("a lock that one connection has was given to another (NOWAIT)")
        await database.begin(other, self._fresh_token(), serialized=False)
        if await self._rows(other, "probe_skip"):
            raise self._refusal("a row that one connection has locked was not left out by another (SKIP LOCKED)")
        waiting = asyncio.ensure_future(self._rows(other, "lock_messaging"))
        try:
            servers = [await self._server_name(one)]
            await run(partial(_advance_sequences, database.cursor(one)))  # nobody else has the turn
            if waiting.done():
                raise self._refusal("a lock that one connection has was given to another that should have waited")
            await database.commit_transaction(one)
            await waiting
        finally:
            await _cancel_and_wait(waiting)
        if not await self._is_visible(other, token):
            raise self._refusal("who had waited for a lock did not see what was committed under it")
        await self._take_number(other)
        await database.rollback(other)
        servers += [await self._server_name(one), await self._server_name(other)]
        if len(set(servers)) > 1:
            raise self._refusal(f"questions are answered by several servers ({', '.join(sorted(set(servers)))})")
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
        """The other way round: one connection has seen already what the other has committed."""
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
            "understands these statements and does not keep to them (TiDB, for one), several servers that all take writes "
            "(Galera nodes), or a load balancer or pooler that sends statements to several servers. Give the address of one "
            "server that takes writes."
        )


def several_writers_error(label: str, writers: dict[str, str]) -> StoreError:
    """What to say when several servers of an address take writes."""
    places = " and ".join(sorted(writers.values()))
    found = StoreError(
        f"The database {label} cannot be used: {places} both take writes, and each would have a truth of its own. Is one of "
        "them an old primary that has come back, or are they nodes of a cluster that all take writes? Make all but one "
        "read-only, or stop them."
    )
    found.retryable = True
    return found


def _advance_sequences(cursor: Cursor) -> None:
    """Numbers that were given are not given again: a copy of the database may have begun them anew."""
    for table, column, given, reached in cursor.rows("sequences_behind"):
        cursor.run("advance_sequence", (reached, table, column))
        _log.warning(
            "The numbers of the table %s had begun anew at %d, while %d had been given: they go on behind that now. Was the "
            "database copied without its sequences?",
            table,
            given,
            reached,
        )


async def _cancel_and_wait(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
