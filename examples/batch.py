"""Batches with a pause between them: a crash repeats no completed batch, and does not restart the pause.

Output:
    sent 3 invoices: 1 2 3
    sent 3 invoices: 4 5 6
    sent 2 invoices: 7 8
    total: 8
"""

import asyncio
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, workflow

SIZE = 3
PAUSE = timedelta(seconds=0.2)  # required by the mail server


@activity
async def send(ctx: ActivityContext, invoices: list[int]) -> int:
    """Send one batch."""
    print(f"sent {len(invoices)} invoices:", *invoices)
    return len(invoices)


@workflow
async def send_all(ctx: WorkflowContext, invoices: list[int]) -> int:
    """Send one batch after another."""
    sent = 0
    for start in range(0, len(invoices), SIZE):
        if start:
            await sleep(ctx, PAUSE)
        sent += await send(ctx, invoices[start : start + SIZE])
    return sent


async def main() -> None:
    """Run one instance."""
    async with App("sqlite:///batch.db") as app:
        handle = await app.start_workflow(send_all, [1, 2, 3, 4, 5, 6, 7, 8])
        print("total:", await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
