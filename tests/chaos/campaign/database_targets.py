"""Where a campaign can be: a file, or a server of its own that may be restarted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests import mariadb, servers
from tests.chaos.hotel_workload import Server

KINDS = ("sqlite", "postgres", "mariadb")


class Place(Protocol):
    """A database for one campaign."""

    address: str
    port: int | None
    """Where the server listens on the loopback; None: it is a file."""
    server: Server | None

    def remove(self) -> None:
        """It is over."""
        ...


class File:
    """SQLite."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "chaos.db")
        self.port: int | None = None
        self.server: Server | None = None

    def remove(self) -> None:
        """The folder is the campaign's."""


class _OnServer:
    def __init__(self, server: servers.Postgres | mariadb.MariaDb, address: str) -> None:
        self.address = address
        self.port: int | None = server.port
        self.server: Server | None = server
        self._server = server

    def remove(self) -> None:
        """Stop the server, and throw away what it has."""
        self._server.remove()


def why_not(kind: str) -> str:
    """Why there can be none of this kind here; empty if there can."""
    return mariadb.why_not() if kind == "mariadb" else ""


def on_each(wanted: str, run: Callable[[str], int]) -> int:
    """Run on one kind, or on all that there are here; the worst exit code."""
    worst = 0
    for kind in KINDS if wanted == "all" else [wanted]:
        if reason := why_not(kind):
            print(f"SKIPPED {kind}: {reason}")
            worst = max(worst, 0 if wanted == "all" else 2)
        else:
            worst = max(worst, run(kind))
    return worst


def begin(kind: str, folder: Path, *settings: str) -> Place:
    """An empty database; a server gets these settings."""
    if kind == "sqlite":
        return File(folder)
    if kind == "postgres":
        postgres = servers.Postgres("max_connections=200", *settings)
        return _OnServer(postgres, postgres.address)
    maria = mariadb.MariaDb(*settings)
    return _OnServer(maria, mariadb.new_database(maria.address))
