"""Fixtures of the tests that count commits and statements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import databases
from tests.databases import Lend
from tests.engine.query_counter import Counter, count


@pytest.fixture(params=databases.names("pgbouncer"))
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lend]:
    """The databases of all tests, and PostgreSQL behind PgBouncer."""
    with databases.lending(request.param, tmp_path) as lend:
        yield lend


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """A counter of the statements that this test's connections execute."""
    return count(monkeypatch)
