"""Tests that the reference of the command line is complete, and that its examples print what it shows."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.cli.sample_database import CommandTarget, romancy
from tests.docs.pages import DOCS, blocks_of, prose_of
from tests.docs.test_snippets import missing

from romancy.cli.commands.completion import Level, levels
from romancy.cli.main import main, parser

PAGE = DOCS / "reference" / "command-line.md"
ALL = list(levels(parser()))
LEVELS = [one for one in ALL if one.path and not any(other.path.startswith(f"{one.path} ") for other in ALL)]
GENERAL = ("Where to look", "How to print")


def sections() -> dict[str, str]:
    """The text of each section, by the commands that its heading names."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", prose_of(PAGE), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        found |= {name.strip(): text for name in heading.split(",")}
    return found


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.path)
def test_every_command_and_option_is_documented(level: Level) -> None:
    text = sections()[level.path.split()[0]] + "".join(sections()[name] for name in GENERAL)
    named = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    assert set(level.options) <= named


def test_nothing_else_is_documented() -> None:
    commands = {one.path.split()[0] for one in LEVELS}
    assert set(sections()) - commands == {*GENERAL, "Exit codes"}


def collapse_spaces(text: str) -> str:
    """Collapse runs of spaces: the widths of columns depend on their contents."""
    return re.sub(" +", " ", text)


def test_the_examples_print_what_the_page_says(
    shop: CommandTarget, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.folder)
    monkeypatch.setenv("ROMANCY_DATABASE", "shop.db")

    def run(line: str) -> tuple[int, str, str]:
        if "shop:app" in line or line.startswith("bench"):  # else the imported workflows would stay in this process
            done = romancy(*shlex.split(line), folder=shop.folder, variables={"ROMANCY_DATABASE": "shop.db"})
            return done.returncode, done.stdout, done.stderr
        code = main(shlex.split(line))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    examples = [
        one for block in blocks_of(PAGE) if block.language == "console" for one in block.text.split("$ romancy ")[1:]
    ]
    assert len(examples) > 25
    for example in examples:
        line, _, expected = example.partition("\n")
        code, printed, errors = run(line)
        assert code == 0 or (line == "doctor" and code == 1), (line, errors)
        wanted = missing(
            [one for one in collapse_spaces(expected).splitlines() if one.strip(" .")], collapse_spaces(printed)
        )
        assert wanted is None, f"romancy {line}: {wanted!r} is missing:\n{printed}"
