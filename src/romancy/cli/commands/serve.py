"""`romancy serve MODULE:APP`: runs an app, and serves it over HTTP."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from typing import Any

from romancy.cli.app_loader import load_app
from romancy.http.lazy_gateway import load_extra


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "serve",
        help="run an app and serve it over HTTP",
        description="Run an app and serve it over HTTP. MODULE is imported from the current folder.",
    )
    command.add_argument("target", metavar="MODULE:APP", help="the App object to serve; `:app` may be left out")
    command.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    command.add_argument("--port", type=_port, default=8000, help="the port; 0 takes a free one (default: %(default)s)")
    either = command.add_mutually_exclusive_group()
    either.add_argument(
        "--workers", type=_count, default=1, metavar="N", help="the number of processes (default: %(default)s)"
    )
    either.add_argument("--reload", action="store_true", help="restart when a Python file changes (for development)")
    command.add_argument("--access-log", action="store_true", help="log every request")
    command.set_defaults(do=serve)


def serve(given: Namespace) -> int:
    """Serve the app until a signal arrives."""
    server = load_extra("romancy.cli.uvicorn.server", needs="uvicorn", extra="serve", what="`romancy serve`")
    load_extra("romancy.http.gateway", needs="starlette", extra="http", what="`romancy serve`")
    code: int = server.run(load_app(given.target), given)
    return code


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ArgumentTypeError(f"{text!r} is not a number of processes: give a number from 1 to 1000")
    return int(text)
