"""`romancy cancel`, `retry`, `pause`, `resume`, `terminate`: applies an action to instances.

With ids, the command applies the action itself. With a filter, it starts a bulk action: the database stores it, so it is not
lost if the command is interrupted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from romancy.admin.local import DatabaseManager
from romancy.admin.records import ActionKind, ActionResult, BulkAction, Preview
from romancy.cli.commands.list import collect
from romancy.cli.context import CommandContext, add_command, combine_exits
from romancy.cli.exit_codes import Exit, UsageError, code_of_name
from romancy.cli.output import Column, note
from romancy.cli.selection import add_filters, filter_of, read_ids
from romancy.cli.target import actor
from romancy.cli.terminal_text import escape

_PORTION = 50
"""The number of instances in one call. It is small, so that the bar moves and an interruption leaves few results unknown."""
_MANY = 100
"""For more instances than this, the operator confirms by typing the number."""
_POLL_INTERVAL = 0.1
_EFFECTS = 20
"""The most instances in a preview."""

_DOES = {
    ActionKind.CANCEL: "cancel instances, and compensate their completed activities",
    ActionKind.RETRY: "continue failed instances from the activity that failed",
    ActionKind.PAUSE: "pause instances: running attempts finish, but nothing new starts",
    ActionKind.RESUME: "resume paused instances, and try blocked ones again",
    ActionKind.TERMINATE: "end instances at once, without compensation",
}
_GRAVE = (ActionKind.CANCEL, ActionKind.TERMINATE)
ACTION_PAST = {
    ActionKind.CANCEL: "cancelled",
    ActionKind.RETRY: "retried",
    ActionKind.PAUSE: "paused",
    ActionKind.RESUME: "resumed",
    ActionKind.TERMINATE: "terminated",
}


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    for action, does in _DOES.items():
        command = add_command(commands, action.value, partial(apply_action, action), help=does)
        command.add_argument("ids", nargs="*", metavar="ID", help="instance ids; - reads them from standard input")
        command.add_argument("--reason", metavar="TEXT", help="the reason, for the audit log")
        command.add_argument("--dry-run", action="store_true", help="only show what would happen")
        command.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        command.add_argument("--no-wait", action="store_true", help="with a filter: do not wait for the batch to end")
        add_filters(command)


async def apply_action(action: ActionKind, context: CommandContext) -> int:
    """Apply the action to the instances with these ids, or to all that match the filter."""
    line, words = filter_of(context.arguments), context.arguments.ids
    if bool(line) == bool(words):
        raise UsageError(
            f"Give either ids (`-` reads them from standard input) or a filter: romancy {action.value} --filter LINE."
        )
    return await (_apply_to_filter(action, context, line) if line else _apply_to_ids(action, context, read_ids(words)))


# --- by ids


async def _apply_to_ids(action: ActionKind, context: CommandContext, ids: list[str]) -> int:
    if not ids:
        note("There were no ids on standard input: nothing was done.")
        return Exit.OK
    if context.arguments.dry_run:
        return await _preview(action, context, ids)
    if (action in _GRAVE or len(ids) > 1) and not _agreed(action, context, len(ids)):
        return Exit.FAILED
    done: list[ActionResult] = []
    with _progress(context, f"{action.value}", len(ids)) as show:
        for at in range(0, len(ids), _PORTION):
            done += await context.manager.apply(
                action, ids[at : at + _PORTION], reason=context.arguments.reason, actor=actor()
            )
            show(len(done))
    return _report(action, context, done)


def _report(action: ActionKind, context: CommandContext, results: list[ActionResult]) -> int:
    columns = [
        Column[ActionResult]("id", lambda one: one.instance_id),
        Column[ActionResult]("", lambda one: ACTION_PAST[action] if one.ok else "failed", status=True),
        Column[ActionResult]("error", lambda one: one.error or ""),
    ]
    if len(results) == 1 and context.output.is_table and not results[0].ok:
        note(f"romancy: {escape(results[0].error or results[0].error_type)}")
    else:
        context.output.table({"items": results}, results, columns, name=lambda one: one.instance_id)
    return combine_exits([Exit.OK if one.ok else code_of_name(one.error_type) for one in results])


async def _preview(action: ActionKind, context: CommandContext, ids: list[str]) -> int:
    found = [await context.manager.preview(action, one) for one in ids[:_EFFECTS]]
    columns = [
        Column[Preview]("id", lambda one: one.instance_id),
        Column[Preview]("effect", lambda one: "; ".join(one.effects)),
    ]
    context.output.table({"items": found}, found, columns, name=lambda one: one.instance_id)
    if len(ids) > _EFFECTS:
        note(f"... and {len(ids) - _EFFECTS} more")
    return Exit.OK


# --- by a filter


async def _apply_to_filter(action: ActionKind, context: CommandContext, line: str) -> int:
    if context.arguments.dry_run:
        page = await collect(context, line, _EFFECTS)
        more = page.next_page_token is not None
        found_now = "1 instance" if len(page.items) == 1 and not more else f"{len(page.items)} instances"
        note(f"The filter matches {'at least ' if more else ''}{found_now}:")
        return await _preview(action, context, [one.instance_id for one in page.items])
    found = await collect(context, line, _MANY + 1)
    if not context.arguments.yes and not sys.stdin.isatty():
        raise UsageError(f"To {action.value} all instances that match a filter without a terminal, give --yes.")
    if not _agreed(action, context, len(found.items)):
        return Exit.FAILED
    batch = await context.manager.start_bulk_action(action, line, reason=context.arguments.reason, actor=actor())
    if not context.arguments.no_wait:
        batch = await wait_for_bulk_action(context, batch)
    show_bulk_actions(context, batch, [batch])
    return Exit.FAILED if batch.failed or batch.status == "aborted" else Exit.OK


async def wait_for_bulk_action(context: CommandContext, batch: BulkAction) -> BulkAction:
    """Wait for a bulk action to end, and return it."""
    async with _bulk_actions_running(context):
        with _progress(context, f"{batch.action.value} ({escape(batch.filter)})", None) as show:
            while batch.status == "running":
                show(batch.looked_at)
                await asyncio.sleep(_POLL_INTERVAL)
                batch = await context.manager.get_bulk_action(batch.batch_id)
    return batch


@asynccontextmanager
async def _bulk_actions_running(context: CommandContext) -> AsyncGenerator[None]:
    """Apply bulk actions in this process while it waits for one on a database, because perhaps no app is running."""
    if not isinstance(context.manager, DatabaseManager):
        yield
        return
    batches = context.manager.bulk_action_runner(actor())
    batches.start()
    try:
        yield
    finally:
        await batches.stop()


def show_bulk_actions(context: CommandContext, document: Any, batches: list[BulkAction]) -> None:
    """Print bulk actions; if there is only one, with its failures."""
    columns = [
        Column[BulkAction]("batch", lambda one: one.batch_id),
        Column[BulkAction]("action", lambda one: one.action.value),
        Column[BulkAction]("filter", lambda one: one.filter),
        Column[BulkAction]("status", lambda one: one.status, status=True),
        Column[BulkAction]("done", lambda one: f"{one.done:,}", right=True),
        Column[BulkAction]("failed", lambda one: f"{one.failed:,}", right=True),
        Column[BulkAction]("operator", lambda one: one.actor),
    ]
    context.output.table(document, batches, columns, name=lambda one: one.batch_id, empty="There are no batches.")
    if context.output.is_table and len(batches) == 1:
        for failure in batches[0].failures:
            note(f"{escape(failure.instance_id)}: {escape(failure.error or failure.error_type)}")


# --- confirmation


def _agreed(action: ActionKind, context: CommandContext, number: int) -> bool:
    """Ask for confirmation; return whether the operator agrees. Without a terminal there is no question."""
    if context.arguments.yes or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    many = number > _MANY
    what = f"{action.value} {'more than ' if many else ''}{min(number, _MANY)} instance{'' if number == 1 else 's'}"
    wanted = str(_MANY) if many else "y"
    note(f"{context.target.name}: {what}? [{'type ' + wanted if many else 'y/N'}] ")
    answer = sys.stdin.readline().strip().lower()
    if answer == wanted or (not many and answer == "yes"):
        return True
    note("Aborted: nothing was done.")
    return False


def _progress(context: CommandContext, what: str, total: int | None) -> AbstractContextManager[Callable[..., None]]:
    if not context.output.is_table:
        return nullcontext(lambda *_: None)
    from romancy.cli.tables import progress  # not at the top: rich may not be installed

    return progress(what, total)
