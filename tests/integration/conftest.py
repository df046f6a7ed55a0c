"""For tests that count what things cost."""

from __future__ import annotations

import pytest
from tests.integration.counting import Counter, count


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Counts what the databases are asked to do."""
    return count(monkeypatch)
