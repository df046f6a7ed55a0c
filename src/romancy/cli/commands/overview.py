"""`romancy workers`, `workflows`, `channels`, `groups`: lists what a database contains besides instances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from romancy.admin.records import (
    ChannelPage,
    ChannelSummary,
    GroupPage,
    GroupSummary,
    MemberPage,
    Subscriber,
    SubscriberPage,
    WorkerSummary,
    WorkflowSummary,
)
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit
from romancy.cli.output import Column, note
from romancy.cli.parser import parse_count
from romancy.cli.target import add_app
from romancy.cli.terminal_text import format_age, format_duration

P = TypeVar("P", ChannelPage, SubscriberPage, GroupPage, MemberPage)

_SHOWN = 50
_PAGE = 200

_WORKERS = [
    Column[WorkerSummary]("worker", lambda one: one.worker_id),
    Column[WorkerSummary]("", lambda one: "alive" if one.alive else "silent", status=True),
    Column[WorkerSummary]("service", lambda one: one.service),
    Column[WorkerSummary]("host (pid)", lambda one: f"{one.host} ({one.pid})"),
    Column[WorkerSummary]("python", lambda one: one.python),
    Column[WorkerSummary]("uptime", lambda one: format_age(one.started_at), right=True),
    Column[WorkerSummary]("last heartbeat", lambda one: format_age(one.beat_at), right=True),
    Column[WorkerSummary]("instances", lambda one: str(one.owned), right=True),
    Column[WorkerSummary]("workflows", lambda one: ", ".join(one.workflows)),
]
_WORKFLOWS = [
    Column[WorkflowSummary]("workflow", lambda one: one.name),
    Column[WorkflowSummary]("versions", lambda one: ", ".join(one.versions)),
    Column[WorkflowSummary]("in flight", lambda one: str(one.in_flight), right=True),
    Column[WorkflowSummary]("completed/h", lambda one: f"{one.completed:,}", right=True),
    Column[WorkflowSummary]("failed/h", lambda one: f"{one.failed:,}", right=True),
    Column[WorkflowSummary]("p50", lambda one: format_duration(one.p50), right=True),
    Column[WorkflowSummary]("p95", lambda one: format_duration(one.p95), right=True),
]
_CHANNELS = [
    Column[ChannelSummary]("channel", lambda one: one.name),
    Column[ChannelSummary]("mode", lambda one: one.mode or ""),
    Column[ChannelSummary]("subscribers", lambda one: str(one.subscribers), right=True),
    Column[ChannelSummary]("unread", lambda one: str(one.backlog), right=True),
    Column[ChannelSummary]("oldest unread", lambda one: format_age(one.oldest_at), right=True),
]
_SUBSCRIBERS = [
    Column[Subscriber]("instance", lambda one: one.instance_id),
    Column[Subscriber]("mode", lambda one: one.mode),
    Column[Subscriber]("subscribed for", lambda one: format_age(one.since), right=True),
    Column[Subscriber]("unread", lambda one: str(one.unread), right=True),
    Column[Subscriber]("waiting", lambda one: "yes" if one.waits else ""),
]
_GROUPS = [
    Column[GroupSummary]("group", lambda one: one.name),
    Column[GroupSummary]("members", lambda one: str(one.members), right=True),
]


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    add_command(commands, "workers", show_workers, help="list the worker processes", watch=True)
    workflows = add_command(commands, "workflows", show_workflows, help="list the workflows, with statistics", watch=True)
    add_app(workflows)
    channels = add_command(
        commands, "channels", show_channels, help="list the channels, or the subscribers of one", watch=True
    )
    channels.add_argument("name", nargs="?", metavar="CHANNEL", help="list the subscribers of this channel")
    groups = add_command(commands, "groups", show_groups, help="list the groups, or the members of one", watch=True)
    groups.add_argument("name", nargs="?", metavar="GROUP", help="list the members of this group")
    for command in (channels, groups):
        command.add_argument(
            "--limit", type=parse_count, default=_SHOWN, metavar="N", help="the most to list (default: %(default)s)"
        )


async def show_workers(context: CommandContext) -> int:
    """Print the workers."""
    found = await context.manager.list_workers()
    context.output.table(
        {"items": found}, found, _WORKERS, name=lambda one: one.worker_id, empty="No worker is running: start an app."
    )
    return Exit.OK


async def show_workflows(context: CommandContext) -> int:
    """Print the workflows with their statistics."""
    found = await context.manager.list_workflows()
    empty = "There are no workflows: no running worker has one, and no instance is in flight."
    context.output.table({"items": found}, found, _WORKFLOWS, name=lambda one: one.name, empty=empty)
    return Exit.OK


async def show_channels(context: CommandContext) -> int:
    """Print the channels, or the subscribers of one."""
    name = context.arguments.name
    if name is None:
        page = await _pages(context, context.manager.list_channels)
        context.output.table(page, page.items, _CHANNELS, name=lambda one: one.name, empty="There are no channels.")
    else:
        subscribers = await _pages(context, partial(context.manager.list_subscribers, name))
        empty = f"Channel {name!r} has no subscribers."
        context.output.table(subscribers, subscribers.items, _SUBSCRIBERS, name=lambda one: one.instance_id, empty=empty)
    return Exit.OK


async def show_groups(context: CommandContext) -> int:
    """Print the groups, or the members of one."""
    name = context.arguments.name
    if name is None:
        page = await _pages(context, context.manager.list_groups)
        context.output.table(page, page.items, _GROUPS, name=lambda one: one.name, empty="There are no groups.")
    else:
        members = await _pages(context, partial(context.manager.list_members, name))
        context.output.table(
            members, members.items, [Column[str]("instance", str)], name=str, empty=f"Group {name!r} has no members."
        )
    return Exit.OK


async def _pages(context: CommandContext, read: Callable[..., Awaitable[P]]) -> P:
    """Read items up to `--limit`, and return them as one page."""
    limit = context.arguments.limit
    whole: P = await read(after="", limit=min(_PAGE, limit))
    while whole.next_after is not None and len(whole.items) < limit:
        page: P = await read(after=whole.next_after, limit=min(_PAGE, limit - len(whole.items)))
        whole = replace(page, items=[*whole.items, *page.items])
    if whole.next_after is not None and context.output.is_table:
        note("The list is not complete: give a higher --limit.")
    return whole
