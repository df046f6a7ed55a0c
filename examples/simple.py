"""The smallest workflow: one activity, one result, and its history.

Output:
    Hello, Ada!
    completed
    1 greet:1 Hello, Ada!
"""

import asyncio

from romancy import ActivityContext, App, WorkflowContext, activity, workflow


@activity
async def greet(ctx: ActivityContext, name: str) -> str:
    """Do the work: here it could call a web service."""
    return f"Hello, {name}!"


@workflow
async def welcome(ctx: WorkflowContext, name: str) -> str:
    """Call the activity."""
    return await greet(ctx, name)


async def main() -> None:
    """Start one instance, wait for it, and print its history."""
    async with App("sqlite:///simple.db") as app:
        handle = await app.start_workflow(welcome, "Ada")
        print(await handle.result())
        print(await handle.status())
        async for entry in handle.history():
            print(entry.seq, entry.activity_id, entry.result)


if __name__ == "__main__":
    asyncio.run(main())
