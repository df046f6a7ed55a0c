"""Opens Edda for a measurement on PostgreSQL, with each choice made in its favour.

- As many connections as its documentation advises.
- It polls for woken workflows every second (by default every 30 s): its NOTIFY is sent while the sender still holds the lock
  of the workflow, so a notified worker often finds nothing and waits again.
- The number of woken workflows in a batch is not limited (the default is 10).
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
    """Run an app."""
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
    """Return Edda's version, and the settings that its connections had."""
    return {"version": version("edda-framework"), "settings": _found}
