"""Correct calls with their types: both type checkers accept every line, and so do the decorators at run time."""

from __future__ import annotations

import asyncio
import functools
import random
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Literal, assert_type

from pydantic import BaseModel
from typing_extensions import TypedDict

from romancy import (
    Activity,
    ActivityContext,
    App,
    ChannelMode,
    Client,
    Duration,
    HistoryEntry,
    Instance,
    Operation,
    Page,
    ReceivedEvent,
    ReceivedMessage,
    RetryPolicy,
    Status,
    TerminalError,
    Workflow,
    WorkflowContext,
    WorkflowHandle,
    WorkflowRef,
    WorkflowResult,
    activity,
    get_group_members,
    join_group,
    leave_group,
    publish,
    receive,
    recur,
    register_compensation,
    send_event,
    send_to,
    send_to_group,
    sleep,
    sleep_until,
    subscribe,
    unsubscribe,
    wait_event,
    workflow,
)


class Order(BaseModel):
    id: str


class RushOrder(Order):
    by: datetime


@dataclass
class Receipt:
    total: int


class Address(TypedDict):
    city: str


class Colour(Enum):
    RED = "red"


# --- activities


@activity
async def charge(ctx: ActivityContext, order: Order, *, tip: int = 0) -> Receipt:
    assert_type(ctx.attempt, int)
    assert_type(ctx.activity_id, str)
    assert_type(ctx.idempotency_key, str)
    assert_type(ctx.app, App)
    ctx.heartbeat()
    ctx.heartbeat({"done": 3})
    ctx.log.info("charging %s", order.id)
    handle = await ctx.app.start_workflow(shipping, order.id)
    assert_type(handle, WorkflowHandle[list[str]])
    return Receipt(tip)


@activity(
    name="charge-eu",
    retry=RetryPolicy(max_attempts=2, non_retryable=(ValueError, TerminalError)),
    timeout=3,
    heartbeat_timeout=timedelta(seconds=1),
    transactional=False,
)
async def charge_eu(ctx: WorkflowContext, order: Order) -> Receipt:
    return Receipt(1)


@activity
def print_label(ctx: ActivityContext, order: Order, copies: int = 1) -> list[bytes]:
    return [order.id.encode()] * copies


@activity(timeout=0.5)
def weigh(ctx: WorkflowContext, order: Order) -> float:
    return 1.5


@activity
async def either(ctx: ActivityContext | WorkflowContext, number: int) -> int:
    return number


@activity()
async def ping(ctx: ActivityContext) -> None: ...


@activity
async def only_names(ctx: ActivityContext, *, street: str, number: int | None = None) -> Address:
    return {"city": street}


@activity
async def spread(ctx: ActivityContext, /, *numbers: int, **names: str) -> tuple[int, ...]:
    return numbers


@activity
async def containers(
    ctx: ActivityContext, orders: list[Order], stock: dict[Colour, set[int]], pair: tuple[str, Order | None]
) -> dict[str, list[Receipt]]:
    return {}


@activity
def coroutine_by_hand(ctx: ActivityContext, number: int) -> Coroutine[Any, Any, int]:
    return either.fn(ctx, number)


@activity
async def awkward_names(ctx: ActivityContext, self: int, fn: str, wf: bool, args: int = 0) -> str:
    return fn


class Warehouse:
    @staticmethod
    @activity
    async def pick(ctx: ActivityContext, order: Order) -> int:
        return 1


# --- compensations


async def release(ctx: ActivityContext, order: Order, *, tip: int = 0) -> None: ...


def release_now(ctx: WorkflowContext, order: Order) -> None: ...


@activity(compensation=release)
async def reserve(ctx: ActivityContext, order: Order, *, tip: int = 0) -> Receipt:
    return Receipt(1)


@activity(compensation=release_now, retry=RetryPolicy.none())
def reserve_now(ctx: ActivityContext, order: Order) -> Receipt:
    return Receipt(1)


@activity
async def undo_reserve(ctx: ActivityContext, order: Order) -> None: ...


@activity(compensation=undo_reserve)  # an activity, with its own retry policy
async def reserve_again(ctx: ActivityContext, order: Order) -> Receipt:
    return Receipt(1)


@charge.compensate
async def refund(ctx: ActivityContext, order: Order, *, tip: int = 0) -> None: ...


@charge_eu.compensate
async def refund_eu(ctx: ActivityContext, result: Receipt, order: Order) -> None:
    assert_type(result.total, int)


@print_label.compensate
def shred(ctx: WorkflowContext, result: list[bytes], order: Order, copies: int = 1) -> None: ...


@weigh.compensate
async def forget_weight(ctx: ActivityContext, order: object, why: str = "") -> None: ...  # more general than needed


@ping.compensate
async def unping(ctx: ActivityContext) -> None: ...


@only_names.compensate
async def forget_address(ctx: ActivityContext, result: Address, *, street: str, number: int | None = None) -> None: ...


# --- workflows


@workflow
async def shipping(ctx: WorkflowContext, order_id: str, *, express: bool = False) -> list[str]:
    await sleep(ctx, 1)
    return [order_id]


@workflow(name="check-out", version="2", timeout=timedelta(days=3), event_handler=False)
async def checkout(ctx: WorkflowContext, order: Order, express: bool = False) -> Receipt:
    assert_type(await charge(ctx, order), Receipt)
    assert_type(await charge(ctx, RushOrder(id="1", by=ctx.now()), tip=3), Receipt)
    assert_type(await charge_eu(ctx, order=order), Receipt)
    assert_type(await print_label(ctx, order), list[bytes])
    assert_type(await print_label(ctx, order, copies=2), list[bytes])
    assert_type(await weigh(ctx, order), float)
    assert_type(await either(ctx, 3), int)
    await ping(ctx)
    assert_type(await only_names(ctx, street="Main St", number=None), Address)
    assert_type(await spread(ctx), tuple[int, ...])
    assert_type(await spread(ctx, 1, 2, by="name"), tuple[int, ...])
    assert_type(await containers(ctx, [order], {Colour.RED: {1}}, ("a", None)), dict[str, list[Receipt]])
    assert_type(await coroutine_by_hand(ctx, 3), int)
    assert_type(await awkward_names(ctx, 1, "fn", wf=True, args=3), str)
    assert_type(await Warehouse.pick(ctx, order), int)
    # A workflow that is called in a workflow runs as part of it.
    assert_type(await shipping(ctx, order.id, express=express), list[str])
    assert_type(await shipping.fn(ctx, order.id), list[str])
    return await charge(ctx, order)


@workflow
async def options(ctx: WorkflowContext, order: Order) -> None:
    eu = charge.with_options(activity_id="charge:eu", retry=RetryPolicy.fixed(3, 0.5), timeout=timedelta(minutes=1))
    assert_type(await eu(ctx, order, tip=1), Receipt)
    assert_type(await charge.with_options(heartbeat_timeout=2)(ctx, order), Receipt)
    assert_type(await weigh.with_options()(ctx, order), float)
    assert_type(await functools.partial(charge, ctx)(order, tip=2), Receipt)
    assert_type(await charge.with_options(timeout=1).fn(ActivityContext(), order), Receipt)


@workflow
async def together(ctx: WorkflowContext, order: Order) -> None:
    receipt, number, weight = await asyncio.gather(charge(ctx, order), either(ctx, 1), weigh(ctx, order))
    assert_type(receipt, Receipt)
    assert_type(number, int)
    assert_type(weight, float)
    assert_type(await asyncio.gather(*[charge(ctx, order) for _ in range(3)]), list[Receipt])
    assert_type(
        await asyncio.gather(charge(ctx, order), either(ctx, 1), return_exceptions=True),
        tuple[Receipt | BaseException, int | BaseException],
    )
    assert_type(await asyncio.gather(sleep(ctx, 1), either(ctx, 1)), tuple[None, int])

    async with asyncio.TaskGroup() as group:
        charged = group.create_task(charge(ctx, order))
        weighed = group.create_task(weigh(ctx, order), name="scales")
        shipped = group.create_task(shipping(ctx, order.id))
        napped = assert_type(group.create_task(sleep(ctx, 1)), asyncio.Task[None])
    assert_type(charged.result(), Receipt)
    assert_type(weighed.result(), float)
    assert_type(shipped.result(), list[str])

    task = assert_type(asyncio.create_task(charge(ctx, order)), asyncio.Task[Receipt])
    assert_type(await asyncio.ensure_future(charge(ctx, order)), Receipt)
    assert_type(await asyncio.wait_for(charge(ctx, order), 3), Receipt)
    assert_type(await asyncio.wait_for(sleep(ctx, 2), timeout=3), None)
    assert_type(await asyncio.shield(task), Receipt)
    assert_type(await asyncio.shield(charge_eu(ctx, order)), Receipt)
    async with asyncio.timeout(3):
        assert_type(await charge(ctx, order), Receipt)
    for future in asyncio.as_completed([charge(ctx, order), charge_eu(ctx, order)]):
        assert_type(await future, Receipt)


@workflow
async def waiting(ctx: WorkflowContext, order: Order) -> None:
    nap = assert_type(sleep(ctx, 60), Operation[None])
    tomorrow = assert_type(sleep_until(ctx, ctx.now() + timedelta(days=1), sleep_id="tomorrow"), Operation[None])
    done, pending = await asyncio.wait({nap, tomorrow}, return_when=asyncio.FIRST_COMPLETED)
    assert_type(done, set[Operation[None]])
    for operation in pending:
        operation.cancel()
    if nap in done:
        assert_type(nap.result(), None)
    charges = [asyncio.create_task(charge(ctx, order)), asyncio.create_task(charge_eu(ctx, order))]
    finished, _ = await asyncio.wait(charges, timeout=3)
    for task in finished:
        assert_type(task.result(), Receipt)
    mixed: set[asyncio.Future[Any]] = {asyncio.create_task(charge(ctx, order)), sleep(ctx, 3)}
    await asyncio.wait(mixed, return_when=asyncio.FIRST_COMPLETED)

    await sleep(ctx, 1.5, sleep_id="short")
    await sleep(ctx, timedelta(hours=1))
    await sleep_until(ctx, datetime(2030, 1, 1, tzinfo=UTC))
    await asyncio.sleep(1)
    duration: Duration = 3
    await sleep(ctx, duration)


@workflow
async def context(ctx: WorkflowContext) -> None:
    assert_type(ctx.instance_id, str)
    assert_type(ctx.workflow_name, str)
    assert_type(ctx.worker_id, str)
    assert_type(ctx.generation, int)
    assert_type(ctx.is_replaying, bool)
    assert_type(ctx.app, App)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.uuid4(), uuid.UUID)
    assert_type(ctx.random(), random.Random)
    assert_type(ctx.random().choice(["a", "b"]), str)
    ctx.log.info("on the way")


@workflow
async def by_hand(ctx: WorkflowContext, order: Order) -> None:
    assert_type(await register_compensation(ctx, release, order, tip=3), None)
    await register_compensation(ctx, release_now, order)
    await register_compensation(ctx, refund, order)
    await register_compensation(ctx, refund_eu, Receipt(1), order)
    await register_compensation(ctx, release, order=order)
    await register_compensation(ctx, undo_reserve.fn, order)
    await register_compensation(ctx, undo_reserve, order)


# --- events and messages


@workflow(event_handler=True)
async def listening(ctx: WorkflowContext, order: Order) -> Receipt:
    paid = assert_type(wait_event(ctx, "order.paid", model=Order), Operation[ReceivedEvent[Order]])
    assert_type((await paid).data, Order)
    assert_type((await paid).time, datetime | None)
    plain = await wait_event(ctx, "order.paid", timeout=timedelta(days=3), subject=order.id, event_id="the-payment")
    assert_type(plain, ReceivedEvent[Any])
    assert_type(await wait_event(ctx, "t", match={"a.b": 1, "c": None, "d": True, "e": "x", "f": 1.5}), ReceivedEvent[Any])
    assert_type(await wait_event(ctx, "t", model=bytes), ReceivedEvent[bytes])
    assert_type(await wait_event(ctx, "t", model=list[Order]), ReceivedEvent[list[Order]])
    assert_type((await wait_event(ctx, "t", model=Address)).data, Address)
    either_of: Order | Receipt = (await wait_event(ctx, "t", model=Order | Receipt)).data
    word: Literal["a", "b"] = (await wait_event(ctx, "t", model=Literal["a", "b"])).data
    got = await receive(ctx, "orders", model=Order, timeout=1.5)
    assert_type(got, ReceivedMessage[Order])
    assert_type(got.data, Order)
    assert_type(got.sender_instance_id, str | None)
    assert_type(await receive(ctx, "orders"), ReceivedMessage[Any])

    await asyncio.wait({wait_event(ctx, "t", model=Order), sleep(ctx, 3)}, return_when=asyncio.FIRST_COMPLETED)
    both = await asyncio.gather(receive(ctx, "a", model=Order), wait_event(ctx, "t", model=Receipt))
    assert_type(both, tuple[ReceivedMessage[Order], ReceivedEvent[Receipt]])

    assert_type(await subscribe(ctx, "orders"), None)
    await subscribe(ctx, "orders", mode="competing")
    await subscribe(ctx, "orders", ChannelMode.DIRECT)
    await unsubscribe(ctx, "orders")
    await publish(ctx, "orders", order, metadata={"why": ["because"]})
    await send_to(ctx, "order-43", "orders", b"bytes")
    await send_event(ctx, "order.paid", "/shop", order, subject=order.id, extensions={"a": 1, "b": "x", "c": True})
    await send_event(ctx, "order.paid", "/shop", event_id="e-1", content_type="application/json")
    await join_group(ctx, "riders")
    assert_type(await get_group_members(ctx, "riders"), list[str])
    await send_to_group(ctx, "riders", "orders", [1, 2])
    await leave_group(ctx, "riders")
    if got.data.id == "1":
        await listening.recur(ctx, order)
    if got.data.id == "2":
        await recur(ctx, order)
    await ctx.recur(order)  # no code follows, so a missing return value is accepted


@activity
async def sending(ctx: ActivityContext, order: Order) -> None:
    await send_event(ctx, "order.paid", "/shop", {"id": order.id})
    await publish(ctx, "orders", order)
    await send_to(ctx, "order-43", "orders", order)
    await send_to_group(ctx, "riders", "orders", order)


# --- outside of workflows


async def outside(order: Order) -> None:
    assert_type(await charge.fn(ActivityContext(), order, tip=1), Receipt)
    assert_type(await charge_eu.fn(WorkflowContext(), order), Receipt)
    assert_type(print_label.fn(ActivityContext(), order, copies=3), list[bytes])
    assert_type(weigh.fn(WorkflowContext(), order), float)
    assert_type(charge.name, str)
    assert_type(checkout.name, str)
    assert_type(checkout.version, str)
    assert_type(charge.compensation, Callable[..., Any] | None)
    activities: list[Activity[..., Any]] = [charge, print_label, either, ping]
    workflows: list[Workflow[..., Any]] = [checkout, shipping, waiting]

    async with App("sqlite:///orders.db", workflows=[checkout, shipping]) as app:
        assert_type(app, App)
        handle = await app.start_workflow(checkout, order)
        assert_type(handle, WorkflowHandle[Receipt])
        assert_type(handle.instance_id, str)
        assert_type(await handle.result(), Receipt)
        assert_type(await handle.result(timeout=timedelta(seconds=3)), Receipt)
        assert_type(await handle.status(), Status)
        await handle.cancel()
        await handle.cancel(reason="no longer wanted")
        async for entry in handle.history():
            assert_type(entry, HistoryEntry)
        wider: WorkflowHandle[object] = handle
        handles: list[WorkflowHandle[Any]] = [handle, await app.start_workflow(shipping, "1")]

        assert_type(await app.start_workflow(checkout, order=order, express=True), WorkflowHandle[Receipt])
        named = checkout.with_options(instance_id="order-42")
        assert_type(await app.start_workflow(named, order, express=True), WorkflowHandle[Receipt])
        assert_type(await app.start_workflow("check-out", order, express=True), WorkflowHandle[Any])
        assert_type(await app.start_workflow(shipping, "1", express=True), WorkflowHandle[list[str]])

        app.register(waiting)
        app.register(waiting.with_options())
        assert_type(app.get_workflow("check-out"), Workflow[..., Any])
        assert_type(app.get_handle("order-42"), WorkflowHandle[Any])
        await querying(app)


async def querying(app: Client) -> None:
    assert_type(await app.get_instance("order-42"), Instance | None)
    assert_type(await app.get_result("order-42"), WorkflowResult)
    page = await app.list_instances(status=Status.FAILED, workflow_name="check", limit=10)
    assert_type(page, Page[Instance])
    assert_type(page.items, list[Instance])
    assert_type(page.has_more, bool)
    await app.list_instances(status=["failed", Status.CANCELLED], page_token=page.next_page_token)
    await app.list_instances(status="waiting_for_timer", created_after=datetime.now(UTC), instance_id="order")
    assert_type(await app.find_instances({"customer.id": "c1", "items.0.count": 3, "gift": None}), Page[Instance])
    await app.find_instances({"customer.id": "c1"}, status=Status.RUNNING, limit=5)
    await app.cancel_workflow("order-42", reason="why")
    await app.pause_workflow("order-42")
    await app.resume_workflow("order-42")
    await app.terminate_workflow("order-42", "enough")
    await app.retry_workflow("order-42")


async def client() -> None:
    async with Client("sqlite:///orders.db") as client:
        assert_type(client, Client)
        assert_type(await client.start_workflow(shipping, "1"), WorkflowHandle[list[str]])
        assert_type(await client.start_workflow("elsewhere", order_id="1"), WorkflowHandle[Any])
        elsewhere = WorkflowRef("elsewhere").with_options(instance_id="order-42")
        assert_type(await client.start_workflow(elsewhere, order_id="1"), WorkflowHandle[Any])
        await querying(client)
    other = Client(workflows=(checkout, shipping), auto_migrate=False)
    await other.startup()
    await other.shutdown()


def policies() -> None:
    assert_type(RetryPolicy.default(), RetryPolicy)
    assert_type(RetryPolicy.none(), RetryPolicy)
    assert_type(RetryPolicy.fixed(3, 1), RetryPolicy)
    assert_type(RetryPolicy.exponential(5, initial=0.1, maximum=10.0), RetryPolicy)
    RetryPolicy(
        max_attempts=0,
        initial_interval=1,
        multiplier=1.5,
        max_interval=30,
        max_duration=3600,
        jitter=0.1,
        retryable=(OSError, ValueError),
        non_retryable=(KeyError,),
    )
    App(
        "orders.db",
        default_retry=RetryPolicy.none(),
        service_name="orders",
        worker_id="one",
        max_concurrent_workflows=10,
        max_concurrent_activities=10,
        cache_size=0,
        heartbeat_interval=timedelta(seconds=1),
        lease_timeout=5,
        poll_interval=0.5,
        shutdown_timeout=1,
        instance_retention=timedelta(days=30),
    )
