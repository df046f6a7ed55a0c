"""Runs a measurement in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Figures = dict[str, Any]


class ChildFailed(Exception):
    """A measurement ended with an error; the message has the end of its stderr."""


def run(
    module: str, arguments: Mapping[str, object], python: Path | str = sys.executable, path: Path | None = None
) -> Figures:
    """Run a module of `benchmarks.processes`; return the JSON object of its last line of output.

    `path` is a folder from which the process imports romancy instead of the installed package.
    """
    command = [str(python), "-m", f"benchmarks.processes.{module}", json.dumps(arguments)]
    process = subprocess.run(command, cwd=ROOT, env=_environment(path), capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ChildFailed(f"{module} {arguments}\n{process.stderr[-4000:]}")
    figures: Figures = json.loads(process.stdout.splitlines()[-1])
    return figures


@contextmanager
def folder() -> Iterator[Path]:
    """Create a folder for databases on the project's own disk, and remove it afterwards."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "build") as name:
        yield Path(name)


def _environment(path: Path | None) -> dict[str, str]:
    """The environment of this process, without settings that would change an engine's defaults."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROMANCY_", "DBOS_"))}
    return kept if path is None else kept | {"PYTHONPATH": str(path)}
