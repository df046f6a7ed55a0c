"""Waits for events: which events they receive, when they end, and that no event is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from romancy import (
    ActivityContext,
    ActivityIDConflictError,
    App,
    Client,
    ConfigurationError,
    EventTimeoutError,
    HistoryEntry,
    Hooks,
    Instance,
    InvalidWorkflowStateError,
    PayloadError,
    ReceivedEvent,
    RetryPolicy,
    Status,
    StoreError,
    Workflow,
    WorkflowCancelledError,
    WorkflowContext,
    WorkflowFailedError,
    WorkflowHandle,
    WorkflowTerminatedError,
    WorkflowTimeoutError,
    activity,
    publish,
    receive,
    register_compensation,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.hooks import WorkflowFailed
from romancy.model.transition import Transition, Write, WriteResult
from romancy.testing import TestEnvironment
from romancy.worker.attempt import AttemptEnded
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.runner.state import Input

pytestmark = pytest.mark.usefixtures("everywhere")


class Payment(BaseModel):
    order: str
    amount: float = Field(alias="theAmount")


@dataclass
class Parcel:
    id: int
    weight: float = 0.0


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    return what


@workflow
async def one_payment(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "paid")).data


@workflow
async def impatient(ctx: WorkflowContext, seconds: float) -> Any:
    try:
        return (await wait_event(ctx, "paid", timeout=seconds)).data
    except EventTimeoutError as error:
        return f"late: {error}"


@workflow
async def three_payments(ctx: WorkflowContext) -> list[Any]:
    return [(await wait_event(ctx, "paid")).data for _ in range(3)]


async def settled_instance(env: TestEnvironment, handle: WorkflowHandle[Any]) -> Instance:
    """The instance, after everything has settled."""
    await env.settle()
    found = await env.app.get_instance(handle.instance_id)
    assert found is not None
    return found


async def entries(handle: WorkflowHandle[Any], kind: str = "event") -> list[HistoryEntry]:
    return [entry async for entry in handle.history() if entry.kind == kind]


async def failure(handle: WorkflowHandle[Any]) -> BaseException | None:
    """The error with which the instance failed."""
    with pytest.raises(WorkflowFailedError) as failed:
        await asyncio.wait_for(handle.result(), 10)
    return failed.value.__cause__


@asynccontextmanager
async def outside(database: str, env: TestEnvironment) -> AsyncIterator[Client]:
    """A client on the environment's clock, which can send while the environment's worker is down."""
    async with Client(database, workflows=[], clock=env.clock) as client:
        yield client


# --- the received event


async def test_an_event_with_everything_it_says_about_itself() -> None:
    got: list[ReceivedEvent[Any]] = []

    @workflow
    async def curious(ctx: WorkflowContext) -> None:
        got.append(await wait_event(ctx, "order.paid"))

    async with TestEnvironment(workflows=[curious], start=datetime(2031, 5, 1, 12, tzinfo=UTC)) as env:
        handle = await env.app.start_workflow(curious)
        await env.settle()
        await env.app.send_event(
            "order.paid",
            "/shop",
            {"order": 42},
            subject="42",
            event_id="e-1",
            extensions={"traceparent": "00-ab", "retries": 3, "urgent": True},
        )
        await handle.result()
    (event,) = got
    assert (event.id, event.type, event.source, event.specversion) == ("e-1", "order.paid", "/shop", "1.0")
    assert (event.subject, event.datacontenttype, event.dataschema) == ("42", "application/json", None)
    assert event.time == datetime(2031, 5, 1, 12, tzinfo=UTC)
    assert event.data == {"order": 42}
    assert event.extensions == {"traceparent": "00-ab", "retries": 3, "urgent": True}


@pytest.mark.parametrize(
    "data",
    [None, "text", 7, 1.5, True, [1, [2]], {"a": {"b": None}}, b"", b"\x00\xff\xfe", "☃ \x00", {"": ""}, "x" * 200_000],
    ids=lambda data: repr(data)[:20],
)
async def test_data_arrives_as_it_was_sent_live_and_replayed(data: Any) -> None:
    seen: list[Any] = []

    @workflow
    async def keeper(ctx: WorkflowContext) -> None:
        seen.append((await wait_event(ctx, "thing")).data)
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[keeper]) as env:
        handle = await env.app.start_workflow(keeper)
        await env.app.send_event("thing", "/test", data)
        await env.settle()
        await env.restart()
        await handle.result()
    live, replayed = seen
    assert live == replayed == data
    assert type(live) is type(replayed) is type(data)


async def test_bytes_say_that_they_are_bytes_unless_the_sender_says_what_they_are() -> None:
    @workflow
    async def types(ctx: WorkflowContext) -> list[str | None]:
        return [(await wait_event(ctx, "blob")).datacontenttype for _ in range(3)]

    async with TestEnvironment(workflows=[types]) as env:
        handle = await env.app.start_workflow(types)
        await env.app.send_event("blob", "/test", b"x")
        await env.app.send_event("blob", "/test", b"x", content_type="image/png")
        await env.app.send_event("blob", "/test")
        assert await handle.result() == ["application/octet-stream", "image/png", None]


async def test_a_model_reads_the_data_by_the_names_the_world_uses() -> None:
    @workflow
    async def typed(ctx: WorkflowContext) -> list[Any]:
        payment = (await wait_event(ctx, "paid", model=Payment)).data
        parcel = (await wait_event(ctx, "packed", model=Parcel)).data
        number = (await wait_event(ctx, "counted", model=int | str)).data
        raw = (await wait_event(ctx, "blob", model=bytes)).data
        assert isinstance(payment, Payment)
        assert isinstance(parcel, Parcel)
        return [payment.amount, parcel.weight, number, len(raw)]

    async with TestEnvironment(workflows=[typed], replay_always=True) as env:
        handle = await env.app.start_workflow(typed)
        await env.app.send_event("paid", "/test", {"order": "1", "theAmount": 9.5, "more": "ignored"})
        await env.app.send_event("packed", "/test", {"id": 1, "weight": 2})
        await env.app.send_event("counted", "/test", "many")
        await env.app.send_event("blob", "/test", b"\xff\x00")
        assert await handle.result() == [9.5, 2.0, "many", 2]


@pytest.mark.parametrize("data", [{"order": "1"}, None, b"\xff", [1], "no"])
async def test_data_that_does_not_fit_the_model_is_consumed_and_raises_in_the_workflow(data: Any) -> None:
    @workflow
    async def strict(ctx: WorkflowContext) -> list[str]:
        told: list[str] = []
        try:
            await wait_event(ctx, "paid", model=Payment)
        except PayloadError as error:
            told.append(str(error))
        told.append((await wait_event(ctx, "paid", model=Payment)).data.order)
        return told

    async with TestEnvironment(workflows=[strict], replay_always=True) as env:
        handle = await env.app.start_workflow(strict)
        await env.settle()
        await env.app.send_event("paid", "/shop", data, event_id="bad-1")
        await env.app.send_event("paid", "/shop", {"order": "good", "theAmount": 1})
        misfit, order = await handle.result()
    assert order == "good"
    assert "'paid'" in misfit
    assert "bad-1" in misfit
    assert "Payment" in misfit


# --- matching


async def test_the_type_is_compared_exactly() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        handle = await env.app.start_workflow(one_payment)
        await env.settle()
        for other in ("Paid", "paid ", "paid.late", "pai", "PAID"):
            accepted = await env.app.send_event(other, "/test", other)
            assert accepted.instance_ids == ()
        assert await handle.status() is Status.WAITING_FOR_EVENT
        accepted = await env.app.send_event("paid", "/test", "right")
        assert accepted.instance_ids == (handle.instance_id,)
        assert await handle.result() == "right"


@pytest.mark.parametrize("sent_first", [True, False])
async def test_a_subject_lets_only_its_events_through(sent_first: bool) -> None:
    @workflow
    async def of_order(ctx: WorkflowContext, order: str) -> Any:
        return (await wait_event(ctx, "paid", subject=order)).data

    async with TestEnvironment(workflows=[of_order]) as env:
        handles = [await env.app.start_workflow(of_order, order) for order in ("41", "42")]
        if not sent_first:
            await env.settle()
        for subject in ("40", None, "42", "41"):
            await env.app.send_event("paid", "/test", f"for {subject}", subject=subject)
        assert [await handle.result() for handle in handles] == ["for 41", "for 42"]


@pytest.mark.parametrize("sent_first", [True, False])
@pytest.mark.parametrize(
    ("match", "misfits", "fit"),
    [
        ({"order_id": "42"}, [{"order_id": "41"}, {"order_id": 42}, {}, None, "42", b"42", ["42"]], {"order_id": "42"}),
        ({"customer.id": "c1"}, [{"customer": {"id": "c2"}}, {"customer": "c1"}], {"customer": {"id": "c1"}}),
        ({"items.0.sku": "x"}, [{"items": [{"sku": "y"}, {"sku": "x"}]}, {"items": []}], {"items": [{"sku": "x"}]}),
        ({"express": True}, [{"express": 1}, {"express": "true"}, {"express": False}], {"express": True}),
        ({"count": 1}, [{"count": True}, {"count": "1"}, {"count": 2}], {"count": 1.0}),
        ({"gone": None}, [{}, {"gone": 0}, {"gone": False}], {"gone": None}),
        ({"a": 1, "b": 2}, [{"a": 1}, {"b": 2}, {"a": 1, "b": 3}], {"a": 1, "b": 2, "c": 3}),
        ({"dotted.key": "x"}, [{"dotted": "x"}], {"dotted.key": "x"}),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_a_match_looks_into_the_data(match: dict[str, Any], misfits: list[Any], fit: Any, sent_first: bool) -> None:
    @workflow
    async def picky(ctx: WorkflowContext) -> list[Any]:
        found = (await wait_event(ctx, "paid", match=match)).data
        return [found] + [(await wait_event(ctx, "paid")).id for _ in misfits]

    async with TestEnvironment(workflows=[picky]) as env:
        handle = await env.app.start_workflow(picky)
        if not sent_first:
            await env.settle()
        for number, data in enumerate(misfits):
            accepted = await env.app.send_event("paid", "/test", data, event_id=str(number))
            assert sent_first or accepted.instance_ids == ()
        await env.app.send_event("paid", "/test", fit)
        # Events that do not match the first wait stay, in order, for later waits.
        assert await handle.result() == [fit, *(str(number) for number in range(len(misfits)))]


async def test_subject_and_match_must_both_fit() -> None:
    @workflow
    async def both(ctx: WorkflowContext) -> str:
        return (await wait_event(ctx, "paid", subject="42", match={"part": 2})).id

    async with TestEnvironment(workflows=[both]) as env:
        handle = await env.app.start_workflow(both)
        await env.app.send_event("paid", "/test", {"part": 2}, subject="41")
        await env.app.send_event("paid", "/test", {"part": 1}, subject="42")
        await env.app.send_event("paid", "/test", {"part": 2}, subject="42", event_id="right")
        assert await handle.result() == "right"


async def test_the_id_given_to_a_wait_names_it_and_filters_nothing() -> None:
    @workflow
    async def named(ctx: WorkflowContext) -> str:
        return (await wait_event(ctx, "paid", event_id="first payment")).id

    async with TestEnvironment(workflows=[named], replay_always=True) as env:
        handle = await env.app.start_workflow(named)
        await env.settle()
        await env.app.send_event("paid", "/test", event_id="whatever")
        assert await handle.result() == "whatever"
        assert [entry.activity_id for entry in await entries(handle)] == ["first payment"]


async def test_waits_without_a_name_are_counted() -> None:
    async with TestEnvironment(workflows=[three_payments]) as env:
        handle = await env.app.start_workflow(three_payments)
        for number in range(3):
            await env.app.send_event("paid", "/test", number)
        assert await handle.result() == [0, 1, 2]
        assert [entry.activity_id for entry in await entries(handle)] == ["paid:1", "paid:2", "paid:3"]


# --- no event is lost


async def test_an_event_before_the_wait_is_not_missed() -> None:
    running, finish = asyncio.Event(), asyncio.Event()

    @activity
    async def prepare(ctx: ActivityContext) -> None:
        running.set()
        await finish.wait()

    @workflow
    async def slow(ctx: WorkflowContext) -> list[Any]:
        await prepare(ctx)
        return [(await wait_event(ctx, "paid")).data for _ in range(2)]

    async with TestEnvironment(workflows=[slow]) as env:
        handle = await env.app.start_workflow(slow)
        await running.wait()
        await env.app.send_event("paid", "/test", "early")
        await env.app.send_event("paid", "/test", "also early")
        finish.set()
        assert await handle.result() == ["early", "also early"]


async def test_events_before_the_first_start_are_not_for_the_instance() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        await env.app.send_event("paid", "/test", "before")
        handle = await env.app.start_workflow(one_payment)
        await env.settle()
        assert await handle.status() is Status.WAITING_FOR_EVENT
        await env.app.send_event("paid", "/test", "after")
        assert await handle.result() == "after"


async def test_an_event_counts_from_the_start_call_not_from_the_first_claim(database: str) -> None:
    async with Client(database, workflows=[one_payment]) as client:
        handle = await client.start_workflow(one_payment)
        await client.send_event("paid", "/test", "while pending")
        assert await handle.status() is Status.PENDING
    async with TestEnvironment(database, workflows=[one_payment]) as env:
        assert await env.app.get_handle(handle.instance_id).result() == "while pending"


async def test_waits_take_the_oldest_first() -> None:
    async with TestEnvironment(workflows=[three_payments]) as env:
        handle = await env.app.start_workflow(three_payments)
        await env.settle()
        for number in range(5):
            await env.app.send_event("paid", "/test", number)
        assert await handle.result() == [0, 1, 2]


async def test_everybody_who_waits_gets_an_event() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        handles = [await env.app.start_workflow(one_payment) for _ in range(5)]
        await env.settle()
        accepted = await env.app.send_event("paid", "/test", "to all")
        assert sorted(accepted.instance_ids) == sorted(handle.instance_id for handle in handles)
        assert [await handle.result() for handle in handles] == ["to all"] * 5


@pytest.mark.parametrize("replay_always", [False, True])
async def test_many_events_arrive_in_order(replay_always: bool) -> None:
    count = 40 if replay_always else 300

    @workflow
    async def counter(ctx: WorkflowContext) -> list[int]:
        return [(await wait_event(ctx, "tick")).data for _ in range(count)]

    async with TestEnvironment(workflows=[counter], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(counter)
        for number in range(count):
            await env.app.send_event("tick", "/test", number)
            if number % 7 == 0:
                await env.settle()
        assert await handle.result() == list(range(count))


async def test_a_crash_at_any_step_loses_no_event_and_takes_none_twice() -> None:
    @workflow
    async def collector(ctx: WorkflowContext) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            found.append((await wait_event(ctx, "told")).data)
            await note(ctx, "noted")
        return found

    @workflow
    async def sending_workflow(ctx: WorkflowContext) -> None:
        for number in range(3):
            await send_event(ctx, "told", "/sender", number)
            await note(ctx, "sent")

    crashes, step = 1, 0
    while crashes:
        step += 1
        async with TestEnvironment(workflows=[collector, sending_workflow]) as env:
            collecting = await env.app.start_workflow(collector)
            sending = await env.app.start_workflow(sending_workflow)
            env.crash_at_step(step)
            found, _ = await asyncio.wait_for(asyncio.gather(collecting.result(), sending.result()), 10)
            assert found == [0, 1, 2], f"crash at step {step}"
            crashes = env.crashes
    assert step > 12


async def test_a_send_that_was_acknowledged_outlives_a_crash() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        handle = await env.app.start_workflow(one_payment)
        await env.settle()
        await env.app.send_event("paid", "/test", "kept")
        await env.restart()
        assert await handle.result() == "kept"


# --- retention


async def test_events_are_kept_for_the_retention_and_then_forgotten() -> None:
    @workflow
    async def sleepy(ctx: WorkflowContext, days: float) -> Any:
        await sleep(ctx, timedelta(days=days))
        return (await wait_event(ctx, "paid", timeout=1)).data

    async def maintain(env: TestEnvironment) -> None:
        assert env.app._maintenance is not None
        await env.app._maintenance.round()

    async with TestEnvironment(workflows=[sleepy]) as env:
        soon = await env.app.start_workflow(sleepy, 6.9)
        late = await env.app.start_workflow(sleepy, 7.1)
        await env.app.send_event("paid", "/test", "kept")
        await env.advance(timedelta(days=6.8))
        await maintain(env)
        await env.advance(timedelta(days=0.25))
        await maintain(env)
        assert await soon.result() == "kept"
        assert isinstance(await failure(late), EventTimeoutError)


async def test_the_retention_is_an_option() -> None:
    async with TestEnvironment(workflows=[one_payment], event_retention=60) as env:
        await env.app.send_event("paid", "/test", event_id="e1")
        await env.advance(59)
        assert env.app._maintenance is not None
        await env.app._maintenance.round()
        assert (await env.app.send_event("paid", "/test", event_id="e1")).duplicate
        await env.advance(2)
        await env.app._maintenance.round()
        assert not (await env.app.send_event("paid", "/test", event_id="e1")).duplicate


async def test_what_was_consumed_stays_in_the_history_when_the_event_is_forgotten() -> None:
    @workflow
    async def slow(ctx: WorkflowContext) -> Any:
        got = (await wait_event(ctx, "paid")).data
        await sleep(ctx, timedelta(days=30))
        return got

    async with TestEnvironment(workflows=[slow]) as env:
        handle = await env.app.start_workflow(slow)
        await env.app.send_event("paid", "/test", "once")
        await env.advance(timedelta(days=20))
        assert env.app._maintenance is not None
        await env.app._maintenance.round()
        await env.restart()
        assert await handle.result() == "once"


# --- timeouts


async def test_a_wait_that_is_over_raises_and_names_what_did_not_come() -> None:
    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid", subject="42", timeout=timedelta(hours=1))

    async with TestEnvironment(workflows=[waiter], replay_always=True) as env:
        before = env.now()
        handle = await env.app.start_workflow(waiter)
        error = await failure(handle)
        assert env.now() - before == timedelta(hours=1)
    assert isinstance(error, EventTimeoutError)
    assert isinstance(error, TimeoutError)
    assert "'paid'" in str(error)
    assert "'42'" in str(error)


@pytest.mark.parametrize("worker_there", [True, False])
@pytest.mark.parametrize(("at", "in_time"), [(59, True), (60, False), (61, False)])
async def test_what_counts_is_when_the_event_was_accepted(database: str, at: int, in_time: bool, worker_there: bool) -> None:
    async with TestEnvironment(database, workflows=[impatient]) as env:
        handle = await env.app.start_workflow(impatient, 60)
        await env.settle()
        if worker_there:
            await env.advance(at)
            await env.app.send_event("paid", "/test", "came")
            assert ((await handle.result()) == "came") is in_time
            return
    env.clock.move_to(env.clock.now() + at * 1_000_000)
    async with outside(database, env) as sender:
        await sender.send_event("paid", "/test", "came")
    env.clock.move_to(env.clock.now() + 1_000_000_000)
    async with TestEnvironment(database, workflows=[impatient], start=env.now()) as later:
        assert ((await later.app.get_handle(handle.instance_id).result()) == "came") is in_time


async def test_an_event_that_came_too_late_stays_for_the_next_wait(database: str) -> None:
    @workflow
    async def patient(ctx: WorkflowContext) -> list[Any]:
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append((await wait_event(ctx, "paid", timeout=60)).data)
            except EventTimeoutError:
                found.append("nothing")
        return found

    async with TestEnvironment(database, workflows=[patient]) as env:
        handle = await env.app.start_workflow(patient)
        await env.settle()
    env.clock.move_to(env.clock.now() + 90_000_000)
    async with outside(database, env) as sender:
        await sender.send_event("paid", "/test", "late")
    async with TestEnvironment(database, workflows=[patient], start=env.now()) as later:
        assert await later.app.get_handle(handle.instance_id).result() == ["nothing", "late"]


async def test_timers_and_timeouts_resolve_in_order_of_their_due_time_after_a_downtime(database: str) -> None:
    @workflow
    async def busy(ctx: WorkflowContext) -> list[str]:
        order: list[str] = []

        async def timer(seconds: int) -> None:
            await sleep(ctx, seconds)
            order.append(f"timer {seconds}")

        async def wait(seconds: int) -> None:
            try:
                await wait_event(ctx, f"never {seconds}", timeout=seconds)
            except EventTimeoutError:
                order.append(f"wait {seconds}")

        await asyncio.gather(wait(50), timer(40), wait(10), timer(60), timer(20), wait(30))
        return order

    due = ["wait 10", "timer 20", "wait 30", "timer 40", "wait 50", "timer 60"]
    async with TestEnvironment(database, workflows=[busy]) as env:
        handle = await env.app.start_workflow(busy)
        assert await handle.result() == due
        handle = await env.app.start_workflow(busy)
        await env.settle()
    env.clock.move_to(env.clock.now() + 3_600_000_000)
    async with TestEnvironment(database, workflows=[busy], start=env.now()) as later:
        assert await later.app.get_handle(handle.instance_id).result() == due


async def test_however_short_its_timeout_a_wait_takes_what_is_there() -> None:
    @workflow
    async def glance(ctx: WorkflowContext) -> list[Any]:
        await sleep(ctx, 10)
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append((await wait_event(ctx, "paid", timeout=0.001)).data)
            except EventTimeoutError:
                found.append(None)
        return found

    async with TestEnvironment(workflows=[glance], replay_always=True) as env:
        handle = await env.app.start_workflow(glance)
        await env.app.send_event("paid", "/test", "there")
        before = env.now()
        assert await handle.result() == ["there", None]
        assert env.now() - before == timedelta(seconds=10, milliseconds=1)


async def test_a_timeout_survives_the_worker(database: str) -> None:
    async with TestEnvironment(database, workflows=[impatient], cache_size=0) as env:
        before = env.now()
        handle = await env.app.start_workflow(impatient, 3600)
        for _ in range(3):
            await env.advance(1000)
            await env.restart()
        assert (await handle.result()).startswith("late")
        assert env.now() - before == timedelta(hours=1)


# --- several waits at once


@workflow
async def race(ctx: WorkflowContext) -> list[Any]:
    """Waits for the first of two events and a timer, then for the events that the cancelled waits would have received."""
    waits = {
        "paid": wait_event(ctx, "paid", event_id="paid"),
        "refused": wait_event(ctx, "refused", event_id="refused"),
        "timer": sleep(ctx, 3600),
    }
    done, losers = await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
    for loser in losers:
        loser.cancel()
    winner = [name for name, wait in waits.items() if wait in done]
    try:
        left = (await wait_event(ctx, "paid", timeout=10)).data
    except EventTimeoutError:
        left = None
    return [*winner, left]


@pytest.mark.parametrize("replay_always", [False, True])
@pytest.mark.parametrize(
    ("sent", "expected"), [(["paid"], ["paid", None]), (["refused", "paid"], ["refused", 1]), ([], ["timer", None])]
)
async def test_the_first_of_several(sent: list[str], expected: list[Any], replay_always: bool) -> None:
    async with TestEnvironment(workflows=[race], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(race)
        await env.settle()
        for number, kind in enumerate(sent):
            await env.app.send_event(kind, "/test", number)
            await env.settle()
        assert await handle.result() == expected


@pytest.mark.parametrize(
    ("sent", "winner"),
    [
        ([("paid", 20)], "paid"),
        ([("refused", 10), ("paid", 20)], "refused"),
        ([("paid", 10), ("refused", 20)], "paid"),
        ([("paid", 3600)], "timer"),
        ([("refused", 4000), ("paid", 5000)], "timer"),
    ],
)
async def test_what_happened_during_a_downtime_resolves_in_the_order_it_happened(
    database: str, sent: list[tuple[str, int]], winner: str
) -> None:
    async with TestEnvironment(database, workflows=[race]) as env:
        handle = await env.app.start_workflow(race)
        await env.settle()
    begun = env.clock.now()
    async with outside(database, env) as sender:
        for kind, at in sent:
            env.clock.move_to(begun + at * 1_000_000)
            await sender.send_event(kind, "/test", at)
    env.clock.move_to(begun + 10_000_000_000)
    async with TestEnvironment(database, workflows=[race], start=env.now()) as later:
        assert (await later.app.get_handle(handle.instance_id).result())[0] == winner


async def test_a_timeout_of_asyncio_that_ran_out_during_a_downtime(database: str) -> None:
    @workflow
    async def bounded(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(60):
                await wait_event(ctx, "paid")
        except TimeoutError:
            return "too late"
        return "in time"

    for at, expected in ((59, "in time"), (61, "too late")):
        async with TestEnvironment(database, workflows=[bounded]) as env:
            handle = await env.app.start_workflow(bounded.with_options(instance_id=expected))
            await env.settle()
        env.clock.move_to(env.clock.now() + at * 1_000_000)
        async with outside(database, env) as sender:
            await sender.send_event("paid", "/test")
        start = env.now() + timedelta(seconds=100)
        async with TestEnvironment(database, workflows=[bounded], start=start) as later:
            assert await later.app.get_handle(handle.instance_id).result() == expected


async def test_losers_are_withdrawn_and_what_would_have_met_them_stays() -> None:
    @workflow
    async def fickle(ctx: WorkflowContext) -> Any:
        wait = wait_event(ctx, "paid")
        await sleep(ctx, 10)
        wait.cancel()
        await sleep(ctx, 10)
        return (await wait_event(ctx, "paid")).data

    async with TestEnvironment(workflows=[fickle], replay_always=True) as env:
        handle = await env.app.start_workflow(fickle)
        assert {one.kind for one in (await settled_instance(env, handle)).waiting_for} == {"event", "timer"}
        await env.advance(15)
        found = await settled_instance(env, handle)
        assert {one.kind for one in found.waiting_for} == {"timer"}
        assert (await env.app.send_event("paid", "/test", "for later")).instance_ids == ()
        assert await handle.result() == "for later"


@pytest.mark.parametrize("replay_always", [False, True])
async def test_of_two_events_that_are_there_the_loser_stays(replay_always: bool) -> None:
    @workflow
    async def fickle(ctx: WorkflowContext) -> list[str]:
        await sleep(ctx, 10)
        waits = [wait_event(ctx, "a"), wait_event(ctx, "b")]
        done, losers = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        (won,) = [wait.result().type for wait in done]
        return [won, (await wait_event(ctx, "b" if won == "a" else "a", timeout=60)).type]

    async with TestEnvironment(workflows=[fickle], replay_always=replay_always) as env:
        handle = await env.app.start_workflow(fickle)
        await env.app.send_event("a", "/test")
        await env.app.send_event("b", "/test")
        assert sorted(await handle.result()) == ["a", "b"]


async def test_concurrent_waits_never_share_an_event() -> None:
    @workflow
    async def hungry(ctx: WorkflowContext) -> list[Any]:
        return [event.data for event in await asyncio.gather(*(wait_event(ctx, "paid") for _ in range(4)))]

    for sent_first in (True, False):
        async with TestEnvironment(workflows=[hungry], replay_always=True) as env:
            handle = await env.app.start_workflow(hungry)
            if not sent_first:
                await env.settle()
            for number in range(4):
                await env.app.send_event("paid", "/test", number)
            assert sorted(await handle.result()) == [0, 1, 2, 3]


async def test_one_event_for_two_waits_of_one_instance_meets_one_of_them() -> None:
    @workflow
    async def twice(ctx: WorkflowContext) -> str:
        waits = [wait_event(ctx, "paid"), wait_event(ctx, "paid", match={"n": 1})]
        done, open_ = await asyncio.wait(waits, timeout=60)
        return f"{len(done)} done, {len(open_)} open"

    async with TestEnvironment(workflows=[twice], replay_always=True) as env:
        handle = await env.app.start_workflow(twice)
        await env.settle()
        await env.app.send_event("paid", "/test", {"n": 1})
        assert await handle.result() == "1 done, 1 open"


async def test_gather_task_groups_and_as_completed_with_waits() -> None:
    @workflow
    async def mixed(ctx: WorkflowContext) -> list[Any]:
        async def listen(kind: str) -> Any:
            return (await wait_event(ctx, kind)).data

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(listen(kind)) for kind in ("a", "b")]
        first = [task.result() for task in tasks]
        second = await asyncio.gather(wait_event(ctx, "c"), note(ctx, "noted"), sleep(ctx, 5))
        third = [(await one).data for one in asyncio.as_completed([wait_event(ctx, "d"), wait_event(ctx, "e")])]
        return [first, second[0].data, second[1], third]

    async with TestEnvironment(workflows=[mixed], replay_always=True) as env:
        handle = await env.app.start_workflow(mixed)
        for kind in "bacde":
            await env.settle()
            await env.app.send_event(kind, "/test", kind.upper())
        assert await handle.result() == [["A", "B"], "C", "noted", ["D", "E"]]


async def test_waits_in_background_tasks_shields_queues_and_inline_workflows() -> None:
    @workflow
    async def busy(ctx: WorkflowContext) -> list[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def pump() -> None:
            while True:
                queue.put_nowait((await wait_event(ctx, "tick")).data)

        pumping = asyncio.create_task(pump())
        got: list[Any] = [await one_payment(ctx)]
        got += [await queue.get() for _ in range(3)]
        pumping.cancel()
        late = wait_event(ctx, "late")
        try:
            async with asyncio.timeout(5):
                await asyncio.shield(late)
        except TimeoutError:
            got.append("not yet")
        return [*got, (await late).data]

    async with TestEnvironment(workflows=[busy], replay_always=True) as env:
        handle = await env.app.start_workflow(busy)
        for number in range(3):
            await env.app.send_event("tick", "/test", number)
        await env.app.send_event("paid", "/test", "paid")
        await env.advance(10)
        await env.app.send_event("late", "/test", "now")
        assert await handle.result() == ["paid", 0, 1, 2, "not yet", "now"]


async def test_a_group_that_fails_withdraws_its_waits() -> None:
    @workflow
    async def group(ctx: WorkflowContext) -> Any:
        async def fail() -> None:
            await sleep(ctx, 10)
            raise ValueError("no more")

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                tasks.create_task(_wait(ctx))
        except* ValueError:
            pass
        await sleep(ctx, 10)
        return (await wait_event(ctx, "paid", timeout=1)).data

    async with TestEnvironment(workflows=[group], replay_always=True) as env:
        handle = await env.app.start_workflow(group)
        await env.advance(15)
        assert [one.kind for one in (await settled_instance(env, handle)).waiting_for] == ["timer"]
        await env.app.send_event("paid", "/test", "stays")
        assert await handle.result() == "stays"


async def _wait(ctx: WorkflowContext) -> Any:
    return await wait_event(ctx, "paid")


@pytest.mark.parametrize("how", ["timeout", "wait_for"])
async def test_a_timeout_of_asyncio_around_a_wait(how: str) -> None:
    @workflow
    async def bounded(ctx: WorkflowContext) -> list[Any]:
        try:
            if how == "timeout":
                async with asyncio.timeout(60):
                    await wait_event(ctx, "paid")
            else:
                await asyncio.wait_for(wait_event(ctx, "paid"), 60)
        except TimeoutError as error:
            await sleep(ctx, 60)
            return [type(error).__name__, (await wait_event(ctx, "paid")).data]
        return ["in time", None]

    async with TestEnvironment(workflows=[bounded], replay_always=True) as env:
        in_time = await env.app.start_workflow(bounded)
        await env.advance(30)
        await env.app.send_event("paid", "/test", 1)
        assert await in_time.result() == ["in time", None]
        late = await env.app.start_workflow(bounded)
        await env.advance(90)
        assert [one.kind for one in (await settled_instance(env, late)).waiting_for] == ["timer"]
        await env.app.send_event("paid", "/test", 2)
        assert await late.result() == ["TimeoutError", 2]


async def test_a_wait_that_is_not_awaited_is_withdrawn_when_the_body_ends() -> None:
    @workflow
    async def forgetful(ctx: WorkflowContext) -> str:
        task = asyncio.create_task(_wait(ctx))
        await sleep(ctx, 1)
        assert not task.done()
        return "done"

    async with TestEnvironment(workflows=[forgetful]) as env:
        handle = await env.app.start_workflow(forgetful)
        assert await handle.result() == "done"
        assert (await settled_instance(env, handle)).waiting_for == ()
        assert (await env.app.send_event("paid", "/test")).instance_ids == ()


async def test_an_activity_runs_while_an_event_is_waited_for_and_taken() -> None:
    running, finish = asyncio.Event(), asyncio.Event()
    got: list[Any] = []

    @activity
    async def work(ctx: ActivityContext) -> str:
        running.set()
        await finish.wait()
        return "worked"

    @workflow
    async def both(ctx: WorkflowContext) -> str:
        async def listen() -> None:
            got.append((await wait_event(ctx, "paid")).data)
            finish.set()

        _, worked = await asyncio.gather(listen(), work(ctx))
        return worked

    async with TestEnvironment(workflows=[both]) as env:
        handle = await env.app.start_workflow(both)
        await running.wait()
        assert await handle.status() is Status.RUNNING
        await env.app.send_event("paid", "/test", "meanwhile")
        assert await asyncio.wait_for(handle.result(), 10) == "worked"
    assert got == ["meanwhile"]


# --- events to one instance


async def test_an_addressed_event_is_for_that_instance_alone() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        mine = await env.app.start_workflow(one_payment.with_options(instance_id="mine"))
        other = await env.app.start_workflow(one_payment.with_options(instance_id="other"))
        await env.settle()
        accepted = await env.app.send_event("paid", "/test", "private", extensions={"romancyinstanceid": "mine"})
        assert accepted.instance_ids == ("mine",)
        assert await mine.result() == "private"
        assert (await settled_instance(env, other)).status is Status.WAITING_FOR_EVENT
        later = await env.app.start_workflow(one_payment)
        await env.app.send_event("paid", "/test", "public")
        assert [await other.result(), await later.result()] == ["public", "public"]
        assert (await env.app.list_undeliverable_events()).items == []


async def test_an_addressed_event_before_the_wait_is_for_that_instance_alone() -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        await sleep(ctx, 60)
        return (await wait_event(ctx, "paid")).data

    async with TestEnvironment(workflows=[late]) as env:
        mine, other = [await env.app.start_workflow(late) for _ in range(2)]
        await env.app.send_event("paid", "/test", "private", extensions={"romancyinstanceid": mine.instance_id})
        await env.advance(90)
        assert await mine.result() == "private"
        assert await other.status() is Status.WAITING_FOR_EVENT


async def test_addressed_and_public_events_are_taken_in_the_order_they_came() -> None:
    async with TestEnvironment(workflows=[three_payments]) as env:
        handle = await env.app.start_workflow(three_payments.with_options(instance_id="me"))
        for number, extensions in enumerate((None, {"romancyinstanceid": "me"}, None)):
            await env.app.send_event("paid", "/test", number, extensions=extensions)
        assert await handle.result() == [0, 1, 2]


async def test_addressed_events_fit_by_subject_and_match_too() -> None:
    @workflow
    async def picky(ctx: WorkflowContext) -> list[Any]:
        by_subject = await wait_event(ctx, "paid", subject="42")
        by_match = await wait_event(ctx, "paid", match={"n": 3})
        return [by_subject.data["n"], by_match.data["n"]]

    to_me = {"romancyinstanceid": "me"}
    async with TestEnvironment(workflows=[picky]) as env:
        handle = await env.app.start_workflow(picky.with_options(instance_id="me"))
        await env.app.send_event("paid", "/test", {"n": 1}, extensions=to_me)
        await env.app.send_event("paid", "/test", {"n": 2}, subject="42", extensions=to_me)
        await env.app.send_event("paid", "/test", {"n": 3}, extensions=to_me)
        assert await handle.result() == [2, 3]


async def test_an_event_for_an_unknown_instance_is_accepted_and_listed() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        ended = await env.app.start_workflow(one_payment.with_options(instance_id="ended"))
        await env.app.send_event("paid", "/test")
        await ended.result()
        for number, target in enumerate(("ended", "unknown")):
            accepted = await env.app.send_event(
                "paid", "/test", {"n": number}, event_id=target, extensions={"romancyinstanceid": target}
            )
            assert (accepted.duplicate, accepted.instance_ids) == (False, ())
        listed = (await env.app.list_undeliverable_events()).items
        assert [(one.instance_id, one.event.id, one.event.data) for one in listed] == [
            ("ended", "ended", {"n": 0}),
            ("unknown", "unknown", {"n": 1}),
        ]
        assert {one.accepted_at for one in listed} == {env.now()}
        page = await env.app.list_undeliverable_events(limit=1)
        assert page.has_more
        rest = await env.app.list_undeliverable_events(limit=1, page_token=page.next_page_token)
        assert [one.instance_id for one in (*page.items, *rest.items)] == ["ended", "unknown"]
        assert not rest.has_more


async def test_an_event_that_waits_for_its_living_target_is_not_undeliverable_until_that_ends() -> None:
    @workflow
    async def deaf(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)

    async with TestEnvironment(workflows=[deaf]) as env:
        handle = await env.app.start_workflow(deaf.with_options(instance_id="deaf"))
        await env.settle()
        await env.app.send_event("paid", "/test", extensions={"romancyinstanceid": "deaf"})
        assert (await env.app.list_undeliverable_events()).items == []
        await handle.result()
        assert [one.instance_id for one in (await env.app.list_undeliverable_events()).items] == ["deaf"]


# --- duplicates


async def test_source_and_id_make_a_duplicate_which_does_nothing() -> None:
    async with TestEnvironment(workflows=[three_payments]) as env:
        handle = await env.app.start_workflow(three_payments)
        await env.settle()
        first = await env.app.send_event("paid", "/a", 1, event_id="e1")
        again = await env.app.send_event("paid", "/a", 2, event_id="e1")
        assert (first.duplicate, again.duplicate, again.instance_ids) == (False, True, ())
        await env.settle()
        assert (await env.app.send_event("paid", "/a", 3, event_id="e1")).duplicate  # also after it was consumed
        await env.app.send_event("paid", "/b", 4, event_id="e1")
        await env.app.send_event("paid", "/a", 5, event_id="e2")
        assert await handle.result() == [1, 4, 5]
        assert (await env.app.send_event("other", "/a", 6, event_id="e1")).duplicate  # whatever its type


async def test_events_without_an_id_get_one_each() -> None:
    async with TestEnvironment(workflows=[three_payments]) as env:
        handle = await env.app.start_workflow(three_payments)
        accepted = [await env.app.send_event("paid", "/a", 1) for _ in range(3)]
        assert len({one.id for one in accepted}) == 3
        assert await handle.result() == [1, 1, 1]
        assert [entry.result["id"] for entry in await entries(handle)] == [one.id for one in accepted]


async def test_an_attempt_that_ends_while_a_wait_is_asked_for_counts_after_the_answer(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    @activity
    async def long(ctx: ActivityContext) -> str:
        await asked.wait()
        return "done"

    @workflow
    async def both(ctx: WorkflowContext) -> list[Any]:
        running = asyncio.ensure_future(long(ctx))
        await note(ctx, "so that the attempt is under way")
        event = await wait_event(ctx, "paid")
        return [event.data, await running]

    async with App(database, workflows=[both]) as app:
        commit, handle_input = app._store.commit, InstanceRunner.handle

        async def commit_late(batch: Sequence[Write]) -> list[WriteResult | StoreError]:
            if any(type(write) is Transition and write.store_calls for write in batch):
                asked.set()
                await ended.wait()
            return await commit(batch)

        def handle_and_tell(runner: InstanceRunner, input: Input) -> None:
            handle_input(runner, input)
            if isinstance(input, AttemptEnded) and input.attempt.work.op == "long:1":
                ended.set()

        monkeypatch.setattr(app._store, "commit", commit_late)
        monkeypatch.setattr(InstanceRunner, "handle", handle_and_tell)
        handle = await app.start_workflow(both)
        await ended.wait()
        await app.send_event("paid", "/test", 5)
        assert await handle.result(timeout=20) == [5, "done"]


# --- event handlers


@workflow(name="signup", event_handler=True)
async def welcome(ctx: WorkflowContext, name: str, plan: str = "free") -> str:
    return f"{name}: {plan}"


async def started_by(env: TestEnvironment, type: str, data: Any = None, **more: Any) -> list[WorkflowHandle[Any]]:
    accepted = await env.app.send_event(type, "/test", data, **more)
    await env.settle()
    return [env.app.get_handle(instance_id) for instance_id in accepted.instance_ids]


async def test_an_event_starts_the_workflow_of_its_name() -> None:
    async with TestEnvironment(workflows=[welcome]) as env:
        (handle,) = await started_by(env, "signup", {"name": "Ada", "plan": "pro"})
        assert await handle.result() == "Ada: pro"
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert (found.workflow_name, found.input) == ("signup", {"name": "Ada", "plan": "pro"})
        (handle,) = await started_by(env, "signup", {"name": "Bob"})
        assert await handle.result() == "Bob: free"
        assert await started_by(env, "welcome", {"name": "Eve"}) == []


async def test_data_as_a_whole_for_a_sole_parameter_that_takes_objects() -> None:
    @workflow(event_handler=True)
    async def of_model(ctx: WorkflowContext, payment: Payment) -> float:
        return payment.amount

    @workflow(event_handler=True)
    async def of_dataclass(ctx: WorkflowContext, parcel: Parcel) -> int:
        return parcel.id

    @workflow(event_handler=True)
    async def of_dict(ctx: WorkflowContext, fields: dict[str, Any]) -> dict[str, Any]:
        return fields

    @workflow(event_handler=True)
    async def of_bytes(ctx: WorkflowContext, blob: bytes) -> int:
        return len(blob)

    @workflow(event_handler=True)
    async def of_nothing(ctx: WorkflowContext) -> str:
        return "started"

    @workflow(event_handler=True)
    async def of_anything(ctx: WorkflowContext, /, **fields: Any) -> dict[str, Any]:
        return fields

    flows: list[Workflow[..., Any]] = [of_model, of_dataclass, of_dict, of_bytes, of_nothing, of_anything]
    async with TestEnvironment(workflows=flows) as env:
        for type, data, result in (
            ("of_model", {"order": "1", "theAmount": 2.5}, 2.5),
            ("of_dataclass", {"id": 7}, 7),
            ("of_dict", {"fields": 1, "x": [2]}, {"fields": 1, "x": [2]}),
            ("of_bytes", b"\xff\x00", 2),
            ("of_nothing", {"ignored": True}, "started"),
            ("of_nothing", None, "started"),
            ("of_anything", {"a": 1, "b": None}, {"a": 1, "b": None}),
        ):
            (handle,) = await started_by(env, type, data)
            assert await handle.result() == result, type


@pytest.mark.parametrize("data", [None, {}, {"name": 5}, {"name": "x", "more": 1}, [1], "text", b"\xff"], ids=repr)
async def test_data_that_does_not_fit_gives_a_failed_instance(data: Any) -> None:
    async with TestEnvironment(workflows=[welcome]) as env:
        (handle,) = await started_by(env, "signup", data)
        error = await failure(handle)
        assert isinstance(error, PayloadError)
        assert "'signup'" in str(error)
        found = await env.app.get_instance(handle.instance_id)
        assert found is not None
        assert (found.status, found.worker_id) == (Status.FAILED, None)
        assert found.error is not None
        assert found.ended_at == env.now()


async def test_what_a_client_accepts_without_knowing_the_workflow_is_checked_by_the_worker(database: str) -> None:
    @workflow(event_handler=True, timeout=0.05)
    async def hurried(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "never")

    told = FailureRecorder()
    async with App(database, workflows=[welcome, hurried], hooks=told) as app, Client(database, workflows=[]) as client:

        async def started(type: str, data: Any) -> WorkflowHandle[Any]:
            (instance_id,) = (await client.send_event(type, "/test", data)).instance_ids
            return app.get_handle(instance_id)

        assert await (await started("signup", {"name": "Ada"})).result(timeout=10) == "Ada: free"
        misfit = await started("signup", {"name": 5})
        assert isinstance(await failure(misfit), PayloadError)
        late = await started("hurried", None)
        assert isinstance(await failure(late), WorkflowTimeoutError)
        async with asyncio.timeout(10):
            while len(told.failed) < 2:
                await asyncio.sleep(0.01)
    assert told.failed == [misfit.instance_id, late.instance_id]


class FailureRecorder(Hooks):
    """Records the instances that failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    async def on_workflow_failed(self, info: WorkflowFailed) -> None:
        self.failed.append(info.instance_id)


async def test_starting_is_off_by_default_and_addressed_or_known_events_start_nothing() -> None:
    @workflow
    async def plain(ctx: WorkflowContext) -> None: ...

    async with TestEnvironment(workflows=[plain, welcome]) as env:
        assert await started_by(env, "plain") == []
        assert await started_by(env, "signup", {"name": "x"}, extensions={"romancyinstanceid": "unknown"}) == []
        assert len(await started_by(env, "signup", {"name": "x"}, event_id="once")) == 1
        assert await started_by(env, "signup", {"name": "x"}, event_id="once") == []
        assert len((await env.app.list_instances()).items) == 1


async def test_the_instance_an_event_started_has_consumed_it() -> None:
    @workflow(event_handler=True)
    async def tick(ctx: WorkflowContext) -> str:
        return (await wait_event(ctx, "tick")).id

    @workflow
    async def listener(ctx: WorkflowContext) -> str:
        return (await wait_event(ctx, "tick")).id

    async with TestEnvironment(workflows=[tick, listener]) as env:
        waiting = await env.app.start_workflow(listener)
        await env.settle()
        accepted = await env.app.send_event("tick", "/test", event_id="first")
        assert waiting.instance_id in accepted.instance_ids
        assert await waiting.result() == "first"  # the same commit wakes the waiting instance
        (first,) = [one for one in accepted.instance_ids if one != waiting.instance_id]
        assert (await settled_instance(env, env.app.get_handle(first))).status is Status.WAITING_FOR_EVENT
        second = await env.app.send_event("tick", "/test", event_id="second")
        assert await env.app.get_handle(first).result() == "second"
        assert first in second.instance_ids


async def test_two_versions_of_a_handler_one_event() -> None:
    @workflow(name="shared", event_handler=True, version="1")
    async def first(ctx: WorkflowContext) -> str:
        return "1"

    @workflow(name="shared", event_handler=False, version="2")
    async def second(ctx: WorkflowContext) -> str:
        return "2"

    async with TestEnvironment(workflows=[first, second]) as env:
        (handle,) = await started_by(env, "shared")
        assert await handle.result() == "1"


async def test_a_crash_between_accepting_and_running_starts_the_instance_once() -> None:
    runs: list[str] = []

    @activity
    async def run(ctx: ActivityContext) -> None:
        runs.append(ctx.instance_id)

    @workflow(event_handler=True)
    async def job(ctx: WorkflowContext) -> None:
        await run(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        accepted = await env.app.send_event("job", "/test")
        await env.restart()
        await env.app.get_handle(accepted.instance_ids[0]).result()
        assert runs[-1] == accepted.instance_ids[0]
        assert len((await env.app.list_instances()).items) == 1


async def test_handlers_wait_for_room() -> None:
    @workflow(event_handler=True)
    async def job(ctx: WorkflowContext, number: int) -> int:
        await wait_event(ctx, "go")
        return number

    async with TestEnvironment(workflows=[job], max_concurrent_workflows=1) as env:
        handles = [one for number in range(5) for one in await started_by(env, "job", {"number": number})]
        await env.app.send_event("go", "/test")
        results = asyncio.gather(*(handle.result() for handle in handles))
        assert await asyncio.wait_for(results, 10) == [0, 1, 2, 3, 4]


async def test_a_handler_is_started_by_the_worker_that_has_the_code(database: str) -> None:
    async with Client(database, workflows=[welcome]) as client:
        accepted = await client.send_event("signup", "/test", {"name": "Ada"})
        assert len(accepted.instance_ids) == 1
        assert await client.get_handle(accepted.instance_ids[0]).status() is Status.PENDING
    async with TestEnvironment(database, workflows=[welcome]) as env:
        assert await env.app.get_handle(accepted.instance_ids[0]).result() == "Ada: free"


# --- statuses


async def test_statuses_of_one_and_of_several_waits() -> None:
    @workflow
    async def event_only(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "never")

    @workflow
    async def event_and_timer(ctx: WorkflowContext) -> None:
        await asyncio.gather(sleep(ctx, 3600), wait_event(ctx, "never"))

    @workflow
    async def event_with_timeout(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "never", timeout=3600)

    @activity(retry=RetryPolicy.fixed(2, 600))
    async def flaky(ctx: ActivityContext) -> None:
        raise ConnectionError("busy")

    @workflow
    async def event_and_backoff(ctx: WorkflowContext) -> None:
        await asyncio.gather(flaky(ctx), wait_event(ctx, "never"))

    flows = [event_only, event_and_timer, event_with_timeout, event_and_backoff]
    async with TestEnvironment(workflows=flows) as env:
        for flow in flows:
            handle = await env.app.start_workflow(flow)
            assert (await settled_instance(env, handle)).status is Status.WAITING_FOR_EVENT, flow.name
        listed = await env.app.list_instances(status=Status.WAITING_FOR_EVENT)
        assert len(listed.items) == len(flows)


async def test_what_an_instance_waits_for_can_be_read() -> None:
    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        await sleep(ctx, 10)
        await asyncio.gather(
            wait_event(ctx, "paid", subject="42", match={"part": 2}, timeout=60, event_id="payment"),
            wait_event(ctx, "refused"),
        )

    async with TestEnvironment(workflows=[waiter]) as env:
        begun = env.now()
        handle = await env.app.start_workflow(waiter)
        await env.advance(15)
        for _ in range(2):
            payment, refusal = sorted((await settled_instance(env, handle)).waiting_for, key=lambda one: one.key)
            assert (payment.kind, payment.key, payment.activity_id) == ("event", "paid", "payment")
            assert (payment.subject, payment.match) == ("42", {"part": 2})
            assert payment.since == begun + timedelta(seconds=10)
            assert payment.due == begun + timedelta(seconds=70)
            assert (refusal.kind, refusal.key, refusal.activity_id) == ("event", "refused", "refused:1")
            assert (refusal.subject, refusal.match, refusal.due) == (None, None, None)
            await env.restart()  # the same after a crash
        await env.app.send_event("refused", "/test")
        assert [one.key for one in (await settled_instance(env, handle)).waiting_for] == ["paid"]


async def test_the_history_tells_what_was_asked_what_came_and_what_did_not() -> None:
    @workflow
    async def story(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid", subject="42", match={"n": 1})
        try:
            await wait_event(ctx, "shipped", timeout=60)
        except EventTimeoutError:
            await note(ctx, "lost")

    async with TestEnvironment(workflows=[story]) as env:
        begun = env.now()
        handle = await env.app.start_workflow(story)
        await env.advance(5)
        await env.app.send_event("paid", "/shop", {"n": 1}, subject="42", event_id="e1")
        await handle.result()
        paid, shipped = await entries(handle)
        assert env.app._worker is not None
        assert paid.worker_id == env.app._worker.id
    assert (paid.seq, paid.name, paid.outcome) == (1, "paid", "ok")
    assert paid.input == {"type": "paid", "subject": "42", "match": {"n": 1}}
    assert paid.result["id"] == "e1"
    assert paid.result["data"] == {"n": 1}
    assert (paid.scheduled_at, paid.at) == (begun, begun + timedelta(seconds=5))
    assert "story" in paid.site
    assert (shipped.outcome, shipped.result) == ("error", None)
    assert shipped.error is not None
    assert shipped.error.type.endswith("EventTimeoutError")
    assert shipped.at == begun + timedelta(seconds=65)


# --- control


async def test_a_cancelled_wait_is_gone_and_an_event_does_not_revive_it() -> None:
    undone: list[str] = []

    async def put_back(ctx: ActivityContext) -> None:
        undone.append("put back")

    @workflow
    async def booking(ctx: WorkflowContext) -> str:
        await register_compensation(ctx, put_back)
        try:
            await wait_event(ctx, "paid")
        except Exception:
            return "swallowed"
        return "booked"

    async with TestEnvironment(workflows=[booking]) as env:
        handle = await env.app.start_workflow(booking)
        await env.settle()
        await handle.cancel("no")
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        assert (await env.app.send_event("paid", "/test")).instance_ids == ()
        await env.restart()
        found = await settled_instance(env, handle)
    assert (found.status, found.waiting_for, undone) == (Status.CANCELLED, (), ["put back"])


async def test_an_event_and_a_cancellation_together_end_as_cancelled(database: str) -> None:
    async with TestEnvironment(database, workflows=[one_payment]) as env:
        handle = await env.app.start_workflow(one_payment)
        await env.settle()
    async with outside(database, env) as sender:
        await sender.cancel_workflow(handle.instance_id)
        await sender.send_event("paid", "/test", "too late")
    async with TestEnvironment(database, workflows=[one_payment], start=env.now()) as later:
        with pytest.raises(WorkflowCancelledError):
            await later.app.get_handle(handle.instance_id).result()


async def test_a_wait_in_a_finally_block_of_a_cancelled_workflow() -> None:
    @workflow
    async def polite(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "paid")
        finally:
            await wait_event(ctx, "goodbye", timeout=60)

    async with TestEnvironment(workflows=[polite]) as env:
        handle = await env.app.start_workflow(polite)
        await env.settle()
        await handle.cancel()
        await env.settle()
        assert [one.key for one in (await settled_instance(env, handle)).waiting_for] == ["goodbye"]
        await env.app.send_event("goodbye", "/test")
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        assert [entry.outcome for entry in await entries(handle)] == ["ok"]


async def test_a_timeout_that_is_not_caught_compensates() -> None:
    undone: list[str] = []

    async def release(ctx: ActivityContext, room: str) -> None:
        undone.append(room)

    @activity(compensation=release)
    async def reserve(ctx: ActivityContext, room: str) -> None: ...

    @workflow
    async def booking(ctx: WorkflowContext) -> None:
        await reserve(ctx, "12")
        await wait_event(ctx, "paid", timeout=60)

    async with TestEnvironment(workflows=[booking], replay_always=True) as env:
        handle = await env.app.start_workflow(booking)
        assert isinstance(await failure(handle), EventTimeoutError)
        assert (await env.app.send_event("paid", "/test")).instance_ids == ()
    assert undone == ["12"]


async def test_a_paused_instance_gets_what_came_when_it_goes_on() -> None:
    async with TestEnvironment(workflows=[three_payments]) as env:
        handle = await env.app.start_workflow(three_payments)
        await env.settle()
        await env.app.pause_workflow(handle.instance_id)
        for number in range(3):
            await env.app.send_event("paid", "/test", number)
        found = await settled_instance(env, handle)
        assert found.status is Status.PAUSED
        assert [one.key for one in found.waiting_for] == ["paid"]
        assert await entries(handle) == []
        await env.restart()
        assert (await settled_instance(env, handle)).status is Status.PAUSED
        await env.app.resume_workflow(handle.instance_id)
        assert await handle.result() == [0, 1, 2]


async def test_a_deadline_that_passes_during_a_pause_is_over_when_it_goes_on() -> None:
    async with TestEnvironment(workflows=[impatient]) as env:
        handle = await env.app.start_workflow(impatient, 60)
        await env.settle()
        await env.app.pause_workflow(handle.instance_id)
        await env.advance(120)
        assert (await settled_instance(env, handle)).status is Status.PAUSED
        await env.app.send_event("paid", "/test", "late")
        await env.app.resume_workflow(handle.instance_id)
        assert (await handle.result()).startswith("late:")


async def test_a_terminated_instance_waits_for_nothing() -> None:
    async with TestEnvironment(workflows=[one_payment]) as env:
        handle = await env.app.start_workflow(one_payment)
        await env.settle()
        await env.app.terminate_workflow(handle.instance_id)
        assert (await env.app.send_event("paid", "/test")).instance_ids == ()
        with pytest.raises(WorkflowTerminatedError):
            await handle.result()
        assert (await settled_instance(env, handle)).waiting_for == ()


async def test_a_wait_that_was_in_vain_waits_anew_when_the_instance_is_retried() -> None:
    @workflow
    async def waiter(ctx: WorkflowContext) -> list[Any]:
        first = (await wait_event(ctx, "paid")).data
        return [first, (await wait_event(ctx, "shipped", timeout=60)).data]

    async with TestEnvironment(workflows=[waiter]) as env:
        handle = await env.app.start_workflow(waiter)
        await env.app.send_event("paid", "/test", "once")
        assert isinstance(await failure(handle), EventTimeoutError)
        await env.advance(1000)
        await env.app.retry_workflow(handle.instance_id)
        assert (await settled_instance(env, handle)).status is Status.WAITING_FOR_EVENT
        await env.advance(30)
        await env.app.send_event("shipped", "/test", "after all")
        # An event that was consumed before the failure is not awaited again.
        assert await handle.result() == ["once", "after all"]


async def test_a_retry_does_not_take_consumed_events_again() -> None:
    attempts: list[int] = []

    @activity(retry=RetryPolicy.none())
    async def fail_once(ctx: ActivityContext) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("broken")

    @workflow
    async def waiter(ctx: WorkflowContext) -> list[Any]:
        first = (await wait_event(ctx, "paid")).data
        await fail_once(ctx)
        return [first, (await wait_event(ctx, "paid")).data]

    async with TestEnvironment(workflows=[waiter]) as env:
        handle = await env.app.start_workflow(waiter)
        await env.app.send_event("paid", "/test", 1)
        await failure(handle)
        await env.app.send_event("paid", "/test", 2)
        await env.app.retry_workflow(handle.instance_id)
        assert await handle.result() == [1, 2]


async def test_code_that_asks_for_something_else_blocks_and_what_came_is_there_for_the_code_that_fits(database: str) -> None:
    @workflow(name="order")
    async def before(ctx: WorkflowContext) -> Any:
        await wait_event(ctx, "paid", subject="42")
        return (await wait_event(ctx, "shipped")).data

    @workflow(name="order")
    async def after(ctx: WorkflowContext) -> Any:
        await wait_event(ctx, "paid", subject="43")
        return (await wait_event(ctx, "shipped")).data

    async with TestEnvironment(database, workflows=[before]) as env:
        handle = await env.app.start_workflow(before)
        await env.app.send_event("paid", "/test", subject="42")
        await env.settle()
    async with TestEnvironment(database, workflows=[after], start=env.now()) as env:
        await env.app.send_event("shipped", "/test", "today")
        blocked = await settled_instance(env, env.app.get_handle(handle.instance_id))
        assert blocked.status is Status.BLOCKED
        assert blocked.error is not None
        assert "paid:1" in blocked.error.message
    async with TestEnvironment(database, workflows=[before], start=env.now()) as env:
        assert await env.app.get_handle(handle.instance_id).result() == "today"


async def test_a_wait_that_is_not_over_follows_the_code(database: str) -> None:
    """A pending wait is not recorded: other code may wait for another event."""

    @workflow(name="order")
    async def before(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "payed")).data

    @workflow(name="order")
    async def after(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "paid")).data

    async with TestEnvironment(database, workflows=[before]) as env:
        handle = await env.app.start_workflow(before)
        await env.settle()
        await env.app.send_event("paid", "/test", "right")
    async with TestEnvironment(database, workflows=[after], start=env.now()) as env:
        await env.app.send_event("payed", "/test", "wrong")
        assert await env.app.get_handle(handle.instance_id).result() == "right"


async def test_there_is_room_for_one_and_five_are_woken() -> None:
    for cache_size in (0, 1000):
        async with TestEnvironment(workflows=[one_payment], max_concurrent_workflows=1, cache_size=cache_size) as env:
            handles = [await env.app.start_workflow(one_payment) for _ in range(5)]
            await env.settle()
            await env.app.send_event("paid", "/test", "to all")
            results = asyncio.gather(*(handle.result() for handle in handles))
            assert await asyncio.wait_for(results, 10) == ["to all"] * 5


async def test_the_timeout_of_the_workflow_ends_a_wait() -> None:
    @workflow(timeout=60)
    async def bounded(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid")

    async with TestEnvironment(workflows=[bounded], replay_always=True) as env:
        handle = await env.app.start_workflow(bounded)
        with pytest.raises(WorkflowTimeoutError):
            await asyncio.wait_for(handle.result(), 10)
        assert (await env.app.send_event("paid", "/test")).instance_ids == ()


# --- misuse


@pytest.mark.parametrize(
    ("type", "options", "says"),
    [
        ("", {}, "type"),
        (7, {}, "type"),
        ("paid", {"timeout": "soon"}, "timeout"),
        ("paid", {"subject": ""}, "subject"),
        ("paid", {"subject": 7}, "subject"),
        ("paid", {"match": "order"}, "match"),
        ("paid", {"match": {"a": [1]}}, "'a'"),
        ("paid", {"match": {"a": float("nan")}}, "'a'"),
        ("paid", {"match": {"": 1}}, "path"),
        ("paid", {"event_id": ""}, "event_id"),
        ("paid", {"model": "Payment"}, "Payment"),
    ],
)
async def test_a_wait_that_makes_no_sense_says_so(type: Any, options: dict[str, Any], says: str) -> None:
    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        await wait_event(ctx, type, **options)

    async with TestEnvironment(workflows=[wrong]) as env:
        error = await failure(await env.app.start_workflow(wrong))
    assert isinstance(error, ConfigurationError)
    assert says in str(error)


async def test_two_waits_of_one_name_are_a_conflict() -> None:
    @workflow
    async def twice(ctx: WorkflowContext) -> None:
        await asyncio.gather(wait_event(ctx, "a", event_id="same"), wait_event(ctx, "b", event_id="same"))

    async with TestEnvironment(workflows=[twice]) as env:
        error = await failure(await env.app.start_workflow(twice))
    assert isinstance(error, ActivityIDConflictError)
    assert "same" in str(error)


async def test_waiting_belongs_into_a_workflow() -> None:
    @activity(retry=RetryPolicy.none())
    async def act(ctx: Any) -> None:
        await wait_event(ctx, "paid")

    @workflow
    async def job(ctx: WorkflowContext) -> None:
        await act(ctx)

    async with TestEnvironment(workflows=[job]) as env:
        error = await failure(await env.app.start_workflow(job))
    assert error is not None
    assert isinstance(error.__cause__, InvalidWorkflowStateError)
    assert "inside an activity" in str(error.__cause__)


# --- two processes on one database


async def test_an_event_sent_by_one_process_reaches_the_workflow_of_another(database: str) -> None:
    async with App(database, workflows=[three_payments]) as here, App(database, workflows=[]) as there:
        handle = await here.start_workflow(three_payments)
        while await handle.status() is not Status.WAITING_FOR_EVENT:
            await asyncio.sleep(0)
        for number in range(3):
            await there.send_event("paid", "/test", number)
        assert await handle.result(timeout=20) == [0, 1, 2]


async def test_two_workers_and_many_waiters_each_event_once_each(database: str) -> None:
    async with App(database, workflows=[three_payments]) as first, App(database, workflows=[three_payments]) as second:
        handles = [await app.start_workflow(three_payments) for app in (first, second) for _ in range(10)]
        for number in range(3):
            await (first if number % 2 else second).send_event("paid", "/test", number)
        results = await asyncio.gather(*(handle.result(timeout=20) for handle in handles))
    assert results == [[0, 1, 2]] * 20


@pytest.mark.parametrize("timeout", [0, -0.5, timedelta(0), timedelta(days=-1)])
async def test_a_wait_without_time_takes_what_is_there(timeout: float | timedelta) -> None:
    @workflow
    async def polls(ctx: WorkflowContext) -> list[Any]:
        found: list[Any] = []
        await subscribe(ctx, "line")

        async def poll() -> None:
            for wait in (wait_event(ctx, "paid", timeout=timeout), receive(ctx, "line", timeout=timeout)):
                try:
                    found.append((await wait).data)
                except TimeoutError:
                    found.append(None)

        await poll()
        await send_event(ctx, "paid", "/test", 1)
        await publish(ctx, "line", 2)
        await poll()
        await sleep(ctx, 60)  # sends from outside arrive meanwhile
        await sleep(ctx, timeout)
        await poll()
        await poll()
        return found

    async with TestEnvironment(workflows=[polls], replay_always=True) as env:
        handle = await env.app.start_workflow(polls)
        await env.settle()
        await env.app.send_event("paid", "/test", 3)
        await env.app.publish("line", 4)
        assert await handle.result() == [None, None, 1, 2, 3, 4, None, None]
