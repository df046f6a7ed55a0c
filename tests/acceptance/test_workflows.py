"""Starting workflows, their arguments and results, and what their code may do."""

import asyncio
import logging
import math
import socket
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from romancy import (
    ActivityContext,
    ActivityIDConflictError,
    ConfigurationError,
    InstanceConflictError,
    InvalidWorkflowStateError,
    PayloadError,
    RetryPolicy,
    Status,
    TerminalError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowIOError,
    WorkflowNotFoundError,
    WorkflowRef,
    WorkflowStuckError,
    WorkflowTimeoutError,
    activity,
    sleep,
    sleep_until,
    workflow,
)
from romancy.testing import TestEnvironment

pytestmark = pytest.mark.usefixtures("everywhere")


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    sku: str
    data: bytes = b""
    price: Decimal = Decimal("0")


@dataclass
class Order:
    id: uuid.UUID
    items: list[Item]
    at: datetime
    tags: tuple[str, ...] = ()
    note: str | None = None
    colours: list[Colour] = field(default_factory=list)


class Point(TypedDict):
    x: float
    y: float


@activity
async def add(ctx: ActivityContext, a: int, b: int = 1) -> int:
    return a + b


async def cause_of(handle: WorkflowHandle[Any]) -> BaseException:
    with pytest.raises(WorkflowFailedError) as failed:
        await asyncio.wait_for(handle.result(), 20)
    assert failed.value.__cause__ is not None
    return failed.value.__cause__


# --- starting


async def test_the_same_id_and_arguments_are_one_instance_also_after_its_end() -> None:
    runs: list[int] = []

    @workflow
    async def job(ctx: WorkflowContext, n: int, *, twice: bool = False) -> int:
        runs.append(n)
        return await add(ctx, n)

    @workflow
    async def other(ctx: WorkflowContext, n: int) -> int:
        return n

    async with TestEnvironment(workflows=[job, other]) as env:
        named = job.with_options(instance_id="order-42")
        first = await env.app.start_workflow(named, 1)
        second = await env.app.start_workflow(named, n=1)
        assert first.instance_id == second.instance_id == "order-42"
        assert await first.result() == await second.result() == 2
        third = await env.app.start_workflow(named, 1, twice=False)
        assert await third.result() == 2
        with pytest.raises(InstanceConflictError, match=r"order-42.*other arguments"):
            await env.app.start_workflow(named, 2)
        with pytest.raises(InstanceConflictError, match=r"order-42.*job"):
            await env.app.start_workflow(other.with_options(instance_id="order-42"), 1)
    assert runs == [1]


async def test_many_starts_of_one_id_at_once_are_one_instance() -> None:
    runs: list[int] = []

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        runs.append(1)
        return await add(ctx, 1)

    async with TestEnvironment(workflows=[job]) as env:
        named = job.with_options(instance_id="one")
        handles = await asyncio.gather(*(env.app.start_workflow(named) for _ in range(20)))
        assert await asyncio.gather(*(handle.result() for handle in handles)) == [2] * 20
    assert runs == [1]


async def test_by_name_and_with_wrong_arguments() -> None:
    @workflow(name="the job")
    async def job(ctx: WorkflowContext, n: int) -> int:
        return n

    async with TestEnvironment(workflows=[job]) as env:
        assert await (await env.app.start_workflow("the job", 3)).result() == 3
        named = await env.app.start_workflow(WorkflowRef("the job").with_options(instance_id="job-1"), 3)
        assert (named.instance_id, await named.result()) == ("job-1", 3)
        with pytest.raises(WorkflowNotFoundError, match="no such job"):
            await env.app.start_workflow(WorkflowRef("no such job"))
        assert env.app.get_workflow("the job") is job
        with pytest.raises(PayloadError, match="n"):
            await env.app.start_workflow("the job", "three")
        with pytest.raises(TypeError, match=r"job\(\) missing .*'n'"):
            await env.app.start_workflow("the job")
        assert (await env.app.list_instances()).items[2:] == []


async def test_calling_outside_a_workflow_says_so() -> None:
    with pytest.raises(InvalidWorkflowStateError, match="add"):
        await add(None, 1)  # type: ignore[arg-type]
    assert await add.fn(ActivityContext(), 1, 2) == 3

    @activity
    async def outer(ctx: ActivityContext) -> None:
        await add(ctx, 1)  # type: ignore[arg-type]

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await outer.with_options(retry=RetryPolicy.none())(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        error = await cause_of(await env.app.start_workflow(job))
    assert "inside an activity" in str(error.__cause__)


async def test_a_workflow_called_in_a_workflow_runs_inline_and_an_activity_may_start_one() -> None:
    @workflow
    async def inner(ctx: WorkflowContext, n: int) -> int:
        return await add(ctx, n)

    @activity
    async def launch(ctx: ActivityContext, n: int) -> str:
        handle = await ctx.app.start_workflow(inner.with_options(instance_id=f"{ctx.idempotency_key}/child"), n)
        return handle.instance_id

    @workflow
    async def outer(ctx: WorkflowContext) -> tuple[int, str]:
        return await inner(ctx, 5), await launch(ctx, 7)

    async with TestEnvironment(workflows=[inner, outer]) as env:
        handle = await env.app.start_workflow(outer)
        total, child = await handle.result()
        assert total == 6
        assert await env.app.get_handle(child).result() == 8
        assert [entry.activity_id async for entry in handle.history()] == ["add:1", "launch:1"]


# --- payloads


async def test_every_kind_of_value_arrives_as_its_own_type() -> None:
    order = Order(
        uuid.UUID(int=5),
        [Item(sku="\0x", data=b"\xff\x00")],
        datetime(2030, 1, 1, tzinfo=UTC),
        ("a", "b"),
        None,
        [Colour.RED],
    )
    values: list[Any] = [order, (1, b"\x80"), {"k": [Decimal("1.10")]}, math.inf, {"x": 1.5, "y": 2.0}, Colour.RED]

    @activity
    async def echo(
        ctx: ActivityContext,
        order: Order,
        pair: tuple[int, bytes],
        money: dict[str, list[Decimal]],
        big: float,
        point: Point,
        colour: Colour,
    ) -> tuple[Order, tuple[int, bytes], dict[str, list[Decimal]], float, Point, Colour]:
        return order, pair, money, big, point, colour

    @workflow
    async def job(
        ctx: WorkflowContext,
        order: Order,
        pair: tuple[int, bytes],
        money: dict[str, list[Decimal]],
        big: float,
        point: Point,
        colour: Colour,
    ) -> tuple[Order, tuple[int, bytes], dict[str, list[Decimal]], float, Point, Colour]:
        return await echo(ctx, order, pair, money, big, point, colour)

    async with TestEnvironment(workflows=[job], replay_always=True) as env:
        got = await (await env.app.start_workflow(job, *values)).result()
    assert list(got) == values
    assert [type(one) for one in got] == [type(one) for one in values]
    assert type(got[0].items[0]) is Item


async def test_not_a_number_and_ten_megabytes_round_trip() -> None:
    @activity
    async def echo(ctx: ActivityContext, text: str, number: float) -> tuple[str, float]:
        return text, number

    @workflow
    async def job(ctx: WorkflowContext, text: str, number: float) -> tuple[str, float]:
        found = await echo(ctx, text, number)
        await sleep(ctx, 60)
        return found

    async with TestEnvironment(workflows=[job], cache_size=0) as env:
        text, number = await (await env.app.start_workflow(job, "ü" * 5_000_000, math.nan)).result()
    assert (len(text), math.isnan(number)) == (5_000_000, True)


async def test_activities_and_workflows_get_copies_of_what_is_passed() -> None:
    kept: list[list[int]] = []

    @activity
    async def spoil(ctx: ActivityContext, numbers: list[int]) -> list[int]:
        numbers.append(99)
        kept.append(numbers)
        return numbers

    @workflow
    async def job(ctx: WorkflowContext, numbers: list[int]) -> list[list[int]]:
        got = await spoil(ctx, numbers)
        kept[0].append(100)
        got.append(7)
        again = await spoil(ctx, got)
        return [numbers, got, again]

    mine = [1]
    async with TestEnvironment(workflows=[job], replay_always=True) as env:
        handle = await env.app.start_workflow(job, mine)
        mine.append(2)
        assert await handle.result() == [[1], [1, 99, 7], [1, 99, 7, 99]]


async def test_a_result_of_the_workflow_that_cannot_be_stored_fails_it() -> None:
    undone: list[int] = []

    @activity
    async def do(ctx: ActivityContext) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext) -> None:
        undone.append(1)

    @workflow
    async def job(ctx: WorkflowContext) -> int:
        await do(ctx)
        return "not a number"  # type: ignore[return-value]

    async with TestEnvironment(workflows=[job]) as env:
        error = await cause_of(await env.app.start_workflow(job))
    assert isinstance(error, PayloadError)
    assert "result of workflow 'job'" in str(error)
    assert undone == [1]


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


@pytest.mark.parametrize("where", ["workflow", "activity"])
async def test_an_error_that_cannot_even_be_printed_fails_its_instance_alone(where: str) -> None:
    @activity
    async def fail(ctx: ActivityContext) -> None:
        raise Hostile

    @workflow
    async def job(ctx: WorkflowContext, bad: bool) -> str:
        if bad and where == "activity":
            await fail.with_options(retry=RetryPolicy.fixed(2, 1))(ctx)
        await sleep(ctx, 1)
        if bad:
            raise Hostile
        return "well"

    async with TestEnvironment(workflows=[job]) as env:
        bad, good = await env.app.start_workflow(job, True), await env.app.start_workflow(job, False)
        with pytest.raises(WorkflowFailedError, match="Hostile"):
            await asyncio.wait_for(bad.result(), 10)
        assert await asyncio.wait_for(good.result(), 10) == "well"


# --- activities


async def test_sync_activities_run_in_threads_at_the_same_time() -> None:
    meet = threading.Barrier(3, timeout=10)

    @activity
    def wait(ctx: ActivityContext, n: int) -> str:
        meet.wait()
        return threading.current_thread().name

    @workflow
    async def job(ctx: WorkflowContext) -> list[str]:
        return await asyncio.gather(*(wait(ctx, n) for n in range(3)))

    async with TestEnvironment(workflows=[job]) as env:
        names = await (await env.app.start_workflow(job)).result()
    assert len(set(names)) == 3
    assert threading.current_thread().name not in names


async def test_ids_count_by_name_and_manual_ones_clash_before_anything_runs() -> None:
    ran: list[str] = []

    @activity
    async def charge(ctx: ActivityContext) -> str:
        ran.append(ctx.activity_id)
        return ctx.activity_id

    @workflow
    async def job(ctx: WorkflowContext) -> list[str]:
        return [await charge(ctx), await charge.with_options(activity_id="eu")(ctx), await charge(ctx)]

    @workflow
    async def clash(ctx: WorkflowContext) -> None:
        later = charge.with_options(activity_id="charge:1")(ctx)
        await asyncio.gather(later, charge(ctx))

    async with TestEnvironment(workflows=[job, clash]) as env:
        assert await (await env.app.start_workflow(job)).result() == ["charge:1", "eu", "charge:2"]
        ran.clear()
        assert isinstance(await cause_of(await env.app.start_workflow(clash)), ActivityIDConflictError)
    assert ran == []


async def test_what_an_activity_knows_of_itself() -> None:
    seen: list[tuple[Any, ...]] = []

    @activity
    async def look(ctx: ActivityContext) -> None:
        seen.append(
            (ctx.instance_id, ctx.workflow_name, ctx.activity_id, ctx.attempt, ctx.worker_id, ctx.app, ctx.last_heartbeat)
        )
        ctx.log.info("looking")

    @workflow
    async def job(ctx: WorkflowContext) -> tuple[str, str, str, int, bool]:
        await look(ctx)
        assert ctx.app is env.app
        return ctx.instance_id, ctx.workflow_name, ctx.worker_id, ctx.generation, ctx.is_replaying

    async with TestEnvironment(workflows=[job], worker_id="w7") as env:
        handle = await env.app.start_workflow(job)
        assert env.app._worker is not None
        worker = env.app._worker.id
        assert worker.startswith("w7/")
        assert await handle.result() == (handle.instance_id, "job", worker, 1, False)
    assert seen == [(handle.instance_id, "job", "look:1", 1, worker, env.app, None)]


# --- asyncio in a workflow


@workflow
async def primitives(ctx: WorkflowContext) -> dict[str, Any]:
    """Uses most of asyncio in one workflow."""
    told: dict[str, Any] = {}
    queue: asyncio.Queue[int] = asyncio.Queue(1)
    lock, gate, slots = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2)

    async def produce() -> None:
        for number in range(3):
            async with lock:
                await queue.put(await add(ctx, number))
            await asyncio.sleep(1)
        gate.set()

    async def timed(seconds: int) -> int:
        async with slots:
            await sleep(ctx, seconds)
        return seconds

    producer = asyncio.create_task(produce())
    told["queue"] = [await queue.get() for _ in range(3)]
    await gate.wait()
    await producer
    told["gather"] = await asyncio.gather(timed(3), timed(1), timed(2))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(timed(n)) for n in (2, 1)]
        single = group.create_task(add(ctx, 40))
    told["group"] = [task.result() for task in tasks] + [single.result()]
    told["completed"] = [await one for one in asyncio.as_completed([timed(3), timed(1)])]
    done, pending = await asyncio.wait({sleep(ctx, 5), sleep(ctx, 50)}, return_when=asyncio.FIRST_COMPLETED)
    told["wait"] = (len(done), len(pending))
    for one in pending:
        one.cancel()
    try:
        await asyncio.wait_for(asyncio.shield(timed(10)), 4)
    except TimeoutError:
        told["wait_for"] = "timed out"
    try:
        async with asyncio.timeout(2):
            await sleep(ctx, 100)
    except TimeoutError:
        told["timeout"] = "timed out"
    told["time"] = asyncio.get_running_loop().time() == ctx.now().timestamp()
    told["chance"] = [ctx.random().random(), str(ctx.uuid4()), str(ctx.uuid4())]
    return told


@pytest.mark.parametrize("replay_always", [False, True])
async def test_plain_asyncio_works_and_replays(replay_always: bool) -> None:
    async with TestEnvironment(workflows=[primitives], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(primitives.with_options(instance_id="p"))
        told = await asyncio.wait_for(handle.result(), 20)
    chance = told.pop("chance")
    assert len(set(chance)) == 3
    assert told == {
        "queue": [1, 2, 3],
        "gather": [3, 1, 2],
        "group": [2, 1, 41],
        "completed": [1, 3],
        "wait": [1, 1],
        "wait_for": "timed out",
        "timeout": "timed out",
        "time": True,
    }


async def test_a_race_ends_the_same_after_every_crash() -> None:
    @workflow
    async def race(ctx: WorkflowContext) -> str:
        runners = {asyncio.create_task(_run(ctx, name, pace), name=name) for name, pace in (("a", 3), ("b", 2), ("c", 2))}
        done, pending = await asyncio.wait(runners, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        winner = ",".join(sorted(task.get_name() for task in done))
        await add(ctx, len(winner))
        await sleep(ctx, 10)
        return winner

    async def _run(ctx: WorkflowContext, name: str, pace: int) -> None:
        await sleep(ctx, pace)
        await add(ctx, pace)

    winners, crashes, step = set[str](), 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[race]) as env:
            handle = await env.app.start_workflow(race)
            env.crash_at_step(step)
            winners.add(await asyncio.wait_for(handle.result(), 10))
            assert await handle.status() is Status.COMPLETED
            crashes = env.crashes
    assert len(winners) == 1
    assert step > 10


async def test_the_time_of_a_workflow_stands_still_between_two_resolutions() -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> list[float]:
        told = [ctx.now().timestamp()]
        await sleep(ctx, timedelta(hours=1))
        told.append(ctx.now().timestamp())
        await sleep_until(ctx, ctx.now() + timedelta(days=1), sleep_id="a day")
        told.append(asyncio.get_running_loop().time())
        return told

    async with TestEnvironment(workflows=[job]) as env:
        begun = env.now().timestamp()
        handle = await env.app.start_workflow(job)
        assert [one - begun for one in await handle.result()] == [0, 3600, 90_000]
        assert [entry.activity_id async for entry in handle.history()] == ["sleep:1", "a day"]


async def test_input_and_output_of_other_kinds_are_refused_with_advice() -> None:
    @workflow
    async def job(ctx: WorkflowContext, how: str) -> None:
        loop = asyncio.get_running_loop()
        if how == "thread":
            await asyncio.to_thread(print)
        elif how == "socket":
            await asyncio.open_connection("127.0.0.1", 9)
        elif how == "process":
            await asyncio.create_subprocess_exec("true")
        elif how == "executor":
            await loop.run_in_executor(None, print)
        else:
            socket.create_connection(("127.0.0.1", 9))

    async with TestEnvironment(workflows=[job]) as env:
        for how in ("thread", "socket", "process", "executor", "blocking"):
            error = await cause_of(await env.app.start_workflow(job, how))
            assert isinstance(error, WorkflowIOError), how
            assert "activity" in str(error)


async def test_the_log_of_a_workflow_is_silent_while_it_replays(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> bool:
        ctx.log.warning("before %s", "the nap")
        await sleep(ctx, 60)
        ctx.log.warning("after")
        return ctx.is_replaying

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        await env.settle()
        await env.restart()
        assert await handle.result() is False
    lines = [record for record in caplog.records if record.name == "romancy.workflow"]
    assert [record.getMessage() for record in lines] == ["before the nap", "after"]
    assert lines[0].instance_id == handle.instance_id  # type: ignore[attr-defined]


# --- workflows that end badly


async def test_a_body_that_ends_with_an_async_activity_in_flight_cancels_and_records_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []
    running = asyncio.Event()

    @activity
    async def hang(ctx: ActivityContext) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @activity
    async def wait(ctx: ActivityContext) -> None:
        await running.wait()

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        forgotten = hang(ctx)
        await wait(ctx)
        assert forgotten is not None
        return "done"

    async with TestEnvironment(workflows=[job]) as env:
        with caplog.at_level(logging.WARNING):
            handle = await env.app.start_workflow(job)
            assert await handle.result() == "done"
        outcomes = {entry.activity_id: entry.outcome async for entry in handle.history()}
    assert seen == ["cancelled"]
    assert outcomes == {"hang:1": "cancelled", "wait:1": "ok"}
    assert "hang:1 was started at" in caplog.text
    assert "never awaited" in caplog.text


async def test_a_body_that_ends_with_a_sync_activity_in_flight_waits_for_it_and_records_it() -> None:
    running, finish = threading.Event(), threading.Event()

    @activity
    def work(ctx: ActivityContext) -> str:
        running.set()
        finish.wait(20)
        return "result"

    @activity
    def wait(ctx: ActivityContext) -> None:
        running.wait(20)

    @workflow
    async def job(ctx: WorkflowContext) -> str:
        task = asyncio.create_task(_work(ctx))
        await wait(ctx)
        return f"done {task.done()}"

    async def _work(ctx: WorkflowContext) -> None:
        await work(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        try:
            handle = await env.app.start_workflow(job)
            await env.settle()
            assert await handle.status() is Status.RUNNING
        finally:
            finish.set()
        assert await handle.result() == "done False"
        told = {entry.activity_id: (entry.outcome, entry.result) async for entry in handle.history()}
    assert told == {"wait:1": ("ok", None), "work:1": ("ok", "result")}


@pytest.mark.parametrize("how", ["deadlock", "spin"])
async def test_a_body_that_can_never_go_on_fails_at_once_and_names_its_tasks(how: str) -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await add(ctx, 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(_stuck(), name="the stuck one")

    async def _stuck() -> None:
        if how == "deadlock":
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(0)

    async with TestEnvironment(workflows=[job]) as env:
        error = await cause_of(await env.app.start_workflow(job))
    assert isinstance(error, WorkflowStuckError)
    assert "the stuck one" in str(error)
    assert "test_workflows.py:" in str(error)


async def test_awaiting_the_app_in_a_workflow_fails_with_a_sentence() -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await ctx.app.start_workflow("job")

    async with TestEnvironment(workflows=[job]) as env:
        error = await cause_of(await env.app.start_workflow(job))
    assert "activity" in str(error)


async def test_a_naive_time_is_refused() -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await sleep_until(ctx, datetime(2030, 1, 1))

    async with TestEnvironment(workflows=[job]) as env:
        error = await cause_of(await env.app.start_workflow(job))
        with pytest.raises(ConfigurationError, match="aware"):
            await env.app.list_instances(created_after=datetime(2030, 1, 1))
    assert isinstance(error, ConfigurationError)
    assert "aware" in str(error)


# --- the timeout of a workflow


async def test_the_timeout_counts_waits_and_compensates() -> None:
    undone: list[str] = []

    @activity
    async def do(ctx: ActivityContext) -> None: ...

    @do.compensate
    async def undo(ctx: ActivityContext) -> None:
        undone.append("undone")

    @workflow(timeout=timedelta(hours=1))
    async def job(ctx: WorkflowContext, naps: int) -> str:
        await do(ctx)
        for _ in range(naps):
            await sleep(ctx, 1700)
        return "in time"

    async with TestEnvironment(workflows=[job]) as env:
        assert await (await env.app.start_workflow(job, 2)).result() == "in time"
        handle = await env.app.start_workflow(job, 3)
        await env.advance(2000)
        await env.restart()
        begun = env.now().timestamp() - 2000
        with pytest.raises(WorkflowTimeoutError) as raised:
            await handle.result()
        assert env.now().timestamp() - begun == 3600
        assert await handle.status() is Status.FAILED
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, WorkflowFailedError)
    assert undone == ["undone"]


async def test_a_terminal_error_in_the_body_is_the_cause_of_the_failure() -> None:
    @workflow
    async def job(ctx: WorkflowContext) -> None:
        raise TerminalError("I give up")

    async with TestEnvironment(workflows=[job]) as env:
        handle = await env.app.start_workflow(job)
        error = await cause_of(handle)
        found = await env.app.get_result(handle.instance_id)
    assert (type(error), str(error)) == (TerminalError, "I give up")
    assert found.error is not None
    assert str(found.error).endswith("TerminalError: I give up")
    assert "raise TerminalError" in found.error.trace
