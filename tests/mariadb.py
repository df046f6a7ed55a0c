"""MariaDB server for the tests: started when a test first needs it, and stopped at exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from asyncmy import errors
from tests.servers import free_port, named_database

from romancy.store.mysql.pool import MySqlPool, parse_address

_number = count(1)
_SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/local/bin"))
_KEPT = ("romancy_messaging_lock", "romancy_notifications", "romancy_migrations")


class MariaDb:
    """A private MariaDB server on a port of the loopback."""

    def __init__(self, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="romancy-mariadb-"))
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[Any] | None = None
        self._user = _user()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self._user)
        atexit.register(self.remove)
        make = ["mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data", f"--user={self._user}"]
        self._run(*make, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
        self.start()

    @property
    def address(self) -> str:
        """The address of a database on the server."""
        return f"mysql://root@127.0.0.1:{self.port}/mysql"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = {
            "datadir": self.folder / "data",
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "user": self._user,
            "innodb-flush-log-at-trx-commit": 2,
            "innodb-flush-method": "nosync",
            "innodb-buffer-pool-size": "64M",
            "sync-binlog": 0,
        }
        command = [_program("mariadbd"), "--no-defaults", *[f"--{name}={value}" for name, value in options.items()]]
        command += self._settings
        with (self.folder / "log").open("ab") as log:
            process: subprocess.Popen[Any] = subprocess.Popen(command, env=self._environment(), stdout=log, stderr=log)
        self._process = process
        deadline = time.monotonic() + 30
        while not asyncio.run(_answers(self.address)):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"MariaDB did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def stop(self, *, hard: bool = False) -> None:
        """Stop the server in an orderly way, or like a crash."""
        process, self._process = self._process, None
        if process is not None:
            if hard:
                process.kill()
            else:
                process.terminate()
            process.wait(30)

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop(hard=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [_program(program), *arguments]
        done = subprocess.run(command, env=self._environment(), capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()[-300:]}")

    def _environment(self) -> dict[str, str]:
        """A server deletes the temporary tables of others in its folder when it starts, so each has its own."""
        return {**os.environ, "TMPDIR": str(self.folder)}


@cache
def why_not() -> str:
    """Why no server is available; empty if one is."""
    if os.environ.get("ROMANCY_TEST_MYSQL") or all(_program(name) for name in ("mariadbd", "mariadb-install-db")):
        return ""
    return "no MariaDB: install the package mariadb-server, or set ROMANCY_TEST_MYSQL to the address of a server"


@cache
def mysql() -> str:
    """The address of a server: ROMANCY_TEST_MYSQL, or a private one from the system's package."""
    return os.environ.get("ROMANCY_TEST_MYSQL") or MariaDb().address


def new_database(server: str | None = None) -> str:
    """Create a database on a server."""
    name = f"romancy_{os.getpid()}_{next(_number)}"
    asyncio.run(execute(server or mysql(), f"CREATE DATABASE {name}"))
    return named_database(server or mysql(), name)


@cache
def shared_database() -> str:
    """A database shared by the tests of this process; each test empties it first."""
    return new_database()


async def empty(address: str) -> None:
    """Delete all rows of a database."""
    found = [row[0] for row in await execute(address, "SHOW TABLES") if row[0] not in _KEPT]
    # Tables that are not romancy's were created by a test.
    how = [f"{'DELETE FROM' if name.startswith('romancy_') else 'DROP TABLE'} `{name}`" for name in found]
    if how:
        await execute(address, "; ".join(how))


async def execute(address: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement; returns the rows it selects."""
    link = await MySqlPool(parse_address(address), 1).connect()
    try:
        return list((await link.execute(statement.encode())).rows)
    finally:
        await link.close()


async def _answers(address: str) -> bool:
    try:
        async with asyncio.timeout(2):
            await execute(address, "SELECT 1")
    except (OSError, errors.Error):
        return False
    return True


def _program(name: str) -> str:
    return shutil.which(name, path=_SEARCH_PATH) or ""


def _user() -> str:
    """The user that runs the server, which refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
