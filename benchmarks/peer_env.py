"""The environment of the other engines: `.venv-bench`, so that ours stays free of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.child import ROOT

ENVIRONMENT = ROOT / ".venv-bench"
PYTHON = ENVIRONMENT / "bin" / "python"


DBOS = ("dbos", "dbos")
EDDA = ("edda-framework[postgresql]", "edda")


def install(peer: tuple[str, str] = DBOS) -> Path | None:
    """An interpreter with the newest of a package that has this module; None, with a word why, if it cannot be had."""
    package, module = peer
    if _version(PYTHON) != sys.version_info[:2]:
        # --without-pip: ours installs into it, so that no second one is needed.
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", ENVIRONMENT], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(PYTHON)]
    ended = subprocess.run([*pip, "install", "--quiet", "--upgrade", package], capture_output=True, text=True, check=False)
    if ended.returncode == 0 or _has(module):
        return PYTHON
    print(f"{package} could not be installed and is left out:\n{ended.stderr[-1000:]}", file=sys.stderr)
    return None


def _version(python: Path) -> tuple[int, ...] | None:
    if not python.exists():
        return None
    code = "import sys; print(*sys.version_info[:2])"
    ended = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, ended.stdout.split())) if ended.returncode == 0 else None


def _has(module: str) -> bool:
    return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
