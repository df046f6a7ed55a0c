"""Stores that race on one database lose nothing, duplicate nothing and keep the order.

`ROMANCY_EXAMPLES=5000` makes the race longer. The tests that plant faults run on PostgreSQL, where only the messaging lock
serializes transactions.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from tests.explore.store_race import StoreRace
from tests.property.hypothesis_settings import examples

from romancy.model.transition import Applied, Transition, WriteResult
from romancy.store.postgres.database import PostgresDatabase
from romancy.store.sql import apply as batches
from romancy.store.sql.transitions import apply_transition
from romancy.store.sql.unit_of_work import UnitOfWork

Plant = pytest.MonkeyPatch


def test_everything_is_received_once_and_in_one_order(database: str) -> None:
    race = StoreRace(database)
    race.run(examples(200))
    assert race.faults == []


def test_transactions_without_the_messaging_lock_are_found(postgres: str, monkeypatch: Plant) -> None:
    transact = PostgresDatabase.transact

    async def commit_early(self: PostgresDatabase, work: Any, point: str = "commit", *, serialized: bool = True) -> Any:
        return await transact(self, work, point, serialized=False)

    monkeypatch.setattr(PostgresDatabase, "transact", commit_early)
    _assert_found(postgres)


def test_a_look_with_an_old_snapshot_is_found(postgres: str, monkeypatch: Plant) -> None:
    """The snapshot would be that of the statement that waits for the messaging lock."""
    execute = asyncpg.Connection.execute

    async def with_old_snapshot(self: asyncpg.Connection[Any], query: str, *values: Any, **more: Any) -> str:
        return await execute(self, query.replace("LEVEL READ COMMITTED", "LEVEL REPEATABLE READ"), *values, **more)

    async def skip_check(self: PostgresDatabase) -> None:
        """Skip the check at the start, which would find the fault before any race does."""

    monkeypatch.setattr(asyncpg.Connection, "execute", with_old_snapshot)
    monkeypatch.setattr(PostgresDatabase, "identify_server", skip_check)
    _assert_found(postgres)


def test_an_instance_released_past_an_arrival_is_found(postgres: str, monkeypatch: Plant) -> None:
    def release_unseen(unit: UnitOfWork, write: Transition) -> WriteResult:
        state = unit.states.get(write.instance_id)
        answer = apply_transition(unit, write if state is None else write._replace(inbox_seen=state.inbox_version))
        return answer._replace(inbox_version=write.inbox_seen) if isinstance(answer, Applied) else answer

    monkeypatch.setattr(batches, "apply_transition", release_unseen)
    _assert_found(postgres)


def _assert_found(database: str) -> None:
    """Assert that the race finds a fault. (`-s` shows it.)"""
    race = StoreRace(database)
    race.run(400)
    print(race.faults[:1])
    assert race.faults
