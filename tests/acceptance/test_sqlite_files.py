"""Damaged and unwritable SQLite files: the error names the problem, and no data is lost."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from romancy import ActivityContext, App, Client, Status, StoreError, WorkflowContext, activity, sleep, workflow
from romancy.testing import TestEnvironment


@workflow
async def one(ctx: WorkflowContext, n: int = 0) -> int:
    return n


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    garbage = tmp_path / "notes.txt"
    garbage.write_bytes(b"not a database, " * 1000)
    for kind in (App, Client):
        with pytest.raises(StoreError, match=r"notes\.txt is not a SQLite database"):
            await kind(str(garbage), workflows=[one]).startup()
    assert garbage.read_bytes() == b"not a database, " * 1000


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


async def test_a_damaged_database_is_an_error_that_says_so(file: str) -> None:
    async with Client(file, workflows=[one]) as client:
        for number in range(50):
            await client.start_workflow(one, number)
    _damage(Path(file))
    with pytest.raises(StoreError, match="damaged"):
        async with App(file, workflows=[one]) as app:
            await app.list_instances()


@pytest.mark.parametrize("where", ["folder", "under a file", "no such folder", "not writable"])
async def test_a_place_where_no_file_can_be_made_is_told(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    path = {
        "folder": tmp_path,
        "under a file": tmp_path / "file" / "x.db",
        "no such folder": tmp_path / "nowhere" / "x.db",
        "not writable": Path("/proc/self/romancy.db"),
    }[where]
    app = App(str(path), workflows=[one])
    with pytest.raises(StoreError) as raised:
        await app.startup()
    assert str(path) in str(raised.value)
    await app.shutdown()


async def test_a_full_disk_loses_nothing(file: str, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []

    @activity
    async def fill(ctx: ActivityContext) -> str:
        ran.append(ctx.attempt)
        limit(pages())
        return "x" * 1_000_000

    @workflow
    async def big(ctx: WorkflowContext) -> int:
        text = await fill(ctx)
        await sleep(ctx, 60)
        return len(text)

    def writer() -> sqlite3.Connection:
        connection: sqlite3.Connection = env.app._store._database._session.writer  # type: ignore[attr-defined]
        return connection

    def pages() -> int:
        return int(writer().execute("PRAGMA page_count").fetchone()[0])

    def limit(number: int) -> None:
        writer().execute(f"PRAGMA max_page_count = {number}")

    async with TestEnvironment(file, workflows=[big, one]) as env:
        handle = await env.app.start_workflow(big)
        committer = env.app._committer
        assert committer is not None
        while not committer._retries:
            await asyncio.sleep(0)
        with pytest.raises(StoreError, match="full") as raised:
            await env.app.start_workflow(big.with_options(instance_id="x" * 100_000))
        assert raised.value.retryable
        assert await handle.status() is Status.RUNNING
        limit(1_000_000_000)
        assert await asyncio.wait_for(handle.result(), 20) == 1_000_000
        assert await (await env.app.start_workflow(one, 3)).result() == 3
    assert ran == [1]
    assert "could not write to the database" in caplog.text
