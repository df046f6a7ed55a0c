"""A SQLAlchemy engine on the store's database."""

from __future__ import annotations

from romancy.errors import ConfigurationError
from romancy.store.postgres.pool import PostgresPool

try:
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
except ImportError as error:
    raise ConfigurationError("ctx.session needs SQLAlchemy: pip install 'romancy[sqlalchemy]'") from error


def server_engine(connections: PostgresPool) -> AsyncEngine:
    """Return an engine that connects as the store does: to the same hosts, through the same pooler."""
    # A pooler gives another server connection to each transaction: no prepared statement may outlive one.
    options = {"prepared_statement_cache_size": "0"} if connections.pooled else {}
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return create_async_engine(
        f"postgresql+asyncpg://?{query}", async_creator=connections.connect, pool_size=connections.size, max_overflow=0
    )
