"""Tests with virtual time and a simulated crash. pytest would collect the `test_` functions by itself.

Output:
    a year passed
    charged once
"""

import asyncio
from datetime import timedelta

from romancy import ActivityContext, WorkflowContext, activity, sleep, workflow
from romancy.testing import TestEnvironment

charges: dict[str, int] = {}


@activity
async def charge(ctx: ActivityContext, cents: int) -> int:
    """A bank that knows idempotency keys: the same key is the same charge."""
    return charges.setdefault(ctx.idempotency_key, cents)


@workflow
async def renewal(ctx: WorkflowContext, cents: int) -> int:
    """Charge after a year."""
    await sleep(ctx, timedelta(days=365))
    return await charge(ctx, cents)


async def test_the_year_passes_at_once() -> None:
    """While the test awaits a result, the clock jumps from timer to timer."""
    async with TestEnvironment(workflows=[renewal]) as env:
        began = env.now()
        handle = await env.app.start_workflow(renewal, 999)
        assert await handle.result() == 999
        assert env.now() - began == timedelta(days=365)
    print("a year passed")


async def test_a_crash_before_the_result_is_written() -> None:
    """The activity runs again with the same key, so there is one charge."""
    charges.clear()
    async with TestEnvironment(workflows=[renewal]) as env:
        handle = await env.app.start_workflow(renewal, 999)
        env.crash_at("activity.after")
        assert await handle.result() == 999
        assert env.crashes == 1
    assert len(charges) == 1
    print("charged once")


if __name__ == "__main__":
    asyncio.run(test_the_year_passes_at_once())
    asyncio.run(test_a_crash_before_the_result_is_written())
