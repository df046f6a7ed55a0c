"""The errors of SQLite, in plain words."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from tests.store.conformance.builders import create, entry, started, transition, write

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.model.transition import Applied
from romancy.store.sqlite import connection
from romancy.store.sqlite.errors import translate
from romancy.store.sqlite.store import SqliteStore


def sqlite_store(path: Path | str, threads: Literal["threads", "inline"] = "inline") -> SqliteStore:
    return SqliteStore(str(path), clock=SystemClock(), threads=threads)


async def refused(path: Path) -> StoreError:
    store = sqlite_store(path, "threads")
    with pytest.raises(StoreError) as caught:
        await store.open()
    await store.close()
    assert str(path) in str(caught.value)
    return caught.value


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"This is a letter, not a database." * 100)
    error = await refused(path)
    assert "is not a SQLite database" in str(error)
    assert isinstance(error.__cause__, sqlite3.DatabaseError)
    assert not error.retryable


async def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = sqlite_store(path)
    await store.open()
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    error = await refused(path)
    assert "is damaged" in str(error)
    assert not error.retryable


async def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in str(await refused(tmp_path))


async def test_no_folder(tmp_path: Path) -> None:
    error = await refused(tmp_path / "missing" / "a.db")
    assert f"there is no folder {tmp_path / 'missing'}" in str(error)


@pytest.fixture
def locked_folder(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o500)
    yield tmp_path
    tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_cannot_be_written(locked_folder: Path) -> None:
    assert "Allow this process" in str(await refused(locked_folder / "a.db"))


async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path / "a.db")
    await store.open()
    _writer(store).execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="cannot be written") as caught:
        await store.commit([create()])
    assert not caught.value.retryable
    await store.close()


@pytest.mark.parametrize("threads", ["threads", "inline"])
async def test_a_full_disk_fails_the_commit_and_not_the_store(tmp_path: Path, threads: Literal["threads", "inline"]) -> None:
    store = sqlite_store(tmp_path / "a.db", threads)
    await store.open()
    await started(store, "a")
    writer = _writer(store)
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="is full") as caught:
        await store.commit([create("b"), transition("a", history=(entry(1, value=b"x" * 100_000),))])
    assert caught.value.retryable
    assert await store.statuses(["b"]) == {}
    assert await store.history("a", 1, after=0, limit=9) == []
    writer.execute("PRAGMA max_page_count = 1000000")
    assert await write(store, create("b"), transition("a", history=(entry(1),))) == [Applied(0, owned=True)] * 2
    await store.close()


async def test_a_value_that_is_too_large_fails_alone(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path / "a.db")
    await store.open()
    await started(store, "a", "b")
    _writer(store).setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
    large, small = entry(1, value=b"x" * 60_000), entry(1, value=b"x" * 40_000)
    wrong, right = await store.commit([transition("a", history=(large,)), transition("b", history=(small,))])
    assert isinstance(wrong, StoreError)
    assert "the transition of instance 'a'" in str(wrong)
    assert right == Applied(0, owned=True)
    await store.close()


async def test_a_lock_held_by_another_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = sqlite_store(path, "threads")
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(store.commit([create()]))
        assert await store.statuses(["a"]) == {}, "reads are not blocked"
        other.execute("ROLLBACK")
    assert await task == [Applied(0, owned=True)]
    await store.close()


async def test_the_timeout_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    store = sqlite_store(path)
    await store.open()
    _writer(store).execute("PRAGMA busy_timeout = 0")
    monkeypatch.setattr(connection, "_BUSY_LIMIT", -1.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process") as caught:
            await store.commit([create()])
    assert caught.value.retryable
    await store.close()


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_BUSY, True),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, True),
        (sqlite3.SQLITE_LOCKED, True),
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_CORRUPT, False),
        (sqlite3.SQLITE_NOTADB, False),
        (sqlite3.SQLITE_READONLY_DIRECTORY, False),
        (sqlite3.SQLITE_CANTOPEN, False),
        (sqlite3.SQLITE_ERROR, False),
    ],
)
def test_which_errors_may_pass(code: int, retryable: bool) -> None:
    error = sqlite3.OperationalError("as the driver says it")
    error.sqlite_errorcode = code
    translated = translate(error, "orders.db")
    assert translated.retryable is retryable
    assert translated.__cause__ is error
    assert "orders.db" in str(translated)
    assert "as the driver says it" in str(translated)


async def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OLDEST", (99, 0, 0))
    store = sqlite_store(tmp_path / "a.db")
    with pytest.raises(StoreError, match=r"needs 99\.0\.0 or newer"):
        await store.open()


def _writer(store: SqliteStore) -> sqlite3.Connection:
    session = store._file._session
    assert session is not None
    return session.writer
