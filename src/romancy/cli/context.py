"""The context of a command about instances: its arguments, the database or app, and the output."""

from __future__ import annotations

import asyncio
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from romancy.admin.port import Manager
from romancy.cli.exit_codes import Exit
from romancy.cli.output import Format, Output, note
from romancy.cli.parser import Parser
from romancy.cli.target import Target, add_target, open_target
from romancy.cli.terminal_text import escape_lines
from romancy.errors import StoreError

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The arguments of a command, the target on which it works, and its output."""

    arguments: Namespace
    target: Target
    output: Output

    @property
    def manager(self) -> Manager:
        """The manager of the target."""
        return self.target.manager


CommandFunction: TypeAlias = Callable[[CommandContext], Awaitable[int]]


def add_command(
    commands: Any, name: str, work: CommandFunction, *, help: str, tables: bool = True, watch: bool = False
) -> Parser:
    """Add a command that runs in a `CommandContext`. `tables`: it prints tables or records, for which rich is needed."""
    command: Parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    add_target(command)
    add_format(command)
    if watch:
        command.add_argument(
            "--watch", metavar="SECONDS", type=_interval, help="print the result repeatedly (default: every 2 seconds)"
        )
    command.set_defaults(do=_run_in_context(work, tables=tables), parser=command, watch=None)
    return command


def add_format(command: ArgumentParser, *, first: bool = False) -> None:
    """Add the options for the output format; `first`: to the main parser, where they precede the command."""
    default: Any = None if first else SUPPRESS
    group = command.add_argument_group("output")
    either = group.add_mutually_exclusive_group()
    either.add_argument("-o", "--output", choices=list(Format), default=default, help="output format (default: table)")
    either.add_argument(
        "--json", dest="output", action="store_const", const=Format.JSON, default=default, help="same as -o json"
    )


def format_of(given: Namespace) -> Format:
    """Return the output format that the options select."""
    return Format(getattr(given, "output", None) or Format.TABLE)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.05 <= seconds <= 86400:
        raise ArgumentTypeError(f"{text!r} is not an interval: give a number of seconds from 0.05 to 86400")
    return seconds


def _run_in_context(work: CommandFunction, *, tables: bool) -> Callable[[Namespace], int]:
    async def run_command(given: Namespace) -> int:
        async with open_target(given) as target:
            format = format_of(given)
            # A command that prints no tables must work without rich, which Output imports for the table format.
            output = Output(format if tables or format is not Format.TABLE else Format.IDS, target.name)
            return await _run_repeatedly(work, CommandContext(given, target, output))

    def do(given: Namespace) -> int:
        if tables:
            Output(format_of(given))  # before the target is opened, so that a missing package is reported first
        return asyncio.run(run_command(given))

    return do


async def _run_repeatedly(work: CommandFunction, context: CommandContext) -> int:
    """Run the command once, or with `--watch` until a signal arrives."""
    if context.arguments.watch is None:
        return await work(context)
    clears = sys.stdout.isatty() and context.output.is_table
    while True:
        if clears:
            print(_CLEAR, end="")
        try:
            await work(context)
        except StoreError as error:
            note(f"romancy: {escape_lines(error)}")
        await asyncio.sleep(context.arguments.watch)


def combine_exits(codes: list[Exit]) -> Exit:
    """Return the exit code for several results: that of the only one, or 1 if any of them failed."""
    if len(codes) == 1:
        return codes[0]
    return Exit.OK if all(code is Exit.OK for code in codes) else Exit.FAILED


def add_command_group(commands: Any, name: str, *, help: str) -> Any:
    """Add a command that has subcommands."""
    group: Parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    group.set_defaults(parser=group)
    return group.add_subparsers(required=True, metavar="WHAT")
