"""No statement reads a whole table, with or without statistics."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from romancy.store.sqlite.schema import prepare
from romancy.store.sqlite.statements import get_statement, statement_names

SMALL = {"all_workers", "orphans"}
"""Tables that may be scanned: there are few workers, and an index over owned instances has as many rows as run at once."""


@pytest.fixture(params=["empty", "analyzed"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection, ":memory:", auto_migrate=True, now=1)
        if request.param == "analyzed":
            _fill(connection)
            connection.execute("ANALYZE")
        yield connection


@pytest.mark.parametrize("name", sorted(set(statement_names()) - SMALL))
def test_no_table_is_scanned(connection: sqlite3.Connection, name: str) -> None:
    for step in plan(connection, name):
        assert not re.match(r"SCAN (?!json_each|given|own|shared|kind|new|\d|\(|CONSTANT)", step) or "INDEX" in step, step


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("due", "romancy_instances_claimable (workflow=? AND version=? AND wake_at"),
        ("upcoming", "romancy_instances_claimable (workflow=? AND version=? AND wake_at"),
        ("blocked", "romancy_instances_blocked (workflow=? AND version=?)"),
        ("with_unread_inbox", "romancy_instances_owned (owner=?)"),
        ("owned", "romancy_instances_owned (owner=?)"),
        ("orphans", "romancy_instances_owned"),
        ("list_rows", "romancy_instances_created (created_at>? AND (created_at,id)<(?,?))"),
        ("list_of_status", "romancy_instances_status (status=? AND created_at>? AND (created_at,id)<(?,?))"),
        ("list_running", "romancy_instances_owned"),
        ("list_completed", "romancy_instances_created (created_at>? AND (created_at,id)<(?,?))"),
        ("kinds_waiting", "romancy_instances_claimable (workflow=? AND version>?)"),
        ("scan_all", "romancy_instances_created (created_at>? AND (created_at,id)<(?,?))"),
        ("scan_completed", "romancy_instances_created (created_at>? AND (created_at,id)<(?,?))"),
        ("scan_of_status", "romancy_instances_status (status=? AND created_at>? AND (created_at,id)<(?,?))"),
        ("scan_retrying", "romancy_instances_retrying (created_at>? AND (created_at,id)<(?,?))"),
        ("window_of_status", "romancy_instances_status (status=? AND created_at>? AND (created_at,id)<(?,?))"),
        ("count_status", "romancy_instances_status (status=? AND created_at>?)"),
        ("count_due", "romancy_instances_claimable (workflow=? AND version=? AND wake_at"),
        ("ids_by_prefix", "PRIMARY KEY (id>? AND id<?)"),
        ("ids_by_wait", "romancy_waits_key (kind=? AND key=?)"),
        ("ended_between", "romancy_instances_ended (ended_at>? AND ended_at<?)"),
        ("last_events", "romancy_events_type (type=?)"),
        ("subscribers_of", "PRIMARY KEY (channel=? AND instance_id>?)"),
        ("list_audit_of", "romancy_audit_instance (instance_id=? AND number<?)"),
        ("add_steps", "PRIMARY KEY (id=?)"),
        ("fast_end", "PRIMARY KEY (id=?)"),
        ("prunable", "romancy_instances_ended (ended_at"),
        ("get_row", "PRIMARY KEY (id=?)"),
        ("history_of", "PRIMARY KEY (instance_id=? AND generation=? AND seq>?)"),
        ("attempts_of", "PRIMARY KEY (instance_id=? AND generation=?)"),
        ("inbox_of", "romancy_inbox_instance (instance_id=?)"),
        ("journal_of", "romancy_journal_instance (instance_id=?)"),
        ("waits_of", "PRIMARY KEY (instance_id=?)"),
        ("load_states", "PRIMARY KEY (id=?)"),
        ("step", "PRIMARY KEY (id=?)"),
        ("update_instances", "PRIMARY KEY (id=?)"),
        ("set_results", "PRIMARY KEY (instance_id=? AND generation=?)"),
        ("withdraw_waits", "PRIMARY KEY (instance_id=? AND op=?)"),
        ("close_attempts", "PRIMARY KEY (instance_id=?"),
        ("consume_inbox_items", "INTEGER PRIMARY KEY (rowid=?)"),
        ("events_for_all", "romancy_events_type (type=? AND seq>?)"),
        ("events_of_subject", "romancy_events_subject (type=? AND subject=? AND seq>?)"),
        ("events_for_one", "romancy_events_target (target=? AND type=? AND seq>?)"),
        ("search_start", "romancy_consumed_events_selector (instance_id=? AND selector=?"),
        ("waits_for_event", "romancy_waits_key (kind=? AND key=? AND subject=?)"),
        ("waits_for_message", "romancy_deliveries_seq (seq=?)"),
        ("match_waits", "PRIMARY KEY (instance_id=? AND op=?)"),
        ("wake", "PRIMARY KEY (id=?)"),
        ("first_of_pool", "romancy_messages_pool (channel=?)"),
        ("first_delivery", "PRIMARY KEY (instance_id=? AND channel=?)"),
        ("deliver_to_subscribers", "PRIMARY KEY (channel=?)"),
        ("deliver_to_members", "PRIMARY KEY (name=?)"),
        ("drop_messages", "romancy_deliveries_seq (seq=?)"),
        ("clear_subscriptions", "romancy_subscriptions_instance (instance_id=?)"),
        ("clear_members", "romancy_group_members_instance (instance_id=?)"),
        ("old_events", "romancy_events_accepted (accepted_at<?)"),
        ("old_messages", "romancy_messages_age (created_at<?)"),
        ("prune_consumed_by_event", "romancy_consumed_events_seq (seq=?)"),
        ("undeliverable", "romancy_events_unconsumed (seq>?)"),
    ],
)
def test_the_index_meant_is_used(connection: sqlite3.Connection, name: str, index: str) -> None:
    steps = plan(connection, name)
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize(
    "name",
    [
        "due",
        "upcoming",
        "scan_all",
        "scan_of_status",
        "scan_retrying",
        "list_rows",
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
    ],
)
def test_no_unbounded_sort(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, name)
    # `upcoming` sorts the rows of all kinds together; their number is bounded.
    assert sum("TEMP B-TREE" in step for step in steps) == (1 if name == "upcoming" else 0), steps


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    text = get_statement(name)
    return [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {text}", _values(text)).fetchall()]


def _values(text: str) -> list[None] | dict[str, None]:
    return dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * text.count("?")


def _fill(connection: sqlite3.Connection) -> None:
    """All rows are of one workflow, ended and alike, so that the statistics speak against every index."""
    rows = [(f"i{n}", n) for n in range(2000)]
    connection.executemany(
        "INSERT INTO romancy_instances (id, workflow, version, status, generation, round, epoch, inbox_version,"
        " inbox_version_seen, fingerprint, created_at, updated_at, ended_at, code, python, digest)"
        " VALUES (?, 'order', '', 'completed', 1, 0, 1, 0, 0, '', ?, 1, 1, '', '', x'')",
        rows,
    )
    numbers = [(n,) for n in range(2000)]
    for statement in (
        "INSERT INTO romancy_events (source, id, type, subject, target, accepted_at, body)"
        " VALUES ('shop', ?, 'paid', 's', 'i1', 1, x'')",
        "INSERT INTO romancy_events (source, id, type, subject, accepted_at, body) VALUES ('bank', ?, 'paid', 's', 1, x'')",
        "INSERT INTO romancy_consumed_events (instance_id, seq, selector) VALUES ('i1', ?, 'paid')",
        "INSERT INTO romancy_waits (instance_id, op, kind, since, key, subject, site)"
        " VALUES ('i1', 'event:' || ?, 'event', 1, 'paid', 's', '')",
        "INSERT INTO romancy_waits (instance_id, op, kind, since, key, site)"
        " VALUES ('i1', 'message:' || ?, 'message', 1, 'jobs', '')",
        "INSERT INTO romancy_subscriptions (channel, instance_id, mode, since) VALUES ('jobs', ?, 'competing', 1)",
        "INSERT INTO romancy_messages (channel, pooled, created_at, body) VALUES ('jobs', 1, ?, x'')",
        "INSERT INTO romancy_deliveries (instance_id, channel, seq) VALUES ('i1', 'jobs', ?)",
        "INSERT INTO romancy_group_members (name, instance_id, since) VALUES ('crew', ?, 1)",
    ):
        connection.executemany(statement, numbers)
