"""An order that follows its parcel. Events that arrive while no worker runs are kept.

Output:
    waiting_for_event
    no worker runs; packed, picked up and delivered
    packed by Lin, left at 10:30, received by a neighbour
"""

import asyncio

from romancy import App, Client, WorkflowContext, wait_event, workflow

DATABASE = "sqlite:///order_fulfilment.db"


@workflow
async def fulfilment(ctx: WorkflowContext, order: int) -> str:
    """Wait for one event after another. `match` compares the data, because events of other orders arrive too."""
    packed = await wait_event(ctx, "parcel.packed", match={"order": order})
    left = await wait_event(ctx, "parcel.picked_up", match={"order": order})
    received = await wait_event(ctx, "parcel.delivered", match={"order": order})
    return f"packed by {packed.data['by']}, left at {left.data['at']}, received by {received.data['by']}"


async def place_order(order: int) -> str:
    """Start the app, take an order, and stop."""
    async with App(DATABASE) as app:
        handle = await app.start_workflow(fulfilment, order)
        while await handle.status() != "waiting_for_event":
            await asyncio.sleep(0.01)
        print(await handle.status())
        return handle.instance_id


async def deliver(order: int) -> None:
    """Send the events without a worker. A client has the methods of an app, but no worker."""
    async with Client(DATABASE) as client:
        await client.send_event("parcel.packed", "/warehouse", {"order": order + 1, "by": "Kim"})
        await client.send_event("parcel.packed", "/warehouse", {"order": order, "by": "Lin"})
        await client.send_event("parcel.picked_up", "/carrier", {"order": order, "at": "10:30"})
        await client.send_event("parcel.delivered", "/carrier", {"order": order, "by": "a neighbour"})
    print("no worker runs; packed, picked up and delivered")


async def look(instance_id: str) -> None:
    """Start the app again."""
    async with App(DATABASE) as app:
        print(await app.get_handle(instance_id).result())


if __name__ == "__main__":
    placed = asyncio.run(place_order(42))
    asyncio.run(deliver(42))
    asyncio.run(look(placed))
