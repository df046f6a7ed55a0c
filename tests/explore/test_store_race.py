"""Stores that race for real on one database lose nothing, double nothing and keep the order.

`ROMANCY_EXAMPLES=5000` is a longer race. Whether it finds what it is there for is tried on PostgreSQL: there nothing but the
turn keeps transactions apart.
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


def test_everything_is_heard_once_and_in_one_order(database: str) -> None:
    race = StoreRace(database)
    race.run(examples(200))
    assert race.faults == []


def test_transactions_that_wait_for_no_turn_are_found(postgres: str, monkeypatch: Plant) -> None:
    transact = PostgresDatabase.transact

    async def hasty(self: PostgresDatabase, work: Any, point: str = "commit", *, serialized: bool = True) -> Any:
        return await transact(self, work, point, serialized=False)

    monkeypatch.setattr(PostgresDatabase, "transact", hasty)
    _see(postgres)


def test_a_look_with_an_old_snapshot_is_found(postgres: str, monkeypatch: Plant) -> None:
    """The snapshot would be that of the statement that waits for the turn."""
    execute = asyncpg.Connection.execute

    async def dated(self: asyncpg.Connection[Any], query: str, *values: Any, **more: Any) -> str:
        return await execute(self, query.replace("LEVEL READ COMMITTED", "LEVEL REPEATABLE READ"), *values, **more)

    async def believed(self: PostgresDatabase) -> None:
        """The look at the start would find it before any race does."""

    monkeypatch.setattr(asyncpg.Connection, "execute", dated)
    monkeypatch.setattr(PostgresDatabase, "identify_server", believed)
    _see(postgres)


def test_an_instance_let_go_although_something_has_come_is_found(postgres: str, monkeypatch: Plant) -> None:
    def careless(ledger: UnitOfWork, write: Transition) -> WriteResult:
        state = ledger.states.get(write.instance_id)
        answer = apply_transition(ledger, write if state is None else write._replace(inbox_seen=state.inbox_version))
        return answer._replace(inbox_version=write.inbox_seen) if isinstance(answer, Applied) else answer

    monkeypatch.setattr(batches, "apply_transition", careless)
    _see(postgres)


def _see(database: str) -> None:
    """The race finds something. (`-s` shows what.)"""
    race = StoreRace(database)
    race.run(400)
    print(race.faults[:1])
    assert race.faults
