"""The processes of a campaign: workers, and `romancy serve`, each with a cable to the database.

Each server has another, on which its clients come.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import httpx
from tests import servers
from tests.chaos import order_workflows
from tests.chaos.campaign.app import WATCHED
from tests.chaos.campaign.database_targets import Place
from tests.chaos.campaign.network_namespace import Island
from tests.chaos.campaign.tcp_proxy import Cable
from tests.chaos.worker_processes import HEARTBEAT, LEASE, ROOT, Worker

_number = count(1)
_PATIENCE = 45.0
"""Seconds that a process gets to stop in order: it may be waiting for a database that is away, for 30."""


class DidNotStop(Exception):
    """A process has not shut down in order; its log ends with where it was."""


class Hand(Worker):
    """A process with the campaign's app."""

    def __init__(self, command: list[str], address: str, folder: Path, label: str, entry: list[str]) -> None:
        self.log = folder / f"{label}-{next(_number)}.log"
        variables = {
            WATCHED: "1",
            order_workflows.LEDGER: str(folder / "effects"),
            "ROMANCY_DATABASE": address,
            "ROMANCY_WORKER_ID": label,
            "ROMANCY_HEARTBEAT_INTERVAL": str(HEARTBEAT),
            "ROMANCY_LEASE_TIMEOUT": str(LEASE),
            "ROMANCY_POLL_INTERVAL": "0.2",
            "ROMANCY_MAX_LOSSES": "0",  # whoever is killed at random is no culprit
            "ROMANCY_POOL_SIZE": "4",
            "ROMANCY_CACHE_SIZE": "50",
            "ROMANCY_SHUTDOWN_TIMEOUT": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*entry, sys.executable, "-m", *command],
                cwd=ROOT,
                env=os.environ | variables,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def is_running(self) -> bool:
        """It has not ended."""
        return self._process.poll() is None

    def finish(self, *, by_signal: bool) -> None:
        """Let it shut down in order. Raises if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if by_signal:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)  # it says where it is
            time.sleep(1)
            self.kill()
            raise DidNotStop(f"a process did not stop within {_PATIENCE:g} s: {self.log}") from None


class Post:
    """A place for a process: when one is gone, the next stands there."""

    by_signal = False
    """How it is told to stop: by SIGTERM, or by the end of its standard input."""

    def __init__(self, label: str, folder: Path, place: Place, island: Island | None = None) -> None:
        self.label = label
        self.island = island
        self.cable = Cable("127.0.0.1", place.port) if place.port is not None else None
        self._folder = folder
        self._place = place
        self.hand: Hand | None = None

    async def open(self) -> None:
        """Lay the cables."""
        if self.cable is not None:
            await self.cable.open(self.island.host if self.island is not None else "127.0.0.1")

    async def close(self) -> None:
        """Kill who stands there, and take the cables up."""
        if self.hand is not None and self.hand.is_running:
            self.hand.kill()
        if self.cable is not None:
            await self.cable.close()
        if self.island is not None:
            self.island.close()

    def start(self) -> None:
        """The next process."""
        address = self._place.address if self.cable is None else self.cable.over(self._place.address)
        entry = self.island.entry if self.island is not None else []
        self.hand = Hand(self.command(), address, self._folder, self.label, entry)

    def command(self) -> list[str]:
        """What it runs."""
        return ["tests.chaos.campaign.app"]

    async def is_ready(self) -> bool:
        """Whether the process can work."""
        return self.hand is not None and "ready" in self.hand.text().splitlines()

    async def until_ready(self, seconds: float = 60.0) -> None:
        """Wait until it can work."""
        deadline = time.monotonic() + seconds
        while not await self.is_ready():
            if time.monotonic() > deadline:
                text = "" if self.hand is None else self.hand.text()
                raise AssertionError(f"{self.label} is not ready after {seconds:g} s:\n{text[-3000:]}")
            await asyncio.sleep(0.05)

    def finish(self) -> None:
        """Let the process shut down in order."""
        assert self.hand is not None
        self.hand.finish(by_signal=self.by_signal)


class Counter(Post):
    """Where clients are served."""

    by_signal = True

    def __init__(self, label: str, folder: Path, place: Place) -> None:
        super().__init__(label, folder, place)
        self.port = servers.free_port()
        self.line = Cable("127.0.0.1", self.port)

    async def open(self) -> None:
        """Lay the cables."""
        await super().open()
        await self.line.open()

    async def close(self) -> None:
        """Kill who stands there, and take the cables up."""
        await super().close()
        await self.line.close()

    def command(self) -> list[str]:
        """What it runs."""
        return ["romancy", "serve", "tests.chaos.campaign.app:app", "--port", str(self.port)]

    async def is_ready(self) -> bool:
        """Whether it answers, and has its database."""
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=5) as line:
                return (await line.get("/health/ready")).is_success
        except httpx.TransportError:
            return False
