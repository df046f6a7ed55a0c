"""Stores that are opened and closed repeatedly."""

from __future__ import annotations

from collections.abc import Callable

from romancy.store.port import Store


async def test_opened_or_closed_twice_is_opened_or_closed(new_store: Callable[[], Store]) -> None:
    store = new_store()
    for _ in range(2):
        await store.open()
        await store.open()
        assert isinstance(await store.workers(), list)
        await store.close()
        await store.close()
