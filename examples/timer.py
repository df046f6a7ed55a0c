"""Durable timers: while an instance sleeps, it occupies no worker, and another process may resume it.

Output:
    waiting_for_timer
    reminder: water the plants
    reminded: True
"""

import asyncio
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, workflow


@activity
async def remind(ctx: ActivityContext, text: str) -> bool:
    """Send a reminder."""
    print("reminder:", text)
    return True


@workflow
async def reminder(ctx: WorkflowContext, text: str) -> bool:
    """Wait, then remind. A sleep of a month is written the same way."""
    await sleep(ctx, timedelta(seconds=1))
    return await remind(ctx, text)


async def first_life() -> str:
    """Start the instance and shut down while it sleeps."""
    async with App("sqlite:///timer.db") as app:
        handle = await app.start_workflow(reminder, "water the plants")
        while await handle.status() != "waiting_for_timer":
            await asyncio.sleep(0.01)
        print(await handle.status())
        return handle.instance_id


async def second_life(instance_id: str) -> None:
    """Continue the instance in another app."""
    async with App("sqlite:///timer.db") as app:
        print("reminded:", await app.get_handle(instance_id).result())


if __name__ == "__main__":
    asyncio.run(second_life(asyncio.run(first_life())))
