"""`romancy start`: starts a workflow."""

from __future__ import annotations

from typing import Any

from romancy.cli.commands.get import print_result
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit, UsageError
from romancy.cli.json_output import to_json
from romancy.cli.output import Format, note, one_line, write
from romancy.cli.parser import advice, parse_span
from romancy.cli.target import actor, add_app
from romancy.cli.terminal_text import escape, shorten
from romancy.cli.values import read_json, read_loosely
from romancy.errors import WorkflowNotFoundError


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = add_command(commands, "start", start, help="start a workflow, and print the id of the instance", tables=False)
    command.add_argument("workflow", metavar="WORKFLOW", help="the name of the workflow")
    command.add_argument(
        "parts",
        nargs="*",
        metavar="JSON|NAME=VALUE",
        help="the arguments by name: a JSON object, or one NAME=VALUE for each",
    )
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="JSON|@FILE|NAME=VALUE",
        help="the arguments: a JSON object, a file that contains one (@- is standard input), or NAME=VALUE; may be repeated",
    )
    command.add_argument(
        "--id", dest="instance_id", metavar="ID", help="the id of the instance; repeating the same start is harmless"
    )
    command.add_argument("--wait", action="store_true", help="wait for the instance to end, and print its result")
    command.add_argument("--timeout", type=parse_span, metavar="SPAN", help="with --wait: the longest time to wait")
    command.add_argument("--dry-run", action="store_true", help="only show what would be started")
    add_app(command)


async def start(context: CommandContext) -> int:
    """Start the workflow. The id is printed once the instance is durable."""
    given = context.arguments
    schema = await _schema(context, given.workflow)
    arguments = read_input([*given.parts, *given.input], schema)
    if given.dry_run:
        write(to_json({"workflow": given.workflow, "input": arguments, "instance_id": given.instance_id}, indent=2))
        return Exit.OK
    try:
        started = await context.manager.start(given.workflow, arguments, instance_id=given.instance_id, actor=actor())
    except WorkflowNotFoundError as error:
        raise await _with_suggestion(context, error) from error
    if not given.wait:
        as_json = given.output in (Format.JSON, Format.JSONL)
        write(to_json(started) if as_json else one_line(started.instance_id))
        return Exit.OK
    note(f"Started {escape(started.instance_id)}.")
    return await print_result(context, started.instance_id, given.timeout)


async def _with_suggestion(context: CommandContext, error: WorkflowNotFoundError) -> WorkflowNotFoundError:
    known = [one.name for one in await context.manager.list_workflows() if one.name != context.arguments.workflow]
    return WorkflowNotFoundError(f"{error}{advice(context.arguments.workflow, known)}")


async def _schema(context: CommandContext, workflow: str) -> dict[str, Any]:
    try:
        return await context.manager.get_schema(workflow) or {}
    except WorkflowNotFoundError:
        return {}


def read_input(parts: list[str], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a workflow by name."""
    arguments: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if part.startswith("@"):
            arguments |= _object(part)
        elif equals and not part.lstrip().startswith("{"):
            _set_value(arguments, name.split("."), _value(value, _schema_at(schema, name.split("."))), part)
        else:
            arguments |= _object(part)
    return arguments


def _object(part: str) -> dict[str, Any]:
    value = read_json(part, "The input")
    if not isinstance(value, dict):
        raise UsageError(
            f"The input {escape(shorten(part, 80))} is not a JSON object: give the arguments by name, e.g. "
            "'{\"order\": 42}' or order=42."
        )
    return value


def _set_value(arguments: dict[str, Any], path: list[str], value: Any, part: str) -> None:
    *parents, last = path
    for name in parents:
        inner = arguments.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UsageError(f"The input {escape(part)} sets a field of {name!r}, which is not an object.")
        arguments = inner
    arguments[last] = value


def _schema_at(schema: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return the part of a schema at a path; empty if it is not known."""
    definitions = schema.get("$defs", {})
    here: Any = schema
    for name in path:
        here = _resolve(here, definitions).get("properties", {}).get(name, {})
    found: dict[str, Any] = _resolve(here, definitions)
    return found


def _resolve(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: dict[str, Any] = definitions.get(name, schema)
    return found


def _value(text: str, schema: dict[str, Any]) -> Any:
    """Return the text itself if the schema expects a string; otherwise parse it as JSON if it is valid JSON."""
    if schema.get("type") == "string":
        return text
    return read_loosely(text)
