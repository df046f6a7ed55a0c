"""`romancy bench`: how fast a database is for workflows. In the repository: the benchmarks."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from romancy.app import App
from romancy.authoring.activity import activity
from romancy.authoring.context import ActivityContext, WorkflowContext
from romancy.authoring.workflow import workflow
from romancy.cli.desk import add_format, format_of
from romancy.cli.exits import Exit
from romancy.cli.parsing import count
from romancy.cli.place import check_schema, database_of, masked
from romancy.cli.plain import to_json
from romancy.cli.printing import Format, write
from romancy.clock import monotonic

_NAME = "romancy.bench"
_SINGLE = 20
"""How many are run one after another."""
_MOST = 10_000


def add(commands: Any) -> None:
    """Describe the command."""
    command = commands.add_parser(
        "bench",
        help="measure how fast workflows of one activity run on a database",
        description=f"Run workflows of one activity on a database and print the rates. The instances, of the workflow {_NAME}, "
        "stay there until they are pruned. In romancy's repository, without --database: run its benchmarks.",
    )
    command.add_argument("--database", metavar="ADDRESS", help="the database (default: ROMANCY_DATABASE, else sqlite:///romancy.db)")
    command.add_argument("--count", type=count, default=200, metavar="N", help=f"how many, at most {_MOST} (default: %(default)s)")
    command.add_argument("--at-once", type=count, default=20, metavar="N", help="how many at once (default: %(default)s)")
    add_format(command)
    command.set_defaults(do=measure, parser=command)


def measure(given: Namespace) -> int:
    """Measure, and print."""
    if given.database is None and _in_repository():
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks"])
    database = database_of(given)
    found = asyncio.run(_measured(database, min(given.count, _MOST), given.at_once))
    if format_of(given) is not Format.TABLE:
        write(to_json({"database": masked(database), **found}, indent=2))
        return Exit.OK
    write(f"{masked(database)}: workflows of one activity")
    write(f"  {given.at_once} at once        {found['workflows_per_second']:10,.0f} /s")
    write(f"  one after another {found['one_after_another_per_second']:10,.0f} /s, {found['median_ms']:.1f} ms each")
    return Exit.OK


def _in_repository() -> bool:
    return Path("benchmarks/__main__.py").is_file() and Path("src/romancy/__init__.py").is_file()


@activity(name=f"{_NAME}.step")
async def _step(ctx: ActivityContext, number: int) -> int:
    return number


@workflow(name=_NAME)
async def _run(ctx: WorkflowContext, number: int) -> int:
    return await _step(ctx, number)


async def _measured(database: str, number: int, at_once: int) -> dict[str, Any]:
    await check_schema(database)
    async with App(database, workflows=[_run], auto_migrate=False, service_name="romancy bench") as app:
        await _one(app, 0)  # what happens only once is not measured
        singles = [await _one(app, at) for at in range(_SINGLE)]
        begun = monotonic()
        left = iter(range(number))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, number)):
                group.create_task(_many(app, left))
        took = monotonic() - begun
    median = statistics.median(singles)
    return {
        "workflows": number,
        "at_once": at_once,
        "workflows_per_second": round(number / took, 1),
        "one_after_another_per_second": round(1 / median, 1),
        "median_ms": round(median * 1000, 3),
    }


async def _many(app: App, left: Any) -> None:
    for number in left:
        await _one(app, number)


async def _one(app: App, number: int) -> float:
    begun = monotonic()
    await (await app.start_workflow(_run, number)).result()
    return monotonic() - begun
