"""A shop's checkout: a workflow, the activities it orchestrates, and what undoes them.

This is what a user of romancy writes. Everything else in this package only makes it visible.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal

from pydantic import BaseModel

from romancy import ActivityContext, RetryPolicy, TerminalError, WorkflowContext, activity, sleep, workflow
from romancy.demo.external_services import World

LATENCY = 0.4
"""Seconds the outside world takes to answer."""
PACKING = 0.9
"""Seconds between payment and shipping: a durable timer, which needs no worker."""


class Payment(BaseModel):
    """An amount and where it is taken from."""

    source: str
    amount: Decimal


class Order(BaseModel):
    """What a customer wants."""

    item: str
    quantity: int
    payments: list[Payment]
    email: str


class Receipt(BaseModel):
    """The bank's answer to a payment."""

    number: str
    amount: Decimal


class Confirmation(BaseModel):
    """What the customer gets."""

    receipts: list[Receipt]
    tracking: str


@activity
async def reserve(ctx: ActivityContext, item: str, quantity: int) -> str:
    """Put goods aside."""
    line = World.here().request(ctx, "reserve", f"{quantity} {item}")
    await asyncio.sleep(LATENCY)
    return line.number


@reserve.compensate
async def release(ctx: ActivityContext, item: str, quantity: int) -> None:
    """Put goods back."""
    World.here().request(ctx, "release", f"{quantity} {item}")
    await asyncio.sleep(LATENCY)


@activity
async def charge(ctx: ActivityContext, payment: Payment) -> Receipt:
    """Take the money. The bank knows the idempotency key: asked twice, it takes it once and gives the same receipt."""
    ctx.heartbeat("the bank was asked")
    line = World.here().request(ctx, "charge", f"{payment.amount} EUR, {payment.source}")
    await World.here().answer(ctx, line, LATENCY)
    if line.outcome == "declined":
        raise TerminalError(f"the bank declined {payment.source}")
    return Receipt(number=line.number, amount=payment.amount)


@charge.compensate
async def refund(ctx: ActivityContext, result: Receipt, payment: Payment) -> None:
    """Give the money back."""
    World.here().request(ctx, "refund", f"{result.amount} EUR, {payment.source}")
    await asyncio.sleep(LATENCY)


@activity(retry=RetryPolicy.fixed(5, 0.5))
async def ship(ctx: ActivityContext, order: Order) -> str:
    """Hand the parcel over. The carrier cannot be reached the first time: the activity is retried."""
    if ctx.attempt == 1:
        await asyncio.sleep(LATENCY)
        World.here().remark(ctx, "ship", "the carrier cannot be reached; again in 0.5 s")
        raise ConnectionError("the carrier cannot be reached")
    line = World.here().request(ctx, "ship", f"{order.quantity} {order.item}")
    await asyncio.sleep(LATENCY)
    return line.number


@activity
async def notify(ctx: ActivityContext, email: str, tracking: str) -> None:
    """Tell the customer."""
    World.here().request(ctx, "notify", f"{email}, parcel {tracking}")
    await asyncio.sleep(LATENCY)


@workflow
async def checkout(ctx: WorkflowContext, order: Order) -> Confirmation:
    """From order to parcel. If a step fails for good, the completed ones are undone, the last one first."""
    await reserve(ctx, order.item, order.quantity)
    receipts = [await charge(ctx, payment) for payment in order.payments]
    await sleep(ctx, PACKING, sleep_id="packing")
    tracking = await ship(ctx, order)
    await notify(ctx, order.email, tracking)
    return Confirmation(receipts=receipts, tracking=tracking)
