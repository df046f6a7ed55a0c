"""Two apps that race for real on one database lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from tests.explore import app_race
from tests.explore.planted_faults import in_vain
from tests.property.hypothesis_settings import examples

from romancy.model.messaging import StoreCall
from romancy.model.transition import Write
from romancy.store.sql.messaging import MessagingTransaction
from romancy.store.sql.store import SqlStore


def test_everything_is_heard_once_and_in_one_order(database: str) -> None:
    racing = app_race.Race(database)
    racing.run(examples(400))
    assert racing.faults == []


def test_a_look_before_the_wait_is_lost_in_a_race(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race finds what it is there for."""
    commit, find = SqlStore.commit, MessagingTransaction._find_arrival
    nothing: set[tuple[str, str]] = set()

    async def hasty(self: SqlStore, batch: Sequence[Write]) -> Any:
        found = await self._database.read(partial(in_vain, batch=batch))
        await asyncio.sleep(0.002)
        nothing.update(found)
        try:
            return await commit(self, batch)
        finally:
            nothing.difference_update(found)

    def stale(self: MessagingTransaction, instance_id: str, ask: StoreCall) -> tuple[int, int, bytes] | None:
        return None if (instance_id, ask.entry.op) in nothing else find(self, instance_id, ask)

    monkeypatch.setattr(SqlStore, "commit", hasty)
    monkeypatch.setattr(MessagingTransaction, "_find_arrival", stale)
    monkeypatch.setattr(app_race, "_PATIENCE", 2.0)
    racing = app_race.Race(database)
    racing.run(40)
    assert racing.faults
