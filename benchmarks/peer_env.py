"""The environment of the other engines, `.venv-bench`: they are not installed in the project's own."""

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
    """Install the newest version of a peer; return its interpreter, or None (and print why) if that fails."""
    package, module = peer
    if _version(PYTHON) != sys.version_info[:2]:
        # --without-pip: this environment's pip installs into it.
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", ENVIRONMENT], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(PYTHON)]
    process = subprocess.run([*pip, "install", "--quiet", "--upgrade", package], capture_output=True, text=True, check=False)
    if process.returncode == 0 or _has(module):
        return PYTHON
    print(f"{package} could not be installed and is left out:\n{process.stderr[-1000:]}", file=sys.stderr)
    return None


def _version(python: Path) -> tuple[int, ...] | None:
    if not python.exists():
        return None
    code = "import sys; print(*sys.version_info[:2])"
    process = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, process.stdout.split())) if process.returncode == 0 else None


def _has(module: str) -> bool:
    return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
