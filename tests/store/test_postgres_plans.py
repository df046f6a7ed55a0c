"""No statement reads a whole table that may be large: with values, as PostgreSQL plans at first, and without, as later."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import asyncpg
import pytest
from benchmarks import explained, filled
from tests import servers

from romancy.clock import SystemClock
from romancy.store.open import open_store

INSTANCES = 10_000
"""As many have ended as wait: enough for an index to be worth its while in every table."""
KINDS = ["custom", "generic"]


@cache
def every_plan() -> dict[str, dict[str, explained.Plan]]:
    """How each statement would be executed, on tables that are full and counted."""
    return asyncio.run(_explain(servers.new_postgres_database()))


async def _explain(address: str) -> dict[str, dict[str, explained.Plan]]:
    store = open_store(address, clock=SystemClock())
    await store.open()
    now = store.now()
    await store.close()
    connection: Any = await asyncpg.connect(address)
    try:
        await filled.fill(connection, ended=INSTANCES, waiting=INSTANCES, now=now)
        await connection.execute("ANALYZE")
        return {name: await explained.plans(connection, name, now=now) for name in explained.statements()}
    finally:
        await connection.close()


def indexes(name: str, kind: str) -> list[str]:
    """The indexes in which a statement looks something up."""
    steps = explained.steps(every_plan()[name][kind])
    return [f"{step['Index Name']} {step['Index Cond']}" for step in steps if "Index Cond" in step]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", explained.statements())
def test_no_table_is_scanned(name: str, kind: str) -> None:
    assert explained.faults(name, every_plan()[name][kind]) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "index", "columns"),
    [
        ("due", "romancy_instances_claimable", "workflow version wake_at"),
        ("upcoming", "romancy_instances_claimable", "workflow version wake_at"),
        ("blocked", "romancy_instances_blocked", "workflow version"),
        ("arrivals", "romancy_instances_owned", "owner"),
        ("owned", "romancy_instances_owned", "owner"),
        ("list_rows", "romancy_instances_created", "created_at"),
        ("list_of_status", "romancy_instances_status", "status created_at"),
        ("prunable", "romancy_instances_ended", "ended_at"),
        ("look", "romancy_instances_pkey", "id"),
        ("rows", "romancy_instances_pkey", "id"),
        ("take", "romancy_instances_pkey", "id"),
        ("wake", "romancy_instances_pkey", "id"),
        ("quick", "romancy_instances_pkey", "id"),
        ("quick_steps", "romancy_instances_pkey", "id"),
        ("quick_answers", "romancy_instances_pkey", "id"),
        ("quick_answers", "romancy_events_type", "type seq"),
        ("quick_answers", "romancy_events_subject", "type subject seq"),
        ("quick_answers", "romancy_events_target", "target type seq"),
        ("history_of", "romancy_history_pkey", "instance_id generation seq"),
        ("accept_events", "romancy_waits_key", "kind key subject"),
        ("call_many", "romancy_waits_pkey", "instance_id"),
        ("withdraw_waits", "romancy_waits_pkey", "instance_id"),
        ("find_events", "romancy_events_type", "type seq"),
        ("find_events", "romancy_events_subject", "type subject seq"),
        ("find_events", "romancy_events_target", "target type seq"),
        ("find_events", "romancy_taken_wanted", "instance_id wanted seq"),
        ("find_events", "romancy_taken_pkey", "instance_id seq"),
        ("looked_up_to", "romancy_taken_wanted", "instance_id wanted"),
        ("events_for_all", "romancy_events_type", "type seq"),
        ("events_of_subject", "romancy_events_subject", "type subject seq"),
        ("events_for_one", "romancy_events_target", "target type seq"),
        ("mode_of", "romancy_subscriptions_mode", "channel"),
        ("next_in_line", "romancy_waits_line", "key"),
        ("first_of_pool", "romancy_messages_pool", "channel"),
        ("first_delivery", "romancy_deliveries_pkey", "instance_id channel"),
        ("waits_for_message", "romancy_deliveries_seq", "seq"),
        ("old_events", "romancy_events_accepted", "accepted_at"),
        ("old_messages", "romancy_messages_age", "created_at"),
        ("undeliverable", "romancy_events_unused", "seq"),
        ("due_outbox", "romancy_outbox_due", "broker next_at"),
    ],
)
def test_the_index_meant_is_used(name: str, index: str, columns: str, kind: str) -> None:
    found = indexes(name, kind)
    assert any(one.startswith(f"{index} ") and all(column in one for column in columns.split()) for one in found), found


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
        "next_in_line",
        "first_of_pool",
        "old_events",
        "old_messages",
        "undeliverable",
        "due_outbox",
        "mode_of",
    ],
)
def test_an_index_gives_the_order(name: str, kind: str) -> None:
    steps = [step["Node Type"] for step in explained.steps(every_plan()[name][kind])]
    assert not [step for step in steps if "Sort" in step], steps
