"""Any running app carries out bulk actions."""

from __future__ import annotations

import asyncio

from romancy import App, Client, WorkflowContext, sleep, workflow
from romancy.admin import bulk_actions
from romancy.admin.local import DatabaseManager
from romancy.admin.records import ActionKind, ActionResult, BulkAction
from romancy.model.admin import BulkActionRow


@workflow
async def nap(ctx: WorkflowContext) -> None:
    await sleep(ctx, 3600)


async def ended(manager: DatabaseManager, batch: BulkAction) -> BulkAction:
    """The bulk action, after its end."""
    while batch.status == "running":
        await asyncio.sleep(0.005)
        batch = await manager.get_bulk_action(batch.batch_id)
    return batch


async def test_an_unfinished_bulk_action_is_continued_by_the_next_app(database: str) -> None:
    async with Client(database, workflows=[nap]) as client:
        ids = [(await client.start_workflow(nap)).instance_id for _ in range(3)]
        batch = await DatabaseManager(client).start_bulk_action(ActionKind.CANCEL, "workflow:nap", actor="ann")
    async with App(database, workflows=[nap]) as app:
        manager = DatabaseManager(app)
        done = await ended(manager, batch)
        assert (done.status, done.done, done.failed) == ("done", 3, 0)
        for one in ids:
            assert ("cancel", "ann") in [(line.kind, line.worker_id) for line in await app.get_journal(one)]


async def test_a_running_app_begins_at_once(database: str) -> None:
    async with App(database, workflows=[nap]) as app:
        manager = DatabaseManager(app)
        await app.start_workflow(nap)
        batch = await ended(manager, await manager.start_bulk_action(ActionKind.TERMINATE, "workflow:nap"))
        assert (batch.done, batch.looked_at) == (1, 1)
        assert batch.ended_at is not None


async def test_one_that_dies_in_the_middle_is_gone_on_with(database: str) -> None:
    async with Client(database, workflows=[nap]) as client:
        for _ in range(120):
            await client.start_workflow(nap)
        manager = DatabaseManager(client)
        begun = await manager.start_bulk_action(ActionKind.PAUSE, "workflow:nap")
        store, now = client._store, client._clock.now()
        row = await store.claim_bulk_action("dies", now=now, until=now)
        assert row is not None
        seen: list[str] = []

        async def do(action: ActionKind, ids: object, reason: str | None, actor: str) -> list[ActionResult]:
            assert isinstance(ids, list)
            seen.extend(ids)
            return [ActionResult(one, True) for one in ids]

        half: BulkActionRow = await bulk_actions.apply_portion(store, row, do)
        assert await store.save_bulk_action(half, "dies", until=now)
        assert await manager.bulk_action_runner("lives").run_next()
        done = await manager.get_bulk_action(begun.batch_id)
        assert (done.status, done.done, len(seen)) == ("done", 120, 50)
        assert len((await manager.list_instances("status:paused", limit=200)).items) == 70
