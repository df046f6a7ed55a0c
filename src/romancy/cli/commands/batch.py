"""`romancy batch list|get|abort`: shows bulk actions, or aborts one."""

from __future__ import annotations

from typing import Any

from romancy.cli.commands.control import show_bulk_actions, wait_for_bulk_action
from romancy.cli.context import CommandContext, add_command, add_command_group
from romancy.cli.exit_codes import Exit
from romancy.cli.target import actor


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    parts = add_command_group(commands, "batch", help="show batches, or abort one")
    add_command(parts, "list", show_all, help="list the latest batches, newest first", watch=True)
    get = add_command(parts, "get", show_one, help="show a batch", watch=True)
    get.add_argument("id", metavar="BATCH", help="the id of the batch")
    get.add_argument("--wait", action="store_true", help="wait for the batch to end")
    abort = add_command(parts, "abort", abort_one, help="stop a batch; finished actions are not reverted")
    abort.add_argument("id", metavar="BATCH", help="the id of the batch")


async def show_all(context: CommandContext) -> int:
    """Print the latest bulk actions."""
    batches = await context.manager.list_bulk_actions()
    show_bulk_actions(context, {"items": batches}, batches)
    return Exit.OK


async def show_one(context: CommandContext) -> int:
    """Print a bulk action; return 1 if it has failures."""
    batch = await context.manager.get_bulk_action(context.arguments.id)
    if context.arguments.wait:
        batch = await wait_for_bulk_action(context, batch)
    show_bulk_actions(context, batch, [batch])
    return Exit.FAILED if batch.failed else Exit.OK


async def abort_one(context: CommandContext) -> int:
    """Abort a bulk action, and print it."""
    batch = await context.manager.abort_bulk_action(context.arguments.id, actor=actor())
    show_bulk_actions(context, batch, [batch])
    return Exit.OK
