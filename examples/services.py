"""Two services on one database: each has its own workflows, and they communicate by events.

Output:
    warehouse: packed books for order-1
    shop: order-1 goes out in parcel-books
    warehouse: packed lamps for order-2
    shop: order-2 goes out in parcel-lamps
"""

import asyncio

from romancy import ActivityContext, App, WorkflowContext, activity, send_event, wait_event, workflow

DATABASE = "sqlite:///services.db"


# --- the shop


@workflow
async def order(ctx: WorkflowContext, order_id: str, item: str) -> str:
    """Send an event for the order, and wait until it is packed."""
    await send_event(ctx, "order.placed", "/shop", {"order_id": order_id, "item": item})
    packed = await wait_event(ctx, "order.packed", subject=order_id)
    return f"{order_id} goes out in {packed.data['parcel']}"


# --- the warehouse


@activity
async def pack(ctx: ActivityContext, order_id: str, item: str) -> None:
    """Pack, and send an event, which commits with the result of the activity or not at all."""
    print(f"warehouse: packed {item} for {order_id}")
    await send_event(ctx, "order.packed", "/warehouse", {"parcel": f"parcel-{item}"}, subject=order_id)


@workflow(name="order.placed", event_handler=True)
async def packing(ctx: WorkflowContext, order_id: str, item: str) -> None:
    """Started by the event of the shop, which does not know this code."""
    await pack(ctx, order_id, item)


async def main() -> None:
    """Run two apps. They could also be two processes."""
    async with App(DATABASE, workflows=[packing]), App(DATABASE, workflows=[order]) as shop:
        for number, item in enumerate(("books", "lamps"), start=1):
            handle = await shop.start_workflow(order, f"order-{number}", item)
            print("shop:", await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
