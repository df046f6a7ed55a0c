"""A payment with a time limit: the order is shipped when the payment arrives, and cancelled after a timeout.

Output:
    order-1: waiting_for_event
    order-1: shipped, 1999 cents by card
    order-2: cancelled, not paid
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, EventTimeoutError, WorkflowContext, activity, wait_event, workflow

TIMEOUT = timedelta(seconds=2)  # minutes for a card, days for a bank transfer


@dataclass
class Payment:
    """The data of the bank's event."""

    method: str
    cents: int


@activity
async def ship(ctx: ActivityContext, payment: Payment) -> str:
    """Call the warehouse."""
    return f"shipped, {payment.cents} cents by {payment.method}"


@activity
async def cancel(ctx: ActivityContext) -> str:
    """Release the reservation."""
    return "cancelled, not paid"


@workflow
async def order(ctx: WorkflowContext, order_id: str) -> str:
    """While the instance waits, it occupies no worker and survives any restart."""
    try:
        paid = await wait_event(ctx, "payment.completed", subject=order_id, model=Payment, timeout=TIMEOUT)
    except EventTimeoutError:
        return await cancel(ctx)
    return await ship(ctx, paid.data)


async def main() -> None:
    """Start two orders, of which one is paid."""
    async with App("sqlite:///payment_timeout.db") as app:
        handles = {order_id: await app.start_workflow(order, order_id) for order_id in ("order-1", "order-2")}
        while (status := await handles["order-1"].status()) != "waiting_for_event":
            await asyncio.sleep(0.01)
        print(f"order-1: {status}")
        await app.send_event("payment.completed", "/bank", Payment("card", 1999), subject="order-1")
        for order_id, handle in handles.items():
            print(f"{order_id}: {await handle.result()}")


if __name__ == "__main__":
    asyncio.run(main())
