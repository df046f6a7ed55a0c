"""A sample app with instances in every state, some of them with hostile names and values."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field

from romancy import (
    ActivityContext,
    App,
    EventRejectedError,
    RetryPolicy,
    Status,
    TerminalError,
    WorkflowContext,
    activity,
    join_group,
    receive,
    register_compensation,
    send_event,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.model.messaging import Event

EVIL = "<script>document.title='pwned'</script>\"'&\u202e\u0000\u0007</textarea><img src=x onerror=alert(1)>"
"""Hostile text, as an attacker may put it into any field."""
EVIL_ID = "../a?b#c&d=<script>alert('id')</script>\"'\u202eevil/ü%2F+ "
LONG = "x" * 1_000_000


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Item(BaseModel):
    """An item of an order, with its number."""

    sku: str = Field(description="As printed on the box.")
    count: int = Field(default=1, ge=1)
    gift: bool = False


class Address(BaseModel):
    street: str
    city: str


class Order(BaseModel):
    customer: str
    items: list[Item]
    colour: Colour = Colour.RED
    price: Decimal
    deliver_on: date | None = None
    at: datetime | None = None
    address: Address | None = None
    express: bool
    notes: dict[str, str] = Field(default_factory=dict)


class Payment(BaseModel):
    cents: int
    method: str = "card"


@activity
async def unreserve(ctx: ActivityContext, customer: str) -> None:
    """Compensate `reserve`."""


@activity(compensation=unreserve)
async def reserve(ctx: ActivityContext, customer: str) -> str:
    await asyncio.sleep(0.02)
    return f"reserved for {customer}"


@activity
async def charge(ctx: ActivityContext, customer: str, cents: int) -> str:
    await asyncio.sleep(0.03)
    return f"{cents} from {customer}"


@activity(retry=RetryPolicy(max_attempts=3, initial_interval=0.05))
async def shaky(ctx: ActivityContext) -> str:
    await asyncio.sleep(0.01)
    if ctx.attempt < 3:
        raise ConnectionError(f"the connection was lost, attempt {ctx.attempt}")
    return "at last"


@activity
async def refuse(ctx: ActivityContext, why: str) -> None:
    try:
        raise ValueError("the card is stolen")
    except ValueError as cause:
        raise TerminalError(why) from cause


@activity(retry=RetryPolicy(max_attempts=9, initial_interval=0.02, multiplier=300_000.0, max_interval=7200.0))
async def call_bank(ctx: ActivityContext) -> None:
    raise ConnectionError("the bank does not answer")


@activity(retry=RetryPolicy(max_attempts=9, initial_interval=3600.0))
async def cannot_undo(ctx: ActivityContext) -> None:
    raise ConnectionError("the warehouse is closed")


@workflow
async def checkout(ctx: WorkflowContext, order: Order) -> dict[str, Any]:
    """Reserve, charge, and pack several parcels at once."""
    await reserve(ctx, order.customer)
    paid = await charge(ctx, order.customer, 1200)
    packed = await asyncio.gather(*(charge(ctx, order.customer, number) for number in range(8)))
    await shaky(ctx)
    return {"paid": paid, "packed": packed, "items": [item.sku for item in order.items]}


@workflow
async def payment(ctx: WorkflowContext, number: int) -> str:
    """Wait for money."""
    await reserve(ctx, f"customer {number}")
    event = await wait_event(ctx, "payment.completed", subject=str(number), model=Payment, timeout=timedelta(days=1))
    return await charge(ctx, "payer", event.data.cents)


@workflow
async def stolen(ctx: WorkflowContext, why: str) -> None:
    await reserve(ctx, "thief")
    await refuse(ctx, why)


@workflow
async def patient(ctx: WorkflowContext, days: float) -> str:
    await charge(ctx, "early", 1)
    await sleep(ctx, timedelta(days=days))
    return await charge(ctx, "late", 2)


@workflow
async def napping(ctx: WorkflowContext) -> str:
    await charge(ctx, "early", 1)
    await sleep(ctx, timedelta(seconds=1.5))
    await shaky(ctx)
    return await charge(ctx, "late", 2)


@workflow
async def banking(ctx: WorkflowContext) -> None:
    await charge(ctx, "first", 1)
    await call_bank(ctx)


@workflow
async def stuck_undoing(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a customer")
    await register_compensation(ctx, cannot_undo)
    await refuse(ctx, "no")


@workflow
async def counter(ctx: WorkflowContext, number: int) -> None:
    await charge(ctx, "counted", number)
    if number < 4:
        await ctx.recur(number + 1)
    await wait_event(ctx, "stop")


@workflow
async def listener(ctx: WorkflowContext, channel: str) -> Any:
    await subscribe(ctx, channel)
    await join_group(ctx, "watchers")
    return (await receive(ctx, channel)).data


@workflow
async def announcer(ctx: WorkflowContext) -> None:
    await send_event(ctx, "order.shipped", "shop", {"number": 42})


@workflow
async def evil(ctx: WorkflowContext, text: str, deep: Any) -> Any:
    await charge(ctx, text, 1)
    if deep == "fail":
        await refuse(ctx, text)
    if deep == "wait":
        await wait_event(ctx, f"type{EVIL}".replace("\0", ""), subject=EVIL.replace("\0", ""))
    return {"echo": text, text[:100]: deep}


@workflow(name="evil <b>name</b>\u202e\"'&")
async def badly_named(ctx: WorkflowContext, text: str) -> str:
    return text


class RejectingBroker:
    """A broker that rejects every event."""

    name = "rejecting"

    def __init__(self, hostile: bool) -> None:
        self.hostile = hostile

    async def start(self) -> None:
        """Do nothing."""

    async def send(self, event: Event) -> None:
        """Reject the event."""
        raise EventRejectedError(f"no thanks {EVIL}" if self.hostile else "the topic was deleted")

    async def close(self) -> None:
        """Do nothing."""


ORDER = Order(
    customer="Ada Lovelace",
    items=[Item(sku="book", count=2), Item(sku="lamp", gift=True)],
    price=Decimal("42.50"),
    deliver_on=date(2030, 1, 31),
    address=Address(street="12 St James’s Square", city="London"),
    express=True,
    notes={"door": "blue"},
)

WORKFLOWS: list[Any] = [
    checkout,
    payment,
    stolen,
    patient,
    napping,
    banking,
    stuck_undoing,
    counter,
    listener,
    announcer,
    evil,
    badly_named,
]


@dataclass
class SampleShop:
    """The running app, and the ids of its instances."""

    app: App
    ids: list[str] = field(default_factory=list)

    async def start(self, wf: Any, instance_id: str, *args: Any) -> None:
        """Start an instance with an id."""
        await self.app.start_workflow(wf.with_options(instance_id=instance_id), *args)
        self.ids.append(instance_id)

    async def until(self, instance_id: str, *wanted: Status) -> None:
        """Wait until an instance has one of the statuses."""
        async with asyncio.timeout(30):
            while await self.app.get_handle(instance_id).status() not in wanted:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def open_shop(
    database: str, *, empty: bool = False, friendly: bool = False, **options: Any
) -> AsyncIterator[SampleShop]:
    """Run the sample app, filled or empty; with `friendly` it has no hostile names and values."""
    workflows = [one for one in WORKFLOWS if not (friendly and "evil" in one.name)]
    app = App(
        database,
        workflows=workflows,
        broker=RejectingBroker(not friendly),
        worker_id="shop-1",
        service_name="shop",
        **options,
    )
    async with app:
        shop = SampleShop(app)
        if not empty:
            await _fill(shop)
            if not friendly:
                await _fill_with_evil(shop)
            await _wait_for_dead_letters(shop.app)
        yield shop


async def _fill(shop: SampleShop) -> None:
    ended = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.TERMINATED)
    await shop.start(checkout, "order-1", ORDER)
    await shop.start(stolen, "order-2", "The card was refused.")
    await shop.start(payment, "order-3", 3)
    await shop.start(payment, "order-4", 4)
    await shop.start(patient, "sleeper", 30)
    await shop.start(napping, "napper")
    await shop.start(banking, "banking")
    await shop.start(stuck_undoing, "undoing")
    await shop.start(counter, "counter", 1)
    await shop.start(listener, "listener", "orders")
    await shop.start(payment, "cancelled", 5)
    await shop.start(payment, "terminated", 6)
    await shop.start(payment, "paused", 7)
    await shop.start(announcer, "announcer")
    for one in ("order-1", "order-2", "announcer", "napper"):
        await shop.until(one, *ended)
    for one in ("order-3", "order-4", "cancelled", "terminated", "paused", "counter"):
        await shop.until(one, Status.WAITING_FOR_EVENT)
    await shop.until("listener", Status.WAITING_FOR_MESSAGE)
    await shop.until("sleeper", Status.WAITING_FOR_TIMER)
    await shop.until("undoing", Status.COMPENSATING)
    await shop.app.cancel_workflow("cancelled", "customer left")
    await shop.app.terminate_workflow("terminated", "enough")
    await shop.app.pause_workflow("paused", "until Monday")
    await shop.until("cancelled", Status.CANCELLED)


async def _fill_with_evil(shop: SampleShop) -> None:
    await shop.start(evil, EVIL_ID, EVIL, [EVIL, {EVIL: EVIL, "deep": {"er": {"still": [1, 2.5, None, True]}}}])
    await shop.start(evil, "evil-fail", EVIL, "fail")
    await shop.start(evil, "evil-wait", EVIL, "wait")
    await shop.start(evil, "evil-paused", EVIL, "wait")
    await shop.start(evil, "evil-long", LONG, "x")
    await shop.start(badly_named, "evil-name", EVIL)
    for one in (EVIL_ID, "evil-fail", "evil-long", "evil-name"):
        await shop.until(one, Status.COMPLETED, Status.FAILED)
    for one in ("evil-wait", "evil-paused"):
        await shop.until(one, Status.WAITING_FOR_EVENT)
    await shop.app.pause_workflow("evil-paused", f"wait {EVIL}".replace("\0", ""))


async def _wait_for_dead_letters(app: App) -> None:
    async with asyncio.timeout(30):
        while not (await app.list_outbox(dead=True)).items:
            await asyncio.sleep(0.01)
