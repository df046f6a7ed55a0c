"""A payment that waits for an event, one that gives the data of the event a type, and an order that sleeps.

Output:
    the bank says 99.5 for order 7
    99.5 euros are 9950 cents: T-1
    no payment for order 9
"""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, wait_event, workflow

WAIT = timedelta(seconds=1)  # an hour in practice


class Paid(BaseModel):
    """The data of `payment.completed`."""

    order_id: str
    transaction_id: str
    amount: float


@activity
async def begin_payment(ctx: ActivityContext, order_id: str) -> str:
    """Register the payment with the bank."""
    return f"payment of order {order_id}"


@workflow
async def payment(ctx: WorkflowContext, order_id: str) -> str:
    """The data is plain JSON."""
    await begin_payment(ctx, order_id)
    event = await wait_event(ctx, "payment.completed", timeout=timedelta(minutes=5))
    return f"the {event.source} says {event.data['amount']} for order {event.data['order_id']}"


@workflow
async def typed_payment(ctx: WorkflowContext, order_id: str) -> str:
    """The data is a model: invalid data is refused, and type checkers know the fields."""
    paid = (await wait_event(ctx, "payment.completed", model=Paid)).data
    return f"{paid.amount} euros are {round(paid.amount * 100)} cents: {paid.transaction_id}"


@workflow
async def order(ctx: WorkflowContext, order_id: str) -> str:
    """Wait for a time instead of an event, without occupying a worker."""
    await sleep(ctx, WAIT)
    return f"no payment for order {order_id}"


async def main() -> None:
    """Send one event, which reaches both payments."""
    async with App("sqlite:///event_waiting.db") as app:
        begun = [(payment, "7"), (typed_payment, "7"), (order, "9")]
        handles = [await app.start_workflow(flow, order_id) for flow, order_id in begun]
        await app.send_event("payment.completed", "bank", Paid(order_id="7", transaction_id="T-1", amount=99.5))
        for handle in handles:
            print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
