"""What every command about instances works with: a place to look at, and a way to print."""

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
    """Where a command works."""

    arguments: Namespace
    target: Target
    output: Output

    @property
    def manager(self) -> Manager:
        """Who answers."""
        return self.target.manager


CommandFunction: TypeAlias = Callable[[CommandContext], Awaitable[int]]


def add_command(
    commands: Any, name: str, work: CommandFunction, *, help: str, tables: bool = True, watch: bool = False
) -> Parser:
    """Describe a command that works at a desk. `tables`: it prints rows or records for people, which takes rich."""
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
    """How to print."""
    default: Any = None if first else SUPPRESS
    group = command.add_argument_group("output")
    either = group.add_mutually_exclusive_group()
    either.add_argument("-o", "--output", choices=list(Format), default=default, help="output format (default: table)")
    either.add_argument(
        "--json", dest="output", action="store_const", const=Format.JSON, default=default, help="same as -o json"
    )


def format_of(given: Namespace) -> Format:
    """The format that was asked for."""
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
        async with open_target(given) as place:
            wanted = format_of(given)
            # Whoever needs no table gets along without rich.
            printer = Output(wanted if tables or wanted is not Format.TABLE else Format.IDS, place.name)
            return await _run_repeatedly(work, CommandContext(given, place, printer))

    def do(given: Namespace) -> int:
        if tables:
            Output(format_of(given))  # before anything is opened: what is missing is said first
        return asyncio.run(run_command(given))

    return do


async def _run_repeatedly(work: CommandFunction, context: CommandContext) -> int:
    """Once, or until a signal comes."""
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
    """How several things end together: as the only one of them, or with 1 if some failed."""
    if len(codes) == 1:
        return codes[0]
    return Exit.OK if all(code is Exit.OK for code in codes) else Exit.FAILED


def add_command_group(commands: Any, name: str, *, help: str) -> Any:
    """Describe a command that has commands of its own."""
    family: Parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    family.set_defaults(parser=family)
    return family.add_subparsers(required=True, metavar="WHAT")
