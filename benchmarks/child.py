"""Runs one measurement in a process of its own."""

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
    """A measurement ended with an error; its own words follow."""


def run(side: str, arguments: Mapping[str, object], python: Path | str = sys.executable) -> Figures:
    """Run a module of `benchmarks.processes` to its end; what it printed last."""
    command = [str(python), "-m", f"benchmarks.processes.{side}", json.dumps(arguments)]
    ended = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ChildFailed(f"{side} {arguments}\n{ended.stderr[-4000:]}")
    figures: Figures = json.loads(ended.stdout.splitlines()[-1])
    return figures


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for databases, on the project's own disk, removed afterwards."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "build") as made:
        yield Path(made)


def _environment() -> dict[str, str]:
    """Ours, without settings that would change an engine's defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ROMANCY_", "DBOS_"))}
