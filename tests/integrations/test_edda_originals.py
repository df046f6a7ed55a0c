"""Tests of complete programs for Edda: with changed imports, and no other change, they print the documented output.

The programs are stored as text, with their original imports.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "edda_originals"
PROGRAMS = sorted(one.stem for one in FOLDER.glob("*.txt"))
ON_EVERY_DATABASE = ["compensation", "event_waiting", "outbox"]
TIMEOUT = 50


def with_changed_imports(original: str) -> str:
    """The program with changed imports."""
    return re.sub(r"^from edda(?=[. ])", "from romancy.integrations.edda", original, flags=re.MULTILINE)


def documented_output(original: str) -> list[str]:
    """The output that the docstring of a program documents."""
    docstring = ast.get_docstring(ast.parse(original)) or ""
    return [line.removeprefix("    ") for line in docstring.partition("Output:\n")[2].splitlines()]


def outputs(name: str, database: str, folder: Path) -> tuple[list[str], list[str]]:
    """Run a program; return its output and the documented output."""
    original = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    program = folder / f"{name}.py"
    program.write_text(with_changed_imports(original), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(program), database]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines(), documented_output(original)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_after_its_imports_are_changed(name: str, tmp_path: Path) -> None:
    output, documented = outputs(name, "sqlite:///demo.db", tmp_path)
    assert output == documented


@pytest.mark.parametrize("name", ON_EVERY_DATABASE)
def test_a_program_runs_on_every_database(name: str, database: str, tmp_path: Path) -> None:
    output, documented = outputs(name, database, tmp_path)
    assert output == documented


def test_only_imports_are_changed() -> None:
    for name in PROGRAMS:
        before = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        after = with_changed_imports("\n".join(before)).splitlines()
        changed = [line for line, now in zip(before, after, strict=True) if line != now]
        assert changed, name
        assert all(line.startswith("from edda") for line in changed), name
        assert "edda" not in "\n".join(line for line in before if line not in changed).replace("EddaApp", "")
