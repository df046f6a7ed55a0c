"""Worker process of the order workflows: `python -m tests.chaos.order_worker DATABASE NAME`. Ends with its input."""

from __future__ import annotations

import asyncio
import logging
import sys

from tests.chaos.order_workflows import WORKFLOWS
from tests.chaos.worker_processes import HEARTBEAT, LEASE

from romancy import App


async def main(database: str, name: str) -> None:
    """Run until standard input ends."""
    app = App(
        database,
        workflows=WORKFLOWS,
        worker_id=name,
        heartbeat_interval=HEARTBEAT,
        lease_timeout=LEASE,
        max_losses=0,  # a process that is killed at random says nothing about the instances it ran
        poll_interval=0.2,
        cache_size=20,
        block_warning=0.3,
        shutdown_timeout=1,
    )
    async with app:
        print("ready", flush=True)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.read()
        transport.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
