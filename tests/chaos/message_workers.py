"""Worker processes for the workflows that send messages and recur: `python -m tests.chaos.message_workers DATABASE NAME`."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

from tests.chaos import order_workflows
from tests.chaos.competing_consumers import clerk
from tests.chaos.recurrence_chain import chain
from tests.chaos.worker_processes import HEARTBEAT, LEASE, ROOT, Worker, Workers

from romancy import App

AT_ONCE = 4
"""Maximum of concurrent instances in one process, so that no process takes all of them."""


class MessageWorker(Worker):
    """One worker process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        paths = {order_workflows.EFFECT_LOG: str(folder / "effects"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.message_workers", str(folder / "chaos.db"), name],
                cwd=ROOT,
                env=os.environ | paths,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )


class MessageWorkers(Workers):
    """The worker processes of one test; all are killed at its end."""

    def start(self) -> Worker:
        """Start another worker."""
        worker = MessageWorker(self._folder, f"h{len(self._all) + 1}")
        self._all.append(worker)
        return worker


async def main(database: str, name: str) -> None:
    """Run until standard input ends."""
    app = App(
        database,
        workflows=[clerk, chain],
        worker_id=name,
        heartbeat_interval=HEARTBEAT,
        lease_timeout=LEASE,
        max_losses=0,  # a process that is killed at random says nothing about the instances it ran
        poll_interval=0.2,
        max_concurrent_workflows=AT_ONCE,
        shutdown_timeout=1,
    )
    async with app:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
