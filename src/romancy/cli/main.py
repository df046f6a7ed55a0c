"""The command line: finds the command and shows its errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from romancy.cli import migrate, serve, version
from romancy.errors import RomancyError

_COMMANDS = (serve, migrate, version)


def run() -> None:
    """The console script."""
    sys.exit(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Do a command; the exit code."""
    given = parser().parse_args(arguments)
    try:
        code: int = given.do(given)
    except RomancyError as error:
        print(f"romancy: {error}", file=sys.stderr)
        return 1
    return code


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments."""
    whole = argparse.ArgumentParser(prog="romancy", description="Durable workflows in plain Python.")
    commands = whole.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for command in _COMMANDS:
        command.add(commands)
    return whole
