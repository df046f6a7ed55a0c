"""The life of a SQLite store: threads, crashes, and the detection of foreign commits."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Literal

import pytest
from tests.store.conformance.builders import ME, ORDER, create, entry, row, started, transition, worker, write

from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.model.status import Status
from romancy.model.transition import Applied
from romancy.store.sqlite.store import SqliteStore

Threads = Literal["threads", "inline"]
both = pytest.mark.parametrize("threads", ["threads", "inline"])


class Killed(BaseException):
    """Simulates the death of the process."""


class CrashAt:
    """A crash hook that raises at one crash point."""

    def __init__(self, point: str) -> None:
        self.point: str | None = point
        self.visited: list[str] = []

    def __call__(self, point: str) -> None:
        self.visited.append(point)
        if point == self.point:
            raise Killed


async def opened(path: Path | str, threads: Threads = "threads", crash: CrashAt | None = None) -> SqliteStore:
    store = SqliteStore(str(path), clock=SystemClock(), threads=threads, crash=crash)
    await store.open()
    return store


@both
@pytest.mark.parametrize("where", ["file", ":memory:"])
async def test_it_leaves_no_thread_and_closes_twice(tmp_path: Path, threads: Threads, where: str) -> None:
    before = set(threading.enumerate())
    store = await opened(tmp_path / "a.db" if where == "file" else where, threads)
    await store.open()
    during = set(threading.enumerate()) - before
    assert all(thread.daemon for thread in during)
    assert len(during) == (0 if threads == "inline" else 2 if where == "file" else 1)
    await started(store, "a")
    await store.close()
    await store.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(StoreError, match="not open"):
        await store.get("a")
    with pytest.raises(StoreError, match="not open"):
        await store.commit([create()])
    gc.collect()  # an unclosed connection would warn here


async def test_it_opens_again_after_its_close(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a.db")
    await started(store, "a")
    await store.close()
    await store.open()
    assert (await row(store)).owner == ME
    await store.close()


async def test_a_failed_open_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteStore(str(tmp_path), clock=SystemClock())
    with pytest.raises(StoreError):
        await store.open()
    assert set(threading.enumerate()) <= before
    await store.close()


async def test_closing_finishes_what_is_queued(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a.db")
    commits = [asyncio.ensure_future(store.commit([create(f"i{n}")])) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*commits) == [[Applied(0, owned=True)]] * 20


async def test_a_cancelled_caller_does_not_undo_its_commit(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a.db")
    task = asyncio.ensure_future(store.commit([create()]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await started(store, "b")
    assert set(await store.statuses(["a", "b"])) == {"a", "b"}
    await store.close()


@both
@pytest.mark.parametrize(("point", "there"), [("commit.before", False), ("commit.after", True)])
async def test_a_crash_around_a_commit(tmp_path: Path, threads: Threads, point: str, there: bool) -> None:
    crash = CrashAt(point)
    store = await opened(tmp_path / "a.db", threads, crash)
    with pytest.raises(Killed):
        await store.commit([create("a"), create("b")])
    crash.point = None
    with pytest.raises(StoreError, match="not open"):
        await store.commit([create("c")])
    with pytest.raises(StoreError, match="not open"):
        await store.get("a")
    await store.close()
    again = await opened(tmp_path / "a.db", threads)
    assert len(await again.statuses(["a", "b", "c"])) == (2 if there else 0)
    await again.close()


@both
@pytest.mark.parametrize(("point", "owner"), [("claim.before", None), ("claim.after", ME)])
async def test_a_crash_around_a_claim(tmp_path: Path, threads: Threads, point: str, owner: str | None) -> None:
    store = await opened(tmp_path / "a.db", threads, CrashAt(point))
    await write(store, create(owner=None))
    with pytest.raises(Killed):
        await store.claim(ME, [ORDER], now=99, limit=1)
    await store.close()
    again = await opened(tmp_path / "a.db", threads)
    assert (await row(again)).owner == owner
    await again.close()


async def test_every_commit_and_claim_passes_its_points(tmp_path: Path) -> None:
    crash = CrashAt("never")
    store = await opened(tmp_path / "a.db", "inline", crash)
    await write(store, create(owner=None))
    await store.claim(ME, [ORDER], now=99, limit=1)
    assert crash.visited == ["commit.before", "commit.after", "claim.before", "claim.after"]
    await store.close()


async def test_another_process_is_noticed(tmp_path: Path) -> None:
    store, other = await opened(tmp_path / "a.db"), await opened(tmp_path / "a.db")
    noticed = asyncio.Event()
    store.on_remote_commit = noticed.set
    await started(other, "a")
    await noticed.wait()
    noticed.clear()
    await started(other, "b")
    await noticed.wait()
    await store.close()
    await other.close()


async def test_another_process_is_noticed_by_a_store_that_never_rests(tmp_path: Path) -> None:
    store, other = await opened(tmp_path / "a.db"), await opened(tmp_path / "a.db")
    noticed = asyncio.Event()
    store.on_remote_commit = noticed.set
    await started(other, "a")
    n = 0
    while not noticed.is_set():
        await started(store, f"i{(n := n + 1)}")
    await store.close()
    await other.close()


async def test_inline_looks_only_when_asked_and_knows_its_own_writes(tmp_path: Path) -> None:
    store, other = await opened(tmp_path / "a.db", "inline"), await opened(tmp_path / "a.db", "inline")
    noticed: list[int] = []
    store.on_remote_commit = lambda: noticed.append(1)
    assert store.on_remote_commit is not None
    await started(store, "a")
    store.check_remote_commit()
    assert noticed == []
    await started(other, "b")
    await started(other, "c")
    assert noticed == []
    store.check_remote_commit()
    store.check_remote_commit()
    assert noticed == [1]
    store.on_remote_commit = None
    await started(other, "d")
    store.check_remote_commit()
    assert noticed == [1]
    await store.close()
    await other.close()


async def test_a_heartbeat_is_written_while_the_writer_is_busy(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a.db")
    await store.register_worker(worker())
    heartbeat = store.heartbeat(ME)
    beats = asyncio.gather(*(asyncio.to_thread(heartbeat.renew, now) for now in range(100, 120)))
    await asyncio.gather(*(store.commit([create(f"i{n}")]) for n in range(50)))
    assert all(await beats)
    heartbeat.close()
    heartbeat.close()
    with pytest.raises(StoreError, match="closed"):
        heartbeat.renew(1)
    await store.close()


async def test_a_long_read_does_not_hold_up_writes(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a.db")
    await started(store, "a")
    go_on = threading.Event()
    reading = threading.Event()

    def slow(cursor: object) -> str:
        reading.set()
        go_on.wait()
        return "read"

    read = asyncio.ensure_future(store._database.read(slow))
    await asyncio.to_thread(reading.wait)
    assert await write(store, transition(history=(entry(1),))) == [Applied(0, owned=True)]
    go_on.set()
    assert await read == "read"
    assert (await row(store)).status is Status.RUNNING
    await store.close()


async def test_memory_is_gone_with_its_store() -> None:
    store, other = await opened(":memory:"), await opened(":memory:")
    await started(store, "a")
    assert await other.statuses(["a"]) == {}
    await store.close()
    await other.close()
