"""SQLAlchemy on the same database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmy.connection import Connection as DriverConnection

from romancy.codec import Coder
from romancy.errors import ConfigurationError
from romancy.store.mysql.connections import SESSION_OF_OTHERS, Connections, Link, require_session
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.plain import plain_cursor_on

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
    if not isinstance(raw, DriverConnection):
        return plain_cursor_on(connection.connection, coder)
    require_session(await_only(Link(raw, connections.packet).ask(SESSION_OF_OTHERS)).rows[0])
    return MySqlCursor(Link(raw, connections.packet, decode=True), wait=await_only, coder=coder)
