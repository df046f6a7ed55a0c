"""Whole programs for Edda: their imports are changed and nothing else, and they print what they say.

They are kept as text, as they stand before the change.
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
EVERYWHERE = ["compensation", "event_waiting", "outbox"]
PATIENCE = 50


def moved(original: str) -> str:
    """The program with its imports changed."""
    return re.sub(r"^from edda(?=[. ])", "from romancy.integrations.edda", original, flags=re.MULTILINE)


def said(original: str) -> list[str]:
    """What a program says that it prints."""
    told = ast.get_docstring(ast.parse(original)) or ""
    return [line.removeprefix("    ") for line in told.partition("Output:\n")[2].splitlines()]


def printed(name: str, database: str, folder: Path) -> tuple[list[str], list[str]]:
    """What a program prints, and what it says that it prints."""
    original = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    program = folder / f"{name}.py"
    program.write_text(moved(original), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(program), database]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines(), said(original)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_after_its_imports_are_changed(name: str, tmp_path: Path) -> None:
    printing, telling = printed(name, "sqlite:///demo.db", tmp_path)
    assert printing == telling


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_program_runs_on_every_database(name: str, database: str, tmp_path: Path) -> None:
    printing, telling = printed(name, database, tmp_path)
    assert printing == telling


def test_only_imports_are_changed() -> None:
    for name in PROGRAMS:
        before = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        after = moved("\n".join(before)).splitlines()
        changed = [line for line, now in zip(before, after, strict=True) if line != now]
        assert changed, name
        assert all(line.startswith("from edda") for line in changed), name
        assert "edda" not in "\n".join(line for line in before if line not in changed).replace("EddaApp", "")
