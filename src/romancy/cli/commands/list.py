"""`romancy list`: lists instances, newest first."""

from __future__ import annotations

from typing import Any

from romancy.admin.records import InstancePage, InstanceSummary
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit
from romancy.cli.output import Column, Format, note
from romancy.cli.parser import parse_count
from romancy.cli.selection import add_filters, filter_of
from romancy.cli.terminal_text import escape, format_age, format_time, shorten

_PAGE = 200
_SHOWN = 50

COLUMNS = [
    Column[InstanceSummary]("status", lambda one: one.status.value, status=True),
    Column[InstanceSummary]("workflow", lambda one: one.workflow_name),
    Column[InstanceSummary]("id", lambda one: one.instance_id),
    Column[InstanceSummary]("current step", lambda one: shorten(one.error or one.doing)),
    Column[InstanceSummary]("age", lambda one: format_age(one.created_at), right=True),
    Column[InstanceSummary]("worker", lambda one: one.worker_id or ""),
]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = add_command(commands, "list", show, help="list instances, newest first", watch=True)
    command.add_argument("words", nargs="*", metavar="FILTER", help="filter terms, e.g. status:failed older:1h")
    command.add_argument(
        "--limit", type=parse_count, metavar="N", help=f"the most to list (default: {_SHOWN}; with -o ids and -o jsonl all)"
    )
    command.add_argument("--page-token", metavar="TOKEN", help="continue where another list ended")
    add_filters(command)


async def show(context: CommandContext) -> int:
    """Print the instances that match."""
    line, token, limit = (
        filter_of(context.arguments, context.arguments.words),
        context.arguments.page_token,
        context.arguments.limit,
    )
    if context.output.format in (Format.IDS, Format.JSONL):
        await _stream(context, line, token, limit)
        return Exit.OK
    page = await collect(context, line, limit or _SHOWN, token)
    context.output.table(page, page.items, COLUMNS, name=_name, empty=_empty(line))
    _more(context, page)
    return Exit.OK


def _name(one: InstanceSummary) -> str:
    return one.instance_id


def _empty(line: str) -> str:
    return f"No instances match {line!r}." if line else "There are no instances."


def _more(context: CommandContext, page: InstancePage) -> None:
    if page.next_page_token is None:
        return
    if page.searched_back_to is not None:
        back = format_time(page.searched_back_to)
        token = escape(page.next_page_token)
        note(f"The search reached its time limit at instances of {back} UTC. To continue, give --page-token {token}")
    elif context.output.is_table:
        note(f"There are more instances: give a higher --limit, or --page-token {escape(page.next_page_token)}")


async def collect(context: CommandContext, line: str, limit: int, token: str | None = None) -> InstancePage:
    """Return up to `limit` instances as one page."""
    items: list[InstanceSummary] = []
    while True:
        page = await context.manager.list_instances(line, limit=min(limit - len(items), _PAGE), page_token=token)
        items += page.items
        token = page.next_page_token
        # A search that has reached its time limit is not continued here: the user may do that with the page token.
        if token is None or len(items) >= limit or page.searched_back_to is not None:
            return InstancePage(items, token, page.searched_back_to)


async def _stream(context: CommandContext, line: str, token: str | None, limit: int | None) -> None:
    left = limit
    while True:
        page = await context.manager.list_instances(line, limit=min(left or _PAGE, _PAGE), page_token=token)
        context.output.stream(page.items, _name)
        left = None if left is None else left - len(page.items)
        token = page.next_page_token
        if token is None or left == 0:
            return
