"""SQLAlchemy on the same database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmy.connection import Connection as DriverConnection

from romancy.codec import Coder
from romancy.errors import ConfigurationError
from romancy.store.mysql.connections import SESSION_OF_OTHERS, Connections, Link, Result, decoded, require_session
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.statements import packets

try:
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
    from sqlalchemy.util import await_only
except ImportError as error:
    raise ConfigurationError("ctx.session needs SQLAlchemy: pip install 'romancy[sqlalchemy]'") from error

if TYPE_CHECKING:
    from sqlalchemy import Connection


def server_engine(connections: Connections) -> AsyncEngine:
    """An engine that connects as the store does."""
    return create_async_engine(
        "mysql+asyncmy://", async_creator=connections.connect_for_others, pool_size=connections.size, max_overflow=0
    )


def cursor_on(connection: Connection, connections: Connections, coder: Coder) -> MySqlCursor:
    """The deciding code's statements in a transaction of SQLAlchemy: of such an engine, or of a user's own."""
    raw: Any = connection.connection.driver_connection
    if isinstance(raw, DriverConnection):
        cursor = MySqlCursor(Link(raw, connections.packet, decode=True), wait=await_only, coder=coder)
        found = await_only(Link(raw, connections.packet).ask(SESSION_OF_OTHERS))
    else:
        plain = PlainLink(connection.connection)
        cursor = MySqlCursor(plain, wait=_nothing_to_wait_for, coder=coder)
        found = plain.ask(SESSION_OF_OTHERS)
    require_session(found.rows[0])
    return cursor


class PlainLink:
    """A connection of any driver that SQLAlchemy knows: one statement after the other."""

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
            rows = decoded(cursor.fetchall(), [field[1] for field in cursor.description]) if cursor.description else []
            return Result(rows, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close()


def _nothing_to_wait_for(result: Any) -> Result:
    found: Result = result
    return found
