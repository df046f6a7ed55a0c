"""Two apps that race on one database lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from tests.explore import app_race
from tests.explore.planted_faults import unmatched_waits
from tests.property.hypothesis_settings import examples

from romancy.model.messaging import StoreCall
from romancy.model.transition import Write
from romancy.store.sql.messaging import MessagingTransaction
from romancy.store.sql.store import SqlStore


def test_everything_is_received_once_and_in_one_order(database: str) -> None:
    race = app_race.Race(database)
    race.run(examples(400))
    assert race.faults == []


def test_a_look_before_the_wait_is_found_by_the_race(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race finds a lost wake-up that was planted."""
    commit, find = SqlStore.commit, MessagingTransaction._find_arrival
    nothing: set[tuple[str, str]] = set()

    async def commit_early(self: SqlStore, batch: Sequence[Write]) -> Any:
        found = await self._database.read(partial(unmatched_waits, batch=batch))
        await asyncio.sleep(0.002)
        nothing.update(found)
        try:
            return await commit(self, batch)
        finally:
            nothing.difference_update(found)

    def find_unless_missing(
        self: MessagingTransaction, instance_id: str, store_call: StoreCall
    ) -> tuple[int, int, bytes] | None:
        return None if (instance_id, store_call.entry.op) in nothing else find(self, instance_id, store_call)

    monkeypatch.setattr(SqlStore, "commit", commit_early)
    monkeypatch.setattr(MessagingTransaction, "_find_arrival", find_unless_missing)
    monkeypatch.setattr(app_race, "_TIMEOUT", 2.0)
    race = app_race.Race(database)
    race.run(40)
    assert race.faults
