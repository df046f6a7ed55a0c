"""Transactional activities: writes through `ctx.session` are committed together with the result, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from romancy.errors import InvalidWorkflowStateError, LeaseLostError
from romancy.model.transition import Refused, ResultStored, TransactionalResult
from romancy.store.port import Store

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
    from sqlalchemy.orm import Session

T = TypeVar("T")


class ActivitySessions:
    """Makes the sessions of a worker's activities. The SQLAlchemy engine is made with the first one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._engine: AsyncEngine | None = None

    def new(self) -> AsyncSession:
        """Return a session; it connects on first use."""
        if self._engine is None:
            self._engine = self.store.engine()
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(self._engine, expire_on_commit=False)

    async def close(self) -> None:
        """Close the connections."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()


class ActivityTransaction:
    """The transaction of one attempt. It exists only if the activity uses its session, and costs nothing otherwise."""

    _session: AsyncSession | None = None
    _may_commit = False

    def __init__(self, sessions: ActivitySessions) -> None:
        self._sessions = sessions

    @property
    def session(self) -> AsyncSession:
        """The session, opened on first use."""
        if self._session is None:
            self._session = self._sessions.new()  # first: the error for a missing SQLAlchemy says what to install
            from sqlalchemy import event

            event.listen(self._session.sync_session, "before_commit", self._check_commit)
        return self._session

    @property
    def is_open(self) -> bool:
        """The activity has used its session."""
        return self._session is not None

    @property
    def shuts_out_writers(self) -> bool:
        """On SQLite, which allows one writer: this session may hold the write lock, and the engine could not commit."""
        session = self._session
        return session is not None and session.in_transaction() and session.get_bind().dialect.name == "sqlite"

    async def commit(self, result: TransactionalResult) -> ResultStored:
        """Commit the session with the attempt's result. Raises `LeaseLostError` if another worker owns the instance now."""
        session = self.session
        try:
            stored = await self._sessions.store.store_result(session, result)
            if isinstance(stored, Refused):
                raise LeaseLostError(
                    f"{result.instance_id} was taken over by another worker: the result of this attempt is discarded."
                )
            return await self._commit_session(session, result, stored)
        finally:
            await self.close()

    async def _commit_session(
        self, session: AsyncSession, result: TransactionalResult, stored: ResultStored
    ) -> ResultStored:
        self._may_commit = True
        try:
            await session.commit()
        except Exception:
            # The outcome of the COMMIT may be unknown: look whether the result is stored. Close first, since the open
            # transaction may hold locks that this query waits for.
            await self.close()
            item_id = await self._sessions.store.stored_result(result)
            if item_id is None:
                raise
            return replace(stored, item_id=item_id)
        return stored

    async def close(self) -> None:
        """Roll back what was not committed."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # if the connection is gone, there is nothing to roll back
                await session.close()

    def _check_commit(self, session: Session) -> None:
        if not self._may_commit and not session.in_nested_transaction():
            raise InvalidWorkflowStateError(
                "ctx.session is committed with the activity's result, when it returns. Use session.begin_nested() for a "
                "part that may fail, or your own engine for writes to commit separately."
            )


async def run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that must not be interrupted: a cancellation during the wait is ignored."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()


class CommittedResult(NamedTuple):
    """The content of a transactional result: the activity's result and the attempt that returned it."""

    value: bytes
    attempt: int
    started_at: int
    ended_at: int
    worker: str
    epoch: int


def pack(result: CommittedResult) -> bytes:
    """Encode as the body of an inbox item: a line of JSON about the attempt, then the value."""
    value, *about = result
    return json.dumps(about).encode() + b"\n" + value


def unpack(body: bytes) -> CommittedResult:
    """Decode what `pack` has encoded."""
    about, _, value = body.partition(b"\n")
    return CommittedResult(value, *json.loads(about))
