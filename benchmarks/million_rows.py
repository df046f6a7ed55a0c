"""The rows of a million instances, for SQLite and PostgreSQL.

One instance in ten waits, for a timer, an event or a message; one in a hundred of those is between two attempts. Of the
other instances about one in a hundred failed, and some were cancelled. They belong to twenty workflows and were created two
seconds apart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import asyncpg

from romancy.clock import MICROS
from romancy.model.messaging import Event, Message
from romancy.serde.failure import describe_failure, encode_failure
from romancy.serde.messaging import event_json, message_json

WORKFLOWS, CHANNELS, GROUPS, CUSTOMERS = 20, 50, 50, 1000
WEEK = 7 * 24 * 3600 * MICROS
_APART = 2 * MICROS
_ERROR = encode_failure(TimeoutError("the bank did not answer"))
_FINGERPRINT = describe_failure(_ERROR).fingerprint
_WAITS = ("timer", "event", "message")

Row = tuple[Any, ...]


class Table(NamedTuple):
    """A table's name, columns and rows."""

    name: str
    columns: str
    rows: Callable[[], Iterable[Row]]


def instance_id(n: int) -> str:
    """Return the id of the nth instance, the oldest first. Instances whose number ends in 0 wait."""
    return f"order-{n:07d}"


def workflow_name(n: int) -> str:
    """Return the workflow of the nth instance."""
    return f"flow-{n % WORKFLOWS}"


class SeedRows:
    """The rows of `number` instances, in all tables."""

    def __init__(self, number: int, now: int) -> None:
        self.number = number
        self.now = now

    def tables(self) -> list[Table]:
        """Return all tables to fill."""
        return [
            Table(
                "romancy_instances",
                "id workflow version status generation round epoch wake_at inbox_version inbox_version_seen retrying_since "
                "fingerprint created_at started_at updated_at ended_at code python digest created_at_event_seq",
                self._instances,
            ),
            Table("romancy_payloads", "instance_id generation input output error", self._payloads),
            Table(
                "romancy_history",
                "instance_id generation seq kind op outcome at name role digest input value attempt site scheduled_at "
                "started_at ended_at worker epoch",
                self._history,
            ),
            Table("romancy_waits", "instance_id op kind since due key subject site", self._waits),
            Table("romancy_events", "source id type subject consumed accepted_at body", self._events),
            Table("romancy_subscriptions", "channel instance_id mode since", self._subscriptions),
            Table("romancy_messages", "channel pooled created_at body", self._messages),
            Table("romancy_group_members", "name instance_id since", self._members),
            Table("romancy_journal", "instance_id at kind detail worker epoch", self._journal),
            Table("romancy_attempts", _ATTEMPTS, self._attempts),
            Table("romancy_outbox", "broker body created_at since attempts next_at last_error dead_at", self._outbox),
            Table("romancy_audit", "at actor action instance_id detail", self._audit),
        ]

    def _created(self, n: int) -> int:
        return self.now - (self.number - n) * _APART - 60 * MICROS

    def _waiting(self) -> Iterator[tuple[int, str]]:
        return ((n, _WAITS[n // 10 % 3]) for n in range(0, self.number, 10))

    def _instances(self) -> Iterator[Row]:
        for n in range(self.number):
            at, waits, failed = self._created(n), n % 10 == 0, _failed(n)
            kind = _WAITS[n // 10 % 3]
            status = f"waiting_for_{kind}" if waits else "failed" if failed else _fine(n)
            retrying = at if waits and n % 1000 == 0 else None
            due = self.now + WEEK + n if waits and (kind == "timer" or retrying) else None
            ended = None if waits else at + n % 1000 * 1000 + 500
            name, print = workflow_name(n), _FINGERPRINT if failed else ""
            yield (
                *(instance_id(n), name, "", status, 1, 0, 1, due, 0, 0, retrying, print),
                *(at, at, ended or at, ended, "code", "3.13", b"\0", 0),
            )

    def _payloads(self) -> Iterator[Row]:
        for n in range(self.number):
            raw = b'{"customer":{"id":"c-%d","vip":%s},"amount":%d}' % (n % CUSTOMERS, b"true" if n % 7 else b"false", n)
            yield instance_id(n), 1, raw, None if n % 10 == 0 or _failed(n) else b'"done"', _ERROR if _failed(n) else None

    def _history(self) -> Iterator[Row]:
        for n in range(self.number):
            at = self._created(n)
            for seq, name in ((1, "reserve"), (2, "charge")):
                outcome = "error" if seq == 2 and _failed(n) else "ok"
                value = _ERROR if outcome == "error" else b'"ok"'
                yield (
                    *(instance_id(n), 1, seq, "activity", f"{name}:1", outcome, at + seq, name, 0, b"\0", b"{}", value, 1),
                    *("shop.py:12", at, at, at + seq, "worker", 1),
                )

    def _waits(self) -> Iterator[Row]:
        for n, kind in self._waiting():
            key = {"timer": "", "event": "payment.completed", "message": f"jobs-{n // 10 % CHANNELS}"}[kind]
            due = self.now + WEEK + n if kind == "timer" else None
            yield (
                instance_id(n),
                f"{kind}:1",
                kind,
                self._created(n),
                due,
                key,
                str(n) if kind == "event" else None,
                "shop.py:9",
            )

    def _events(self) -> Iterator[Row]:
        for n, _ in self._waiting():
            kind = "payment.completed" if n % 20 else f"other-{n // 10 % 50}"
            event = Event(f"event-{n}", "/bench", kind, subject=f"old-{n}")
            yield event.source, event.id, kind, event.subject, 0, self._created(n), event_json(event)

    def _subscriptions(self) -> Iterator[Row]:
        for n, kind in self._waiting():
            if kind == "message":
                yield f"jobs-{n // 10 % CHANNELS}", instance_id(n), "competing", self._created(n)

    def _messages(self) -> Iterator[Row]:
        for n, _ in self._waiting():
            message, at = Message(f"m-{n}", f"backlog-{n // 10 % CHANNELS}", b"1"), self._created(n)
            yield message.channel, 1, at, message_json(message, at)

    def _members(self) -> Iterator[Row]:
        return ((f"crew-{n // 10 % GROUPS}", instance_id(n), self._created(n)) for n, _ in self._waiting())

    def _journal(self) -> Iterator[Row]:
        return ((instance_id(n), self._created(n), "claimed", "", "worker", 1) for n, _ in self._waiting())

    def _attempts(self) -> Iterator[Row]:
        for n, _ in self._waiting():
            if n % 1000 == 0:
                at = self._created(n)
                yield (
                    instance_id(n),
                    1,
                    "charge:1",
                    1,
                    "charge",
                    0,
                    "worker",
                    1,
                    "shop.py:12",
                    at,
                    at,
                    at,
                    self.now + WEEK,
                    _ERROR,
                )

    def _outbox(self) -> Iterator[Row]:
        for n, _ in self._waiting():
            at, dead = self._created(n), n % 100 == 0
            next_at, error = None if dead else self.now + WEEK + n, "no answer" if dead else None
            yield "http", _EVENT % n, at, at, 1, next_at, error, at if dead else None

    def _audit(self) -> Iterator[Row]:
        return ((self._created(n), "ann", "cancel", instance_id(n), "") for n, _ in self._waiting())


_ATTEMPTS = "instance_id generation op attempt name open worker epoch site scheduled_at started_at ended_at next_at error"
_EVENT = b'{"specversion":"1.0","id":"e-%d","source":"/bench","type":"told"}'


def _failed(n: int) -> bool:
    return n % 100 == 1


def _fine(n: int) -> str:
    return "cancelled" if n % 200 == 3 else "completed"


def fill_sqlite(path: str, rows: SeedRows) -> None:
    """Insert the rows into a file that has the tables."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -200000")
    for table in rows.tables():
        columns = table.columns.split()
        parameters = ", ".join("?" * len(columns))
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({parameters})", table.rows())
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def fill_postgres(address: str, rows: SeedRows) -> None:
    """Insert the rows into a database that has the tables."""
    connection = await asyncpg.connect(address)
    for table in rows.tables():
        await connection.copy_records_to_table(table.name, columns=table.columns.split(), records=table.rows())
    await connection.execute("VACUUM (ANALYZE)")
    await connection.execute("CHECKPOINT")
    await connection.close()
