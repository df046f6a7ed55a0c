"""`romancy version`."""

from __future__ import annotations

import platform
from argparse import Namespace
from importlib.metadata import version
from typing import Any


def add(commands: Any) -> None:
    """Describe the command."""
    command = commands.add_parser("version", help="print the versions of romancy and Python")
    command.set_defaults(do=show)


def text() -> str:
    """The versions in a line."""
    return f"romancy {version('romancy')} (Python {platform.python_version()})"


def show(_: Namespace) -> int:
    """Print them."""
    print(text())
    return 0
