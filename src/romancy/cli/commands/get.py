"""`romancy get`, `explain`, `history`, `result`: shows one instance."""

from __future__ import annotations

import asyncio
from typing import Any

from romancy.admin.port import Manager
from romancy.admin.records import Explanation, Health, HistoryPage, InstanceDetail, WakeCondition
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit
from romancy.cli.json_output import to_json, to_jsonable
from romancy.cli.output import Column, Format, RecordSection, note, one_line, write
from romancy.cli.parser import parse_count, parse_span
from romancy.cli.terminal_text import compact, escape, format_age, format_duration, format_time, shorten
from romancy.clock import monotonic
from romancy.model.instance import HistoryEntry
from romancy.model.status import Status

_PAGE = 200
_FIRST_POLL = 0.05
"""Seconds before the second poll of an instance that has not ended. The pause doubles with each poll."""
_SELDOM = 1.0
"""The longest pause between two polls, in seconds."""


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    get = add_command(commands, "get", show, help="show an instance, with its status and the reason for it", watch=True)
    _add_id_argument(get)
    get.add_argument("--generation", type=parse_count, metavar="N", help="show an earlier generation")
    explain = add_command(
        commands, "explain", show_why, help="explain the status of an instance, and what you can do", watch=True
    )
    _add_id_argument(explain)
    history = add_command(commands, "history", show_history, help="print the history of an instance")
    _add_id_argument(history)
    history.add_argument("--generation", type=parse_count, metavar="N", help="print the history of an earlier generation")
    history.add_argument("--full", action="store_true", help="include inputs, results, errors and call sites")
    history.add_argument("--follow", action="store_true", help="keep printing new entries until the instance has ended")
    history.add_argument("--limit", type=parse_count, metavar="N", help="the most entries to print")
    result = add_command(
        commands,
        "result",
        wait_for_result,
        help="wait for an instance to end, and print its result as JSON",
        tables=False,
    )
    _add_id_argument(result)
    result.add_argument(
        "--timeout", type=parse_span, metavar="SPAN", help="the longest time to wait: 90s, 15m, 1h; 0: do not wait"
    )


def _add_id_argument(command: Any) -> None:
    command.add_argument("id", metavar="ID", help="the id of the instance")


# --- get and explain


async def show(context: CommandContext) -> int:
    """Print an instance."""
    given = context.arguments
    found = await context.manager.get_instance(given.id, generation=given.generation)
    why = await context.manager.explain(given.id) if context.output.is_table and given.generation is None else None
    context.output.record(found, lambda: _detail(context, found, why), name=given.id)
    return Exit.OK


def _detail(context: CommandContext, found: InstanceDetail, why: Explanation | None) -> list[RecordSection]:
    one = found.summary
    version = f" (version {one.version})" if one.version else ""
    fields = [
        ("status", one.status.value),
        ("instance", one.instance_id),
        ("workflow", f"{one.workflow_name}{version}"),
        ("generation", f"{one.generation} of {found.generations}" if found.generations > 1 else ""),
        ("current step", one.doing),
        ("worker", one.worker_id or ""),
        ("created", _dated(one.created_at)),
        ("ended", _dated(one.ended_at)),
        ("deadline", format_time(found.deadline_at)),
        ("can be", ", ".join(_PAST[action.value] for action in found.actions)),
        ("read from", context.target.name),
    ]
    sections = [RecordSection("", [(name, value) for name, value in fields if value])]
    if why is not None:
        sections += _explanation_sections(why)
    if found.error is not None:
        sections.append(RecordSection("error", text=found.error.trace.strip() or str(found.error)))
    sections.append(RecordSection("input", text=to_json(found.input, indent=2)))
    if one.status is Status.COMPLETED:
        sections.append(RecordSection("output", text=to_json(found.output, indent=2)))
    return sections


_PAST = {
    "cancel": "cancelled",
    "retry": "retried",
    "pause": "paused",
    "resume": "resumed",
    "terminate": "terminated",
}


def _dated(when: Any) -> str:
    return "" if when is None else f"{format_time(when)} UTC ({format_age(when)} ago)"


async def show_why(context: CommandContext) -> int:
    """Print the explanation of an instance."""
    why = await context.manager.explain(context.arguments.id)
    heads = [("instance", why.instance_id), ("status", why.status.value)]
    context.output.record(why, lambda: [RecordSection("", heads), *_explanation_sections(why)], name=why.instance_id)
    return Exit.OK


def _explanation_sections(why: Explanation) -> list[RecordSection]:
    wakes = "\n".join(line for wake in why.wakes for line in _condition_lines(wake))
    remedies = [(one.name, one.label) for one in why.remedies]
    sections = [RecordSection("explanation", [("verdict", why.verdict.value), ("reason", why.because)])]
    if wakes:
        sections.append(RecordSection("details" if why.verdict is Health.ENDED else "waiting for", text=wakes))
    if remedies:
        sections.append(RecordSection("what you can do", remedies))
    return sections


def _condition_lines(condition: WakeCondition) -> list[str]:
    since = f", for {format_age(condition.since)}" if condition.since is not None else ""
    due = f", due {format_time(condition.due)} UTC ({format_age(condition.due)})" if condition.due is not None else ""
    head = f"{condition.kind} {escape(condition.key)}".strip()
    return [f"{head}{since}{due}", *(f"    {escape(one)}" for one in condition.evidence)]


# --- history

_COLUMNS = [
    Column[HistoryEntry]("seq", lambda one: str(one.seq), right=True),
    Column[HistoryEntry]("time (UTC)", lambda one: format_time(one.at)),
    Column[HistoryEntry]("kind", lambda one: one.kind),
    Column[HistoryEntry]("operation", lambda one: one.activity_id or one.name),
    Column[HistoryEntry]("outcome", lambda one: one.outcome, status=True),
    Column[HistoryEntry]("attempt", lambda one: str(one.attempt or ""), right=True),
    Column[HistoryEntry]("duration", lambda one: _took(one), right=True),
    Column[HistoryEntry]("result", lambda one: shorten(str(one.error)) if one.error else compact(one.result)),
]
_MORE = [
    *_COLUMNS[:-1],
    Column[HistoryEntry]("input", lambda one: to_json(one.input)),
    Column[HistoryEntry]("result", lambda one: str(one.error) if one.error else to_json(one.result)),
    Column[HistoryEntry]("worker", lambda one: one.worker_id),
    Column[HistoryEntry]("call site", lambda one: one.site),
]


def _took(one: HistoryEntry) -> str:
    begun, ended = one.started_at or one.scheduled_at, one.ended_at or one.at
    return format_duration(max(0.0, (ended - begun).total_seconds())) if begun is not None else ""


async def show_history(context: CommandContext) -> int:
    """Print the history; with `--follow`, until the instance ends."""
    if context.arguments.follow:
        return await _follow(context)
    page = await _whole(context.manager, context.arguments.id, context.arguments.generation, context.arguments.limit)
    columns = _MORE if context.arguments.full else _COLUMNS
    context.output.table(
        page, page.items, columns, name=_op, empty=f"The history of {context.arguments.id} is empty so far."
    )
    if page.next_after is not None and context.output.is_table:
        note("There are more entries: give a higher --limit.")
    return Exit.OK


def _op(one: HistoryEntry) -> str:
    return one.activity_id or one.name


async def _whole(manager: Manager, instance_id: str, generation: int | None, limit: int | None) -> HistoryPage:
    items: list[HistoryEntry] = []
    after: int | None = 0
    while after is not None and (limit is None or len(items) < limit):
        most = _PAGE if limit is None else min(_PAGE, limit - len(items))
        page = await manager.get_history(instance_id, generation=generation, after=after, limit=most)
        items += page.items
        after = page.next_after
    return HistoryPage(items, after)


async def _follow(context: CommandContext) -> int:
    """Print each new entry as one line, also those of later generations."""
    instance_id, generation, after = context.arguments.id, context.arguments.generation, 0
    left, pause = context.arguments.limit, _FIRST_POLL
    while True:
        now = (await context.manager.get_instance(instance_id)).summary
        generation = generation or now.generation
        page = await context.manager.get_history(
            instance_id, generation=generation, after=after, limit=min(left or _PAGE, _PAGE)
        )
        for entry in page.items:
            after = entry.seq
            _print_entry(context, entry)
        left = None if left is None else left - len(page.items)
        if left == 0:
            return Exit.OK
        if page.next_after is not None:
            continue
        if now.generation > generation:
            generation, after = generation + 1, 0
        elif now.status.ended:
            note(f"{escape(instance_id)} is {now.status.value}.")
            return Exit.OK
        pause = _FIRST_POLL if page.items else min(2 * pause, _SELDOM)
        await asyncio.sleep(pause)


def _print_entry(context: CommandContext, entry: HistoryEntry) -> None:
    if context.output.is_table:
        columns = _MORE if context.arguments.full else _COLUMNS
        write("  ".join(escape(column.value(entry)) for column in columns))
    else:
        write(to_json(entry) if context.output.format is not Format.IDS else one_line(_op(entry)))


# --- result


async def wait_for_result(context: CommandContext) -> int:
    """Wait for an instance to end, and print its result; return 1 if it has none."""
    return await print_result(context, context.arguments.id, context.arguments.timeout)


async def print_result(context: CommandContext, instance_id: str, timeout: float | None) -> int:
    """Wait for an instance to end, and print its output or its error."""
    found = await wait_for_end(context.manager, instance_id, timeout)
    status = found.summary.status
    if context.arguments.output in (Format.JSON, Format.JSONL):
        answer = {"instance_id": instance_id, "status": status, "output": found.output, "error": found.error}
        write(to_json(answer, indent=2 if context.arguments.output == Format.JSON else None))
    elif status is Status.COMPLETED:
        write(to_json(to_jsonable(found.output)))
    if status is Status.COMPLETED:
        return Exit.OK
    error = f": {escape(str(found.error))}" if found.error is not None else ""
    note(f"romancy: {escape(instance_id)} is {status.value}{error}")
    return Exit.FAILED


async def wait_for_end(manager: Manager, instance_id: str, timeout: float | None) -> InstanceDetail:
    """Return an instance once it has ended. Raises `TimeoutError`.

    A blocked instance is returned too, because it does not end before other code is deployed.
    """
    deadline = None if timeout is None else monotonic() + timeout
    pause = _FIRST_POLL
    while True:
        found = await manager.get_instance(instance_id)
        if found.summary.status.ended or found.summary.status is Status.BLOCKED:
            return found
        left = _SELDOM if deadline is None else deadline - monotonic()
        if left <= 0:
            status = found.summary.status.value
            raise TimeoutError(f"{escape(instance_id)} did not end within {timeout:g} s; it is {status} and continues.")
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _SELDOM)
