"""`romancy event`, `publish`, `send`: sends an event or a message."""

from __future__ import annotations

from typing import Any

from romancy.admin.records import SendResult
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit, UsageError
from romancy.cli.json_output import to_json
from romancy.cli.output import Format, note, one_line, write
from romancy.cli.target import actor, add_app
from romancy.cli.terminal_text import escape
from romancy.cli.values import read_json


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    event = add_command(
        commands, "event", send_event, help="send an event, and print the ids it woke or started", tables=False
    )
    event.add_argument("type", metavar="TYPE", help="the type of the event")
    _data(event)
    event.add_argument("--source", default="romancy", help="the source of the event (default: %(default)s)")
    event.add_argument("--subject", help="the subject of the event")
    event.add_argument("--to", metavar="ID", help="send the event only to this instance")
    publish = add_command(commands, "publish", publish_message, help="publish a message to a channel", tables=False)
    publish.add_argument("channel", metavar="CHANNEL", help="the channel")
    _data(publish)
    send = add_command(commands, "send", send_message, help="send a message to one instance", tables=False)
    send.add_argument("id", metavar="ID", help="the id of the instance")
    send.add_argument("channel", metavar="CHANNEL", help="the channel from which the instance receives")
    _data(send)


def _data(command: Any) -> None:
    command.add_argument("json_data", nargs="?", metavar="JSON", help="the data (default: null)")
    command.add_argument(
        "--data", metavar="JSON|@FILE", help="the data: JSON, or a file that contains JSON (@- is standard input)"
    )
    command.add_argument("--dry-run", action="store_true", help="only show what would be sent")
    add_app(command)


async def send_event(context: CommandContext) -> int:
    """Send an event."""
    given, data = context.arguments, _read(context)
    if given.dry_run:
        event = {"type": given.type, "source": given.source, "subject": given.subject, "to": given.to, "data": data}
        return _print_dry_run(event)
    sent = await context.manager.send_event(
        given.type, data, source=given.source, subject=given.subject, to=given.to, actor=actor()
    )
    return _print_result(context, sent, f"event {given.type}")


async def publish_message(context: CommandContext) -> int:
    """Publish a message to a channel."""
    given, data = context.arguments, _read(context)
    if given.dry_run:
        return _print_dry_run({"channel": given.channel, "data": data})
    return _print_result(
        context, await context.manager.publish(given.channel, data, actor=actor()), f"message to {given.channel}"
    )


async def send_message(context: CommandContext) -> int:
    """Send a message to one instance."""
    given, data = context.arguments, _read(context)
    if given.dry_run:
        return _print_dry_run({"channel": given.channel, "to": given.id, "data": data})
    sent = await context.manager.publish(given.channel, data, to=given.id, actor=actor())
    return _print_result(context, sent, f"message to {given.id}")


def _print_dry_run(document: Any) -> int:
    write(to_json(document, indent=2))
    return Exit.OK


def _print_result(context: CommandContext, sent: SendResult, what: str) -> int:
    if context.arguments.output in (Format.JSON, Format.JSONL):
        write(to_json(sent))
        return Exit.OK
    for one in sent.instance_ids:
        write(one_line(one))
    if sent.duplicate:
        note(f"The {escape(what)} is a duplicate: it was accepted before, and has no further effect.")
    elif sent.instance_ids:
        number = len(sent.instance_ids)
        note(f"The {escape(what)} was accepted. It woke or started {number} instance{'' if number == 1 else 's'}.")
    else:
        note(f"The {escape(what)} was accepted. No instance is waiting for it at the moment.")
    return Exit.OK


def _read(context: CommandContext) -> Any:
    first, second = context.arguments.json_data, context.arguments.data
    if first is not None and second is not None:
        raise UsageError("The data is given twice, as an argument and with --data: leave out one of them.")
    text = first if first is not None else second
    return None if text is None else read_json(text, "The data")
