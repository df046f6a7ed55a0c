"""`romancy outbox list|requeue`: lists the undelivered events, or requeues dead letters."""

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
    Column[OutboxEntry]("", lambda one: "dead" if one.dead_at is not None else "pending", status=True),
    Column[OutboxEntry]("age", lambda one: format_age(one.created_at), right=True),
    Column[OutboxEntry]("attempts", lambda one: str(one.attempts), right=True),
    Column[OutboxEntry]("next attempt", lambda one: format_age(one.next_at), right=True),
    Column[OutboxEntry]("last error", lambda one: shorten(one.last_error or "")),
]


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    parts = add_command_group(
        commands, "outbox", help="list the events that brokers have not received, or requeue dead letters"
    )
    show = add_command(parts, "list", show_all, help="list the events in the outbox, oldest first", watch=True)
    either = show.add_mutually_exclusive_group()
    either.add_argument("--dead", action="store_true", help="only dead letters")
    either.add_argument("--alive", action="store_true", help="only events whose delivery is still attempted")
    show.add_argument(
        "--limit", type=parse_count, default=_SHOWN, metavar="N", help="the most to list (default: %(default)s)"
    )
    requeue = add_command(parts, "requeue", send_again, help="deliver dead letters again", tables=False)
    requeue.add_argument("ids", nargs="*", type=_number, metavar="ID", help="ids that `outbox list` shows")
    requeue.add_argument("--all", action="store_true", help="all dead letters")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ArgumentTypeError(f"{text!r} is not the id of an event in the outbox: give a number that `outbox list` shows")
    return int(text)


async def show_all(context: CommandContext) -> int:
    """Print the events in the outbox."""
    given = context.arguments
    dead = True if given.dead else False if given.alive else None
    items: list[OutboxEntry] = []
    after: int | None = 0
    while after is not None and len(items) < given.limit:
        page = await context.manager.list_outbox(dead=dead, after=after, limit=min(_PAGE, given.limit - len(items)))
        items += page.items
        after = page.next_after
    document = OutboxPage(items, after)
    context.output.table(
        document, items, _COLUMNS, name=lambda one: str(one.id), empty="There are no such events in the outbox."
    )
    if after is not None and context.output.is_table:
        note("There are more events: give a higher --limit.")
    return Exit.OK


async def send_again(context: CommandContext) -> int:
    """Requeue dead letters."""
    given = context.arguments
    if given.all == bool(given.ids):
        raise UsageError("Give either the ids of dead letters, or --all.")
    number = await context.manager.requeue_outbox(given.ids or None, actor=actor())
    if given.output in (Format.JSON, Format.JSONL):
        write(to_json({"count": number}))
    else:
        note(f"Requeued {number:,} dead letter{'' if number == 1 else 's'}.")
    return Exit.OK if number or given.all else Exit.NOT_FOUND
