"""`romancy migrate status|up`: shows or updates the schema of a database."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, Namespace
from typing import Any

from romancy.clock import SystemClock
from romancy.settings import resolve
from romancy.store.open import open_store
from romancy.store.port import Store


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("migrate", help="show or update the schema of a database")
    parts = command.add_subparsers(required=True, metavar="WHAT")
    status = parts.add_parser("status", help="list the migrations of a database; exit code 3 if some are missing")
    status.add_argument("--json", action="store_true", help="print a JSON list of objects")
    _database(status)
    status.set_defaults(do=show)
    up = parts.add_parser("up", help="apply the missing migrations")
    _database(up)
    up.set_defaults(do=apply)


def _database(command: ArgumentParser) -> None:
    command.add_argument("--database", help="database address (default: ROMANCY_DATABASE, or sqlite:///romancy.db)")


def show(given: Namespace) -> int:
    """Print the migrations, applied and missing; return 3 if some are missing."""
    found = asyncio.run(_store(given).migrations())
    if given.json:
        print(json.dumps([{"name": name, "applied": applied} for name, applied in found]))
    else:
        for name, applied in found:
            print(f"{'applied' if applied else 'missing'}  {name}")
    return 0 if all(applied for _, applied in found) else 3


def apply(given: Namespace) -> int:
    """Apply the missing migrations."""
    applied = asyncio.run(_apply(_store(given)))
    for name in applied:
        print(f"applied  {name}")
    if not applied:
        print("The schema is up to date.")
    return 0


async def _apply(store: Store) -> list[str]:
    missing = [name for name, applied in await store.migrations() if not applied]
    await store.open()
    await store.close()
    return missing


def _store(given: Namespace) -> Store:
    return open_store(resolve({"database": given.database})["database"], clock=SystemClock())
