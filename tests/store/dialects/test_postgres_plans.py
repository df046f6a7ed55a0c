"""No statement reads the whole of a table that may be large, neither with a custom nor with a generic plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import asyncpg
import pytest
from benchmarks import query_plans, seeded_tables
from tests import servers

from romancy.clock import SystemClock
from romancy.store.open import open_store
from romancy.store.postgres.statements import get_statement

INSTANCES = 10_000
"""As many ended instances as waiting ones: enough rows for an index to pay off in every table."""
KINDS = ["custom", "generic"]


@cache
def full() -> tuple[str, int]:
    """A database with full and analyzed tables, and its time."""
    return asyncio.run(_fill(servers.new_postgres_database()))


async def _fill(address: str) -> tuple[str, int]:
    store = open_store(address, clock=SystemClock())
    await store.open()
    now = store.now()
    await store.close()
    async with closing(await asyncpg.connect(address)) as connection:
        await seeded_tables.fill(connection, ended=INSTANCES, waiting=INSTANCES, now=now)
        await connection.execute("ANALYZE")
    return address, now


@cache
def every_plan() -> dict[str, dict[str, query_plans.Plan]]:
    """The plan of each statement."""
    return asyncio.run(_explain(*full()))


async def _explain(address: str, now: int) -> dict[str, dict[str, query_plans.Plan]]:
    async with closing(await asyncpg.connect(address)) as connection:
        return {name: await query_plans.plans(connection, name, now=now) for name in query_plans.statements()}


@asynccontextmanager
async def closing(connection: Any) -> AsyncIterator[Any]:
    """Close a connection at the end."""
    try:
        yield connection
    finally:
        await connection.close()


def indexes(name: str, kind: str) -> list[str]:
    """The indexes that a statement uses, with the conditions."""
    steps = query_plans.steps(every_plan()[name][kind])
    return [f"{step['Index Name']} {step['Index Cond']}" for step in steps if "Index Cond" in step]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", query_plans.statements())
def test_no_table_is_scanned(name: str, kind: str) -> None:
    assert query_plans.faults(name, every_plan()[name][kind]) == []


@pytest.fixture(name="full")
def _full() -> tuple[str, int]:
    return full()


async def test_nor_within_the_function_that_accepts_events(full: tuple[str, int]) -> None:
    address, now = full
    event = {"source": "/bench", "id": "e", "type": seeded_tables.TYPE, "subject": "filled-1", "target": None, "body": b"{}"}
    accept = get_statement("fast_accept")
    async with closing(await asyncpg.connect(address)) as connection, connection.transaction():
        values = {name: [value] for name, value in event.items()} | {"now": now}
        assert await connection.fetchval(accept.text, *accept.bind(values)) == 0
        read = "SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0 AND relname LIKE 'romancy%'"
        assert {table for (table,) in await connection.fetch(read)} <= seeded_tables.SMALL
        used = "SELECT indexrelname FROM pg_stat_user_indexes WHERE pg_stat_get_xact_numscans(indexrelid) > 0"
        indexes = {index for (index,) in await connection.fetch(used)}
    assert {"romancy_waits_match", "romancy_waits_key", "romancy_events_pkey", "romancy_instances_pkey"} <= indexes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "index", "columns"),
    [
        ("due", "romancy_instances_claimable", "workflow version wake_at"),
        ("upcoming", "romancy_instances_claimable", "workflow version wake_at"),
        ("blocked", "romancy_instances_blocked", "workflow version"),
        ("with_unread_inbox", "romancy_instances_owned", "owner"),
        ("owned", "romancy_instances_owned", "owner"),
        ("list_rows", "romancy_instances_created", "created_at"),
        ("list_of_status", "romancy_instances_status", "status created_at"),
        ("prunable", "romancy_instances_ended", "ended_at"),
        ("load_states", "romancy_instances_pkey", "id"),
        ("instance_rows", "romancy_instances_pkey", "id"),
        ("claim_instances", "romancy_instances_pkey", "id"),
        ("wake", "romancy_instances_pkey", "id"),
        ("fast_path", "romancy_instances_pkey", "id"),
        ("fast_step", "romancy_instances_pkey", "id"),
        ("fast_step", "romancy_history_pkey", "instance_id generation"),
        ("fast_steps", "romancy_instances_pkey", "id"),
        ("fast_others", "romancy_instances_pkey", "id"),
        ("fast_accept_done", "romancy_events_id", "source id"),
        ("fast_accept_done", "romancy_waits_key", "kind key"),
        ("fast_awaited", "romancy_instances_pkey", "id"),
        ("fast_awaited", "romancy_events_type", "type seq"),
        ("fast_awaited", "romancy_events_subject", "type subject seq"),
        ("fast_awaited", "romancy_events_target", "target type seq"),
        ("history_of", "romancy_history_pkey", "instance_id generation seq"),
        ("accept_events", "romancy_waits_key", "kind key subject"),
        ("match_and_wake", "romancy_waits_pkey", "instance_id"),
        ("withdraw_waits", "romancy_waits_pkey", "instance_id"),
        ("find_events", "romancy_events_type", "type seq"),
        ("find_events", "romancy_events_subject", "type subject seq"),
        ("find_events", "romancy_events_target", "target type seq"),
        ("find_events", "romancy_consumed_events_selector", "instance_id selector seq"),
        ("find_events", "romancy_consumed_events_pkey", "instance_id seq"),
        ("search_start", "romancy_consumed_events_selector", "instance_id selector"),
        ("events_for_all", "romancy_events_type", "type seq"),
        ("events_of_subject", "romancy_events_subject", "type subject seq"),
        ("events_for_one", "romancy_events_target", "target type seq"),
        ("mode_of", "romancy_subscriptions_mode", "channel"),
        ("next_waiter", "romancy_waits_queue", "key"),
        ("first_of_pool", "romancy_messages_pool", "channel"),
        ("first_delivery", "romancy_deliveries_pkey", "instance_id channel"),
        ("waits_for_message", "romancy_deliveries_seq", "seq"),
        ("old_events", "romancy_events_accepted", "accepted_at"),
        ("old_messages", "romancy_messages_age", "created_at"),
        ("undeliverable", "romancy_events_unconsumed", "seq"),
        ("due_outbox", "romancy_outbox_due", "broker next_at"),
    ],
)
def test_the_index_meant_is_used(name: str, index: str, columns: str, kind: str) -> None:
    found = indexes(name, kind)
    assert any(line.startswith(f"{index} ") and all(column in line for column in columns.split()) for line in found), found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "due",
        "list_rows",
        "list_of_status",
        "prunable",
        "history_of",
        "events_for_all",
        "events_of_subject",
        "events_for_one",
        "next_waiter",
        "first_of_pool",
        "old_events",
        "old_messages",
        "undeliverable",
        "due_outbox",
        "mode_of",
    ],
)
def test_an_index_gives_the_order(name: str, kind: str) -> None:
    steps = [step["Node Type"] for step in query_plans.steps(every_plan()[name][kind])]
    assert not [step for step in steps if "Sort" in step], steps
