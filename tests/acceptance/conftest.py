"""A fixture with a table of the user's, in the database of the workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_DRIVERS = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}


@pytest.fixture
async def shop(database: str) -> AsyncIterator[AsyncEngine]:
    """A table `orders` of the user's, in the database of the workflows."""
    scheme, colon, rest = database.partition(":")
    engine = create_async_engine(f"{_DRIVERS[scheme]}:{rest}" if colon else f"sqlite+aiosqlite:///{database}")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE orders (id VARCHAR(50) PRIMARY KEY, total INTEGER)"))
    yield engine
    await engine.dispose()
