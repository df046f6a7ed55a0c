"""The console script: runs the command, and prints its errors."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from romancy.cli.commands import (
    batch,
    bench,
    completion,
    control,
    demo,
    doctor,
    get,
    list,
    migrate,
    open,
    outbox,
    overview,
    prune,
    replay,
    send,
    serve,
    start,
    version,
)
from romancy.cli.context import add_format
from romancy.cli.exit_codes import Exit, code_of
from romancy.cli.parser import Parser, read_arguments
from romancy.cli.target import add_target
from romancy.cli.terminal_text import escape_lines
from romancy.errors import RomancyError

_COMMANDS = (
    *(serve, start, send, list, get, control, batch),
    *(overview, outbox, prune, replay, doctor, migrate, bench, demo, open, completion, version),
)


def run() -> None:
    """Run the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # print escapes for characters that the terminal cannot show
    sys.exit(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    main_parser = parser()
    if not arguments:
        main_parser.print_help()
        return Exit.OK
    given = read_arguments(main_parser, arguments)
    try:
        code: int = given.do(given)
    except (RomancyError, TimeoutError) as error:
        print(f"romancy: {escape_lines(error)}", file=sys.stderr)  # escaped: it may contain the text of a server
        return _code(given, error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Python flushes standard output again when it exits, and that must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    return code


def _code(given: Namespace, error: Exception) -> int:
    """Return the exit code for an error. `serve` and `migrate` have no other code than 1."""
    return Exit.FAILED if given.do in (serve.serve, migrate.show, migrate.apply) else code_of(error)


def parser() -> Parser:
    """Return the parser of all commands."""
    whole = Parser(prog="romancy", description="Durable workflows in plain Python.")
    whole.set_defaults(whole=whole)
    whole.add_argument(
        "--version", action="version", version=version.text(), help="print the versions of romancy and Python"
    )
    add_target(whole, first=True)
    add_format(whole, first=True)
    commands = whole.add_subparsers(required=True, metavar="COMMAND", title="commands", parser_class=Parser)
    for command in _COMMANDS:
        command.add(commands)
    return whole
