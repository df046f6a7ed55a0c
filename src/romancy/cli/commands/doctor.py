"""`romancy doctor`: checks the database, the workers and the instances."""

from __future__ import annotations

from typing import Any

from romancy.admin.records import Finding
from romancy.cli.context import CommandContext, add_command
from romancy.cli.exit_codes import Exit
from romancy.cli.output import Column

_COLUMNS = [
    Column[Finding]("", lambda one: one.level, status=True),
    Column[Finding]("check", lambda one: one.name),
    Column[Finding]("finding", lambda one: one.says),
    Column[Finding]("remedy", lambda one: one.remedy),
]


def add(commands: Any) -> None:
    """Add the command to the parser."""
    add_command(
        commands, "doctor", examine, help="check the database, workers and instances, and suggest remedies", watch=True
    )


async def examine(context: CommandContext) -> int:
    """Print the findings; return 1 if one of them is an error."""
    findings = await context.manager.doctor()
    context.output.table({"items": findings}, findings, _COLUMNS, name=lambda one: one.name)
    return Exit.FAILED if any(one.level == "error" for one in findings) else Exit.OK
