"""Retries: an activity that succeeds at the third attempt, and one that never does.

Output:
    attempt 1 fails
    attempt 2 fails
    attempt 3 succeeds
    gave up after 2 attempts: unreachable
    result: content
"""

import asyncio

from romancy import ActivityContext, App, RetryExhaustedError, RetryPolicy, WorkflowContext, activity, workflow


@activity(retry=RetryPolicy.exponential(5, initial=0.05, maximum=1.0))
async def fetch(ctx: ActivityContext) -> str:
    """Fail twice, then succeed."""
    if ctx.attempt < 3:
        print(f"attempt {ctx.attempt} fails")
        raise ConnectionError("no answer")
    print(f"attempt {ctx.attempt} succeeds")
    return "content"


@activity(retry=RetryPolicy.fixed(2, 0.05))
async def unreachable(ctx: ActivityContext) -> str:
    """Always fail."""
    raise ConnectionError("unreachable")


@workflow
async def collect(ctx: WorkflowContext) -> str:
    """Use the content that arrives, and continue without the rest."""
    content = await fetch(ctx)
    try:
        content += await unreachable(ctx)
    except RetryExhaustedError as error:
        print(f"gave up after {error.attempts} attempts: {error.__cause__}")
    return content


async def main() -> None:
    """Run one instance."""
    async with App("sqlite:///retry.db") as app:
        handle = await app.start_workflow(collect)
        print("result:", await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
