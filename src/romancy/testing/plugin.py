"""The pytest plugin: `romancy_env`, an environment for every workflow that was imported.

It is handed out before it is entered, so that it works with every way of running asynchronous tests:

    async def test_checkout(romancy_env):
        async with romancy_env as env:
            ...
"""

from __future__ import annotations

import pytest

from romancy.testing.environment import TestEnvironment


@pytest.fixture
def romancy_env() -> TestEnvironment:
    """An environment on a virtual clock; enter it with `async with`."""
    return TestEnvironment()
