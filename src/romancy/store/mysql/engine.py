"""SQLAlchemy on the same database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from romancy.errors import ConfigurationError
from romancy.store.mysql.connections import Connections, Link
from romancy.store.mysql.cursor import MySqlCursor

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


def cursor_on(connection: Connection, connections: Connections) -> MySqlCursor:
    """The deciding code's statements in a transaction of such an engine."""
    raw: Any = connection.connection.driver_connection
    return MySqlCursor(Link(raw, connections.packet, decode=True), wait=await_only)
