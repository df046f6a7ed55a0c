"""Counts the statements and commits of the connections of this process."""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pytest
from asyncpg import Connection

from romancy.store.mysql.pool import MySqlConnection, MySqlResult
from romancy.store.postgres.pool import PostgresPool
from romancy.store.sqlite import connection as sqlite

_WRITES = re.compile(
    r"(INSERT (OR \w+ )?INTO|UPDATE|DELETE FROM|REPLACE INTO) romancy_(?!commits|notifications)|FROM romancy_accept_events\("
)
"""The tables that servers write for their own bookkeeping, commit tokens and notifications, do not count as writes."""
BEAT = "UPDATE romancy_workers SET heartbeat_at"
READS_HISTORY = "SELECT seq, kind, op"
"""The beginning of the statement that reads entries; statements that only read the length of a history differ."""
_BESIDE = ("PRAGMA", "pg_notify", "romancy_notifications", "current_setting('jit')", "set_config('jit'", "typeinfo_tree")
"""Statements that do not count: the polling and sending of notifications, whose number depends on time, and
what drivers execute once for each connection.
"""


class Cost(NamedTuple):
    """The commits, statements and steps between two points of a test."""

    commits: int
    statements: int
    steps: int
    """Steps of SQLite's virtual machine, which grow with the rows that it visits; servers do not report them."""


class Counter:
    """Every statement that any connection of this process has executed, and every step of SQLite's virtual machine."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.commits = 0
        """Transactions that wrote something. A writing statement outside of a transaction counts as one."""
        self._steps = itertools.count()
        self._before = 0

    def step(self) -> None:
        """Count one step. `next` on a counter is atomic, which matters because each connection has a thread of its own."""
        next(self._steps)

    def clear(self) -> None:
        """Begin to count anew."""
        self.statements.clear()
        self.commits = 0
        self._before = next(self._steps)

    def executed(self, statement: str, *, alone: bool) -> None:
        """Record a statement that was executed within a transaction or alone."""
        if not any(text in statement for text in _BESIDE):
            self.statements.append(statement)
            self.commits += statement == "COMMIT" or (alone and writes(statement))

    def count(self, text: str) -> int:
        """The number of statements that contain this text."""
        return sum(text in statement for statement in self.statements)

    def cost(self) -> Cost:
        """The cost since `clear`. The statements are printed, so that pytest shows them if the test fails."""
        print(*self.statements, sep="\n")
        return Cost(self.commits, len(self.statements), next(self._steps) - self._before)


def writes(statement: str) -> bool:
    """Whether the statement writes to a table of the engine."""
    return _WRITES.search(statement) is not None


def count(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Count the statements of all connections that are opened from now on."""
    counter = Counter()
    connect, connect_server, execute = sqlite._connect, PostgresPool.connect, MySqlConnection.execute

    def open_file(path: str, read_only: bool) -> sqlite3.Connection:
        opened = connect(path, read_only)
        opened.set_trace_callback(lambda statement: counter.executed(statement, alone=not opened.in_transaction))
        opened.set_progress_handler(counter.step, 1)
        return opened

    async def open_server(self: PostgresPool) -> Connection[Any]:
        opened = await connect_server(self)
        transaction_log = _TransactionLog(counter)
        opened.add_query_logger(lambda query: transaction_log.executed(query.query))
        return opened

    logs: WeakKeyDictionary[MySqlConnection, _TransactionLog] = WeakKeyDictionary()

    async def run_statement(self: MySqlConnection, statement: bytes) -> MySqlResult:
        transaction_log = logs.setdefault(self, _TransactionLog(counter))
        for one in (*self._deferred, statement):
            transaction_log.executed(one.decode(errors="replace"))
        return await execute(self, statement)

    monkeypatch.setattr("romancy.store.sql.server._CLOCK_EVERY", math.inf)  # synchronizing the clock depends on time
    monkeypatch.setattr(MySqlConnection, "execute", run_statement)
    monkeypatch.setattr(sqlite, "_connect", open_file)
    monkeypatch.setattr(PostgresPool, "connect", open_server)
    return counter


class _TransactionLog:
    """Follows the transactions of one connection to a server."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._within = self._wrote = False

    def executed(self, statement: str) -> None:
        text = statement.strip()
        if text.startswith("BEGIN") or "START TRANSACTION" in text:
            self._within = True
        self._wrote = self._wrote or writes(text)
        if text != "COMMIT" or self._wrote:
            self._counter.executed(text, alone=not self._within)
        if text in ("COMMIT", "ROLLBACK"):
            self._within = self._wrote = False
