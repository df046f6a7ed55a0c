"""A shop whose instances are in every state there is, and an app that shows them."""

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
"""What somebody might put wherever they can."""
EVIL_ID = "../a?b#c&d=<script>alert('id')</script>\"'\u202eevil/ü%2F+ "
LONG = "x" * 1_000_000


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Item(BaseModel):
    """One line of an order."""

    sku: str = Field(description="As printed on the box.")
    count: int = Field(default=1, ge=1)
    gift: bool = False


class Address(BaseModel):
    street: str
    town: str


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
    """Undo `reserve`."""


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
        raise ConnectionError(f"the line went dead, attempt {ctx.attempt}")
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
    """Reserve, charge, pack."""
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
    await reserve(ctx, "nobody")
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


class Grumpy:
    """A broker that takes nothing."""

    name = "grumpy"

    def __init__(self, hostile: bool) -> None:
        self.hostile = hostile

    async def start(self) -> None:
        """Ready."""

    async def send(self, event: Event) -> None:
        """Never."""
        raise EventRejectedError(f"no thanks {EVIL}" if self.hostile else "the topic was deleted")

    async def close(self) -> None:
        """Gone."""


ORDER = Order(
    customer="Ada Lovelace",
    items=[Item(sku="book", count=2), Item(sku="lamp", gift=True)],
    price=Decimal("42.50"),
    deliver_on=date(2030, 1, 31),
    address=Address(street="12 St James’s Square", town="London"),
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
class World:
    """The app, and the ids of what it shows."""

    app: App
    ids: list[str] = field(default_factory=list)

    async def start(self, wf: Any, instance_id: str, *args: Any) -> None:
        """Start an instance under a name."""
        await self.app.start_workflow(wf.with_options(instance_id=instance_id), *args)
        self.ids.append(instance_id)

    async def until(self, instance_id: str, *wanted: Status) -> None:
        """Wait until an instance stands there."""
        async with asyncio.timeout(30):
            while await self.app.get_handle(instance_id).status() not in wanted:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def world(database: str, *, empty: bool = False, friendly: bool = False, **options: Any) -> AsyncIterator[World]:
    """The shop with something in every state, or an empty one; a friendly one has nothing hostile in it."""
    workflows = [one for one in WORKFLOWS if not (friendly and "evil" in one.name)]
    app = App(database, workflows=workflows, broker=Grumpy(not friendly), worker_id="shop-1", service_name="shop", **options)
    async with app:
        made = World(app)
        if not empty:
            await _fill(made)
            if not friendly:
                await _fill_with_evil(made)
            await _wait_for_dead_letters(made.app)
        yield made


async def _fill(made: World) -> None:
    ended = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.TERMINATED)
    await made.start(checkout, "order-1", ORDER)
    await made.start(stolen, "order-2", "The card was refused.")
    await made.start(payment, "order-3", 3)
    await made.start(payment, "order-4", 4)
    await made.start(patient, "sleeper", 30)
    await made.start(napping, "napper")
    await made.start(banking, "banking")
    await made.start(stuck_undoing, "undoing")
    await made.start(counter, "counter", 1)
    await made.start(listener, "listener", "orders")
    await made.start(payment, "cancelled", 5)
    await made.start(payment, "terminated", 6)
    await made.start(payment, "paused", 7)
    await made.start(announcer, "announcer")
    for one in ("order-1", "order-2", "announcer", "napper"):
        await made.until(one, *ended)
    for one in ("order-3", "order-4", "cancelled", "terminated", "paused", "counter"):
        await made.until(one, Status.WAITING_FOR_EVENT)
    await made.until("listener", Status.WAITING_FOR_MESSAGE)
    await made.until("sleeper", Status.WAITING_FOR_TIMER)
    await made.until("undoing", Status.COMPENSATING)
    await made.app.cancel_workflow("cancelled", "customer left")
    await made.app.terminate_workflow("terminated", "enough")
    await made.app.pause_workflow("paused", "until Monday")
    await made.until("cancelled", Status.CANCELLED)


async def _fill_with_evil(made: World) -> None:
    await made.start(evil, EVIL_ID, EVIL, [EVIL, {EVIL: EVIL, "deep": {"er": {"still": [1, 2.5, None, True]}}}])
    await made.start(evil, "evil-fail", EVIL, "fail")
    await made.start(evil, "evil-wait", EVIL, "wait")
    await made.start(evil, "evil-paused", EVIL, "wait")
    await made.start(evil, "evil-long", LONG, "x")
    await made.start(badly_named, "evil-name", EVIL)
    for one in (EVIL_ID, "evil-fail", "evil-long", "evil-name"):
        await made.until(one, Status.COMPLETED, Status.FAILED)
    for one in ("evil-wait", "evil-paused"):
        await made.until(one, Status.WAITING_FOR_EVENT)
    await made.app.pause_workflow("evil-paused", f"wait {EVIL}".replace("\0", ""))


async def _wait_for_dead_letters(app: App) -> None:
    async with asyncio.timeout(30):
        while not (await app.list_outbox(dead=True)).items:
            await asyncio.sleep(0.01)
