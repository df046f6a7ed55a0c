"""Migrations on every database: each is applied once, also if several processes start at the same time."""

from __future__ import annotations

import asyncio

import pytest
from tests import databases

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.store.open import open_store


async def test_of_many_who_start_at_once_one_migrates(bare_database: str) -> None:
    stores = [open_store(bare_database, clock=SystemClock()) for _ in range(10)]
    await asyncio.gather(*[store.open() for store in stores])
    applied = await asyncio.to_thread(
        databases.execute, bare_database, "SELECT version FROM romancy_migrations ORDER BY version"
    )
    known = await stores[0].migrations()
    assert all(done for _, done in known)
    assert [version for (version,) in applied] == list(range(1, len(known) + 1))
    for store in stores:
        await store.close()


async def test_what_is_missing_is_told_and_nothing_is_made_by_looking(bare_database: str) -> None:
    store = open_store(bare_database, clock=SystemClock(), auto_migrate=False)
    before = await store.migrations()
    assert before
    assert not any(done for _, done in before)
    with pytest.raises(StoreError, match="0001_initial"):
        await store.open()
    assert await store.migrations() == before
