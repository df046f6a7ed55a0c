"""Databases for campaigns: a file, or a server of the campaign's own that can be restarted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests import mariadb, servers
from tests.chaos.hotel_workload import Server

KINDS = ("sqlite", "postgres", "mariadb")


class DatabaseTarget(Protocol):
    """A database for one campaign."""

    address: str
    port: int | None
    """The port of the server on the loopback; None for a file."""
    server: Server | None

    def remove(self) -> None:
        """Remove the database."""
        ...


class File:
    """A SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "chaos.db")
        self.port: int | None = None
        self.server: Server | None = None

    def remove(self) -> None:
        """Nothing to do: the folder belongs to the campaign."""


class _OnServer:
    def __init__(self, server: servers.Postgres | mariadb.MariaDb, address: str) -> None:
        self.address = address
        self.port: int | None = server.port
        self.server: Server | None = server
        self._server = server

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self._server.remove()


def why_not(kind: str) -> str:
    """Why this kind of database is not available; empty if it is."""
    return mariadb.why_not() if kind == "mariadb" else ""


def on_each(wanted: str, run: Callable[[str], int]) -> int:
    """Run on one kind of database, or on all that are available; returns the highest exit code."""
    worst = 0
    for kind in KINDS if wanted == "all" else [wanted]:
        if reason := why_not(kind):
            print(f"SKIPPED {kind}: {reason}")
            worst = max(worst, 0 if wanted == "all" else 2)
        else:
            worst = max(worst, run(kind))
    return worst


def begin(kind: str, folder: Path, *settings: str) -> DatabaseTarget:
    """A new database; a server is started with these settings."""
    if kind == "sqlite":
        return File(folder)
    if kind == "postgres":
        postgres = servers.Postgres("max_connections=200", *settings)
        return _OnServer(postgres, postgres.address)
    maria = mariadb.MariaDb(*settings)
    return _OnServer(maria, mariadb.new_database(maria.address))
