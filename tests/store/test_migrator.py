"""Numbered SQL files of migrations."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.store.migrator import Migration, _parse_migration, pending, read_migrations, split_statements
from romancy.store.open import open_store
from romancy.store.sqlite.schema import MIGRATIONS

ONE, TWO = Migration(1, "one", ()), Migration(2, "two", ())


def test_statements_are_split_at_their_ends_only() -> None:
    script = """
    -- a comment; with a semicolon and an apostrophe's
    CREATE TABLE a (x TEXT DEFAULT ';--'); -- behind
    INSERT INTO a VALUES ('it''s; fine'), ("odd;name"), (1 - 2);
    CREATE FUNCTION f(price$ INT) RETURNS INT AS $$ BEGIN; -- it's within
        RETURN 1; END $$;
    SELECT 1
    """
    assert [" ".join(one.split()) for one in split_statements(script)] == [
        "CREATE TABLE a (x TEXT DEFAULT ';--')",
        "INSERT INTO a VALUES ('it''s; fine'), (\"odd;name\"), (1 - 2)",
        "CREATE FUNCTION f(price$ INT) RETURNS INT AS $$ BEGIN; -- it's within RETURN 1; END $$",
        "SELECT 1",
    ]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mysql"])
def test_the_files_of_every_dialect_are_numbered_without_gaps(dialect: str) -> None:
    migrations = read_migrations(f"romancy.store.{dialect}.migrations")
    assert [one.version for one in migrations] == list(range(1, len(migrations) + 1))


def test_our_files_are_in_order() -> None:
    migrations = read_migrations(MIGRATIONS)
    for migration in migrations:
        assert all(sqlite3.complete_statement(f"{statement};") for statement in migration.statements)


@pytest.mark.parametrize(
    ("name", "text"), [("first.sql", "-- migrate:up"), ("0001_x.sql", "SELECT 1;"), ("0001_x.sql", "a; -- migrate:up")]
)
def test_a_file_out_of_order_is_refused(name: str, text: str) -> None:
    with pytest.raises(StoreError, match=name):
        _parse_migration(name, text)


def test_what_is_pending() -> None:
    assert pending([ONE, TWO], [], "db") == (ONE, TWO)
    assert pending([ONE, TWO], [(1, "one")], "db") == (TWO,)
    assert pending([ONE, TWO], [(1, "one"), (2, "two")], "db") == ()


def test_a_newer_database_is_refused_with_advice() -> None:
    with pytest.raises(StoreError, match=r"orders\.db was changed by a newer release .*0003_three.*Upgrade romancy"):
        pending([ONE, TWO], [(1, "one"), (2, "two"), (3, "three")], "orders.db")


async def test_migrations_are_recorded_and_applied_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for _ in range(2):
        store = open_store(str(path), clock=SystemClock())
        await store.open()
        await store.close()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT version, name FROM romancy_migrations").fetchall()
    assert rows == [(one.version, one.name) for one in read_migrations(MIGRATIONS)]


async def test_a_file_of_a_newer_release_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(str(path), clock=SystemClock())
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO romancy_migrations VALUES (9999, 'future', 1)")
    newer = open_store(str(path), clock=SystemClock())
    with pytest.raises(StoreError, match="9999_future"):
        await newer.open()


@pytest.mark.parametrize("there", [True, False])
async def test_a_schema_that_is_behind_is_left_alone(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "a.db"
    if there:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 1")
    store = open_store(str(path), clock=SystemClock(), auto_migrate=False)
    with pytest.raises(StoreError, match=r"0001_initial.*auto_migrate=True"):
        await store.open()
    assert path.exists() == there


async def test_a_current_schema_needs_no_migration(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    for auto_migrate in (True, False):
        store = open_store(path, clock=SystemClock(), auto_migrate=auto_migrate)
        await store.open()
        await store.close()
