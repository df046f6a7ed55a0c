"""Fixtures and settings of all tests: the profile of Hypothesis and the databases."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import databases
from tests.databases import Lend

from romancy.core import asyncio_patches
from romancy.testing import TestEnvironment

# Before the first import of the module, so that its plain asserts show what they compare.
pytest.register_assert_rewrite("tests.store.conformance")

settings.register_profile("romancy", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("romancy")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `databases`: `-m databases`, or `-m "not databases"`."""
    config.addinivalue_line("markers", "databases: runs once for each kind of database")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:  # in a background shell; child processes would inherit it
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run on every database, and run all tests that kill processes in one worker of pytest-xdist."""
    for item in items:
        if item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.xdist_group("chaos"))
        if isinstance(item, pytest.Function) and "new_database" in item.fixturenames:
            item.add_marker("databases")


@pytest.fixture(autouse=True, scope="session")
def _patched() -> None:
    """Patch asyncio, as the first App of a process does, so that the order of the tests does not matter."""
    asyncio_patches.install()


@pytest.fixture(params=databases.names())
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lend]:
    """Lends a new empty database with each call; the test runs once for each kind."""
    with databases.lending(request.param, tmp_path) as lend:
        yield lend


@pytest.fixture
def database(new_database: Lend) -> str:
    """The address of an empty database; the test runs once for each kind."""
    return new_database()


@pytest.fixture
def bare_database(new_database: Lend) -> str:
    """The address of a database without tables of romancy; the test runs once for each kind."""
    return new_database(bare=True)


@pytest.fixture
def everywhere(new_database: Lend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test environments without an explicit database run on each kind in turn."""
    monkeypatch.setattr(TestEnvironment, "_own_database", lambda _: new_database())


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """The address of an empty PostgreSQL database, for tests of PostgreSQL."""
    with databases.lending("postgres", tmp_path) as lend:
        yield lend()


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The path of a SQLite file that does not exist yet, for tests of SQLite."""
    return str(tmp_path / "romancy.db")
