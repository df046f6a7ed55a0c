"""For tests that count what things cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import databases
from tests.databases import Lend
from tests.engine.query_counter import Counter, count


@pytest.fixture(params=databases.names("pgbouncer"))
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lend]:
    """As for all tests, and PostgreSQL with a pooler in between."""
    with databases.lending(request.param, tmp_path) as lend:
        yield lend


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Counts what the databases are asked to do."""
    return count(monkeypatch)
