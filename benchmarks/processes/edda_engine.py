"""Edda, opened for a measurement on PostgreSQL, each of its ways chosen in its favour.

- As many connections as its documentation advises.
- It looks for woken workflows every second (30 s as it comes): its NOTIFY is sent while the sender still holds the lock of
  the workflow, so that who is notified often finds nothing and goes back to waiting.
- As many woken workflows in a batch as there are (10 as it comes).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from edda import EddaApp
from sqlalchemy import text

_FAVOURS: Any = {"notify_fallback_interval": 1, "max_workflows_per_batch": "auto"}
_found: dict[str, Any] = {}


@asynccontextmanager
async def edda(database: str) -> AsyncIterator[EddaApp]:
    """An app that runs."""
    url = database.replace("postgresql://", "postgresql+asyncpg://", 1)
    app = EddaApp("benchmarks", url, pool_size=20, max_overflow=40, **_FAVOURS)
    await app.initialize()
    async with app.storage.engine.connect() as connection:
        for setting in ("fsync", "synchronous_commit"):
            _found[setting] = (await connection.execute(text(f"SHOW {setting}"))).scalar_one()
    try:
        yield app
    finally:
        await app.shutdown()


def circumstances() -> dict[str, Any]:
    """The version, and the settings it was found with."""
    return {"version": version("edda-framework"), "settings": _found}
