"""The store on SQLite."""

from __future__ import annotations

from romancy.clock import Clock
from romancy.store.sql.store import SqlStore
from romancy.store.sqlite.connection import Crash
from romancy.store.sqlite.database import SqliteDatabase, Threads


class SqliteStore(SqlStore):
    """A store in one SQLite file, or in memory.

    `crash` is called with the name of each crash point and may raise to simulate a crash of the process there: the
    transaction is rolled back if it was not committed, and every later call of the store fails.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        auto_migrate: bool = True,
        threads: Threads = "threads",
        crash: Crash | None = None,
    ) -> None:
        self._file = SqliteDatabase(path, threads, crash)
        super().__init__(self._file, clock=clock, auto_migrate=auto_migrate)

    def check_remote_commit(self) -> None:
        """Check whether another connection has committed. For a store that runs inline, which has no thread to check."""
        self._file.check_remote_commit()
