"""`romancy prune`: deletes instances that ended some time ago."""

from __future__ import annotations

import sys
from typing import Any

from romancy.cli.commands.list import collect
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit, UsageError
from romancy.cli.json_output import to_json
from romancy.cli.output import Format, note, write
from romancy.cli.parser import parse_span
from romancy.cli.target import actor
from romancy.cli.terminal_text import format_duration
from romancy.clock import MICROS, SystemClock, to_micros

_COUNTED = 1000


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = add_command(
        commands, "prune", prune, help="delete instances that ended some time ago, with their histories", tables=False
    )
    command.add_argument(
        "--older-than", type=parse_span, required=True, metavar="SPAN", help="the time since the end: 30d, 12h"
    )
    command.add_argument("--dry-run", action="store_true", help="only show roughly how many there are")
    command.add_argument("--yes", action="store_true", help="do not ask for confirmation")


async def prune(context: CommandContext) -> int:
    """Delete the instances, or only count them."""
    seconds = context.arguments.older_than
    if context.arguments.dry_run:
        # Filters select by the time of creation. An instance was created before it ended, so the filter leaves out none.
        page = await collect(context, f"status:ended older:{seconds:.0f}s", _COUNTED)
        before = SystemClock().now() - round(seconds * MICROS)
        found = [one for one in page.items if one.ended_at is not None and to_micros(one.ended_at) < before]
        more = " or more" if page.next_page_token is not None else ""
        instances = "instance" if len(found) == 1 and not more else "instances"
        note(f"{len(found):,}{more} {instances} ended more than {format_duration(seconds)} ago.")
        return Exit.OK
    if not _agreed(context, seconds):
        return Exit.FAILED
    number = await context.manager.prune(older_than=seconds, actor=actor())
    if context.arguments.output in (Format.JSON, Format.JSONL):
        write(to_json({"count": number}))
    else:
        note(f"Deleted {number:,} instance{'' if number == 1 else 's'}.")
    return Exit.OK


def _agreed(context: CommandContext, seconds: float) -> bool:
    if context.arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("To delete instances without a terminal, give --yes.")
    note(f"{context.target.name}: permanently delete instances that ended over {format_duration(seconds)} ago? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
