"""`romancy version`: prints the versions of romancy and Python."""

from __future__ import annotations

import platform
from argparse import Namespace
from importlib.metadata import version
from typing import Any


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser("version", help="print the versions of romancy and Python")
    command.set_defaults(do=show)


def text() -> str:
    """Return the versions as one line."""
    return f"romancy {version('romancy')} (Python {platform.python_version()})"


def show(_: Namespace) -> int:
    """Print the versions."""
    print(text())
    return 0
