"""An instance that cannot be read or run fails alone; other instances and the worker continue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests import databases
from tests.chaos.worker_processes import until

from romancy import ActivityContext, App, Client, Status, StoreError, WorkflowContext, activity, sleep, workflow
from romancy.store.sql.store import SqlStore

pytestmark = pytest.mark.chaos


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:
    return number + 1


@workflow
async def add_two(ctx: WorkflowContext, number: int, nap: float = 0.05) -> int:
    one = await add_one(ctx, number)
    await sleep(ctx, nap)
    return await add_one(ctx, one)


def _app(database: str, **options: Any) -> App:
    return App(database, workflows=[add_two], poll_interval=0.05, **options)


async def _start(app: Client, count: int, nap: float = 0.05) -> None:
    for number in range(count):
        await app.start_workflow(add_two.with_options(instance_id=f"n{number}"), number, nap)


async def _results(app: Client, numbers: list[int]) -> list[int]:
    return [await app.get_handle(f"n{number}").result(timeout=15) for number in numbers]


async def _leave_waiting(database: str, count: int) -> None:
    """Leave waiting instances, which the next worker must replay."""
    async with _app(database) as app:
        await _start(app, count, nap=2.0)  # longer than this app runs
        await until(lambda: _recorded(database) >= count, "every first activity is recorded")


def _recorded(database: str) -> int:
    return int(
        databases.execute(database, "SELECT count(DISTINCT instance_id) FROM romancy_history WHERE kind = 'activity'")[0][0]
    )


async def test_instances_that_cannot_be_loaded_at_once_are_not_forgotten(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _leave_waiting(database, 5)
    original, failures = SqlStore.load, iter(range(3))

    async def fail_at_first(self: SqlStore, instance_id: str) -> Any:
        if next(failures, None) is not None:
            raise StoreError("the disk is slow")
        return await original(self, instance_id)

    monkeypatch.setattr(SqlStore, "load", fail_at_first)
    async with _app(database) as app:
        assert await _results(app, list(range(5))) == [2, 3, 4, 5, 6]


async def test_an_inbox_that_cannot_be_read_at_once_is_read_later(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, failures = SqlStore.inbox, iter(range(2))

    async def fail_at_first(self: SqlStore, instance_id: str) -> Any:
        if next(failures, None) is not None:
            raise StoreError("the disk is slow")
        return await original(self, instance_id)

    monkeypatch.setattr(SqlStore, "inbox", fail_at_first)
    async with _app(database) as app:
        handle = await app.start_workflow(add_two, 1)
        await handle.cancel()
        await until(lambda: next(failures, None) is None, "the failures are over")
        async with asyncio.timeout(15):
            while await handle.status() is not Status.CANCELLED:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE romancy_history SET value = {bad} WHERE instance_id = 'n2'",
        "UPDATE romancy_history SET value = NULL WHERE instance_id = 'n2'",
        "UPDATE romancy_history SET kind = 'unheard of' WHERE instance_id = 'n2'",
        "UPDATE romancy_history SET outcome = 'error' WHERE instance_id = 'n2'",
        "UPDATE romancy_history SET op = 'add_one:9' WHERE instance_id = 'n2'",
        "UPDATE romancy_payloads SET input = {bad} WHERE instance_id = 'n2'",
        "DELETE FROM romancy_payloads WHERE instance_id = 'n2'",
    ],
)
async def test_a_damaged_instance_harms_no_other(database: str, damage: str) -> None:
    await _leave_waiting(database, 5)
    databases.execute(database, damage.format(bad=databases.blob(database, "FF00")))
    async with _app(database) as app:
        assert await _results(app, [0, 1, 3, 4]) == [2, 3, 5, 6]
        later = await app.start_workflow(add_two.with_options(instance_id="later"), 7)
        assert await later.result(timeout=15) == 9
        async with Client(database, workflows=[add_two]) as client:  # found by polling, so the claimer must be alive
            await client.start_workflow(add_two.with_options(instance_id="n10"), 10)
        assert await _results(app, [10]) == [12]
        # It does not stay `running` without a runner.
        await until(lambda: _status(database, "n2") in ("blocked", "failed"), "it is set aside")


async def test_a_damaged_payload_can_be_listed(database: str) -> None:
    await _leave_waiting(database, 2)
    bad = databases.blob(database, "FF00")
    databases.execute(database, f"UPDATE romancy_payloads SET input = {bad} WHERE instance_id = 'n1'")
    async with Client(database, workflows=[add_two]) as client:
        page = await client.list_instances()
        assert {instance.instance_id for instance in page.items} == {"n0", "n1"}


def _status(database: str, instance_id: str) -> str:
    return str(databases.execute(database, f"SELECT status FROM romancy_instances WHERE id = '{instance_id}'")[0][0])


async def test_a_start_whose_caller_goes_away_runs_all_the_same(database: str) -> None:
    async with _app(database) as app:
        starts = [
            asyncio.create_task(app.start_workflow(add_two.with_options(instance_id=f"n{number}"), number, 0.05))
            for number in range(20)
        ]
        for turns, start in enumerate(starts):
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            start.cancel()
        await asyncio.wait(starts)
        await _start(app, 20)  # a caller that was cancelled may repeat the start
        assert await _results(app, list(range(20))) == [number + 2 for number in range(20)]
