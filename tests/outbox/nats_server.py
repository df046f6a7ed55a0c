"""A NATS server with JetStream for the tests, on a loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import servers

PROGRAM = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/bin")


class NATSServer:
    """A server that runs while the context is open; it can be stopped and started again, and keeps its data."""

    def __init__(self, *arguments: str) -> None:
        self.port = servers.free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="romancy-nats-"))
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address of the server."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        assert PROGRAM is not None
        command = [PROGRAM, "-js", "-sd", str(self._folder), "-a", "127.0.0.1", "-p", str(self.port), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, "nats-server did not start"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill the server, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(10)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
