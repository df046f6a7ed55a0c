"""A SQLAlchemy engine on the store's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmy.connection import Connection as DriverConnection

from romancy.codec import Codec
from romancy.errors import ConfigurationError
from romancy.store.mysql.cursor import MySqlCursor
from romancy.store.mysql.dbapi import dbapi_cursor_on
from romancy.store.mysql.pool import READ_USER_SESSION, MySqlConnection, MySqlPool, require_session

try:
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
    from sqlalchemy.util import await_only
except ImportError as error:
    raise ConfigurationError("ctx.session needs SQLAlchemy: pip install 'romancy[sqlalchemy]'") from error

if TYPE_CHECKING:
    from sqlalchemy import Connection


def server_engine(connections: MySqlPool) -> AsyncEngine:
    """Return an engine that connects as the store does."""
    return create_async_engine(
        "mysql+asyncmy://", async_creator=connections.connect_for_sqlalchemy, pool_size=connections.size, max_overflow=0
    )


def cursor_on(connection: Connection, connections: MySqlPool, codec: Codec) -> MySqlCursor:
    """Return a cursor in a transaction of a SQLAlchemy connection, of this engine or of a user's own."""
    raw: Any = connection.connection.driver_connection
    if not isinstance(raw, DriverConnection):
        return dbapi_cursor_on(connection.connection, codec)
    require_session(await_only(MySqlConnection(raw, connections.max_packet).execute(READ_USER_SESSION)).rows[0])
    return MySqlCursor(MySqlConnection(raw, connections.max_packet, decode=True), wait=await_only, codec=codec)
