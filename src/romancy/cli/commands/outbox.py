"""`romancy outbox list|requeue`: events that brokers have not got."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

from romancy.admin.records import OutboxPage
from romancy.cli.context import CommandContext, add_command, add_command_group
from romancy.cli.exit_codes import Exit, UsageError
from romancy.cli.json_output import to_json
from romancy.cli.output import Column, Format, note, write
from romancy.cli.parser import parse_count
from romancy.cli.target import actor
from romancy.cli.terminal_text import format_age, shorten
from romancy.model.outbox import OutboxEntry

_PAGE = 200
_SHOWN = 50

_COLUMNS = [
    Column[OutboxEntry]("id", lambda one: str(one.id), right=True),
    Column[OutboxEntry]("broker", lambda one: one.broker),
    Column[OutboxEntry]("type", lambda one: one.event.type),
    Column[OutboxEntry]("", lambda one: "dead" if one.dead_at is not None else "waiting", status=True),
    Column[OutboxEntry]("age", lambda one: format_age(one.created_at), right=True),
    Column[OutboxEntry]("attempts", lambda one: str(one.attempts), right=True),
    Column[OutboxEntry]("next", lambda one: format_age(one.next_at), right=True),
    Column[OutboxEntry]("last error", lambda one: shorten(one.last_error or "")),
]


def add(commands: Any) -> None:
    """Describe the commands."""
    parts = add_command_group(
        commands, "outbox", help="look at events that brokers have not got, or have dead ones sent again"
    )
    show = add_command(parts, "list", show_all, help="list them, oldest first", watch=True)
    either = show.add_mutually_exclusive_group()
    either.add_argument("--dead", action="store_true", help="only those that were given up")
    either.add_argument("--alive", action="store_true", help="only those that are still tried")
    show.add_argument(
        "--limit", type=parse_count, default=_SHOWN, metavar="N", help="at most so many (default: %(default)s)"
    )
    requeue = add_command(parts, "requeue", send_again, help="let events that were given up be tried again", tables=False)
    requeue.add_argument("ids", nargs="*", type=_number, metavar="ID", help="which")
    requeue.add_argument("--all", action="store_true", help="all that were given up")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ArgumentTypeError(f"{text!r} is no id of an event in the outbox: give the numbers that `outbox list` shows")
    return int(text)


async def show_all(context: CommandContext) -> int:
    """Print them."""
    given = context.arguments
    dead = True if given.dead else False if given.alive else None
    items: list[OutboxEntry] = []
    after: int | None = 0
    while after is not None and len(items) < given.limit:
        page = await context.manager.list_outbox(dead=dead, after=after, limit=min(_PAGE, given.limit - len(items)))
        items += page.items
        after = page.next_after
    shape = OutboxPage(items, after)
    context.output.table(shape, items, _COLUMNS, name=lambda one: str(one.id), empty="The outbox has no such events.")
    if after is not None and context.output.is_table:
        note("There are more: give a higher --limit.")
    return Exit.OK


async def send_again(context: CommandContext) -> int:
    """Let them be tried again."""
    given = context.arguments
    if given.all == bool(given.ids):
        raise UsageError("Give ids, or --all for all that were given up.")
    number = await context.manager.requeue_outbox(given.ids or None, actor=actor())
    if given.output in (Format.JSON, Format.JSONL):
        write(to_json({"count": number}))
    else:
        note(f"Requeued: {number:,}.")
    return Exit.OK if number or given.all else Exit.NOT_FOUND
