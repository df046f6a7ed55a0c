"""One SQLite database: its connections, the executors that run their work, and notifications of remote commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from romancy.clock import MICROS, monotonic
from romancy.codec import NO_CODEC
from romancy.errors import CodecError, ConfigurationError, StoreError
from romancy.model.admin import Vitals
from romancy.model.transition import Write, WriteResult
from romancy.store.migrator import read_migrations, schema_behind_error
from romancy.store.port import HeartbeatConnection
from romancy.store.sql.cursor import Cursor, Values
from romancy.store.sql.sqlalchemy import AlchemyCursor
from romancy.store.sql.transaction_runner import Work
from romancy.store.sqlite.apply import apply_batch, apply_one_by_one
from romancy.store.sqlite.connection import MEMORY, Crash, connect, data_version, read, retry_while_busy, write
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.errors import BAD_DATA, not_open, translate
from romancy.store.sqlite.executor import Executor, InlineExecutor, ThreadExecutor, call_on_loop
from romancy.store.sqlite.file_identity import FileIdentity
from romancy.store.sqlite.heartbeat import SharedHeartbeat, SqliteHeartbeat
from romancy.store.sqlite.schema import MIGRATIONS, migrations_state, prepare
from romancy.store.sqlite.statements import get_statement
from romancy.store.sqlite.step_batch import is_one_statement, write_steps

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
Threads = Literal["threads", "inline"]

_CALL_TIMEOUT = 60.0
_POLL_INTERVAL = 0.05
"""Seconds between two checks for commits of other processes."""


@dataclass(slots=True)
class _Session:
    """The state of an open database. In memory one connection and one executor serve everything."""

    loop: asyncio.AbstractEventLoop
    write_executor: Executor
    read_executor: Executor
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    seen_version: int
    identity: FileIdentity | None
    """None in memory."""


class SqliteDatabase:
    """Runs transactions in one executor and reads in another; translates the driver's errors."""

    def __init__(self, path: str, threads: Threads, crash: Crash | None) -> None:
        self.path = path
        self._threads = threads
        self._crash_hook = crash
        self._session: _Session | None = None
        self.codec = NO_CODEC
        self._killed = False
        self._in_memory = path == MEMORY
        # In memory the heartbeat shares the connection: it must not run inside a transaction.
        self._lock: AbstractContextManager[object] = threading.Lock() if self._in_memory else nullcontext()
        self._on_remote_commit: Callable[[], None] | None = None
        self._announcement_pending = False

    async def migrations(self) -> list[tuple[str, bool]]:
        """Return each migration of the schema, and whether it is applied to the file."""
        return await asyncio.to_thread(self._read_migrations_state)

    def _read_migrations_state(self) -> list[tuple[str, bool]]:
        try:
            return migrations_state(self.path)
        except PermissionError as error:
            raise StoreError(
                f"The database {self.path} cannot be opened. Allow this process to access its folder."
            ) from error
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect and prepare the schema."""
        if self._session is not None:
            return
        write_executor = read_executor = self._make_executor("writer")
        try:
            read_executor = write_executor if self._in_memory else self._make_executor("reader")
            writer, reader, version = await write_executor.run(partial(self._connect, auto_migrate, now))
        except BaseException:
            await _close_executors(write_executor, read_executor)
            raise
        loop = asyncio.get_running_loop()
        identity = None if self._in_memory else FileIdentity(self.path)
        self._session = _Session(loop, write_executor, read_executor, writer, reader, version, identity)
        self.on_remote_commit = self._on_remote_commit

    async def close(self) -> None:
        """Finish the queued jobs and disconnect. Safe to call twice."""
        session, self._session = self._session, None
        if session is None:
            return
        await _close_executors(session.write_executor, session.read_executor)
        session.reader.close()
        session.writer.close()

    @property
    def concurrent_batches(self) -> int:
        """One: there is one writer, and a second batch would wait for the first."""
        return 1

    @property
    def call_timeout(self) -> float:
        """Seconds within which a call returns or fails: as long as it waits for a lock of another process."""
        return _CALL_TIMEOUT

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        """Write a batch: as one statement if possible, else in a transaction; each write by itself if data is refused."""
        session = self._require_session()
        whole = partial(apply_batch, batch=batch)
        one_by_one = partial(apply_one_by_one, batch=batch, path=self.path)
        # The crash points of tests lie within a transaction.
        if self._crash_hook is not None or not is_one_statement(batch):
            return await session.write_executor.run(partial(self._transact, session.writer, whole, "commit", one_by_one))
        statement = partial(write_steps, steps=batch)
        return await session.write_executor.run(
            partial(self._apply_one_statement, session.writer, statement, whole, one_by_one)
        )

    async def write(self, work: Work[T], *, point: str = "commit", serialized: bool = True) -> T:
        """Run `work` in a transaction. It is always serialized: the file has one writer at a time."""
        session = self._require_session()
        return await session.write_executor.run(partial(self._transact, session.writer, work, point, None))

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run reads on one snapshot."""
        session = self._require_session()
        return await session.read_executor.run(partial(self._read_once, session.reader, work))

    async def sync_clock(self) -> None:
        """Do nothing: a file has no clock of its own, the machine's clock is used."""

    async def vitals(self) -> Vitals:
        """Return the version, latency and journal mode. There is no clock difference: the clock is the machine's."""
        session = self._require_session()
        begun = monotonic()
        notes = await session.read_executor.run(partial(self._read_once, session.reader, _read_notes))
        latency = round((monotonic() - begun) * MICROS)
        return Vitals(f"SQLite {sqlite3.sqlite_version}", latency, None, notes)

    def engine(self) -> AsyncEngine:
        """Return a SQLAlchemy engine on the same file."""
        from romancy.store.sqlite.engine import file_engine

        return file_engine(self.path)

    def cursor_on(self, connection: Connection) -> AlchemyCursor:
        """Return a cursor that runs statements in a transaction of a SQLAlchemy connection."""
        return AlchemyCursor(connection, _bind, self.codec, json_rows=True)

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the dialect."""
        return "sqlite"

    @property
    def has_staging(self) -> bool:
        """False: a transaction that writes excludes all others, so its effects need no staging."""
        return False

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Run `work` on a user's connection of the driver."""
        if not isinstance(connection, sqlite3.Connection):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "sqlite3."
            )
        cursor = connection.cursor()
        cursor.row_factory = None
        return work(SqliteCursor(cursor))

    async def emit_staged(self) -> None:
        """Do nothing: effects are never staged."""

    def heartbeat(self, worker: str) -> HeartbeatConnection:
        """Return the heartbeat connection of a worker."""
        if self._in_memory:
            return SharedHeartbeat(self._require_session().writer, self._lock, worker)
        return SqliteHeartbeat(self.path, worker, self._session.identity if self._session is not None else None)

    @property
    def on_remote_commit(self) -> Callable[[], None] | None:
        """Called on the event loop when another connection has committed; None: no check is made."""
        return self._on_remote_commit

    @on_remote_commit.setter
    def on_remote_commit(self, callback: Callable[[], None] | None) -> None:
        self._on_remote_commit = callback
        if self._session is not None and not self._in_memory:
            self._session.write_executor.set_idle_callback(
                None if callback is None else self.check_remote_commit, _POLL_INTERVAL
            )

    def check_remote_commit(self) -> None:
        """Check whether another connection has committed since the last check. Runs in the writer's executor, or inline."""
        session = self._session
        if session is None or self._on_remote_commit is None:
            return
        try:
            version = data_version(session.writer)
        except sqlite3.Error:
            return  # The next check will see the commit. A broken database is reported by the next call that uses it.
        if version != session.seen_version:
            session.seen_version = version
            self._schedule_announcement(session)

    def _schedule_announcement(self, session: _Session) -> None:
        if self._threads == "inline":
            self._announce_remote_commit()
        elif not self._announcement_pending:
            self._announcement_pending = True
            call_on_loop(session.loop, self._announce_remote_commit)

    def _announce_remote_commit(self) -> None:
        self._announcement_pending = False
        if self._on_remote_commit is not None:
            self._on_remote_commit()

    def _make_executor(self, name: str) -> Executor:
        return InlineExecutor() if self._threads == "inline" else ThreadExecutor(f"romancy-sqlite-{name}")

    def _require_session(self) -> _Session:
        if self._session is None or self._killed:
            raise not_open(self.path)
        return self._session

    def _connect(self, auto_migrate: bool, now: int) -> tuple[sqlite3.Connection, sqlite3.Connection, int]:
        if not auto_migrate and not Path(self.path).exists():
            # Connecting would create the file.
            raise schema_behind_error(read_migrations(MIGRATIONS), self.path)
        writer = connect(self.path)
        try:
            prepare(writer, self.path, auto_migrate=auto_migrate, now=now)
            version = retry_while_busy(partial(data_version, writer), self.path)
            return writer, writer if self._in_memory else connect(self.path, read_only=True), version
        except BaseException as error:
            writer.close()
            if isinstance(error, sqlite3.Error):
                raise translate(error, self.path) from error
            raise

    def _apply_one_statement(
        self,
        writer: sqlite3.Connection,
        statement: Callable[[sqlite3.Cursor], T | None],
        work: Callable[[SqliteCursor], T],
        one_by_one: Callable[[SqliteCursor], T],
    ) -> T:
        try:
            done = self._retry_while_busy(lambda: statement(writer.cursor()))
        except BAD_DATA:
            done = None
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        return self._transact(writer, work, "commit", one_by_one) if done is None else done

    def _transact(
        self,
        writer: sqlite3.Connection,
        work: Callable[[SqliteCursor], T],
        point: str,
        one_by_one: Callable[[SqliteCursor], T] | None,
    ) -> T:
        try:
            return self._retry_while_busy(
                partial(write, writer, work, self._hit_crash_point if self._crash_hook else None, point, self.codec)
            )
        except CodecError:
            if one_by_one is None:
                raise
        except BAD_DATA as error:
            if one_by_one is None:
                raise translate(error, self.path) from error
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        return self._transact(writer, one_by_one, point, None)

    def _read_once(self, reader: sqlite3.Connection, work: Work[T]) -> T:
        try:
            return self._retry_while_busy(partial(read, reader, work))
        except (sqlite3.Error, *BAD_DATA) as error:
            raise translate(error, self.path) from error

    def _retry_while_busy(self, attempt: Callable[[], T]) -> T:
        if self._killed:
            raise not_open(self.path)
        identity = None if self._session is None else self._session.identity
        if identity is not None:
            identity.require_if_lost()
        with self._lock:
            done = retry_while_busy(attempt, self.path)
        if identity is not None:
            identity.require_throttled()  # before the commit is acknowledged
        return done

    def _hit_crash_point(self, point: str) -> None:
        assert self._crash_hook is not None
        try:
            self._crash_hook(point)
        except BaseException:
            self._killed = True
            raise


def _read_notes(cursor: Cursor) -> dict[str, str]:
    assert isinstance(cursor, SqliteCursor)
    (mode,) = cursor.raw.execute("PRAGMA journal_mode").fetchone()
    return {"journal_mode": str(mode)}


def _bind(name: str, values: Values) -> tuple[str, Any]:
    return get_statement(name), dict(values) if isinstance(values, Mapping) else tuple(values)


async def _close_executors(*executors: Executor) -> None:
    for executor in executors:
        await executor.close()
