"""SQLAlchemy on the same database."""

from __future__ import annotations

from romancy.errors import ConfigurationError
from romancy.store.postgres.pool import PostgresPool

try:
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
except ImportError as error:
    raise ConfigurationError("ctx.session needs SQLAlchemy: pip install 'romancy[sqlalchemy]'") from error


def server_engine(connections: PostgresPool) -> AsyncEngine:
    """An engine that connects as the store does: the same hosts, the same pooler in between."""
    # A pooler gives another server connection to each transaction: nothing that is prepared may outlive one.
    size = {"prepared_statement_cache_size": "0"} if connections.pooled else {}
    query = "&".join(f"{name}={value}" for name, value in size.items())
    return create_async_engine(
        f"postgresql+asyncpg://?{query}", async_creator=connections.connect, pool_size=connections.size, max_overflow=0
    )
