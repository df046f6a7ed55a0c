"""No statement reads a whole table, with or without statistics."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from romancy.store.sqlite.schema import prepare
from romancy.store.sqlite.statements import names, one

SMALL = {"all_workers", "orphans"}
"""There are few workers, and owned instances are as many as run at once: the index of the owned is walked."""


@pytest.fixture(params=["empty", "analyzed"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection, ":memory:", auto_migrate=True, now=1)
        if request.param == "analyzed":
            _fill(connection)
            connection.execute("ANALYZE")
        yield connection


@pytest.mark.parametrize("name", sorted(set(names()) - SMALL))
def test_no_table_is_scanned(connection: sqlite3.Connection, name: str) -> None:
    for step in plan(connection, name):
        assert not re.match(r"SCAN (?!json_each|wanted|kind|new|\d|\(|CONSTANT)", step) or "INDEX" in step, step


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("due", "romancy_instances_claimable (workflow=? AND version=? AND wake_at"),
        ("upcoming", "romancy_instances_claimable (workflow=? AND version=? AND wake_at"),
        ("blocked", "romancy_instances_blocked (workflow=? AND version=?)"),
        ("arrivals", "romancy_instances_owned (owner=?)"),
        ("owned", "romancy_instances_owned (owner=?)"),
        ("orphans", "romancy_instances_owned"),
        ("list_rows", "romancy_instances_created (created_at>? AND (created_at,id)<(?,?))"),
        ("list_of_status", "romancy_instances_status (status=? AND created_at>? AND (created_at,id)<(?,?))"),
        ("list_running", "romancy_instances_owned"),
        ("list_completed", "romancy_instances_created (created_at>? AND (created_at,id)<(?,?))"),
        ("kinds_waiting", "romancy_instances_claimable"),
        ("add_steps", "PRIMARY KEY (id=?)"),
        ("quick_end", "PRIMARY KEY (id=?)"),
        ("prunable", "romancy_instances_ended (ended_at"),
        ("get_row", "PRIMARY KEY (id=?)"),
        ("history_of", "PRIMARY KEY (instance_id=? AND generation=? AND seq>?)"),
        ("attempts_of", "PRIMARY KEY (instance_id=? AND generation=?)"),
        ("inbox_of", "romancy_inbox_instance (instance_id=?)"),
        ("journal_of", "romancy_journal_instance (instance_id=?)"),
        ("waits_of", "PRIMARY KEY (instance_id=?)"),
        ("look", "PRIMARY KEY (id=?)"),
        ("step", "PRIMARY KEY (id=?)"),
        ("move", "PRIMARY KEY (id=?)"),
        ("set_results", "PRIMARY KEY (instance_id=? AND generation=?)"),
        ("withdraw_waits", "PRIMARY KEY (instance_id=? AND op=?)"),
        ("close_attempts", "PRIMARY KEY (instance_id=?"),
        ("consume_mails", "INTEGER PRIMARY KEY (rowid=?)"),
    ],
)
def test_the_index_meant_is_used(connection: sqlite3.Connection, name: str, index: str) -> None:
    steps = plan(connection, name)
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize("name", ["due", "upcoming", "list_rows", "prunable", "history_of"])
def test_no_unbounded_sort(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, name)
    # `upcoming` merges what each kind gave, which is bounded.
    assert sum("TEMP B-TREE" in step for step in steps) == (1 if name == "upcoming" else 0), steps


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    text = one(name)
    return [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {text}", _values(text)).fetchall()]


def _values(text: str) -> list[None] | dict[str, None]:
    return dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * text.count("?")


def _fill(connection: sqlite3.Connection) -> None:
    """Everything is of one workflow, ended and alike: statistics that speak against every index."""
    rows = [(f"i{n}", n) for n in range(2000)]
    connection.executemany(
        "INSERT INTO romancy_instances (id, workflow, version, status, generation, round, epoch, signal, signal_seen,"
        " fingerprint, created_at, updated_at, ended_at, code, python, digest)"
        " VALUES (?, 'order', '', 'completed', 1, 0, 1, 0, 0, '', ?, 1, 1, '', '', x'')",
        rows,
    )
