"""A shop's checkout: a workflow, its activities, and their compensations.

This is the code that a user of romancy writes. The rest of this package only makes it visible.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal

from pydantic import BaseModel

from romancy import ActivityContext, RetryPolicy, TerminalError, WorkflowContext, activity, sleep, workflow
from romancy.demo.external_services import ExternalServices

LATENCY = 0.4
"""Seconds until a service responds."""
PACKING = 0.9
"""Seconds between payment and shipping: a durable timer, which occupies no worker."""


class Payment(BaseModel):
    """An amount and its source."""

    source: str
    amount: Decimal


class Order(BaseModel):
    """The order of a customer."""

    item: str
    quantity: int
    payments: list[Payment]
    email: str


class Receipt(BaseModel):
    """The bank's response to a payment."""

    number: str
    amount: Decimal


class Confirmation(BaseModel):
    """The confirmation for the customer."""

    receipts: list[Receipt]
    tracking: str


@activity
async def reserve(ctx: ActivityContext, item: str, quantity: int) -> str:
    """Reserve the goods."""
    line = ExternalServices.here().request(ctx, "reserve", f"{quantity} {item}")
    await asyncio.sleep(LATENCY)
    return line.number


@reserve.compensate
async def release(ctx: ActivityContext, item: str, quantity: int) -> None:
    """Release the reserved goods."""
    ExternalServices.here().request(ctx, "release", f"{quantity} {item}")
    await asyncio.sleep(LATENCY)


@activity
async def charge(ctx: ActivityContext, payment: Payment) -> Receipt:
    """Take the money. The bank honours the idempotency key: a repeated request returns the same receipt."""
    ctx.heartbeat("request sent to the bank")
    line = ExternalServices.here().request(ctx, "charge", f"{payment.amount} EUR, {payment.source}")
    await ExternalServices.here().answer(ctx, line, LATENCY)
    if line.outcome == "declined":
        raise TerminalError(f"the bank declined {payment.source}")
    return Receipt(number=line.number, amount=payment.amount)


@charge.compensate
async def refund(ctx: ActivityContext, result: Receipt, payment: Payment) -> None:
    """Refund the money."""
    ExternalServices.here().request(ctx, "refund", f"{result.amount} EUR, {payment.source}")
    await asyncio.sleep(LATENCY)


@activity(retry=RetryPolicy.fixed(5, 0.5))
async def ship(ctx: ActivityContext, order: Order) -> str:
    """Hand the parcel over. The carrier cannot be reached the first time: the activity is retried."""
    if ctx.attempt == 1:
        await asyncio.sleep(LATENCY)
        ExternalServices.here().remark(ctx, "ship", "the carrier cannot be reached; again in 0.5 s")
        raise ConnectionError("the carrier cannot be reached")
    line = ExternalServices.here().request(ctx, "ship", f"{order.quantity} {order.item}")
    await asyncio.sleep(LATENCY)
    return line.number


@activity
async def notify(ctx: ActivityContext, email: str, tracking: str) -> None:
    """Notify the customer."""
    ExternalServices.here().request(ctx, "notify", f"{email}, parcel {tracking}")
    await asyncio.sleep(LATENCY)


@workflow
async def checkout(ctx: WorkflowContext, order: Order) -> Confirmation:
    """Process an order. If a step fails for good, the completed ones are compensated, the last one first."""
    await reserve(ctx, order.item, order.quantity)
    receipts = [await charge(ctx, payment) for payment in order.payments]
    await sleep(ctx, PACKING, sleep_id="packing")
    tracking = await ship(ctx, order)
    await notify(ctx, order.email, tracking)
    return Confirmation(receipts=receipts, tracking=tracking)
