"""The processes of a campaign: workers and `romancy serve`, each with a proxy to the database.

Each server has a second proxy for its clients.
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
from tests.chaos.campaign.database_targets import DatabaseTarget
from tests.chaos.campaign.network_namespace import NetworkNamespace
from tests.chaos.campaign.tcp_proxy import TcpProxy
from tests.chaos.worker_processes import HEARTBEAT, LEASE, ROOT, Worker

_number = count(1)
_STOP_TIMEOUT = 45.0
"""Seconds that a process gets to shut down: it may wait up to 30 seconds for an unavailable database."""


class DidNotStop(Exception):
    """A process did not shut down; its log ends with its stacks."""


class CampaignProcess(Worker):
    """A process that runs the campaign's app."""

    def __init__(self, command: list[str], address: str, folder: Path, label: str, entry: list[str]) -> None:
        self.log = folder / f"{label}-{next(_number)}.log"
        variables = {
            WATCHED: "1",
            order_workflows.EFFECT_LOG: str(folder / "effects"),
            "ROMANCY_DATABASE": address,
            "ROMANCY_WORKER_ID": label,
            "ROMANCY_HEARTBEAT_INTERVAL": str(HEARTBEAT),
            "ROMANCY_LEASE_TIMEOUT": str(LEASE),
            "ROMANCY_POLL_INTERVAL": "0.2",
            "ROMANCY_MAX_LOSSES": "0",  # a process that is killed at random says nothing about the instances it ran
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
        """Whether the process is running."""
        return self._process.poll() is None

    def finish(self, *, by_signal: bool) -> None:
        """Shut the process down in an orderly way. Raises `DidNotStop` if it does not end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if by_signal:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)  # it prints its stacks
            time.sleep(1)
            self.kill()
            raise DidNotStop(f"a process did not stop within {_STOP_TIMEOUT:g} s: {self.log}") from None


class ProcessSlot:
    """A place in the campaign where one process runs at a time, with its proxy."""

    by_signal = False
    """Whether the process is stopped with SIGTERM, or by the end of its standard input."""

    def __init__(self, label: str, folder: Path, target: DatabaseTarget, namespace: NetworkNamespace | None = None) -> None:
        self.label = label
        self.namespace = namespace
        self.proxy = TcpProxy("127.0.0.1", target.port) if target.port is not None else None
        self._folder = folder
        self._target = target
        self.process: CampaignProcess | None = None

    async def open(self) -> None:
        """Open the proxy."""
        if self.proxy is not None:
            await self.proxy.open(self.namespace.host if self.namespace is not None else "127.0.0.1")

    async def close(self) -> None:
        """Kill the process and close the proxy."""
        if self.process is not None and self.process.is_running:
            self.process.kill()
        if self.proxy is not None:
            await self.proxy.close()
        if self.namespace is not None:
            self.namespace.close()

    def start(self) -> None:
        """Start the next process."""
        address = self._target.address if self.proxy is None else self.proxy.over(self._target.address)
        entry = self.namespace.entry if self.namespace is not None else []
        self.process = CampaignProcess(self.command(), address, self._folder, self.label, entry)

    def command(self) -> list[str]:
        """The command that the process runs."""
        return ["tests.chaos.campaign.app"]

    async def is_ready(self) -> bool:
        """Whether the process can work."""
        return self.process is not None and "ready" in self.process.text().splitlines()

    async def until_ready(self, seconds: float = 60.0) -> None:
        """Wait until the process can work."""
        deadline = time.monotonic() + seconds
        while not await self.is_ready():
            if time.monotonic() > deadline:
                text = "" if self.process is None else self.process.text()
                raise AssertionError(f"{self.label} is not ready after {seconds:g} s:\n{text[-3000:]}")
            await asyncio.sleep(0.05)

    def finish(self) -> None:
        """Shut the process down in an orderly way."""
        assert self.process is not None
        self.process.finish(by_signal=self.by_signal)


class ServerSlot(ProcessSlot):
    """A place for a server process."""

    by_signal = True

    def __init__(self, label: str, folder: Path, target: DatabaseTarget) -> None:
        super().__init__(label, folder, target)
        self.port = servers.free_port()
        self.client_proxy = TcpProxy("127.0.0.1", self.port)

    async def open(self) -> None:
        """Open both proxies."""
        await super().open()
        await self.client_proxy.open()

    async def close(self) -> None:
        """Kill the process and close both proxies."""
        await super().close()
        await self.client_proxy.close()

    def command(self) -> list[str]:
        """The command that the process runs."""
        return ["romancy", "serve", "tests.chaos.campaign.app:app", "--port", str(self.port)]

    async def is_ready(self) -> bool:
        """Whether the server answers and its database is available."""
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=5) as connection:
                return (await connection.get("/health/ready")).is_success
        except httpx.TransportError:
            return False
