"""The pytest plugin: the fixture `romancy_env`, an environment for all imported workflows.

The test enters the environment itself, so the fixture works with every plugin for asynchronous tests:

    async def test_checkout(romancy_env):
        async with romancy_env as env:
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from romancy.testing.environment import TestEnvironment


@pytest.fixture
def romancy_env() -> TestEnvironment:
    """Return an environment with a virtual clock; enter it with `async with`."""
    # Imported here because pytest loads every installed plugin in every project, even where this one is unused.
    from romancy.testing.environment import TestEnvironment

    return TestEnvironment()
