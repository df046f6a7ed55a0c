"""A worker adopts the instances that it owns but does not run, except those with an outstanding answer, however late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from tests import databases

from romancy import (
    ActivityContext,
    App,
    Client,
    StoreError,
    Workflow,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.clock import MICROS
from romancy.model.transition import AcceptEvents, CreateInstance, Transition, Write
from romancy.store.sql.store import SqlStore
from romancy.worker.activity_session import ActivityTransaction

_ADOPTIONS = 4
Batch = Sequence[Write]


class VisitWorkflows:
    """Workflows, and the number of times that each activity has begun, by its idempotency key."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.served = asyncio.Semaphore(0)

        @activity
        async def serve(ctx: ActivityContext) -> str:
            self.begun[ctx.idempotency_key] += 1
            self.served.release()
            return ctx.instance_id

        @activity
        async def announce(ctx: ActivityContext) -> None:
            await send_event(ctx, "visitor", "desk")

        @activity(transactional=False)
        async def announce_at_once(ctx: ActivityContext) -> None:
            await send_event(ctx, "visitor", "desk")

        @activity
        async def announce_with_rows(ctx: ActivityContext) -> None:
            await ctx.session.execute(text("SELECT 1"))
            await send_event(ctx, "visitor", "desk")

        @workflow
        async def visit(ctx: WorkflowContext) -> str:
            return await serve(ctx)

        @workflow(event_handler=True)
        async def visitor(ctx: WorkflowContext) -> str:
            return await serve(ctx)

        @workflow
        async def starter(ctx: WorkflowContext, how: str) -> None:
            if how == "workflow":
                await send_event(ctx, "visitor", "desk")
            else:
                await {"activity": announce, "at once": announce_at_once, "session": announce_with_rows}[how](ctx)

        self.visit, self.visitor, self.starter = visit, visitor, starter

    @asynccontextmanager
    async def app(self, database: str, *more: Workflow[..., Any]) -> AsyncIterator[App]:
        """An app whose maintenance runs once, at its start."""
        workflows: list[Workflow[..., Any]] = [self.visit, self.visitor, self.starter, *more]
        app = App(database, workflows=workflows, heartbeat_interval=3600, lease_timeout=7200, poll_interval=0.05)
        async with app:
            yield app


class HeldAnswer:
    """An answer of the store that is held back until the test lets it through."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.go_on = asyncio.Event()

    async def hold(self) -> None:
        """Hold back the first answer."""
        if not self.done.is_set():
            self.done.set()
            await self.go_on.wait()

    @classmethod
    def commit(cls, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Write], bool]) -> HeldAnswer:
        """Hold back the answer to the first batch with a write that satisfies `wanted`."""
        held, commit = cls(), SqlStore.commit

        async def held_up(store: SqlStore, batch: Batch) -> Any:
            answers = await commit(store, batch)
            if any(map(wanted, batch)):
                await held.hold()
            return answers

        monkeypatch.setattr(SqlStore, "commit", held_up)
        return held

    @classmethod
    def claim(cls, monkeypatch: pytest.MonkeyPatch) -> HeldAnswer:
        """Hold back the answer to the first claim that returns rows."""
        held, claim = cls(), SqlStore.claim

        async def held_up(store: SqlStore, worker: str, runnable: Any, **how: Any) -> Any:
            rows = await claim(store, worker, runnable, **how)
            if rows:
                await held.hold()
            return rows

        monkeypatch.setattr(SqlStore, "claim", held_up)
        return held

    @classmethod
    def load(cls, monkeypatch: pytest.MonkeyPatch) -> HeldAnswer:
        """Hold back the result of the first `load`."""
        held, load = cls(), SqlStore.load

        async def held_up(store: SqlStore, instance_id: str) -> Any:
            loaded = await load(store, instance_id)
            await held.hold()
            return loaded

        monkeypatch.setattr(SqlStore, "load", held_up)
        return held

    @classmethod
    def activity_transaction(cls, monkeypatch: pytest.MonkeyPatch) -> HeldAnswer:
        """Hold back the answer to the COMMIT of an activity with a session."""
        held, finish = cls(), ActivityTransaction._commit_session

        async def held_up(own: ActivityTransaction, *args: Any) -> Any:
            left = await finish(own, *args)
            await held.hold()
            return left

        monkeypatch.setattr(ActivityTransaction, "_commit_session", held_up)
        return held


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, wanted: type) -> asyncio.Event:
    """Let one call of the store fail after it took effect. A commit fails if its batch holds a write of the type `wanted`.

    The returned event is set when the call has failed.
    """
    failed, call = asyncio.Event(), getattr(SqlStore, name)

    async def failing(store: SqlStore, batch: Any, *args: Any, **how: Any) -> Any:
        done = await call(store, batch, *args, **how)
        meant = bool(done) if name == "claim" else any(isinstance(write, wanted) for write in batch)
        if meant and not failed.is_set():
            failed.set()
            raise StoreError("the connection was lost")
        return done

    monkeypatch.setattr(SqlStore, name, failing)
    return failed


async def adopt_repeatedly(app: App) -> None:
    """Adopt orphans several times, as the maintenance does in each round."""
    assert app._claimer is not None
    for _ in range(_ADOPTIONS):
        await app._claimer.adopt_orphans()


async def wait_until_served(app: App, visits: VisitWorkflows) -> None:
    """Wait until one visit was served and every instance has ended."""
    assert app._worker is not None
    await visits.served.acquire()
    for page in (await app.list_instances()).items:
        await app.get_handle(page.instance_id).result()
    await adopt_repeatedly(app)


async def test_an_instance_whose_creation_is_not_answered(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, visits = HeldAnswer.commit(monkeypatch, lambda write: isinstance(write, CreateInstance)), VisitWorkflows()
    async with visits.app(database) as app:
        starting = asyncio.create_task(app.start_workflow(visits.visit))
        await held.done.wait()
        await adopt_repeatedly(app)
        early = sum(visits.begun.values())
        held.go_on.set()
        await starting
        await wait_until_served(app, visits)
    assert (early, list(visits.begun.values())) == (0, [1])


async def test_an_instance_that_an_event_starts(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, visits = HeldAnswer.commit(monkeypatch, lambda write: isinstance(write, AcceptEvents)), VisitWorkflows()
    async with visits.app(database) as app:
        sending = asyncio.create_task(app.send_event("visitor", "street"))
        await held.done.wait()
        await adopt_repeatedly(app)
        early = sum(visits.begun.values())
        held.go_on.set()
        await sending
        await wait_until_served(app, visits)
    assert (early, list(visits.begun.values())) == (0, [1])


@pytest.mark.parametrize("blocked", [False, True])
async def test_an_instance_that_is_being_claimed(database: str, monkeypatch: pytest.MonkeyPatch, blocked: bool) -> None:
    held, visits = HeldAnswer.claim(monkeypatch), VisitWorkflows()
    async with Client(database, workflows=[visits.visit]) as client:
        await client.start_workflow(visits.visit)
    if blocked:
        databases.execute(database, "UPDATE romancy_instances SET status = 'blocked', blocked_by = 'old', wake_at = NULL")
    async with visits.app(database) as app:
        await held.done.wait()
        await adopt_repeatedly(app)
        early = sum(visits.begun.values())
        held.go_on.set()
        await wait_until_served(app, visits)
    assert (early, list(visits.begun.values())) == (0, [1])


@pytest.mark.parametrize("how", ["workflow", "activity", "at once", "session"])
async def test_an_instance_that_a_step_starts(database: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def starts_one(write: Write) -> bool:
        return isinstance(write, AcceptEvents) or (isinstance(write, Transition) and bool(write.effects))

    held = HeldAnswer.activity_transaction(monkeypatch) if how == "session" else HeldAnswer.commit(monkeypatch, starts_one)
    visits = VisitWorkflows()
    async with visits.app(database) as app:
        await app.start_workflow(visits.starter, how)
        await held.done.wait()
        await adopt_repeatedly(app)
        early = sum(visits.begun.values())
        held.go_on.set()
        await wait_until_served(app, visits)
    assert (early, list(visits.begun.values())) == (0, [1])


# --- instances without a runner


@pytest.mark.parametrize("what", ["creation", "event", "claim"])
async def test_what_was_done_in_spite_of_an_error_is_taken_up(
    database: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    visits = VisitWorkflows()
    if what == "claim":
        async with Client(database, workflows=[visits.visit]) as client:
            await client.start_workflow(visits.visit)
    failed = fail_once(
        monkeypatch, "claim" if what == "claim" else "commit", CreateInstance if what == "creation" else AcceptEvents
    )
    async with visits.app(database) as app:
        if what == "creation":
            with pytest.raises(StoreError, match="the connection was lost"):
                await app.start_workflow(visits.visit)
        elif what == "event":
            with pytest.raises(StoreError, match="the connection was lost"):
                await app.send_event("visitor", "street")
        await failed.wait()
        await adopt_repeatedly(app)  # one adoption would suffice
        await wait_until_served(app, visits)
    assert list(visits.begun.values()) == [1]


async def test_looking_twice_at_once_takes_it_up_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visits, loading, go_on, load = VisitWorkflows(), asyncio.Event(), asyncio.Event(), SqlStore.load

    async def held_up(store: SqlStore, instance_id: str) -> Any:
        loaded = await load(store, instance_id)
        loading.set()
        await go_on.wait()
        return loaded

    fail_once(monkeypatch, "commit", CreateInstance)
    monkeypatch.setattr(SqlStore, "load", held_up)
    async with visits.app(database) as app:
        with pytest.raises(StoreError, match="the connection was lost"):
            await app.start_workflow(visits.visit)
        adoptions = [asyncio.create_task(adopt_repeatedly(app)) for _ in range(3)]
        await loading.wait()
        go_on.set()
        await asyncio.gather(*adoptions)
        await wait_until_served(app, visits)
    assert list(visits.begun.values()) == [1]


@pytest.mark.parametrize("when", ["it runs", "it is loaded", "it is claimed"])
async def test_an_answer_that_comes_after_the_instance_was_taken_away_and_claimed_again(
    database: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    held, visits = HeldAnswer.commit(monkeypatch, lambda write: isinstance(write, CreateInstance)), VisitWorkflows()
    loading = HeldAnswer.load(monkeypatch) if when == "it is loaded" else None
    claiming = HeldAnswer.claim(monkeypatch) if when == "it is claimed" else None
    async with visits.app(database) as app:
        starting = asyncio.create_task(app.start_workflow(visits.visit))
        await held.done.wait()
        taken_away = "SET owner = NULL, status = 'pending', epoch = epoch + 1, wake_at = created_at"
        databases.execute(database, f"UPDATE romancy_instances {taken_away}")
        assert app._claimer is not None
        app._claimer.poll_soon()
        later_answer = loading or claiming
        if later_answer is None:
            await visits.served.acquire()
            visits.served.release()
        else:
            await later_answer.done.wait()
        held.go_on.set()
        await starting
        await adopt_repeatedly(app)
        if later_answer is not None:
            later_answer.go_on.set()
        await wait_until_served(app, visits)
    assert list(visits.begun.values()) == [1]


async def test_a_parked_instance_that_was_claimed_without_an_answer(database: str) -> None:
    @workflow
    async def nap(ctx: WorkflowContext) -> str:
        await sleep(ctx, 3600)
        return "awake"

    app = App(database, workflows=[nap], heartbeat_interval=3600, lease_timeout=7200)
    async with app:
        worker, store = app._worker, app._store
        assert worker is not None
        handle = await app.start_workflow(nap)
        while not worker.is_parked(handle.instance_id):
            await asyncio.sleep(0)
        later = store.now() + 7200 * MICROS
        runnable, ids = worker.registry.runnable(), [handle.instance_id]
        while not await store.claim(worker.id, runnable, now=later, limit=1, ids=ids):
            pass  # a claim skips rows that another transaction has locked
        await adopt_repeatedly(app)
        while await store.owned(worker.id):  # the runner finds nothing due and releases the instance
            await asyncio.sleep(0)
        assert worker.replays == 0
        await app.terminate_workflow(handle.instance_id)


async def test_an_id_that_lives_again_belongs_to_its_new_life(database: str) -> None:
    @workflow
    async def report(ctx: WorkflowContext, life: int) -> tuple[int, Any]:
        return life, (await wait_event(ctx, "done")).data

    again = report.with_options(instance_id="report")
    app = App(database, workflows=[report], heartbeat_interval=3600, lease_timeout=7200)
    async with app, Client(database, workflows=[report]) as elsewhere:
        assert app._worker is not None
        await app.start_workflow(again, 1)
        while not app._worker.is_parked("report"):
            await asyncio.sleep(0)
        old = app._worker._parked["report"]
        await elsewhere.terminate_workflow("report")
        assert await elsewhere._store.prune_instances(ended_before=elsewhere._store.now() + MICROS, limit=1) == 1

        handle = await app.start_workflow(again, 2)
        await app.send_event("done", "test", "yes")

        assert await handle.result() == (2, "yes")
        assert old.gone


# --- instances whose starter is gone when the answer arrives


async def test_an_instance_started_by_a_run_that_was_dropped_meanwhile(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldAnswer.commit(monkeypatch, lambda write: isinstance(write, Transition) and bool(write.effects))
    visits = VisitWorkflows()
    async with visits.app(database) as app:
        handle = await app.start_workflow(visits.starter, "workflow")
        await held.done.wait()
        assert app._worker is not None
        app._worker.forget(handle.instance_id)
        await adopt_repeatedly(app)
        held.go_on.set()
        await visits.served.acquire()
        await app.get_handle(handle.instance_id).result()
    assert list(visits.begun.values()) == [1]


async def test_an_instance_started_by_an_attempt_that_did_not_wait_for_it(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, visits = HeldAnswer.commit(monkeypatch, lambda write: isinstance(write, AcceptEvents)), VisitWorkflows()

    @activity(transactional=False)
    async def hasty(ctx: ActivityContext) -> None:
        sending = asyncio.ensure_future(send_event(ctx, "visitor", "desk"))
        await held.done.wait()
        sending.cancel()
        held.go_on.set()

    @workflow
    async def hurry(ctx: WorkflowContext) -> None:
        await hasty(ctx)

    async with visits.app(database, hurry) as app:
        await (await app.start_workflow(hurry)).result()
        await wait_until_served(app, visits)
    assert list(visits.begun.values()) == [1]
