"""Writes through `ctx.session` are committed together with the result of the activity, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from romancy import (
    ActivityContext,
    App,
    Client,
    InvalidWorkflowStateError,
    RetryExhaustedError,
    RetryPolicy,
    Status,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    publish,
    receive,
    send_event,
    subscribe,
    wait_event,
    workflow,
)
from romancy.testing import TestEnvironment
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.worker import Worker

ONCE = RetryPolicy.none()


async def orders(shop: AsyncEngine) -> list[tuple[Any, ...]]:
    async with shop.connect() as connection:
        return [tuple(row) for row in await connection.execute(text("SELECT id, total FROM orders ORDER BY id"))]


async def insert(session: AsyncSession, order: str, total: int = 1) -> None:
    await session.execute(text("INSERT INTO orders (id, total) VALUES (:id, :total)"), {"id": order, "total": total})


@activity
async def book(ctx: ActivityContext, order: str) -> str:
    await insert(ctx.session, order, ctx.attempt)
    return f"booked {order}"


async def test_rows_and_result_are_there_together(database: str, shop: AsyncEngine) -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> list[str]:
        return [await book(ctx, "a"), await book(ctx, "b")]

    async with App(database, workflows=[job]) as app:
        handle = await app.start_workflow(job)
        assert await handle.result() == ["booked a", "booked b"]
        entries = [entry async for entry in handle.history()]
        assert [(entry.activity_id, entry.result, entry.attempt) for entry in entries] == [
            ("book:1", "booked a", 1),
            ("book:2", "booked b", 1),
        ]
    assert await orders(shop) == [("a", 1), ("b", 1)]


async def test_a_failed_attempt_leaves_nothing_and_the_next_begins_anew(database: str, shop: AsyncEngine) -> None:
    @activity(retry=RetryPolicy.fixed(3, 0.01))
    async def flaky(ctx: ActivityContext) -> int:
        await insert(ctx.session, f"try {ctx.attempt}")
        await publish(ctx, "news", ctx.attempt)
        if ctx.attempt < 3:
            raise OSError("the line is bad")
        return ctx.attempt

    @workflow
    async def job(ctx: WorkflowContext) -> tuple[int, Any]:
        await subscribe(ctx, "news")
        tries = await flaky(ctx)
        return tries, (await receive(ctx, "news")).data

    async with App(database, workflows=[job]) as app:
        assert await (await app.start_workflow(job)).result() == (3, 3)
    assert await orders(shop) == [("try 3", 1)]


async def test_what_it_says_is_in_the_same_transaction(database: str, shop: AsyncEngine) -> None:
    @activity(retry=ONCE)
    async def sell(ctx: ActivityContext, order: str, fails: bool) -> None:
        await insert(ctx.session, order)
        await send_event(ctx, "order.sold", "shop", {"order": order})
        if fails:
            raise ValueError("sold out")

    @workflow
    async def seller(ctx: WorkflowContext, order: str, fails: bool) -> None:
        await sell(ctx, order, fails)

    @workflow
    async def listener(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "order.sold")).data

    async with App(database, workflows=[seller, listener]) as app:
        heard = await app.start_workflow(listener)
        bad = await app.start_workflow(seller, "bad", True)
        with pytest.raises(WorkflowFailedError):
            await bad.result()
        await (await app.start_workflow(seller, "good", False)).result()
        assert await heard.result(timeout=10) == {"order": "good"}
    assert await orders(shop) == [("good", 1)]


async def test_a_row_the_database_refuses_fails_the_attempt(database: str, shop: AsyncEngine) -> None:
    @activity(retry=ONCE)
    async def twice(ctx: ActivityContext) -> None:
        await insert(ctx.session, "same")
        async with ctx.session.begin_nested():
            await insert(ctx.session, "other")
        await insert(ctx.session, "same")

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        try:
            await twice(ctx)
        except RetryExhaustedError as error:
            return type(error.__cause__).__name__
        return "stored"

    async with App(database, workflows=[job]) as app:
        assert await (await app.start_workflow(job)).result() == "IntegrityError"
    assert await orders(shop) == []


async def test_it_must_not_be_committed_by_hand(database: str, shop: AsyncEngine) -> None:
    @activity(retry=ONCE)
    async def hasty(ctx: ActivityContext) -> None:
        await insert(ctx.session, "early")
        await ctx.session.commit()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await hasty(ctx)

    async with App(database, workflows=[job]) as app:
        with pytest.raises(WorkflowFailedError, match="committed with the activity's result"):
            await (await app.start_workflow(job)).result()
    assert await orders(shop) == []


@pytest.mark.parametrize("kind", ["plain", "not transactional"])
async def test_who_has_no_session_is_told(database: str, kind: str) -> None:
    @activity(retry=ONCE)
    def plain(ctx: ActivityContext) -> None:
        _ = ctx.session

    @activity(retry=ONCE, transactional=False)
    async def loose(ctx: ActivityContext) -> None:
        _ = ctx.session

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await (plain(ctx) if kind == "plain" else loose(ctx))

    async with App(database, workflows=[job]) as app:
        with pytest.raises(WorkflowFailedError, match=r"has no session.*transactional=True"):
            await (await app.start_workflow(job)).result()


async def test_whatever_the_crash_point_rows_and_results_are_there_once(database: str, shop: AsyncEngine) -> None:
    """A result that is committed but not yet in the history is an inbox item, which the next owner reads."""
    runs = 0

    @activity
    async def pay(ctx: ActivityContext, order: str) -> str:
        nonlocal runs
        runs += 1
        await insert(ctx.session, order)
        await publish(ctx, "payments", order)
        return order

    @workflow
    async def job(ctx: WorkflowContext) -> list[Any]:
        await subscribe(ctx, "payments")
        paid = [await pay(ctx, f"{ctx.instance_id} {n}") for n in (1, 2)]
        return [*paid, (await receive(ctx, "payments")).data, (await receive(ctx, "payments")).data]

    crashes, step, reruns = 1, 0, 0
    while crashes:
        step, runs = step + 1, 0
        async with TestEnvironment(database, workflows=[job]) as env:
            handle = await env.app.start_workflow(job.with_options(instance_id=f"crash at {step}"))
            env.crash_at_step(step)
            both = [f"crash at {step} 1", f"crash at {step} 2"]
            assert await asyncio.wait_for(handle.result(), 20) == [*both, *both]
            crashes = env.crashes
        assert runs - 2 <= crashes
        reruns += runs - 2
    assert len(await orders(shop)) == 2 * step
    assert step > 8
    assert reruns < step


async def test_a_compensation_has_a_session_too(database: str, shop: AsyncEngine) -> None:
    @activity
    async def reserve(ctx: ActivityContext, order: str) -> None:
        await insert(ctx.session, order)

    @reserve.compensate
    async def cancel(ctx: ActivityContext, order: str) -> None:
        await ctx.session.execute(text("DELETE FROM orders WHERE id = :id"), {"id": order})

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await reserve(ctx, "a")
        await reserve(ctx, "b")
        raise ValueError("no")

    async with App(database, workflows=[job]) as app:
        handle = await app.start_workflow(job)
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        assert await handle.status() is Status.FAILED
    assert await orders(shop) == []


async def test_whatever_the_crash_point_a_compensation_is_recorded_under_its_own_name(
    database: str, shop: AsyncEngine
) -> None:
    """This also holds for the next owner, which finds the result in the inbox."""

    @activity
    async def reserve(ctx: ActivityContext) -> None:
        await insert(ctx.session, ctx.instance_id)

    @reserve.compensate
    async def give_back(ctx: ActivityContext) -> None:
        await ctx.session.execute(text("DELETE FROM orders WHERE id = :id"), {"id": ctx.instance_id})

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await reserve(ctx)
        raise ValueError("no")

    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(database, workflows=[job]) as env:
            handle = await env.app.start_workflow(job.with_options(instance_id=f"crash at {step}"))
            env.crash_at_step(step)
            with pytest.raises(WorkflowFailedError):
                await asyncio.wait_for(handle.result(), 20)
            await env.settle()  # a crash may come after the end
            names = [(entry.kind, entry.name) async for entry in handle.history()]
            assert names == [("activity", "reserve"), ("compensation", "give_back")], f"crash at {step}"
            crashes = env.crashes
    assert step > 4
    assert await orders(shop) == []


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost"])
async def test_a_commit_whose_answer_is_lost_is_asked_for(
    database: str, shop: AsyncEngine, arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, lost = AsyncSession.commit, 0

    async def commit_unheard(session: AsyncSession) -> None:
        nonlocal lost
        if lost:
            return await commit(session)
        lost += 1
        await (commit(session) if arrived else session.rollback())
        raise ConnectionError("the line went dead")

    monkeypatch.setattr(AsyncSession, "commit", commit_unheard)

    @activity(retry=RetryPolicy.fixed(3, 0.01))
    async def pay(ctx: ActivityContext) -> int:
        await insert(ctx.session, f"try {ctx.attempt}")
        return ctx.attempt

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        return await pay(ctx)

    async with App(database, workflows=[job]) as app:
        tries = 1 if arrived else 2
        assert await (await app.start_workflow(job)).result(timeout=20) == tries
    assert await orders(shop) == [(f"try {tries}", 1)]


async def test_who_has_lost_the_instance_commits_nothing(database: str, shop: AsyncEngine) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @activity
    async def pay(ctx: ActivityContext) -> str:
        if not entered.is_set():
            entered.set()
            await go_on.wait()
        await insert(ctx.session, ctx.worker_id.partition("/")[0])
        return ctx.worker_id.partition("/")[0]

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await pay(ctx)

    async with App(database, workflows=[job], worker_id="frozen", heartbeat_interval=9) as frozen:
        handle = await frozen.start_workflow(job)
        await entered.wait()
        async with App(database, workflows=[job], worker_id="next_owner") as next_owner:
            (dead,) = [(line.id, line.heartbeat_at) for line in await next_owner._store.workers() if line.label == "frozen"]
            assert (await next_owner._store.sweep([dead], now=next_owner._clock.now(), limit=10)).freed == 1
            assert await next_owner.get_handle(handle.instance_id).result(timeout=20) == "next_owner"
            go_on.set()
            while frozen._worker is not None and frozen._worker.attempts:
                await asyncio.sleep(0.01)
    assert await orders(shop) == [("next_owner", 1)]


async def test_a_result_behind_a_cancellation_is_compensated_by_the_next_owner(
    database: str, shop: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead worker had not read the cancellation when its activity committed."""
    entered, go_on, committed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @activity
    async def reserve(ctx: ActivityContext) -> str:
        entered.set()
        await go_on.wait()
        await insert(ctx.session, "seat")
        return "seat"

    @reserve.compensate
    async def give_back(ctx: ActivityContext) -> None:
        await ctx.session.execute(text("UPDATE orders SET total = -1 WHERE id = :id"), {"id": "seat"})

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await reserve(ctx)

    dying = App(database, workflows=[job])
    await dying.startup()
    handle = await dying.start_workflow(job)
    await entered.wait()
    with monkeypatch.context() as deaf:
        deaf.setattr(Worker, "wake_for_inbox", lambda *_: None)
        deaf.setattr(InstanceRunner, "handle", lambda *_: committed.set())
        async with Client(database, workflows=[job]) as client:
            await client.cancel_workflow(handle.instance_id, reason="no longer wanted")
        go_on.set()
        await committed.wait()
        await dying._die()
    options: dict[str, Any] = {"heartbeat_interval": 0.05, "lease_timeout": 0.2, "poll_interval": 0.05}
    async with App(database, workflows=[job], **options) as next_owner:
        inherited = next_owner.get_handle(handle.instance_id)
        with pytest.raises(WorkflowCancelledError):
            await inherited.result(timeout=20)
        names = [(entry.kind, entry.name) async for entry in inherited.history()]
        assert names == [("cancel", "cancel"), ("activity", "reserve"), ("compensation", "give_back")]
    assert await orders(shop) == [("seat", -1)]


async def test_a_database_in_memory_has_no_sessions() -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await book.with_options(retry=ONCE)(ctx, "a")

    async with App(":memory:", workflows=[job]) as app:
        with pytest.raises(WorkflowFailedError, match="not :memory:"):
            await (await app.start_workflow(job)).result(timeout=20)


async def test_several_at_once(database: str, shop: AsyncEngine) -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> int:
        return len(await asyncio.gather(*[book(ctx, f"order {n}") for n in range(10)]))

    async with App(database, workflows=[job]) as app:
        assert await (await app.start_workflow(job)).result(timeout=30) == 10
    assert len(await orders(shop)) == 10


async def test_the_app_cannot_write_while_the_session_holds_the_file(database: str, shop: AsyncEngine) -> None:
    @workflow
    async def other(ctx: WorkflowContext) -> None: ...

    @activity(retry=ONCE)
    async def start_other(ctx: ActivityContext) -> str:
        await insert(ctx.session, "a")
        try:
            await ctx.app.start_workflow(other)
        except InvalidWorkflowStateError as error:
            return str(error)
        return "started"

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        return await start_other(ctx)

    async with App(database, workflows=[job, other]) as app:
        said = await (await app.start_workflow(job)).result(timeout=30)
    assert said == "started" if "://" in database else "holds the write lock" in said
