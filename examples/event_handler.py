"""An event handler: a workflow that events start. A repeated event does not start it again.

Output:
    started 1, then 0
    2 books for Ada: completed
    an event that does not fit: failed
    romancy.errors.PayloadError: the data of event 'order.placed' ... does not match ...: 'count' is missing.
"""

import asyncio

from romancy import ActivityContext, App, WorkflowContext, activity, workflow


@activity
async def reserve(ctx: ActivityContext, item: str, count: int) -> str:
    """Reserve something."""
    return f"{count} {item}"


@workflow(name="order.placed", event_handler=True)
async def order(ctx: WorkflowContext, customer: str, item: str, count: int) -> str:
    """Started by events of type `order.placed`: the fields of their data are the arguments."""
    return f"{await reserve(ctx, item, count)} for {customer}"


async def main() -> None:
    """The shop sends an event, and repeats it because it received no response."""
    async with App("sqlite:///event_handler.db") as app:
        data = {"customer": "Ada", "item": "books", "count": 2}
        first = await app.send_event("order.placed", "/shop", data)
        again = await app.send_event("order.placed", "/shop", data, event_id=first.id)
        print(f"started {len(first.instance_ids)}, then {len(again.instance_ids)}")
        handle = app.get_handle(first.instance_ids[0])
        print(f"{await handle.result()}: {await handle.status()}")

        wrong = await app.send_event("order.placed", "/shop", {"customer": "Bob", "item": "lamps"})
        result = await app.get_result(wrong.instance_ids[0])
        print(f"an event that does not fit: {result.status}")
        print(result.error)


if __name__ == "__main__":
    asyncio.run(main())
