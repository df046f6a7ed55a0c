"""One database: its connections, the lanes their work is done in, and who else writes to it."""

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
from romancy.codec import PLAIN
from romancy.errors import CodecError, ConfigurationError, StoreError
from romancy.model.operators import Vitals
from romancy.model.transition import Answer, Write
from romancy.store.migrator import read_migrations, refuse_behind
from romancy.store.port import Pulse
from romancy.store.sql.alchemy import AlchemyCursor
from romancy.store.sql.cursor import Cursor, Values
from romancy.store.sql.database import Work
from romancy.store.sqlite.batch import write_singly, write_whole
from romancy.store.sqlite.connection import MEMORY, Crash, connect, data_version, patiently, read, write
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.failures import BAD_DATA, not_open, translate
from romancy.store.sqlite.identity import Identity
from romancy.store.sqlite.lanes import Inline, Lane, Threaded, on_loop
from romancy.store.sqlite.pulse import FilePulse, SharedPulse
from romancy.store.sqlite.schema import MIGRATIONS, prepare, state
from romancy.store.sqlite.statements import one
from romancy.store.sqlite.steps import fit_at_once, write_steps

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
Threads = Literal["threads", "inline"]

_PATIENCE = 60.0
_LOOK_EVERY = 0.05
"""Seconds between two looks at whether another process has written."""


@dataclass(slots=True)
class _Session:
    """What is there while the database is open. In memory there is one connection and one lane for everything."""

    loop: asyncio.AbstractEventLoop
    writing: Lane
    reading: Lane
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    seen_version: int
    identity: Identity | None
    """None in memory."""


class SqliteDatabase:
    """Runs transactions and reads, each in its lane; translates the driver's errors."""

    def __init__(self, path: str, threads: Threads, crash: Crash | None) -> None:
        self.path = path
        self._threads = threads
        self._hook = crash
        self._session: _Session | None = None
        self.coder = PLAIN
        self._killed = False
        self._in_memory = path == MEMORY
        # In memory a heartbeat shares the connection: it must not fall into the middle of a transaction.
        self._lock: AbstractContextManager[object] = threading.Lock() if self._in_memory else nullcontext()
        self._foreign: Callable[[], None] | None = None
        self._foreign_pending = False

    async def migrations(self) -> list[tuple[str, bool]]:
        """Each migration of the schema, and whether the file has it."""
        return await asyncio.to_thread(self._state)

    def _state(self) -> list[tuple[str, bool]]:
        try:
            return state(self.path)
        except PermissionError as error:
            raise StoreError(
                f"The database {self.path} may not be opened. Allow this process to enter its folder."
            ) from error
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    async def open(self, *, auto_migrate: bool, now: int) -> None:
        """Connect and prepare the schema."""
        if self._session is not None:
            return
        writing = reading = self._lane("writer")
        try:
            reading = writing if self._in_memory else self._lane("reader")
            writer, reader, version = await writing.run(partial(self._connect, auto_migrate, now))
        except BaseException:
            await _close_lanes(writing, reading)
            raise
        loop = asyncio.get_running_loop()
        identity = None if self._in_memory else Identity(self.path)
        self._session = _Session(loop, writing, reading, writer, reader, version, identity)
        self.foreign = self._foreign

    async def close(self) -> None:
        """Finish what is queued and disconnect. Safe to call twice."""
        session, self._session = self._session, None
        if session is None:
            return
        await _close_lanes(session.writing, session.reading)
        session.reader.close()
        session.writer.close()

    @property
    def lanes(self) -> int:
        """One writer, under the interpreter's lock: a second batch would wait for the first."""
        return 1

    @property
    def patience(self) -> float:
        """Seconds within which a call is answered, be it by an error: as long as it waits for a lock of others."""
        return _PATIENCE

    async def commit(self, batch: Sequence[Write]) -> list[Answer | StoreError]:
        """Write a batch: if it can be one statement, as that; if its data is refused, each write by itself."""
        session = self._opened()
        whole = partial(write_whole, batch=batch)
        singly = partial(write_singly, batch=batch, path=self.path)
        if self._hook is not None or not fit_at_once(batch):  # the points where tests crash lie within a transaction
            return await session.writing.run(partial(self._transact, session.writer, whole, "commit", singly))
        at_once = partial(write_steps, steps=batch)
        return await session.writing.run(partial(self._execute, session.writer, at_once, whole, singly))

    async def write(self, work: Work[T], *, point: str = "commit", in_turn: bool = True) -> T:
        """One transaction: there is never another beside it."""
        session = self._opened()
        return await session.writing.run(partial(self._transact, session.writer, work, point, None))

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Reads, always of one snapshot."""
        session = self._opened()
        return await session.reading.run(partial(self._look_up, session.reader, work))

    async def ask_time(self) -> None:
        """A file has no clock: the machine's counts."""

    async def vitals(self) -> Vitals:
        """How the file is: its clock is the machine's."""
        session = self._opened()
        begun = monotonic()
        notes = await session.reading.run(partial(self._look_up, session.reader, _notes))
        latency = round((monotonic() - begun) * MICROS)
        return Vitals(f"SQLite {sqlite3.sqlite_version}", latency, None, notes)

    def engine(self) -> AsyncEngine:
        """An engine of SQLAlchemy on the same file."""
        from romancy.store.sqlite.engine import file_engine

        return file_engine(self.path)

    def cursor_on(self, connection: Connection) -> AlchemyCursor:
        """The deciding code's statements in a transaction of such an engine."""
        return AlchemyCursor(connection, _bind, self.coder, json_lines=True)

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name for it."""
        return "sqlite"

    @property
    def stages(self) -> bool:
        """A transaction that writes is alone anyway."""
        return False

    async def run_on(self, connection: object, work: Work[T]) -> T:
        """Do work on a connection of the driver."""
        if not isinstance(connection, sqlite3.Connection):
            raise ConfigurationError(
                f"using() got {type(connection).__name__}: give a connection or session of SQLAlchemy, or a connection of "
                "sqlite3."
            )
        cursor = connection.cursor()
        cursor.row_factory = None
        return work(SqliteCursor(cursor))

    async def drain(self) -> None:
        """Nothing is ever staged."""

    def pulse(self, worker: str) -> Pulse:
        """A worker's heartbeat."""
        if self._in_memory:
            return SharedPulse(self._opened().writer, self._lock, worker)
        return FilePulse(self.path, worker, self._session.identity if self._session is not None else None)

    @property
    def foreign(self) -> Callable[[], None] | None:
        """Called on the event loop when another connection has written; None: nobody looks."""
        return self._foreign

    @foreign.setter
    def foreign(self, foreign: Callable[[], None] | None) -> None:
        self._foreign = foreign
        if self._session is not None and not self._in_memory:
            self._session.writing.watch(None if foreign is None else self.check_foreign, _LOOK_EVERY)

    def check_foreign(self) -> None:
        """Look whether another connection has written since the last look. In the writer's lane, or inline."""
        session = self._session
        if session is None or self._foreign is None:
            return
        try:
            version = data_version(session.writer)
        except sqlite3.Error:
            return  # The next look will tell. A database that is broken is reported to whoever uses it.
        if version != session.seen_version:
            session.seen_version = version
            self._announce(session)

    def _announce(self, session: _Session) -> None:
        if self._threads == "inline":
            self._tell_foreign()
        elif not self._foreign_pending:
            self._foreign_pending = True
            on_loop(session.loop, self._tell_foreign)

    def _tell_foreign(self) -> None:
        self._foreign_pending = False
        if self._foreign is not None:
            self._foreign()

    def _lane(self, name: str) -> Lane:
        return Inline() if self._threads == "inline" else Threaded(f"romancy-sqlite-{name}")

    def _opened(self) -> _Session:
        if self._session is None or self._killed:
            raise not_open(self.path)
        return self._session

    def _connect(self, auto_migrate: bool, now: int) -> tuple[sqlite3.Connection, sqlite3.Connection, int]:
        if not auto_migrate and not Path(self.path).exists():
            # Looking would create the file.
            raise refuse_behind(read_migrations(MIGRATIONS), self.path)
        writer = connect(self.path)
        try:
            prepare(writer, self.path, auto_migrate=auto_migrate, now=now)
            version = patiently(partial(data_version, writer), self.path)
            return writer, writer if self._in_memory else connect(self.path, read_only=True), version
        except BaseException as error:
            writer.close()
            if isinstance(error, sqlite3.Error):
                raise translate(error, self.path) from error
            raise

    def _execute(
        self,
        writer: sqlite3.Connection,
        at_once: Callable[[sqlite3.Cursor], T | None],
        work: Callable[[SqliteCursor], T],
        rescue: Callable[[SqliteCursor], T],
    ) -> T:
        try:
            done = self._patiently(lambda: at_once(writer.cursor()))
        except BAD_DATA:
            done = None
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        return self._transact(writer, work, "commit", rescue) if done is None else done

    def _transact(
        self,
        writer: sqlite3.Connection,
        work: Callable[[SqliteCursor], T],
        point: str,
        rescue: Callable[[SqliteCursor], T] | None,
    ) -> T:
        try:
            return self._patiently(partial(write, writer, work, self._crash if self._hook else None, point, self.coder))
        except CodecError:
            if rescue is None:
                raise
        except BAD_DATA as error:
            if rescue is None:
                raise translate(error, self.path) from error
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        return self._transact(writer, rescue, point, None)

    def _look_up(self, reader: sqlite3.Connection, work: Work[T]) -> T:
        try:
            return self._patiently(partial(read, reader, work))
        except (sqlite3.Error, *BAD_DATA) as error:
            raise translate(error, self.path) from error

    def _patiently(self, attempt: Callable[[], T]) -> T:
        if self._killed:
            raise not_open(self.path)
        identity = None if self._session is None else self._session.identity
        if identity is not None:
            identity.require_if_lost()
        with self._lock:
            done = patiently(attempt, self.path)
        if identity is not None:
            identity.require_now_and_then()  # before anybody is told
        return done

    def _crash(self, point: str) -> None:
        assert self._hook is not None
        try:
            self._hook(point)
        except BaseException:
            self._killed = True
            raise


def _notes(cursor: Cursor) -> dict[str, str]:
    assert isinstance(cursor, SqliteCursor)
    (mode,) = cursor.raw.execute("PRAGMA journal_mode").fetchone()
    return {"journal_mode": str(mode)}


def _bind(name: str, values: Values) -> tuple[str, Any]:
    return one(name), dict(values) if isinstance(values, Mapping) else tuple(values)


async def _close_lanes(*lanes: Lane) -> None:
    for lane in lanes:
        await lane.close()
