"""Planting of faults in a copy of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.faults import Fault

ROOT = Path(__file__).parents[2]
_COPIED = ("src", "tests", "pyproject.toml", "README.md", "docs", "examples")
_TIMEOUT = 300
_PASSED, _FAILED = 0, 1
_QUICK = {"ROMANCY_EXAMPLES": "30", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
_PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "romancy.testing.plugin")
_OPTIONS = ("-x", "--timeout=60", "--tb=line", "-pno:cacheprovider")
_ON_SQLITE = "-knot postgres and not mariadb and not memory"
"""Most faults are caught on SQLite, where a test starts fastest. Tests in files of PostgreSQL's own run as they are."""


class ProjectCopy:
    """A copy of the project."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Plant a fault for the duration of the context."""
        file = self._folder / "src/romancy" / fault.file
        original = file.read_text(encoding="utf-8")
        _write(file, with_fault(original, fault))
        try:
            yield
        finally:
            _write(file, original)

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run pytest on these tests; returns its exit code and its output."""
        on_server = [test for test in tests if "/test_postgres_" in test]
        on_sqlite = [test for test in tests if test not in on_server]
        code, output = self._run(on_sqlite, _ON_SQLITE) if on_sqlite else (_PASSED, "")
        return self._run(on_server) if on_server and code == _PASSED else (code, output)

    def _run(self, tests: Sequence[str], *options: str) -> tuple[int, str]:
        # With few plug-ins, because most of the time is spent on startup.
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *tests, *_OPTIONS, *options, *(f"-p{name}" for name in _PLUGINS)],
            cwd=self._folder,
            env=_environment(self._folder),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@contextmanager
def copy_project() -> Iterator[ProjectCopy]:
    """A copy of the project for the duration of the context."""
    with TemporaryDirectory(prefix="romancy-mutants-") as folder:
        for name in _COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis"))
            elif source.exists():
                shutil.copy(source, target)
        yield ProjectCopy(Path(folder))


def with_fault(text: str, fault: Fault) -> str:
    """The text with the fault. Raises `ValueError` if the fault does not fit."""
    found = text.count(fault.old)
    if found != 1:
        raise ValueError(f"{fault.name}: its old text is in {fault.file} {found} times, not once. Adapt the fault.")
    return text.replace(fault.old, fault.new)


def escape_reason(copy: ProjectCopy, fault: Fault) -> str | None:
    """Why a planted fault was not caught; None if a test failed."""
    with copy.planted(fault):
        code, output = copy.run(fault.tests)
    if code == _PASSED:
        return "SURVIVED: every test passed"
    return None if code == _FAILED else f"pytest could not run (exit {code}): {_last(output)}"


def baseline_failure(copy: ProjectCopy, faults: Sequence[Fault]) -> str | None:
    """Why the tests do not pass without a fault; None if they pass."""
    code, output = copy.run(list(dict.fromkeys(test for fault in faults for test in fault.tests)))
    return None if code == _PASSED else f"pytest exits with {code} without a fault: {_last(output)}"


def _write(file: Path, text: str) -> None:
    """Write a file and delete its compiled versions: two versions may have the same size and the same second."""
    file.write_text(text, encoding="utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROMANCY_", "PYTEST_", "PYTHON"))}
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    return {**kept, "PYTHONPATH": path, "ROMANCY_TEST_DATABASES": "sqlite", **_QUICK}


def _last(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-3:])
