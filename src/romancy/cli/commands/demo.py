"""`romancy demo`: runs `python -m romancy.demo`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import Any


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "demo",
        help="watch a worker being killed without losing work",
        description="A worker is killed while it charges a card. Another one takes over, and the card is charged only once.",
    )
    command.add_argument("--keep", metavar="FOLDER", help="keep the files of the demo in this folder")
    command.add_argument(
        "--forgetful", action="store_true", help="use a bank that ignores idempotency keys: see the double charge"
    )
    command.set_defaults(do=run, parser=command)


def run(given: Namespace) -> int:
    """Replace this process by the demo, so that signals reach the demo directly."""
    arguments = ["--keep", given.keep] if given.keep is not None else []
    arguments += ["--forgetful"] if given.forgetful else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "romancy.demo", *arguments])  # noqa: S606
