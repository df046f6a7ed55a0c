"""A process whose app relays: `python -m tests.outbox.relay_process DATABASE URL LEASE`. It prints `begun`."""

from __future__ import annotations

import asyncio
import sys

from tests.outbox.fake_broker import SOON

from romancy import App, HTTPBroker


async def main(database: str, url: str, lease: str) -> None:
    """Relay until the process is killed."""
    broker = HTTPBroker(url, retry=SOON, timeout=20)
    options = {"heartbeat_interval": 0.2, "lease_timeout": float(lease), "outbox_interval": 0.05, "outbox_batch_size": 5}
    async with App(database, workflows=[], broker=broker, **options):  # type: ignore[arg-type]
        print("begun", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
