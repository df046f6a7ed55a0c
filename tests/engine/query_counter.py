"""Counting what the databases are asked to do."""

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
"""Servers also mark their transactions, to know later whether they were committed, and ring for others."""
BEAT = "UPDATE romancy_workers SET heartbeat_at"
READS_HISTORY = "SELECT seq, kind, op"
"""How the statement begins that reads entries; those that only ask how long the history is do not count."""
_BESIDE = ("PRAGMA", "pg_notify", "romancy_notifications", "current_setting('jit')", "set_config('jit'", "typeinfo_tree")
"""The watch for other processes' commits, and the hints to them: as often as time passes. What drivers ask for once."""


class Cost(NamedTuple):
    """What something has cost."""

    commits: int
    statements: int
    steps: int
    """Of SQLite's machine: more, the more rows it visits. Servers do not tell."""


class Counter:
    """Every statement that any connection of this process has executed, and every step it took."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.commits = 0
        """Transactions that wrote something. A statement that writes outside of one is one by itself."""
        self._steps = itertools.count()
        self._before = 0

    def step(self) -> None:
        """The machine took a step. (Counted so, because the connections have threads of their own.)"""
        next(self._steps)

    def clear(self) -> None:
        """Count from here."""
        self.statements.clear()
        self.commits = 0
        self._before = next(self._steps)

    def executed(self, statement: str, *, alone: bool) -> None:
        """A statement was executed, within a transaction or alone."""
        if not any(text in statement for text in _BESIDE):
            self.statements.append(statement)
            self.commits += statement == "COMMIT" or (alone and writes(statement))

    def count(self, text: str) -> int:
        """Statements with this in them."""
        return sum(text in statement for statement in self.statements)

    def cost(self) -> Cost:
        """What it was since `clear`. Shown where a test fails: the statements."""
        print(*self.statements, sep="\n")
        return Cost(self.commits, len(self.statements), next(self._steps) - self._before)


def writes(statement: str) -> bool:
    """The statement changes something."""
    return _WRITES.search(statement) is not None


def count(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Count what connections do that are opened from now on."""
    counter = Counter()
    connect, dial, send = sqlite._connect, PostgresPool.connect, MySqlConnection.execute

    def open_file(path: str, read_only: bool) -> sqlite3.Connection:
        opened = connect(path, read_only)
        opened.set_trace_callback(lambda statement: counter.executed(statement, alone=not opened.in_transaction))
        opened.set_progress_handler(counter.step, 1)
        return opened

    async def call_server(self: PostgresPool) -> Connection[Any]:
        opened = await dial(self)
        line = _Line(counter)
        opened.add_query_logger(lambda query: line.executed(query.query))
        return opened

    lines: WeakKeyDictionary[MySqlConnection, _Line] = WeakKeyDictionary()

    async def ask(self: MySqlConnection, statement: bytes) -> MySqlResult:
        line = lines.setdefault(self, _Line(counter))
        for one in (*self._deferred, statement):
            line.executed(one.decode(errors="replace"))
        return await send(self, statement)

    monkeypatch.setattr("romancy.store.sql.server._CLOCK_EVERY", math.inf)  # now and then is not part of anything
    monkeypatch.setattr(MySqlConnection, "execute", ask)
    monkeypatch.setattr(sqlite, "_connect", open_file)
    monkeypatch.setattr(PostgresPool, "connect", call_server)
    return counter


class _Line:
    """A connection to a server."""

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
