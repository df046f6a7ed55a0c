"""Notifications save waiting for the next poll; without them, everything still happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romancy import App, Client, Status, WorkflowContext, sleep, wait_event, workflow
from romancy.clock import MICROS
from romancy.model.instance import InstanceRow
from romancy.worker import claimer
from romancy.worker.claimer import Claimer


@workflow
async def job(ctx: WorkflowContext, number: int) -> int:
    return number


async def test_work_is_found_although_every_hint_of_it_is_lost(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(database, workflows=[job], poll_interval=0.05) as app, Client(database, workflows=[job]) as client:

        def ignore_hint(self: Claimer) -> None:
            """Ignore the hint that work is due."""

        monkeypatch.setattr(Claimer, "poll_soon", ignore_hint)
        handle = await client.start_workflow(job, 7)
        assert await app.get_handle(handle.instance_id).result(timeout=8) == 7


async def test_an_instance_that_another_transaction_has_locked_is_polled_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App(database, workflows=[job], poll_interval=60) as app, Client(database, workflows=[job]) as client:
        claim = app._store.claim
        left_out: list[Any] = []

        async def skip_first_two(*args: Any, **options: Any) -> list[InstanceRow]:
            if len(left_out) < 2 and (ids := options.get("ids")):
                left_out.append(ids)
                return []
            return await claim(*args, **options)

        monkeypatch.setattr(app._store, "claim", skip_first_two)
        handle = await client.start_workflow(job, 7)
        assert app._claimer is not None
        app._claimer.poll_soon()
        assert await app.get_handle(handle.instance_id).result(timeout=8) == 7
        assert left_out == [[handle.instance_id], [handle.instance_id]]


@workflow
async def waiter(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


async def test_what_this_process_has_but_does_not_go_on_with_another_is_told_of(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App(database, workflows=[waiter], poll_interval=60) as app:
        handle = await app.start_workflow(waiter)
        while await handle.status() != "waiting_for_event":
            await asyncio.sleep(0.01)
        monkeypatch.setattr(app._worker, "wake", lambda ids: None)
        monkeypatch.setattr(app._claimer, "poll_soon", lambda: None)
        listens = (await app._store.vitals()).notes.get("listen") != "failed"  # LISTEN does not work through a pooler
        async with App(database, workflows=[waiter], poll_interval=60 if listens else 0.5) as other:
            await asyncio.sleep(0.5)  # lets its first poll pass
            await app.send_event("go", "/tests", {})
            assert await other.get_handle(handle.instance_id).result(timeout=8) is None


async def test_who_has_many_timers_of_its_own_looks_behind_them(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimer, "_CLAIM_LIMIT", 2)

    @workflow
    async def nap(ctx: WorkflowContext, seconds: float) -> None:
        await sleep(ctx, seconds)

    async def start_nap(app: App, seconds: float) -> None:
        handle = await app.start_workflow(nap, seconds)
        while await handle.status() is not Status.WAITING_FOR_TIMER:
            await asyncio.sleep(0.01)

    async with App(database, workflows=[nap]) as gone:
        await start_nap(gone, 200)
    async with App(database, workflows=[nap], poll_interval=300) as app:
        for _ in range(5):
            await start_nap(app, 100)
        assert app._claimer is not None
        due, next_at = await app._claimer._find_due()
        assert due == []
        assert next_at is not None
        assert next_at - app._clock.now() > 150 * MICROS
