"""Runs named statements on a connection of a synchronous driver: mysqlclient, PyMySQL, or one that SQLAlchemy opened."""

from __future__ import annotations

from typing import Any

from romancy.codec import Codec
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.pool import READ_USER_SESSION, MySqlResult, decode_rows, require_session
from romancy.store.mysql.statements import split_packets
from romancy.store.sql.dbapi import as_row


def dbapi_cursor_on(raw: Any, codec: Codec) -> MySqlCursor:
    """Return a cursor in a transaction of a user's connection. Raises `ConfigurationError` for unsafe session settings."""
    link = MySqlDbapiConnection(raw)
    require_session(link.execute(READ_USER_SESSION).rows[0])
    return MySqlCursor(link, wait=_no_wait, codec=codec)


class MySqlDbapiConnection:
    """Sends statements on a synchronous connection."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def defer(self, statement: bytes) -> None:
        """Send a statement at once."""
        self.execute(statement)

    def execute(self, statement: bytes) -> MySqlResult:
        """Send a statement; return its result."""
        cursor = self._raw.cursor()
        try:
            for packet in split_packets(statement):
                cursor.execute(packet)
            found = [as_row(row) for row in cursor.fetchall()] if cursor.description else []
            rows = decode_rows(found, [field[1] for field in cursor.description]) if found else []
            return MySqlResult(rows, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close()


def _no_wait(result: Any) -> MySqlResult:
    found: MySqlResult = result
    return found
