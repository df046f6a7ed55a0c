"""Worker process that one input kills: `python -m tests.chaos.poison_worker DATABASE NAME`. Ends with its input."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from romancy import ActivityContext, App, WorkflowContext, activity, workflow

HEARTBEAT, LEASE = 0.3, 3.0
POISON = -1
"""The input that kills the process, as the kernel does when memory runs out."""


@activity
async def double(ctx: ActivityContext, number: int) -> int:
    if number == POISON:
        os._exit(137)
    await asyncio.sleep(0.05)
    return 2 * number


@workflow
async def quadruple(ctx: WorkflowContext, number: int) -> int:
    first = await double(ctx, abs(number))
    return first + await double(ctx, number)


async def main(database: str, name: str) -> None:
    """Run until standard input ends."""
    app = App(
        database,
        workflows=[quadruple],
        worker_id=name,
        heartbeat_interval=HEARTBEAT,
        lease_timeout=LEASE,
        poll_interval=0.1,
        max_concurrent_workflows=20,
        block_warning=0,
    )
    async with app:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.read()
        transport.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
