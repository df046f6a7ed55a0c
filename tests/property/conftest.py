from __future__ import annotations

from collections.abc import Iterator

import pytest

from romancy.core import patch


@pytest.fixture(autouse=True, scope="session")
def patched() -> Iterator[None]:
    """As in a process whose first App has started."""
    patch.install()
    yield
    patch.uninstall()
