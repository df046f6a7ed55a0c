"""The operators' calls: list, pause, resume, terminate and retry instances."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    App,
    Client,
    ConfigurationError,
    Instance,
    InvalidWorkflowStateError,
    RetryPolicy,
    Status,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowNotFoundError,
    WorkflowTerminatedError,
    activity,
    sleep,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Customer(BaseModel):
    id: str
    vip: bool | None = None
    age: int = 0


class Basket(BaseModel):
    customer: Customer
    items: list[dict[str, str]] = []


@workflow
async def noop(ctx: WorkflowContext, n: int = 0) -> int:
    return n


@workflow
async def nap(ctx: WorkflowContext) -> str:
    await sleep(ctx, 3600)
    return "rested"


class Gate:
    """A workflow whose first activity waits until the test sets `finish`."""

    def __init__(self) -> None:
        self.running, self.finish = asyncio.Event(), asyncio.Event()
        self.ran: list[str] = []

        @activity
        async def first(ctx: ActivityContext) -> None:
            self.ran.append("first")
            self.running.set()
            await self.finish.wait()

        @activity
        async def second(ctx: ActivityContext) -> str:
            self.ran.append("second")
            return "done"

        @workflow
        async def job(ctx: WorkflowContext) -> str:
            await first(ctx)
            return await second(ctx)

        self.workflow = job


def ids(found: list[Instance]) -> list[str]:
    return sorted(one.instance_id for one in found)


# --- listing


async def test_an_instance_through_its_life(database: str) -> None:
    gate = Gate()

    @workflow
    async def life(ctx: WorkflowContext, n: int) -> str:
        await sleep(ctx, 3600)
        return await gate.workflow(ctx)

    async with Client(database, workflows=[life]) as client:
        handle = await client.start_workflow(life, 7)
        assert await handle.status() is Status.PENDING
        pending = await client.get_instance(handle.instance_id)
    assert pending is not None
    assert (pending.started_at, pending.ended_at, pending.worker_id) == (None, None, None)
    async with TestEnvironment(database, workflows=[life], start=pending.created_at) as env:
        handle = env.app.get_handle(handle.instance_id)
        await env.settle()
        waiting = await env.app.get_instance(handle.instance_id)
        assert waiting is not None
        assert (waiting.status, waiting.input, waiting.output) == (Status.WAITING_FOR_TIMER, {"n": 7}, None)
        assert [(one.kind, one.activity_id) for one in waiting.waiting_for] == [("timer", "sleep:1")]
        assert waiting.waiting_for[0].due == waiting.waiting_for[0].since + timedelta(hours=1)
        await env.advance(3600)
        await gate.running.wait()
        running = await env.app.get_instance(handle.instance_id)
        assert running is not None
        assert env.app._worker is not None
        assert (running.status, running.worker_id) == (Status.RUNNING, env.app._worker.id)
        assert running.waiting_for == ()
        assert (await env.app.get_result(handle.instance_id)).output is None
        gate.finish.set()
        assert await handle.result() == "done"
        done = await env.app.get_instance(handle.instance_id)
        assert done is not None
        assert (done.status, done.output, done.error, done.worker_id) == (Status.COMPLETED, "done", None, None)
        assert done.ended_at == env.now()
        result = await env.app.get_result(handle.instance_id)
        assert (result.status, result.output) == (Status.COMPLETED, "done")


async def test_unknown_ids_are_errors_in_every_call_but_get_instance() -> None:
    async with TestEnvironment(workflows=[noop]) as env:
        app = env.app
        assert await app.get_instance("unknown") is None
        handle = app.get_handle("unknown")
        for call in (
            app.get_result,
            app.cancel_workflow,
            app.retry_workflow,
            app.pause_workflow,
            app.resume_workflow,
            app.terminate_workflow,
        ):
            with pytest.raises(WorkflowNotFoundError, match="unknown"):
                await call("unknown")
        for ask in (handle.result, handle.status, handle.cancel):
            with pytest.raises(WorkflowNotFoundError, match="unknown"):
                await ask()
        with pytest.raises(WorkflowNotFoundError, match="unknown"):
            [entry async for entry in handle.history()]


@pytest.mark.parametrize("search", [False, True])
async def test_pages_are_complete_and_without_duplicates_although_all_were_created_at_once(search: bool) -> None:
    async with TestEnvironment(workflows=[noop]) as env:
        started = [(await env.app.start_workflow(noop, n=1)).instance_id for _ in range(35)]
        found: list[str] = []
        token, pages = None, 0
        while True:
            page = await env.app.list_instances(limit=10, page_token=token, input={"n": 1} if search else None)
            found += [one.instance_id for one in page.items]
            pages += 1
            if pages == 2:
                await env.app.start_workflow(noop, n=1)  # newer than all others: on no later page
            token = page.next_page_token
            if not page.has_more:
                break
    late = set(found) - set(started)
    assert len(found) == len(set(found))
    assert set(started) <= set(found)
    assert len(late) <= 1
    assert pages >= 4


async def test_lists_are_filtered_by_status_name_id_and_time() -> None:
    async with TestEnvironment(workflows=[noop, nap]) as env:
        await env.app.start_workflow(noop.with_options(instance_id="a_1%"))
        await env.settle()
        between = env.now() + timedelta(seconds=5)
        await env.advance(10)
        await env.app.start_workflow(nap.with_options(instance_id="ab12"))
        await env.settle()

        async def listed(**filters: Any) -> list[str]:
            return ids((await env.app.list_instances(**filters)).items)

        assert await listed() == ["a_1%", "ab12"]
        assert [one.instance_id for one in (await env.app.list_instances()).items] == ["ab12", "a_1%"]
        assert await listed(status="completed") == ["a_1%"]
        assert await listed(status=[Status.WAITING_FOR_TIMER, "failed"]) == ["ab12"]
        assert await listed(workflow_name="oo") == ["a_1%"]
        assert await listed(instance_id="b1") == ["ab12"]
        assert await listed(instance_id="_") == ["a_1%"]
        assert await listed(instance_id="%") == ["a_1%"]
        assert await listed(created_after=between) == ["ab12"]
        assert await listed(created_before=between) == ["a_1%"]
        for wrong in (
            {"status": "finished"},
            {"limit": 0},
            {"limit": True},
            {"page_token": "garbage!"},
            {"input": {"a": object()}},
            {"input": {"": 1}},
        ):
            with pytest.raises(ConfigurationError):
                await listed(**wrong)


async def test_inputs_are_searched_by_path_and_type() -> None:
    @workflow
    async def buy(ctx: WorkflowContext, basket: Basket) -> None: ...

    @workflow
    async def pair(ctx: WorkflowContext, a: int, b: str | None = None) -> None: ...

    async with TestEnvironment(workflows=[buy, pair]) as env:
        vip = Basket(customer=Customer(id="c1", vip=True, age=1), items=[{"sku": "x"}, {"sku": "y"}])
        await env.app.start_workflow(buy.with_options(instance_id="vip"), vip)
        await env.app.start_workflow(buy.with_options(instance_id="plain"), Basket(customer=Customer(id="1")))
        await env.app.start_workflow(pair.with_options(instance_id="pair"), 1)
        await env.app.start_workflow(pair.with_options(instance_id="text"), 2, "1")
        for wanted, found in (
            ({"basket.customer.id": "c1"}, ["vip"]),
            ({"customer.id": "c1"}, ["vip"]),
            ({"customer.vip": True}, ["vip"]),
            ({"customer.vip": 1}, []),
            ({"customer.vip": None}, ["plain"]),
            ({"customer.nothing": None}, []),
            ({"items.1.sku": "y"}, ["vip"]),
            ({"items.2.sku": "y"}, []),
            ({"customer.age": 1}, ["vip"]),
            ({"customer.age": 1.0}, ["vip"]),
            ({"customer.age": "1"}, []),
            ({"customer.age": True}, []),
            ({"customer.id": 1}, []),
            ({"a": 1}, ["pair"]),
            ({"b": None}, ["pair"]),
            ({"b": "1"}, ["text"]),
            ({"b": 1}, []),
        ):
            assert ids((await env.app.find_instances(wanted)).items) == found, wanted
        assert ids((await env.app.find_instances({"a": 1}, workflow_name="buy")).items) == []


# --- pausing


async def test_a_waiting_instance_is_paused_and_resumed() -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        handle = await env.app.start_workflow(nap)
        await env.settle()
        await env.app.pause_workflow(handle.instance_id)
        await env.app.pause_workflow(handle.instance_id)
        await env.advance(7200)
        assert await handle.status() is Status.PAUSED
        await env.restart()
        await env.advance(7200)
        assert await handle.status() is Status.PAUSED
        await env.app.resume_workflow(handle.instance_id)
        assert await handle.result() == "rested"
        with pytest.raises(InvalidWorkflowStateError, match="completed"):
            await env.app.pause_workflow(handle.instance_id)


async def test_a_running_instance_pauses_when_its_attempt_has_finished() -> None:
    gate = Gate()
    async with TestEnvironment(workflows=[gate.workflow]) as env:
        handle = await env.app.start_workflow(gate.workflow)
        await gate.running.wait()
        await env.app.pause_workflow(handle.instance_id)
        gate.finish.set()
        await env.settle()
        assert await handle.status() is Status.PAUSED
        assert gate.ran == ["first"]
        await env.app.resume_workflow(handle.instance_id)
        assert await handle.result() == "done"
    assert gate.ran == ["first", "second"]


async def test_a_pause_outlives_a_crash_before_the_attempt_has_finished() -> None:
    gate = Gate()
    async with TestEnvironment(workflows=[gate.workflow]) as env:
        handle = await env.app.start_workflow(gate.workflow)
        await gate.running.wait()
        await env.app.pause_workflow(handle.instance_id)
        await env.settle()
        await env.restart()
        gate.finish.set()
        await env.settle()
        assert await handle.status() is Status.PAUSED
        assert "second" not in gate.ran


async def test_a_pause_that_is_taken_back_in_time_never_was() -> None:
    gate = Gate()
    async with TestEnvironment(workflows=[gate.workflow]) as env:
        handle = await env.app.start_workflow(gate.workflow)
        await gate.running.wait()
        await env.app.pause_workflow(handle.instance_id)
        await env.settle()
        await env.app.resume_workflow(handle.instance_id)
        gate.finish.set()
        assert await asyncio.wait_for(handle.result(), 10) == "done"


async def test_a_paused_instance_is_cancelled(database: str) -> None:
    async with TestEnvironment(workflows=[nap]) as env:
        handle = await env.app.start_workflow(nap)
        await env.settle()
        await env.app.pause_workflow(handle.instance_id)
        await handle.cancel()
        await env.settle()
        assert await handle.status() is Status.CANCELLED


@pytest.mark.parametrize("ask", ["pause", "cancel"])
async def test_after_a_request_of_another_process_nothing_new_starts(database: str, ask: str) -> None:
    gate = Gate()
    async with TestEnvironment(database, workflows=[gate.workflow]) as env, Client(database, workflows=[]) as other:
        handle = await env.app.start_workflow(gate.workflow)
        await gate.running.wait()
        await getattr(other, f"{ask}_workflow")(handle.instance_id)
        gate.finish.set()
        await env.settle()
        assert await handle.status() is (Status.PAUSED if ask == "pause" else Status.CANCELLED)
        assert gate.ran == ["first"]
        if ask == "pause":
            await env.app.resume_workflow(handle.instance_id)
            assert await handle.result() == "done"


async def test_another_process_pauses_and_resumes(database: str) -> None:
    gate = Gate()
    async with App(database, workflows=[gate.workflow]) as app, Client(database, workflows=[]) as other:
        handle = await app.start_workflow(gate.workflow)
        await gate.running.wait()
        await other.pause_workflow(handle.instance_id)
        gate.finish.set()
        async with asyncio.timeout(10):
            while await other.get_handle(handle.instance_id).status() is not Status.PAUSED:
                await asyncio.sleep(0)
        await other.resume_workflow(handle.instance_id)
        assert await handle.result(timeout=10) == "done"


async def test_another_process_takes_back_its_pause_before_the_attempt_has_finished(database: str) -> None:
    gate = Gate()
    async with TestEnvironment(database, workflows=[gate.workflow]) as env, Client(database, workflows=[]) as other:
        handle = await env.app.start_workflow(gate.workflow)
        await gate.running.wait()
        await env.app.pause_workflow(handle.instance_id)
        await env.settle()
        await other.resume_workflow(handle.instance_id)
        gate.finish.set()
        await env.settle()
        assert await handle.status() is Status.COMPLETED


async def test_a_pause_while_compensating_stops_between_two_steps() -> None:
    undone: list[int] = []
    undoing, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def do(ctx: ActivityContext, n: int) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext, n: int) -> None:
        undone.append(n)
        undoing.set()
        await finish.wait()

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await do(ctx, 1)
        await do(ctx, 2)
        raise ValueError("no")

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await undoing.wait()
        await env.app.pause_workflow(handle.instance_id)
        finish.set()
        await env.settle()
        assert (await handle.status(), undone) == (Status.PAUSED, [2])
        await env.app.resume_workflow(handle.instance_id)
        with pytest.raises(WorkflowFailedError, match="ValueError: no"):
            await handle.result()
    assert undone == [2, 1]


# --- terminating


async def test_terminate_ends_at_once_and_compensates_nothing() -> None:
    undone: list[str] = []

    @activity
    async def do(ctx: ActivityContext) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext) -> None:
        undone.append("undone")

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await do(ctx)
        await sleep(ctx, 3600)

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.settle()
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0)
        await env.app.terminate_workflow(handle.instance_id, "enough")
        with pytest.raises(WorkflowTerminatedError):
            await waiting
        await env.restart()
        await env.advance(7200)
        assert await handle.status() is Status.TERMINATED
        with pytest.raises(InvalidWorkflowStateError, match="terminated"):
            await env.app.terminate_workflow(handle.instance_id)
        with pytest.raises(InvalidWorkflowStateError):
            await env.app.retry_workflow(handle.instance_id)
    assert undone == []


async def test_terminate_while_an_activity_runs_discards_its_outcome() -> None:
    gate = Gate()
    async with TestEnvironment(workflows=[gate.workflow]) as env:
        handle = await env.app.start_workflow(gate.workflow)
        await gate.running.wait()
        await env.app.terminate_workflow(handle.instance_id)
        gate.finish.set()
        await env.settle()
        assert await handle.status() is Status.TERMINATED
    assert gate.ran == ["first"]


# --- retrying a failed instance


class Shop:
    """A workflow that books, pays (which fails until `works` is set) and thanks; it records the idempotency keys."""

    def __init__(self, *, compensate: bool) -> None:
        self.works = False
        self.ran: list[tuple[str, str]] = []
        self.undoing, self.undo = asyncio.Event(), asyncio.Event()
        self.undo.set()

        @activity
        async def book(ctx: ActivityContext) -> str:
            self.ran.append(("book", ctx.idempotency_key))
            return "ticket"

        async def unbook(ctx: ActivityContext) -> None:
            self.ran.append(("unbook", ctx.idempotency_key))
            self.undoing.set()
            await self.undo.wait()

        if compensate:
            book.compensate(unbook)

        @activity(retry=RetryPolicy.none())
        async def pay(ctx: ActivityContext) -> str:
            self.ran.append(("pay", ctx.idempotency_key))
            if not self.works:
                raise ConnectionError("bank is down")
            return "receipt"

        @workflow
        async def shop(ctx: WorkflowContext) -> str:
            ticket = await book(ctx)
            await sleep(ctx, 60)
            return ticket + " " + await pay(ctx)

        self.workflow = shop

    async def fail(self, env: TestEnvironment) -> WorkflowHandle[str]:
        handle = await env.app.start_workflow(self.workflow)
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        return handle

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.ran]


async def test_retry_goes_on_from_the_failed_activity() -> None:
    shop = Shop(compensate=False)
    async with TestEnvironment(workflows=[shop.workflow]) as env:
        handle = await shop.fail(env)
        await env.app.retry_workflow(handle.instance_id)
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        shop.works = True
        await env.app.retry_workflow(handle.instance_id)
        await env.restart()
        assert await handle.result() == "ticket receipt"
        with pytest.raises(InvalidWorkflowStateError, match="completed"):
            await env.app.retry_workflow(handle.instance_id)
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert (found.error, found.output) == (None, "ticket receipt")
    assert shop.names == ["book", "pay", "pay", "pay"]
    assert len({key for name, key in shop.ran if name == "pay"}) == 1


async def test_retry_after_compensation_runs_the_compensated_again_under_a_new_key() -> None:
    shop = Shop(compensate=True)
    async with TestEnvironment(workflows=[shop.workflow]) as env:
        handle = await shop.fail(env)
        shop.works = True
        await env.app.retry_workflow(handle.instance_id)
        assert await handle.result() == "ticket receipt"
    assert shop.names == ["book", "pay", "unbook", "book", "pay"]
    first, second = [key for name, key in shop.ran if name == "book"]
    assert first != second


async def test_retry_is_refused_while_compensating_and_when_nothing_has_failed() -> None:
    shop = Shop(compensate=True)
    shop.undo.clear()
    async with TestEnvironment(workflows=[shop.workflow, nap]) as env:
        handle = await env.app.start_workflow(shop.workflow)
        await env.advance(60)
        await shop.undoing.wait()
        with pytest.raises(InvalidWorkflowStateError, match="compensating"):
            await env.app.retry_workflow(handle.instance_id)
        shop.undo.set()
        await env.settle()
        assert await handle.status() is Status.FAILED
        waiting = await env.app.start_workflow(nap)
        await env.settle()
        with pytest.raises(InvalidWorkflowStateError, match="waiting_for_timer"):
            await env.app.retry_workflow(waiting.instance_id)


async def test_retry_twice_compensates_what_stands_each_time() -> None:
    shop = Shop(compensate=True)
    async with TestEnvironment(workflows=[shop.workflow], replay_always=True) as env:
        handle = await shop.fail(env)
        for _ in range(2):
            await env.app.retry_workflow(handle.instance_id)
            await env.restart()
            with pytest.raises(WorkflowFailedError):
                await handle.result()
    assert shop.names == ["book", "pay", "unbook"] * 3
    assert len({key for name, key in shop.ran if name == "book"}) == 3


async def test_a_retry_survives_any_crash() -> None:
    crashes, step = 1, 0
    while crashes:
        step += 1
        shop = Shop(compensate=True)
        async with TestEnvironment(workflows=[shop.workflow]) as env:
            handle = await shop.fail(env)
            shop.works = True
            env.crash_at_step(step + 2)  # the request takes the first two steps
            await env.app.retry_workflow(handle.instance_id)
            await env.settle()
            assert await asyncio.wait_for(handle.result(), 10) == "ticket receipt", f"crash at step {step}"
            crashes = env.crashes
        assert len({key for name, key in shop.ran if name == "book"}) == 2, f"crash at step {step}"
        assert shop.names.count("unbook") == 1
    assert step > 5


async def test_a_pause_survives_any_crash() -> None:
    crashes, step = 1, 0
    while crashes:
        step += 1
        gate = Gate()
        async with TestEnvironment(workflows=[gate.workflow]) as env:
            handle = await env.app.start_workflow(gate.workflow)
            await gate.running.wait()
            env.crash_at_step(step + 2)
            await env.app.pause_workflow(handle.instance_id)
            gate.finish.set()
            await env.settle()
            while await handle.status() is not Status.PAUSED:  # the client may see the crash late
                await env.settle()
            assert "second" not in gate.ran, f"crash at step {step}"
            env._planned_crashes.clear()  # no further crash
            await env.app.resume_workflow(handle.instance_id)
            assert await asyncio.wait_for(handle.result(), 10) == "done"
            crashes = env.crashes
    assert step > 2
