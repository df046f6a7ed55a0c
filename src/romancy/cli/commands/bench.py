"""`romancy bench`: measures the throughput of workflows on a database, or runs the benchmarks of the repository."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from romancy.cli.context import add_format, format_of
from romancy.cli.exit_codes import Exit
from romancy.cli.json_output import to_json
from romancy.cli.output import Format, write
from romancy.cli.parser import parse_count
from romancy.cli.target import database_of, mask_address

_NAME = "romancy.bench"
_MOST = 10_000


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "bench",
        help="measure the throughput of workflows on a database",
        description="Run workflows with one activity each on a database, and print the rates. The instances of the workflow "
        f"{_NAME} stay in the database until they are pruned. In the repository of romancy, without --database, the "
        "benchmarks of the project run instead.",
    )
    command.add_argument(
        "--database", metavar="ADDRESS", help="database address (default: ROMANCY_DATABASE, or sqlite:///romancy.db)"
    )
    command.add_argument(
        "--count",
        type=parse_count,
        default=200,
        metavar="N",
        help=f"instances to run, at most {_MOST} (default: %(default)s)",
    )
    command.add_argument(
        "--at-once", type=parse_count, default=20, metavar="N", help="instances to run concurrently (default: %(default)s)"
    )
    add_format(command)
    command.set_defaults(do=measure, parser=command)


def measure(given: Namespace) -> int:
    """Measure the rates, and print them."""
    if given.database is None and _in_repository():
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks"])  # noqa: S606
    from romancy.cli.bench_workflow import (
        measure_rates,  # not at the top: an app without a list of workflows takes all that were imported
    )

    database = database_of(given)
    found = asyncio.run(measure_rates(database, min(given.count, _MOST), given.at_once))
    if format_of(given) is not Format.TABLE:
        write(to_json({"database": mask_address(database), **found}, indent=2))
        return Exit.OK
    write(f"{mask_address(database)}: workflows with one activity")
    write(f"  {given.at_once} at once        {found['workflows_per_second']:10,.0f} /s")
    write(f"  one after another {found['one_after_another_per_second']:10,.0f} /s, {found['median_ms']:.1f} ms each")
    return Exit.OK


def _in_repository() -> bool:
    return Path("benchmarks/__main__.py").is_file() and Path("src/romancy/__init__.py").is_file()
