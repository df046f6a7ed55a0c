"""The target of a command: a database (`--database`), or an app over HTTP (`--url`)."""

from __future__ import annotations

import getpass
import os
import re
import socket
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from romancy.admin.local import DatabaseManager
from romancy.admin.port import Manager
from romancy.admin.remote import HttpManager
from romancy.cli.app_loader import find_modules_here, load_app
from romancy.cli.exit_codes import UsageError
from romancy.client import Client
from romancy.clock import SystemClock
from romancy.errors import StoreError
from romancy.settings import BY_NAME, resolve
from romancy.store.open import kind_of, open_store, sqlite_path

_USERINFO = re.compile(r"//.*@")


@dataclass(frozen=True, slots=True)
class Target:
    """A database or an app that a command works on."""

    manager: Manager
    client: Client | None
    """The client of the database; None for an app."""
    name: str
    """The address, without secrets."""
    url: str | None = None


def add_target(parser: ArgumentParser, *, first: bool = False) -> None:
    """Add the options for the target; `first`: to the main parser, where they precede the command."""
    default: Any = None if first else SUPPRESS
    group = parser.add_argument_group("database or app")
    group.add_argument(
        "--database",
        metavar="ADDRESS",
        default=default,
        help="database address (default: ROMANCY_DATABASE, or sqlite:///romancy.db)",
    )
    group.add_argument("--url", default=default, help="address of a served app to use instead (default: ROMANCY_URL)")
    group.add_argument("--token", default=default, help="token for that app (safer: set ROMANCY_TOKEN)")


def add_app(parser: ArgumentParser) -> None:
    """Add the option `--app`, for commands that can use the code of an app."""
    parser.add_argument("--app", metavar="MODULE:APP", help="use the workflows and the database of this app")


@asynccontextmanager
async def open_target(given: Namespace) -> AsyncIterator[Target]:
    """Open the target that the options name."""
    url = _url(given)
    if url is not None:
        if getattr(given, "app", None):
            raise UsageError("--app cannot be combined with --url: the app at that address has its own workflows.")
        token = _option(given, "token") or os.environ.get("ROMANCY_TOKEN") or None
        yield Target(HttpManager(url, token), None, mask_address(url), url)
        return
    client = _client(given)
    address = client._options["database"]
    await check_schema(address)
    async with client:
        yield Target(DatabaseManager(client), client, mask_address(address))


def url_of(given: Namespace) -> str | None:
    """Return the URL of the app; None if the options name no app."""
    return _url(given)


def _url(given: Namespace) -> str | None:
    url, database = _option(given, "url"), _option(given, "database")
    if url and database:
        raise UsageError("--database and --url cannot be combined: give only one of them.")
    if url or database or getattr(given, "app", None):
        return url
    return os.environ.get("ROMANCY_URL") or None


def _option(given: Namespace, name: str) -> str | None:
    value: str | None = getattr(given, name, None)
    return value


def _client(given: Namespace) -> Client:
    """Return a client, which has no worker. It never changes the schema: a misspelt address must not create a database."""
    if (target := getattr(given, "app", None)) is None:
        if os.environ.get(BY_NAME["codec"].variable):  # it names a module, which may be in the current folder
            find_modules_here()
        return Client(_option(given, "database"), workflows=[], auto_migrate=False)
    app = load_app(target)
    database = _option(given, "database") or app._options["database"]
    return Client(database, workflows=app._registry.all(), auto_migrate=False, codec=app._options["codec"])


async def check_schema(address: str) -> None:
    """Raise `StoreError` if a database lacks tables or migrations."""
    _require_file(address)
    found = await open_store(address, clock=SystemClock()).migrations()
    missing = [name for name, applied in found if not applied]
    if missing:
        lacks = "the tables of romancy" if len(missing) == len(found) else f"the migrations {', '.join(missing)}"
        raise StoreError(
            f"The database {mask_address(address)} lacks {lacks}. If it is the right database, run "
            "`romancy migrate up --database ADDRESS`."
        )


def _require_file(address: str) -> None:
    if kind_of(address) != "sqlite":
        return
    path = sqlite_path(address)
    try:
        os.stat(path)
    except FileNotFoundError:
        raise StoreError(
            f"There is no database file {path}. Give the right one with --database or ROMANCY_DATABASE. To create a new "
            "one, start an app or run `romancy migrate up`."
        ) from None
    except OSError:
        return  # other problems, such as missing permissions, are reported by the store


def mask_address(address: str) -> str:
    """Return an address without its user, password and options."""
    return _USERINFO.sub("//", address.partition("?")[0])


def actor() -> str:
    """Return the actor that the audit records."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"{user}@{socket.gethostname()} (command line)"


def database_of(given: Namespace) -> str:
    """Return the address of the database that the options name."""
    address: str = resolve({"database": _option(given, "database")})["database"]
    return address
