"""Tests that type checkers accept the right calls and reject exactly the marked lines of the wrong ones."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from romancy.authoring import workflow as workflow_module
from romancy.registry import registry as registry_module

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RIGHT = HERE / "right_calls.py"
WRONG = HERE / "wrong_calls.py"
CHECKERS = ("mypy", "pyright")

Reports = dict[Path, dict[int, list[str]]]
"""The errors of a checker, by file and line."""


def mypy() -> Reports:
    # A separate cache, because another mypy may be running. Named files are checked even if they are excluded.
    options = ["--output=json", f"--cache-dir={ROOT / '.mypy_cache' / 'typing'}"]
    lines = run("mypy", *options, str(RIGHT), str(WRONG)).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return collect((ROOT / one["file"], one["line"], one["message"]) for one in found if one["severity"] == "error")


def pyright() -> Reports:
    # A separate configuration, because pyright skips the files that pyproject.toml excludes, even if they are named.
    found = json.loads(run("pyright", "--project", str(HERE), "--outputjson"))
    assert found["summary"]["filesAnalyzed"] >= 2
    return collect(
        (Path(one["file"]), one["range"]["start"]["line"] + 1, one["message"]) for one in found["generalDiagnostics"]
    )


def run(checker: str, *arguments: str) -> str:
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # other codes: the checker itself failed
    return done.stdout


def collect(found: Any) -> Reports:
    reports: Reports = {RIGHT: {}, WRONG: {}}
    for file, line, message in found:
        reports.setdefault(file, {}).setdefault(line, []).append(message)
    return reports


@pytest.fixture(scope="module")
def reports() -> dict[str, Reports]:
    """The reports of one run of each checker over both files."""
    return {"mypy": mypy(), "pyright": pyright()}


def marked(checker: str) -> set[int]:
    """The lines of wrong_calls.py that this checker must report."""
    found: set[int] = set()
    for number, line in enumerate(WRONG.read_text().splitlines(), start=1):
        mark = re.search(r"  # E(?:-(mypy|pyright))? \S", line)
        if mark is not None and mark[1] in (None, checker):
            found.add(number)
    return found


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_calls_are_accepted(checker: str, reports: dict[str, Reports]) -> None:
    assert reports[checker][RIGHT] == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_calls_are_rejected(checker: str, reports: dict[str, Reports]) -> None:
    reported = reports[checker][WRONG]
    lines = WRONG.read_text().splitlines()
    missed = [f"{number}: {lines[number - 1].strip()}" for number in sorted(marked(checker) - set(reported))]
    assert not missed, f"{checker} accepts what it should reject"
    unmarked = {number: messages for number, messages in reported.items() if number not in marked(checker)}
    assert not unmarked, f"{checker} rejects lines that are not marked"


def test_every_mark_is_read() -> None:
    lines = WRONG.read_text().splitlines()
    written = {number for number, line in enumerate(lines, start=1) if "# E" in line}
    assert written == marked("mypy") | marked("pyright")
    assert len(written) >= 50


def test_the_decorators_accept_right_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    for module in (workflow_module, registry_module):  # these workflows must not be registered for other tests
        monkeypatch.setattr(module, "imported", made)
    names = runpy.run_path(str(RIGHT))
    assert names["checkout"] in made
    assert names["charge"].compensation is names["refund"]
