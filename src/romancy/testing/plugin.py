"""The pytest plugin: `romancy_env`, an environment for every workflow that was imported.

It is handed out before it is entered, so that it works with every way of running asynchronous tests:

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
    """An environment on a virtual clock; enter it with `async with`."""
    # Not at the top: pytest loads every installed plugin in every project, also where nobody uses this one.
    from romancy.testing.environment import TestEnvironment

    return TestEnvironment()
