"""Whatever is wrong, the error says what, and nothing is lost."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    PayloadError,
    RetryPolicy,
    Status,
    StoreError,
    WorkflowContext,
    activity,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


@workflow(name="one name")
async def one(ctx: WorkflowContext, n: int = 0) -> int:
    return n


@workflow(name="one name")
async def other(ctx: WorkflowContext, n: int = 0) -> int:
    return n


def test_two_workflows_under_one_name_are_both_named() -> None:
    with pytest.raises(ConfigurationError) as raised:
        App(":memory:", workflows=[one, other])
    for part in ("one name", "test_bad_input.one", "test_bad_input.other", "test_bad_input.py:"):
        assert part in str(raised.value)
    app = App(":memory:", workflows=[one])
    app.register(one)
    with pytest.raises(ConfigurationError, match="Two workflows"):
        app.register(other)


def test_what_cannot_be_a_workflow_or_an_activity_is_refused_when_decorated() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    async def bare() -> None: ...

    cases: list[tuple[Any, Any]] = [(plain, workflow), (bare, workflow), (bare, activity), (3, activity)]
    for wrong, decorate in cases:
        with pytest.raises(ConfigurationError):
            decorate(wrong)
    anything: Any = activity
    for option, value in (
        ("timeout", -1),
        ("timeout", 0),
        ("timeout", "soon"),
        ("retry", 3),
        ("heartbeat_timeout", True),
        ("name", ""),
    ):
        with pytest.raises(ConfigurationError, match=option):
            anything(**{option: value})(one.fn)
    for wrong_id in ("", 5):
        with pytest.raises(ConfigurationError, match="instance_id"):
            one.with_options(instance_id=wrong_id)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        App(":memory:", workflows=[one.fn])  # type: ignore[list-item]
    policies: tuple[dict[str, Any], ...] = (
        {"max_attempts": -1},
        {"initial_interval": -1},
        {"jitter": 2},
        {"retryable": "x"},
        {"multiplier": True},
    )
    for policy in policies:
        with pytest.raises(ConfigurationError):
            RetryPolicy(**policy)


async def test_arguments_of_the_wrong_type_start_nothing() -> None:
    async with TestEnvironment(workflows=[one]) as env:
        start: Any = env.app.start_workflow
        for wrong in ("x", None, object(), [1], float("nan")):
            with pytest.raises(PayloadError, match=r"'n'"):
                await start(one, wrong)
        for args in ((1, 2), ()):
            with pytest.raises(TypeError, match="one"):
                await start(one, *args, **({} if args else {"m": 1}))
        for wrong_wf in (one.fn, 5, None):
            with pytest.raises(ConfigurationError, match="not a workflow"):
                await start(wrong_wf)
        assert (await env.app.list_instances()).items == []


@pytest.mark.parametrize("instance_id", ["a\ud800b", "\0"])
async def test_an_instance_id_that_cannot_be_stored_fails_alone(instance_id: str) -> None:
    async with TestEnvironment(workflows=[one]) as env:
        with pytest.raises((ConfigurationError, StoreError, PayloadError)):
            await env.app.start_workflow(one.with_options(instance_id=instance_id), 1)
        assert await (await env.app.start_workflow(one, 2)).result() == 2


@pytest.mark.parametrize("instance_id", ["a b/c?d=é:%_'\"\n", "x" * 5000])
async def test_any_other_text_is_an_instance_id(instance_id: str) -> None:
    async with TestEnvironment(workflows=[one]) as env:
        handle = await env.app.start_workflow(one.with_options(instance_id=instance_id), 1)
        assert await handle.result() == 1
        (found,) = (await env.app.list_instances(instance_id=instance_id[:50])).items
        assert found.instance_id == instance_id


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    garbage = tmp_path / "notes.txt"
    garbage.write_bytes(b"not a database, " * 1000)
    for kind in (App, Client):
        with pytest.raises(StoreError, match=r"notes\.txt is not a SQLite database"):
            await kind(str(garbage), workflows=[one]).startup()
    assert garbage.read_bytes() == b"not a database, " * 1000


async def test_a_database_of_a_newer_release_is_refused(database: str) -> None:
    async with Client(database, workflows=[one]):
        pass
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO romancy_migrations VALUES (9999, 'from_the_future', 0)")
    connection.close()
    app = App(database, workflows=[one])
    with pytest.raises(StoreError, match=r"newer release.*9999_from_the_future.*Upgrade"):
        await app.startup()
    await app.shutdown()


async def test_without_permission_to_migrate_an_empty_database_is_refused(database: str) -> None:
    with pytest.raises(StoreError, match="auto_migrate"):
        await App(database, workflows=[one], auto_migrate=False).startup()


def _damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    file.write_bytes(content)


async def test_a_damaged_database_is_an_error_that_says_so(database: str) -> None:
    async with Client(database, workflows=[one]) as client:
        for number in range(50):
            await client.start_workflow(one, number)
    _damage(Path(database))
    with pytest.raises(StoreError, match="damaged"):
        async with App(database, workflows=[one]) as app:
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


async def test_a_full_disk_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
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

    async with TestEnvironment(workflows=[big, one]) as env:
        handle = await env.app.start_workflow(big)
        committer = env.app._committer
        assert committer is not None
        while not committer._again:
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


async def test_one_poisoned_result_does_not_hurt_its_neighbours() -> None:
    class Poison:
        """Has a text that no database takes."""

        def __str__(self) -> str:
            return "\ud800"

    @activity(retry=RetryPolicy.none())
    async def fail(ctx: ActivityContext, bad: bool) -> str:
        if bad:
            raise ValueError("\ud800", Poison())
        return "well"

    @workflow
    async def job(ctx: WorkflowContext, bad: bool) -> str:
        return await fail(ctx, bad)

    async with TestEnvironment(workflows=[job]) as env:
        handles = [await env.app.start_workflow(job, number == 3) for number in range(6)]
        ends: list[Any] = await asyncio.wait_for(
            asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True), 20
        )
    assert [end for number, end in enumerate(ends) if number != 3] == ["well"] * 5
    assert isinstance(ends[3], Exception)
