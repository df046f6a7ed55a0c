"""Migrations on every database: once, whoever starts at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests import databases

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.store.open import open_store


@pytest.fixture
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without our tables."""
    kind = databases.KINDS[request.param]
    if why := kind.missing():
        pytest.skip(why)
    return kind.lend(tmp_path, bare=True)


kinds = pytest.mark.parametrize("bare", databases.names(), indirect=True)


@kinds
async def test_of_many_who_start_at_once_one_migrates(bare: str) -> None:
    stores = [open_store(bare, clock=SystemClock()) for _ in range(10)]
    await asyncio.gather(*[store.open() for store in stores])
    applied = await asyncio.to_thread(databases.execute, bare, "SELECT version FROM romancy_migrations ORDER BY version")
    known = await stores[0].migrations()
    assert all(done for _, done in known)
    assert [version for (version,) in applied] == list(range(1, len(known) + 1))
    for store in stores:
        await store.close()


@kinds
async def test_what_is_missing_is_told_and_nothing_is_made_by_looking(bare: str) -> None:
    store = open_store(bare, clock=SystemClock(), auto_migrate=False)
    before = await store.migrations()
    assert before
    assert not any(done for _, done in before)
    with pytest.raises(StoreError, match="0001_initial"):
        await store.open()
    assert await store.migrations() == before
