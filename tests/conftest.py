"""For all tests: how long property tests search, and a database file for tests that start several apps on one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from romancy.core import patch

settings.register_profile("romancy", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("romancy")


@pytest.fixture(autouse=True, scope="session")
def _patched() -> None:
    """As in a process whose first App has started: for good, whatever the order of the tests."""
    patch.install()


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The path of a database that does not exist yet."""
    return str(tmp_path / "romancy.db")
