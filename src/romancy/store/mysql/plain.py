"""Named statements on a connection of a synchronous driver: mysqlclient, PyMySQL, or whichever SQLAlchemy has opened."""

from __future__ import annotations

from typing import Any

from romancy.codec import Coder
from romancy.store.mysql.connections import SESSION_OF_OTHERS, Result, decoded, require_session
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.statements import packets
from romancy.store.sql.plain import as_line


def plain_cursor_on(raw: Any, coder: Coder) -> MySqlCursor:
    """The deciding code's statements in a transaction of somebody's."""
    link = PlainLink(raw)
    require_session(link.ask(SESSION_OF_OTHERS).rows[0])
    return MySqlCursor(link, wait=_nothing_to_wait_for, coder=coder)


class PlainLink:
    """One statement after the other."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def later(self, statement: bytes) -> None:
        """Send a statement."""
        self.ask(statement)

    def ask(self, statement: bytes) -> Result:
        """Send a statement; the answer to it."""
        cursor = self._raw.cursor()
        try:
            for packet in packets(statement):
                cursor.execute(packet)
            found = [as_line(row) for row in cursor.fetchall()] if cursor.description else []
            rows = decoded(found, [field[1] for field in cursor.description]) if found else []
            return Result(rows, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close()


def _nothing_to_wait_for(result: Any) -> Result:
    found: Result = result
    return found
