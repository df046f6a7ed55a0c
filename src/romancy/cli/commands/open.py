"""`romancy open ID`: opens the page of an instance in the viewer."""

from __future__ import annotations

import sys
import webbrowser
from argparse import Namespace
from typing import Any
from urllib.parse import quote

from romancy.cli.exit_codes import Exit
from romancy.cli.output import write
from romancy.cli.target import add_target, url_of
from romancy.cli.terminal_text import escape

_USUAL = "http://127.0.0.1:8000"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "open",
        help="print the address of the viewer, and open it in a browser",
        description="Print the address of the viewer, or of an instance's page. At a terminal, also open it in a browser.",
    )
    command.add_argument("id", nargs="?", metavar="ID", help="the id of an instance")
    command.add_argument("--no-browser", action="store_true", help="only print the address")
    add_target(command)
    command.set_defaults(do=open_page, parser=command)


def open_page(given: Namespace) -> int:
    """Print the address of the page; at a terminal, also open it in a browser."""
    base = (url_of(given) or _USUAL).rstrip("/")
    page = f"{base}/viewer/" if given.id is None else f"{base}/viewer/instance?id={quote(given.id, safe='')}"
    write(escape(page))
    if not given.no_browser and sys.stdout.isatty():
        webbrowser.open(page)
    return Exit.OK
