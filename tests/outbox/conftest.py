"""Apps on every database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests import servers


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "outbox.db")
    found = servers.shared_postgres_database()
    asyncio.run(servers.empty_postgres(found))
    return found
