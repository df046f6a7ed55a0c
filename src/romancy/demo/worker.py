"""The worker process: `python -m romancy.demo.worker DATABASE LABEL`. It runs until its standard input ends.

The driver holds the other end of the input. If the driver ends for any reason, the operating system closes it, and the
worker ends too.
"""

from __future__ import annotations

import asyncio
import sys

from romancy import App
from romancy.demo.external_services import WorkerReport
from romancy.demo.shop import checkout

HEARTBEAT = 0.25
LEASE = 1.0
"""Short, to keep the demonstration short. The defaults are 5 and 30 seconds."""


async def work(database: str, label: str) -> None:
    """Run the orders of the shop."""
    app = App(
        database,
        workflows=[checkout],
        worker_id=label,
        heartbeat_interval=HEARTBEAT,
        lease_timeout=LEASE,
        shutdown_timeout=5,
    )
    async with app:
        WorkerReport(kind="ready", worker=label).send()
        await _end_of_input()


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        await reader.read()
    finally:
        transport.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
