"""What a worker has in the store and does not run is taken up; what is on its way to it is not, however long that takes."""

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

_LOOKS = 4
Batch = Sequence[Write]


class Desk:
    """Workflows, and how often each activity began, by its key."""

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
        async def usher(ctx: WorkflowContext, how: str) -> None:
            if how == "workflow":
                await send_event(ctx, "visitor", "desk")
            else:
                await {"activity": announce, "at once": announce_at_once, "session": announce_with_rows}[how](ctx)

        self.visit, self.visitor, self.usher = visit, visitor, usher

    @asynccontextmanager
    async def app(self, database: str, *more: Workflow[..., Any]) -> AsyncIterator[App]:
        """An app whose upkeep looks once, at its start."""
        workflows: list[Workflow[..., Any]] = [self.visit, self.visitor, self.usher, *more]
        app = App(database, workflows=workflows, heartbeat_interval=3600, lease_timeout=7200, poll_interval=0.05)
        async with app:
            yield app


class Held:
    """The answer to something that is done, held back."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.go_on = asyncio.Event()

    async def back(self) -> None:
        """Hold the first answer back."""
        if not self.done.is_set():
            self.done.set()
            await self.go_on.wait()

    @classmethod
    def commit(cls, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Write], bool]) -> Held:
        """The answer to a batch with a write like this."""
        held, commit = cls(), SqlStore.commit

        async def slow(store: SqlStore, batch: Batch) -> Any:
            answers = await commit(store, batch)
            if any(map(wanted, batch)):
                await held.back()
            return answers

        monkeypatch.setattr(SqlStore, "commit", slow)
        return held

    @classmethod
    def claim(cls, monkeypatch: pytest.MonkeyPatch) -> Held:
        """The answer to a claim that took something."""
        held, claim = cls(), SqlStore.claim

        async def slow(store: SqlStore, worker: str, runnable: Any, **how: Any) -> Any:
            rows = await claim(store, worker, runnable, **how)
            if rows:
                await held.back()
            return rows

        monkeypatch.setattr(SqlStore, "claim", slow)
        return held

    @classmethod
    def load(cls, monkeypatch: pytest.MonkeyPatch) -> Held:
        """What was read of an instance."""
        held, load = cls(), SqlStore.load

        async def slow(store: SqlStore, instance_id: str) -> Any:
            loaded = await load(store, instance_id)
            await held.back()
            return loaded

        monkeypatch.setattr(SqlStore, "load", slow)
        return held

    @classmethod
    def own_transaction(cls, monkeypatch: pytest.MonkeyPatch) -> Held:
        """The answer to the COMMIT of an activity's own transaction."""
        held, finish = cls(), ActivityTransaction._commit_session

        async def slow(own: ActivityTransaction, *args: Any) -> Any:
            left = await finish(own, *args)
            await held.back()
            return left

        monkeypatch.setattr(ActivityTransaction, "_commit_session", slow)
        return held


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, wanted: type) -> asyncio.Event:
    """Let a call of the store fail after it was done; a commit only with such a write in it. Tells when it was so far."""
    failed, call = asyncio.Event(), getattr(SqlStore, name)

    async def cut(store: SqlStore, batch: Any, *args: Any, **how: Any) -> Any:
        done = await call(store, batch, *args, **how)
        meant = bool(done) if name == "claim" else any(isinstance(write, wanted) for write in batch)
        if meant and not failed.is_set():
            failed.set()
            raise StoreError("the line was cut")
        return done

    monkeypatch.setattr(SqlStore, name, cut)
    return failed


async def look(app: App) -> None:
    """What a worker does every few seconds, as often as it may come to that."""
    assert app._claimer is not None
    for _ in range(_LOOKS):
        await app._claimer.adopt_orphans()


async def all_served(app: App, desk: Desk) -> None:
    """One visit was served, and everything has come to its end."""
    assert app._worker is not None
    await desk.served.acquire()
    for page in (await app.list_instances()).items:
        await app.get_handle(page.instance_id).result()
    await look(app)


async def test_an_instance_whose_creation_is_not_answered(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, desk = Held.commit(monkeypatch, lambda write: isinstance(write, CreateInstance)), Desk()
    async with desk.app(database) as app:
        starting = asyncio.create_task(app.start_workflow(desk.visit))
        await held.done.wait()
        await look(app)
        early = sum(desk.begun.values())
        held.go_on.set()
        await starting
        await all_served(app, desk)
    assert (early, list(desk.begun.values())) == (0, [1])


async def test_an_instance_that_an_event_starts(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, desk = Held.commit(monkeypatch, lambda write: isinstance(write, AcceptEvents)), Desk()
    async with desk.app(database) as app:
        sending = asyncio.create_task(app.send_event("visitor", "street"))
        await held.done.wait()
        await look(app)
        early = sum(desk.begun.values())
        held.go_on.set()
        await sending
        await all_served(app, desk)
    assert (early, list(desk.begun.values())) == (0, [1])


@pytest.mark.parametrize("blocked", [False, True])
async def test_an_instance_that_is_being_claimed(database: str, monkeypatch: pytest.MonkeyPatch, blocked: bool) -> None:
    held, desk = Held.claim(monkeypatch), Desk()
    async with Client(database, workflows=[desk.visit]) as client:
        await client.start_workflow(desk.visit)
    if blocked:
        databases.execute(database, "UPDATE romancy_instances SET status = 'blocked', blocked_by = 'old', wake_at = NULL")
    async with desk.app(database) as app:
        await held.done.wait()
        await look(app)
        early = sum(desk.begun.values())
        held.go_on.set()
        await all_served(app, desk)
    assert (early, list(desk.begun.values())) == (0, [1])


@pytest.mark.parametrize("how", ["workflow", "activity", "at once", "session"])
async def test_an_instance_that_a_step_starts(database: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def starts_one(write: Write) -> bool:
        return isinstance(write, AcceptEvents) or (isinstance(write, Transition) and bool(write.effects))

    held = Held.own_transaction(monkeypatch) if how == "session" else Held.commit(monkeypatch, starts_one)
    desk = Desk()
    async with desk.app(database) as app:
        await app.start_workflow(desk.usher, how)
        await held.done.wait()
        await look(app)
        early = sum(desk.begun.values())
        held.go_on.set()
        await all_served(app, desk)
    assert (early, list(desk.begun.values())) == (0, [1])


# --- what nobody runs


@pytest.mark.parametrize("what", ["creation", "event", "claim"])
async def test_what_was_done_in_spite_of_an_error_is_taken_up(
    database: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    desk = Desk()
    if what == "claim":
        async with Client(database, workflows=[desk.visit]) as client:
            await client.start_workflow(desk.visit)
    failed = fail_once(
        monkeypatch, "claim" if what == "claim" else "commit", CreateInstance if what == "creation" else AcceptEvents
    )
    async with desk.app(database) as app:
        if what == "creation":
            with pytest.raises(StoreError, match="the line was cut"):
                await app.start_workflow(desk.visit)
        elif what == "event":
            with pytest.raises(StoreError, match="the line was cut"):
                await app.send_event("visitor", "street")
        await failed.wait()
        await look(app)  # one would do
        await all_served(app, desk)
    assert list(desk.begun.values()) == [1]


async def test_looking_twice_at_once_takes_it_up_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, loading, go_on, load = Desk(), asyncio.Event(), asyncio.Event(), SqlStore.load

    async def slow(store: SqlStore, instance_id: str) -> Any:
        loaded = await load(store, instance_id)
        loading.set()
        await go_on.wait()
        return loaded

    fail_once(monkeypatch, "commit", CreateInstance)
    monkeypatch.setattr(SqlStore, "load", slow)
    async with desk.app(database) as app:
        with pytest.raises(StoreError, match="the line was cut"):
            await app.start_workflow(desk.visit)
        looks = [asyncio.create_task(look(app)) for _ in range(3)]
        await loading.wait()
        go_on.set()
        await asyncio.gather(*looks)
        await all_served(app, desk)
    assert list(desk.begun.values()) == [1]


@pytest.mark.parametrize("when", ["it runs", "it is loaded", "it is claimed"])
async def test_an_answer_that_comes_after_the_instance_was_taken_away_and_claimed_again(
    database: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    held, desk = Held.commit(monkeypatch, lambda write: isinstance(write, CreateInstance)), Desk()
    loading = Held.load(monkeypatch) if when == "it is loaded" else None
    claiming = Held.claim(monkeypatch) if when == "it is claimed" else None
    async with desk.app(database) as app:
        starting = asyncio.create_task(app.start_workflow(desk.visit))
        await held.done.wait()
        taken_away = "SET owner = NULL, status = 'pending', epoch = epoch + 1, wake_at = created_at"
        databases.execute(database, f"UPDATE romancy_instances {taken_away}")
        assert app._claimer is not None
        app._claimer.poll_soon()
        way = loading or claiming
        if way is None:
            await desk.served.acquire()
            desk.served.release()
        else:
            await way.done.wait()
        held.go_on.set()
        await starting
        await look(app)
        if way is not None:
            way.go_on.set()
        await all_served(app, desk)
    assert list(desk.begun.values()) == [1]


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
            pass  # a database leaves out what others hold just now
        await look(app)
        while await store.owned(worker.id):  # it goes on, finds that nothing is due, and lets go
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


# --- what was begun by somebody who is gone when the answer comes


async def test_an_instance_started_by_a_run_that_was_dropped_meanwhile(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held.commit(monkeypatch, lambda write: isinstance(write, Transition) and bool(write.effects))
    desk = Desk()
    async with desk.app(database) as app:
        handle = await app.start_workflow(desk.usher, "workflow")
        await held.done.wait()
        assert app._worker is not None
        app._worker.forget(handle.instance_id)
        await look(app)
        held.go_on.set()
        await desk.served.acquire()
        await app.get_handle(handle.instance_id).result()
    assert list(desk.begun.values()) == [1]


async def test_an_instance_started_by_an_attempt_that_did_not_wait_for_it(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, desk = Held.commit(monkeypatch, lambda write: isinstance(write, AcceptEvents)), Desk()

    @activity(transactional=False)
    async def hasty(ctx: ActivityContext) -> None:
        sending = asyncio.ensure_future(send_event(ctx, "visitor", "desk"))
        await held.done.wait()
        sending.cancel()
        held.go_on.set()

    @workflow
    async def hurry(ctx: WorkflowContext) -> None:
        await hasty(ctx)

    async with desk.app(database, hurry) as app:
        await (await app.start_workflow(hurry)).result()
        await all_served(app, desk)
    assert list(desk.begun.values()) == [1]
