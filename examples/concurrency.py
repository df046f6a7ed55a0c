"""Plain asyncio in a workflow: gather, a race, and a timeout around an activity.

Output:
    sum: 60
    fastest: mirror-b
    too slow
"""

import asyncio

from romancy import ActivityContext, App, WorkflowContext, activity, workflow


@activity
async def work(ctx: ActivityContext, number: int) -> int:
    """Take a moment."""
    await asyncio.sleep(0.05)
    return number


@activity
async def download(ctx: ActivityContext, mirror: str, seconds: float) -> str:
    """Answer after some time."""
    await asyncio.sleep(seconds)
    return mirror


@workflow
async def total(ctx: WorkflowContext) -> int:
    """Run all at once."""
    return sum(await asyncio.gather(work(ctx, 10), work(ctx, 20), work(ctx, 30)))


@workflow
async def race(ctx: WorkflowContext) -> str:
    """The first answer counts; the other call is cancelled. A replay gives the same winner."""
    calls = [asyncio.create_task(download(ctx, *one)) for one in (("mirror-a", 20.0), ("mirror-b", 0.05))]
    done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for call in pending:
        call.cancel()
    return done.pop().result()


@workflow
async def patient(ctx: WorkflowContext) -> str:
    """The timeout is a durable timer."""
    try:
        async with asyncio.timeout(0.2):
            return await download(ctx, "mirror-a", 20.0)
    except TimeoutError:
        return "too slow"


async def main() -> None:
    """Run all three."""
    async with App("sqlite:///concurrency.db") as app:
        print("sum:", await (await app.start_workflow(total)).result())
        print("fastest:", await (await app.start_workflow(race)).result())
        print(await (await app.start_workflow(patient)).result())


if __name__ == "__main__":
    asyncio.run(main())
