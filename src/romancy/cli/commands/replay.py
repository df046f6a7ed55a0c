"""`romancy export`, `romancy replay`: exports histories, and checks code against them.

The replay is that of a worker after a restart: the code runs again and gets the recorded results. It calls no activity, and
writes nothing.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from romancy.app import App
from romancy.authoring.workflow import Workflow
from romancy.cli.app_loader import load_app, load_workflow
from romancy.cli.context import CommandContext, add_command, add_format, format_of
from romancy.cli.exit_codes import Exit, UsageError
from romancy.cli.output import Column, Output, note, write
from romancy.cli.terminal_text import escape, escape_lines
from romancy.client import Client
from romancy.errors import CodecError, PayloadError, RomancyError
from romancy.model.status import Status
from romancy.testing.histories import RecordedHistory, record_history, replay_history

_PAGE = 200
_OPEN = [status for status in Status if not status.ended and status is not Status.COMPENSATING]


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    export = add_command(
        commands,
        "export",
        write_history,
        help="print the history of an instance as JSON, for `romancy replay`",
        tables=False,
    )
    export.add_argument("id", metavar="ID", help="the id of the instance")
    replay = commands.add_parser(
        "replay",
        help="check code against recorded histories",
        description="Check code against an exported history, or with --all-open against those of all instances in flight.",
    )
    replay.add_argument("file", nargs="?", metavar="FILE", help="a file printed by `romancy export`; - is standard input")
    replay.add_argument("workflow", nargs="?", metavar="MODULE:WORKFLOW", help="the workflow to check")
    replay.add_argument(
        "--all-open", metavar="MODULE:APP", help="check the code of this app against all instances in flight"
    )
    replay.add_argument(
        "--database", metavar="ADDRESS", help="with --all-open: the address of another database than the app's"
    )
    add_format(replay)
    replay.set_defaults(do=check, parser=replay)


async def write_history(context: CommandContext) -> int:
    """Print the stored history of an instance."""
    if context.target.client is None:
        raise UsageError("`romancy export` reads the database itself: give --database instead of --url.")
    write((await record_history(context.target.client, context.arguments.id)).to_json())
    return Exit.OK


def check(given: Namespace) -> int:
    """Check code against one history or many; return 1 if it does not match."""
    if given.all_open is not None:
        if given.file is not None:
            raise UsageError("--all-open reads the histories from the database: leave out FILE.")
        return asyncio.run(_check_all(given))
    if given.file is None or given.workflow is None:
        raise UsageError("Give either FILE and MODULE:WORKFLOW, or --all-open MODULE:APP.")
    return _check_one(given.file, load_workflow(given.workflow))


def _check_one(name: str, workflow: Workflow[..., Any]) -> int:
    history = read_history(name)
    outcome = check_history(workflow, history)
    if not outcome.fits:
        note(f"romancy: {escape_lines(outcome.says)}")
        return Exit.FAILED
    write(escape_lines(outcome.says))
    return Exit.OK


def read_history(name: str) -> RecordedHistory:
    """Read a history from a file."""
    try:
        text = Path("/dev/stdin" if name == "-" else name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"The file {escape(name)!r} cannot be read: {error}.") from error
    try:
        return RecordedHistory.from_json(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"The file {escape(name)!r} is not a history printed by `romancy export`.") from error


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a replay."""

    instance_id: str
    workflow: str
    fits: bool
    says: str


def check_history(workflow: Workflow[..., Any] | None, history: RecordedHistory, app: App | None = None) -> ReplayOutcome:
    """Replay a history with the code of a workflow."""
    if workflow is None:
        named = f"{history.workflow} {history.version}".strip()
        return ReplayOutcome(history.instance_id, history.workflow, False, f"The app has no workflow {named!r}.")
    try:
        found = replay_history(workflow, history, app=app)
    except PayloadError as error:
        return ReplayOutcome(history.instance_id, history.workflow, False, f"The input does not match: {error}")
    except RomancyError as error:
        return ReplayOutcome(history.instance_id, history.workflow, False, str(error))
    number = len(history.entries)
    entries = "1 entry matches" if number == 1 else f"{number} entries match"
    if found.pending:
        entries += f"; the instance is waiting for {', '.join(found.pending)}"
    return ReplayOutcome(history.instance_id, history.workflow, True, f"{entries}.")


async def _check_all(given: Namespace) -> int:
    output = Output(format_of(given))
    app = load_app(given.all_open)
    client = Client(
        given.database or app._options["database"],
        workflows=app._registry.all(),
        auto_migrate=False,
        codec=app._options["codec"],
    )
    outcomes: list[ReplayOutcome] = []
    async with client:
        async for instance_id in _open_ids(client):
            try:
                history = await record_history(client, instance_id)
            except CodecError as error:
                outcomes.append(ReplayOutcome(instance_id, "", False, str(error)))
                continue
            outcomes.append(check_history(client._registry.find(history.workflow, history.version), history, app))
    wrong = [one for one in outcomes if not one.fits]
    columns = [
        Column[ReplayOutcome]("workflow", lambda one: one.workflow),
        Column[ReplayOutcome]("instance", lambda one: one.instance_id),
        Column[ReplayOutcome]("difference", lambda one: one.says),
    ]
    if wrong or not output.is_table:
        output.table({"items": outcomes}, wrong if output.is_table else outcomes, columns, name=lambda one: one.instance_id)
    note(f"The code matches {len(outcomes) - len(wrong):,} of {len(outcomes):,} instances in flight.")
    return Exit.FAILED if wrong else Exit.OK


async def _open_ids(client: Client) -> AsyncIterator[str]:
    """Yield the ids of the instances in flight, except compensating ones: their workflow code no longer runs."""
    token: str | None = None
    while True:
        page = await client.list_instances(status=_OPEN, limit=_PAGE, page_token=token)
        for one in page.items:
            yield one.instance_id
        token = page.next_page_token
        if token is None:
            return
