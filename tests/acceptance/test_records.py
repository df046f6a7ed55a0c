"""The records for operators: attempts, the journal, the audit, call sites."""

import asyncio
import linecache
from datetime import timedelta

import pytest
from tests import databases

from romancy import ActivityContext, RetryPolicy, WorkflowContext, activity, sleep, workflow
from romancy.model.source import split_sections
from romancy.serde.failure import describe_failure
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


@activity(retry=RetryPolicy.fixed(3, 10))
async def flaky(ctx: ActivityContext, name: str) -> str:
    if ctx.attempt < 3:
        raise ConnectionError(f"busy {ctx.attempt}")
    return name


@workflow
async def job(ctx: WorkflowContext) -> str:
    await sleep(ctx, 60, sleep_id="a minute")
    return await flaky(ctx, "it")


async def test_an_entry_tells_where_when_who_and_with_what() -> None:
    async with TestEnvironment(workflows=[job], worker_id="w1") as env:
        begun = env.now()
        handle = await env.app.start_workflow(job)
        assert await handle.result() == "it"
        entries = [entry async for entry in handle.history()]
    timer, ran = entries
    assert (timer.seq, timer.kind, timer.activity_id, timer.name, timer.outcome) == (1, "timer", "a minute", "sleep", "ok")
    assert timer.scheduled_at == begun
    assert timer.at == begun + timedelta(seconds=60)
    assert (ran.seq, ran.kind, ran.activity_id, ran.name, ran.attempt) == (2, "activity", "flaky:1", "flaky", 3)
    assert (ran.input, ran.result, ran.error) == ({"name": "it"}, "it", None)
    assert ran.scheduled_at == begun + timedelta(seconds=60)
    assert ran.started_at == ran.ended_at == ran.at == begun + timedelta(seconds=80)
    assert ran.worker_id.startswith("w1/")
    assert ran.epoch >= 2
    for entry, text in ((timer, "await sleep(ctx, 60"), (ran, "return await flaky")):
        module, function, line, column = entry.site.split(":")
        assert (module, function) == ("tests.acceptance.test_records", "job")
        assert text in linecache.getline(__file__, int(line))
        assert int(column) > 0


async def test_failed_attempts_are_kept_with_their_errors_and_times() -> None:
    async with TestEnvironment(workflows=[job]) as env:
        begun = env.now()
        handle = await env.app.start_workflow(job)
        await env.advance(75)
        waiting = await env.app.get_instance(handle.instance_id)
        assert waiting is not None
        (wait,) = waiting.waiting_for
        assert (wait.kind, wait.key, wait.activity_id) == ("retry", "flaky", "flaky:1")
        assert wait.due == begun + timedelta(seconds=80)
        assert wait.since == begun + timedelta(seconds=60)
        await handle.result()
        rows = await env.app._store.attempts(handle.instance_id, 1)
    assert [(row.op, row.attempt, row.open) for row in rows] == [("flaky:1", 1, False), ("flaky:1", 2, False)]
    errors = [describe_failure(row.error or b"") for row in rows]
    assert [(error.type, error.message) for error in errors] == [
        ("ConnectionError", "busy 1"),
        ("ConnectionError", "busy 2"),
    ]
    assert [((row.next_at or 0) - (row.ended_at or 0)) / 1_000_000 for row in rows] == [10, 10]
    assert all(row.worker and row.site.startswith("tests.acceptance.test_records:job:") for row in rows)


async def test_the_error_of_an_entry_has_a_trace() -> None:
    @workflow
    async def giving_up(ctx: WorkflowContext) -> str:
        try:
            return await flaky.with_options(retry=RetryPolicy.none())(ctx, "it")
        except Exception:
            return "gave up"

    async with TestEnvironment(workflows=[giving_up]) as env:
        handle = await env.app.start_workflow(giving_up)
        assert await handle.result() == "gave up"
        (entry,) = [entry async for entry in handle.history()]
    assert entry.outcome == "error"
    assert entry.error is not None
    assert "RetryExhaustedError" in entry.error.type
    assert "busy 1" in entry.error.message
    assert "busy 1" in entry.error.trace


async def test_the_journal_tells_claims_losses_cold_replays_and_operators_actions() -> None:
    async with TestEnvironment(workflows=[job], worker_id="w1") as env:
        handle = await env.app.start_workflow(job)
        await env.settle()
        await env.restart()
        await env.app.pause_workflow(handle.instance_id, "lunch")
        await env.app.resume_workflow(handle.instance_id)
        await env.advance(65)
        await env.restart()
        await handle.result()
        lines = await env.app._store.journal(handle.instance_id)
    kinds = [line.note.kind for line in lines]
    assert kinds[:3] == ["pause", "resume", "claimed"]
    assert lines[0].note.detail == "lunch"
    assert "replayed" in kinds
    assert all(line.worker.startswith("w1/") for line in lines if line.note.kind in ("claimed", "replayed"))
    epochs = [line.epoch for line in lines]
    assert epochs == sorted(epochs)


async def test_a_lost_owner_is_in_the_journal() -> None:
    running = asyncio.Event()

    @activity
    async def hang(ctx: ActivityContext) -> str:
        if running.is_set():
            return "second time"
        running.set()
        await asyncio.Event().wait()
        return "never"

    @workflow
    async def short(ctx: WorkflowContext) -> str:
        return await hang(ctx)

    async with TestEnvironment(workflows=[short]) as env:
        handle = await env.app.start_workflow(short)
        await running.wait()
        await env.restart()
        assert await handle.result() == "second time"
        lines = await env.app._store.journal(handle.instance_id)
    assert [line.note.kind for line in lines][:2] == ["lost", "claimed"]
    assert lines[0].worker != lines[1].worker
    assert lines[0].epoch < lines[1].epoch


async def test_the_source_is_kept_once_for_each_version_of_the_code(database: str) -> None:
    async with TestEnvironment(database, workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await handle.result()
        await env.restart()
        loaded = await env.app._store.load(handle.instance_id)
        assert loaded is not None
        source = await env.app._store.source(loaded.row.code)
        assert source is not None
        (section,) = split_sections(source)
        assert section.text.startswith("@workflow\nasync def job")
        assert loaded.row.python.startswith("3.")
        assert databases.execute(database, "SELECT count(*) FROM romancy_sources WHERE code NOT LIKE '[%'") == [(1,)]


async def test_workers_are_listed_with_what_they_know_and_gone_after_shutdown(database: str) -> None:
    async with TestEnvironment(database, workflows=[job], worker_id="w1", service_name="shop") as env:
        (row,) = await env.app._store.workers()
        assert (row.label, row.service, row.workflows) == ("w1", "shop", '[["job", ""]]')
        first = row.id
        await env.restart()
        (row,) = await env.app._store.workers()
        assert row.id != first
    async with TestEnvironment(database, workflows=[job]) as env:
        assert len(await env.app._store.workers()) == 1
